//! Commands on whole tables: SCAN, KEYS, RANDOMKEY, DBSIZE, FLUSHDB, and choosing a table.

use super::forwarding::Reach;
use super::frame::OwnedFrame;
use super::replies::Replies;
use super::scan_position::ScanPosition;
use super::{Connection, forwarding};
use crate::commands::{Command, CommandError};
use crate::glob;
use crate::number::parse_integer;
use rand::Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_engine::{PageLimit, Visit};
use tessera_store::Table;
use tessera_types::{EngineKind, RequestError, TableNumber, UnixMillis, ValueKind};

/// Keys that KEYS lists at most.
const KEYS_LIMIT: usize = 1_000_000;
/// Hash keys that a whole-table command visits before it lets others run.
const PAGE: usize = 1_000;
/// How long a page that another node asks for may wait until it is settled what has expired in it.
const OF_NODE: Duration = Duration::from_secs(1);

/// A live key and whether it is a hash.
struct Found {
    key: Vec<u8>,
    is_hash: bool,
}

/// Finds about `count` keys from `position` on; returns also where to go on.
fn page(
    table: &Table,
    position: ScanPosition,
    count: usize,
    now: UnixMillis,
) -> Result<(Vec<Found>, Option<ScanPosition>), RequestError> {
    let mut found = Vec::new();
    if position.partition >= table.schema().partitions {
        return Ok((found, None));
    }
    let visit = &mut |key: tessera_types::RecordKey<'_>, stored: tessera_types::StoredValue<'_>| {
        found.push(Found {
            key: key.hash_key.to_vec(),
            is_hash: stored.kind == ValueKind::UnnamedField || !key.sort_key.is_empty(),
        });
        // One live record is enough to know the key.
        Visit::NextHashKey
    };
    let (mut from, mut limit) = (tessera_engine::Position::of_hash(position.hash), PageLimit::of_records(count));
    let next = loop {
        match table.scan(position.partition, &from, limit, now, visit)? {
            // A cursor keeps the leading bits of a hash only: go on until those have grown, or the next page would begin here
            // again. Fields that have expired may be many.
            Some(next)
                if next.is_within_hash()
                    || ScanPosition::leading_bits(next.hash()) == ScanPosition::leading_bits(position.hash) =>
            {
                (from, limit) = (next, PageLimit::of_records(PAGE));
            }
            next => break next,
        }
    };
    let next = match next {
        Some(next) => Some(ScanPosition { hash: next.hash(), ..position }),
        None if position.partition + 1 < table.schema().partitions => {
            Some(ScanPosition { partition: position.partition + 1, hash: 0 })
        }
        None => None,
    };
    Ok((found, next))
}

impl Connection {
    fn chosen(&mut self) -> Option<Arc<Table>> {
        let table = self.session.table();
        if table.is_none() {
            self.refuse(&CommandError::NO_TABLE);
        }
        table
    }

    /// Finds a page of keys; see [`page`].
    async fn page(
        &mut self,
        table: &Arc<Table>,
        position: ScanPosition,
        count: usize,
        now: UnixMillis,
    ) -> Result<(Vec<Found>, Option<ScanPosition>), RequestError> {
        if position.partition < table.schema().partitions {
            self.await_intents(table, position.partition).await?;
        }
        let server = self.server.clone();
        // A node that asks for a client asks again by itself.
        let until = if self.is_of_node() { Instant::now() + OF_NODE } else { self.patience.until() };
        // A write on its way may let a key live on that has expired by the clock: it is waited for.
        let look = async {
            loop {
                let of = table.clone();
                let found = server.store.disk_readers().read(move || page(&of, position, count, now)).await;
                let is_refused = matches!(found, Err(RequestError::NotReady));
                if !is_refused || !server.store.settles(table, position.partition, until).await {
                    return found;
                }
            }
        };
        self.wait_for(None, look).await
    }

