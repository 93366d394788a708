//! What clients ask of faces: how long requests took by table and kind, and how often commands failed and found what they looked for.
//!
//! Each face has a [`FaceMeter`], by which it tells what it did; what a table was asked is kept with the [table](Table), so it goes when
//! that is dropped. A request counts on the node that its client is connected to, once, wherever it was carried out.

use crate::histogram::HistogramCounts;
use crate::request_times::{MOST_FACES, RequestKind, RequestTimes};
use crate::table::Table;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A command of a face that is counted.
#[derive(Debug)]
struct CountedCommand {
    name: &'static str,
    errors: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    looks_up: bool,
}

/// By which a face tells what it did.
#[derive(Debug)]
pub struct FaceMeter {
    name: &'static str,
    /// Its place in the times of each table.
    place: usize,
    /// Of requests for no table.
    of_no_table: RequestTimes,
    commands: Vec<CountedCommand>,
}

/// The meters of a node's faces.
#[derive(Debug, Default)]
pub(crate) struct FaceMeters(RwLock<Vec<Arc<FaceMeter>>>);

impl FaceMeters {
    /// Adds one for a face of this name, with its commands, and for each whether it looks for keys.
    ///
    /// # Panics
    /// If there are too many faces.
    pub(crate) fn add(
        &self,
        name: &'static str,
        commands: impl IntoIterator<Item = (&'static str, bool)>,
    ) -> Arc<FaceMeter> {
        let count = |(name, looks_up)| CountedCommand {
            name,
            errors: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            looks_up,
        };
        let mut meters = self.0.write();
        let place = meters.len();
        assert!(place < MOST_FACES, "more than {MOST_FACES} faces");
        let commands = commands.into_iter().map(count).collect();
        let meter = Arc::new(FaceMeter { name, place, of_no_table: RequestTimes::default(), commands });
        meters.push(meter.clone());
        meter
    }

    /// What clients have asked each face, of these tables.
    pub(crate) fn statistics(&self, tables: &[Arc<Table>]) -> Vec<FaceStatistics> {
        self.0.read().iter().map(|meter| meter.statistics(tables)).collect()
    }
}

impl FaceMeter {
    /// Counts requests of one kind that took this long, each of them.
    pub fn note_requests(&self, table: Option<&Table>, kind: RequestKind, requests: u64, took: Duration) {
        let times = match table {
            Some(table) => table.times.of_face(self.place),
            None => &self.of_no_table,
        };
        times.note(kind, requests, took);
    }

    /// Counts errors that a command was answered with, by the place of the command among those of the face.
    pub fn note_errors(&self, command: usize, errors: u64) {
        self.commands[command].errors.fetch_add(errors, Ordering::Relaxed);
    }

    /// Counts how many of the keys that a command looked for were there, and how many were not.
    pub fn note_lookups(&self, command: usize, hits: u64, misses: u64) {
        let command = &self.commands[command];
        // Mostly one of them is none, and to add that takes as long as to add something.
        if hits > 0 {
            command.hits.fetch_add(hits, Ordering::Relaxed);
        }
        if misses > 0 {
            command.misses.fetch_add(misses, Ordering::Relaxed);
        }
    }

    /// Whether keys that a command looks for are counted.
    pub fn counts_lookups_of(&self, command: usize) -> bool {
        self.commands[command].looks_up
    }

    /// How many keys all commands together have found, and how many they have not.
    pub fn lookups(&self) -> (u64, u64) {
        let sum = |of: fn(&CountedCommand) -> &AtomicU64| {
            self.commands.iter().map(|command| of(command).load(Ordering::Relaxed)).sum()
        };
        (sum(|command| &command.hits), sum(|command| &command.misses))
    }

    fn statistics(&self, tables: &[Arc<Table>]) -> FaceStatistics {
        let command = |command: &CountedCommand| CommandStatistics {
            name: command.name,
            errors: command.errors.load(Ordering::Relaxed),
            lookups: command
                .looks_up
                .then(|| (command.hits.load(Ordering::Relaxed), command.misses.load(Ordering::Relaxed))),
        };
        let of_tables = tables.iter().filter_map(|table| Some((table, table.times.known_of_face(self.place)?)));
        let of_tables = of_tables.flat_map(|(table, times)| {
            times.counts().map(|(kind, times)| RequestStatistics { table: table.name().to_string(), kind, times })
        });
        let of_none = self.of_no_table.counts();
        let of_none = of_none.map(|(kind, times)| RequestStatistics { table: String::new(), kind, times });
        FaceStatistics {
            name: self.name,
            requests: of_none.chain(of_tables).collect(),
            commands: self.commands.iter().map(command).collect(),
        }
    }
}

/// What the clients of a face have asked since the node started.
#[derive(Clone, Debug)]
pub struct FaceStatistics {
    /// The face.
    pub name: &'static str,
    /// By table and kind, where there were any.
    pub requests: Vec<RequestStatistics>,
    /// By command.
    pub commands: Vec<CommandStatistics>,
}

/// How long requests of one kind took.
#[derive(Clone, Debug)]
pub struct RequestStatistics {
    /// The name of the table; empty for requests that are for none.
    pub table: String,
    /// What they do.
    pub kind: RequestKind,
    /// How long they took.
    pub times: HistogramCounts,
}

/// What became of a command.
#[derive(Clone, Debug)]
pub struct CommandStatistics {
    /// Its name.
    pub name: &'static str,
    /// Errors that it was answered with.
    pub errors: u64,
    /// Keys that it found, and keys that it did not find; `None` if these are not counted.
    pub lookups: Option<(u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_table::TestTable;
    use tessera_types::EngineKind;

    #[test]
    fn requests_are_told_apart_by_face_table_and_kind() {
        let (meters, table) = (FaceMeters::default(), TestTable::open(EngineKind::Memory).shared());
        let [one, other] = ["one", "other"].map(|name| meters.add(name, [("get", true), ("set", false)]));
        one.note_requests(Some(&table), RequestKind::Read, 7, Duration::from_millis(1));
        one.note_requests(Some(&table), RequestKind::Write, 1, Duration::from_millis(1));
        other.note_requests(Some(&table), RequestKind::Read, 2, Duration::from_millis(1));
        other.note_requests(None, RequestKind::Other, 3, Duration::from_millis(1));
        let told = |meter: &FaceMeter, tables: &[Arc<Table>]| -> Vec<_> {
            let requests = meter.statistics(tables).requests;
            requests.into_iter().map(|of| (of.table, of.kind.name(), of.times.count())).collect()
        };
        let tables = [table.clone()];
        assert_eq!(told(&one, &tables), [("t".into(), "read", 7), ("t".into(), "write", 1)]);
        assert_eq!(told(&other, &tables), [(String::new(), "other", 3), ("t".into(), "read", 2)]);
        // Those for tables that are gone are not told any more.
        assert_eq!(told(&one, &[]), []);
        assert_eq!(told(&other, &[]), [(String::new(), "other", 3)]);
    }

    #[test]
    fn commands_are_counted_one_by_one() {
        let meters = FaceMeters::default();
        let meter = meters.add("one", [("get", true), ("set", false)]);
        meter.note_errors(1, 2);
        meter.note_lookups(0, 5, 3);
        let commands = meter.statistics(&[]).commands;
        let told: Vec<_> = commands.iter().map(|command| (command.name, command.errors, command.lookups)).collect();
        assert_eq!(told, [("get", 0, Some((5, 3))), ("set", 2, None)]);
        assert_eq!(meter.lookups(), (5, 3));
        assert!(meter.counts_lookups_of(0) && !meter.counts_lookups_of(1));
    }
}