    pub(super) async fn scan(&mut self, args: &[&[u8]], now: UnixMillis) -> Result<(), CommandError> {
        let from = ScanPosition::parse(args[1])?;
        let (mut pattern, mut count, mut kind) = (None, 10usize, None);
        let mut options = args[2..].iter();
        while let Some(word) = options.next() {
            let value = options.next().ok_or(CommandError::SYNTAX)?;
            if word.eq_ignore_ascii_case(b"MATCH") {
                pattern = Some(*value);
            } else if word.eq_ignore_ascii_case(b"COUNT") {
                let number = parse_integer(value).ok_or(CommandError::NOT_INTEGER)?;
                count = usize::try_from(number).ok().filter(|count| *count > 0).ok_or(CommandError::SYNTAX)?;
            } else if word.eq_ignore_ascii_case(b"TYPE") {
                kind = Some(*value);
            } else {
                return Err(CommandError::SYNTAX);
            }
        }
        let Some(table) = self.chosen() else { return Ok(()) };
        let count = count.min(100_000);
        let mut found = Vec::new();
        let mut next = Some(from);
        // A page per partition would return next to nothing from a large number of small partitions.
        while let Some(position) = next.filter(|_| found.len() < count) {
            // The next call goes to whoever leads the next partition.
            let is_next = position.partition != from.partition;
            if is_next && position.partition < table.schema().partitions && !Self::is_here(&table, position.partition) {
                break;
            }
            let (page, after) = self.page(&table, position, (count - found.len()).min(PAGE), now).await?;
            next = after;
            self.turn.note_commands(page.len());
            found.extend(page);
            self.turn.end().await;
        }
        found.retain(|found| {
            let kind_fits =
                kind.is_none_or(|kind| kind.eq_ignore_ascii_case(if found.is_hash { b"hash" } else { b"string" }));
            kind_fits && pattern.is_none_or(|pattern| glob::matches(pattern, &found.key))
        });
        let cursor = next.map_or(0, ScanPosition::to_cursor).to_string();
        let mut reply = self.reply();
        reply.array(2);
        reply.bulk(cursor.as_bytes());
        reply.array(found.len());
        for found in found {
            reply.bulk(&found.key);
        }
        Ok(())
    }

    /// The partitions that a command on the whole table is about here, the last excluded.
    fn range(&self, table: &Table) -> (u32, u32) {
        match self.reach {
            Reach::Partition(partition) => (partition, partition + 1),
            Reach::Node | Reach::Cluster => (0, table.schema().partitions),
        }
    }

    pub(super) async fn keys(&mut self, pattern: &[u8], now: UnixMillis) -> Result<(), CommandError> {
        let Some(table) = self.chosen() else { return Ok(()) };
        let mut keys = Vec::new();
        let (first, last) = self.range(&table);
        let mut next = Some(ScanPosition { partition: first, hash: 0 });
        while let Some(position) = next.filter(|position| position.partition < last) {
            let (found, after) = self.page(&table, position, PAGE, now).await?;
            next = after;
            keys.extend(found.into_iter().map(|found| found.key).filter(|key| glob::matches(pattern, key)));
            if keys.len() > KEYS_LIMIT {
                return Err(CommandError::text("ERR more than 1,000,000 keys match; use SCAN"));
            }
            tokio::task::yield_now().await;
        }
        let mut reply = self.reply();
        reply.array(keys.len());
        for key in keys {
            reply.bulk(&key);
        }
        Ok(())
    }

    /// Begins at a random place and takes the first key from there.
    pub(super) async fn random_key(
        &mut self,
        command: &'static Command,
        frame: &OwnedFrame,
        now: UnixMillis,
    ) -> Result<(), CommandError> {
        let Some(table) = self.chosen() else { return Ok(()) };
        let (first, last) = self.range(&table);
        let start = rand::rng().random_range(first..last);
        for partition in (start..last).chain(first..start) {
            if self.may_forward() && !Self::is_here(&table, partition) {
                let reply = self.ask_partitions(&table, command, frame, partition..partition + 1).await.remove(0);
                if reply.one().bytes.starts_with(b"$-") || reply.one().bytes.starts_with(b"_") {
                    continue; // no key there
                }
                self.output.push(reply.one());
                return Ok(());
            }
            let middle = ScanPosition { partition, hash: rand::rng().random() };
            for position in [middle, ScanPosition { partition, hash: 0 }] {
                let mut next = Some(position);
                while let Some(position) = next.filter(|position| position.partition == partition) {
                    let (mut found, after) = self.page(&table, position, 1, now).await?;
                    next = after;
                    if !found.is_empty() {
                        let key = found.swap_remove(rand::rng().random_range(0..found.len())).key;
                        self.reply().bulk(&key);
                        return Ok(());
                    }
                }
            }
        }
        self.reply().null();
        Ok(())
    }

    pub(super) async fn db_size(&mut self, command: &'static Command, frame: &OwnedFrame) {
        let Some(table) = self.chosen() else { return };
        let all = 0..table.schema().partitions;
        if self.may_forward() {
            let counts = self.ask_partitions(&table, command, frame, all).await;
            let protocol = self.session.protocol;
            return forwarding::sum(counts.iter().map(Replies::one), protocol, &mut self.output);
        }
        let asked = if let Reach::Partition(partition) = self.reach { partition..partition + 1 } else { all };
        for partition in asked.clone() {
            if let Err(error) = self.await_intents(&table, partition).await {
                return self.refuse(&CommandError::Request(error));
            }
        }
        let engine = table.schema().engine;
        let count =
            move || asked.clone().map(|partition| table.hash_keys(partition)).sum::<Result<u64, RequestError>>();
        let keys = match engine {
            EngineKind::Memory => count(),
            EngineKind::Rocksdb => self.server.store.disk_readers().read_from_disk(count).await.flatten(),
        };
        match keys {
            Ok(keys) => self.reply().integer(i64::try_from(keys).unwrap_or(i64::MAX)),
            Err(error) => self.refuse(&CommandError::Request(error)),
        }
    }

    pub(super) async fn flush(&mut self, command: &'static Command, frame: &OwnedFrame) -> Result<(), CommandError> {
        let args = frame.arguments();
        match &args[..] {
            [_] => {}
            [_, mode] if mode.eq_ignore_ascii_case(b"SYNC") || mode.eq_ignore_ascii_case(b"ASYNC") => {}
            _ => return Err(CommandError::SYNTAX),
        }
        let Some(table) = self.chosen() else { return Ok(()) };
        if self.may_forward() {
            let all = 0..table.schema().partitions;
            let replies = self.ask_partitions(&table, command, frame, all).await;
            let merge = forwarding::Merge::Same { parts: replies.len() };
            merge.write(&mut replies.iter().map(Replies::one), self.session.protocol, &mut self.output);
            return Ok(());
        }
        let (first, last) = self.range(&table);
        self.server.store.clear(&table, first..last).await?;
        self.reply().ok();
        Ok(())
    }

    pub(super) async fn select(&mut self, number: &[u8]) -> Result<(), CommandError> {
        let number = parse_integer(number).ok_or(CommandError::text("ERR invalid DB index"))?;
        self.check_not_removed()?;
        let table = match u32::try_from(number) {
            // On the heap: a table is made seldom, and its making would be a part of every connection.
            Ok(number) => match Box::pin(self.database(number)).await? {
                Some(table) => Some(table),
                None => self.server.store.find_table(|store| store.table_numbered(TableNumber(number))).await,
            },
            Err(_) => None,
        };
        let table = table.ok_or(CommandError::text(
            "ERR DB index is out of range: no table has this number. `tessera table list` shows those that there are, and `tessera \
             table create` makes another; with `redis.databases` in the configuration, databases are made when they are selected",
        ))?;
        self.choose(table)
    }

    pub(super) async fn choose_by_name(&mut self, args: &[&[u8]]) -> Result<(), CommandError> {
        let [_, name] = args else {
            if args.len() > 2 {
                return Err(CommandError::arity("table"));
            }
            let Some(table) = self.chosen() else { return Ok(()) };
            self.reply().bulk(table.name().as_bytes());
            return Ok(());
        };
        self.check_not_removed()?;
        let name = String::from_utf8_lossy(name);
        let table = self.server.store.find_table(|store| store.table_named(&name)).await;
        let table = table.ok_or_else(|| CommandError::Request(RequestError::NoSuchTable(name.into_owned())))?;
        self.choose(table)
    }

    /// Refuses to choose a table on a node that was removed from its cluster: what it knows of tables is no longer so.
    fn check_not_removed(&self) -> Result<(), RequestError> {
        if self.server.store.is_removed() { Err(RequestError::Removed) } else { Ok(()) }
    }

    fn choose(&mut self, table: Arc<Table>) -> Result<(), CommandError> {
        let before = self.session.table.as_ref().map(|table| table.id());
        let chosen = table.id();
        self.session.choose(table)?;
        if before != Some(chosen) {
            self.session.watches.leave_table();
        }
        self.session.show(&self.client);
        self.reply().ok();
        Ok(())
    }
}
