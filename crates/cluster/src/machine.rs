//! The catalog as a replicated state machine.

use crate::{Catalog, CatalogCommand, CatalogError, Changed};
use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use tessera_consensus::{Committed, Evaluated, Failure, GroupId, Inconsistent, Moment, StateMachine};
use tessera_types::{Limits, NodeId, ReplicaId};

/// The group that agrees on the catalog.
pub const CATALOG_GROUP: GroupId = GroupId(0);

/// A catalog on disk, with the log index that it reflects. Written as a whole, so that an operator can read it, and not
/// after each change: what the log has above the index is applied again after a restart (docs/decisions/0031).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogFile {
    /// The index in the log of the catalog's group up to which `catalog` has everything.
    pub applied_index: u64,
    /// The catalog at that index.
    pub catalog: Catalog,
}

impl CatalogFile {
    /// Reads the file; `None` if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or is no catalog.
    pub fn load(path: &Path) -> io::Result<Option<Self>> {
        load_json(path)
    }

    /// Applies the commands that the log has at an index, if the file does not reflect them yet.
    ///
    /// # Errors
    /// If a command cannot be read, or does not fit the catalog.
    pub fn apply<'a>(
        &mut self,
        index: u64,
        payloads: impl IntoIterator<Item = &'a [u8]>,
        limits: &Limits,
    ) -> Result<(), String> {
        if index <= self.applied_index {
            return Ok(());
        }
        self.applied_index = index;
        // Limits may have been lowered since; a committed command stands.
        let unlimited = Limits { tables: usize::MAX, partitions_per_table: u32::MAX, ..limits.clone() };
        for line in payloads.into_iter().flat_map(|payload| payload.split(|&byte| byte == b'\n')) {
            if line.is_empty() {
                continue;
            }
            let command: CatalogCommand =
                serde_json::from_slice(line).map_err(|error| format!("a catalog command cannot be read: {error}"))?;
            match self.catalog.apply(&command, &unlimited) {
                // An earlier version had such commands replicated, although they were refused.
                Ok(_) | Err(CatalogError::NotReplaceable(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// # Errors
    /// If the file cannot be written; then the old file still exists.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        save_json(path, self)
    }
}

/// Reads what [`save_json`] wrote; `None` if there is no file.
///
/// # Errors
/// If the file cannot be read, or holds something else.
pub fn load_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file atomically: after a crash it has either the new content or the old one.
///
/// # Errors
/// If it cannot be written.
pub fn save_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file = File::create(&unfinished)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    // The parent of a name without a directory is an empty path.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

/// Takes the answer to a command: the inner result is the catalog's, the outer one the group's.
pub type CatalogReply = Box<dyn FnOnce(Result<Result<Changed, CatalogError>, Failure>) + Send>;

/// A command, and where its answer goes.
pub struct CatalogRequest {
    /// The change to make.
    pub command: CatalogCommand,
    /// Called once, with the result of the command, or with the reason why it was not carried out.
    pub reply: CatalogReply,
}

/// Receives every new state of the catalog, in order. It opens and closes tables to match and writes the catalog to its
/// file, both on other threads: it is called on a worker's loop, which must not wait for a disk.
pub trait CatalogListener {
    /// The catalog has changed. Once `file` is on disk, [`tessera_consensus::Inbox::durable`] must be called.
    fn changed(&mut self, file: &CatalogFile);

    /// A snapshot is about to replace the catalog. Once `file` is on disk, [`tessera_consensus::Inbox::prepared`] must
    /// be called.
    fn is_to_be_replaced(&mut self, file: &CatalogFile);

    /// The listener has received everything that was committed before this node started. Called once, and whenever the
    /// node begins to lead.
    fn caught_up(&mut self, catalog: &Catalog);

    /// This node's catalog reflects what the leader had committed at this time; `None` means now.
    fn fresh(&mut self, _as_of: Option<Moment>) {}

    /// A node was elected to lead the catalog's group.
    fn leader(&mut self, node: NodeId);

    /// This node's replica of the catalog [cannot go on](StateMachine::set_aside), for the given reason.
    fn set_aside(&mut self, _reason: &Inconsistent) {}
}

/// The state machine that applies the log to a [`Catalog`].
pub struct CatalogMachine<L> {
    limits: Limits,
    file: CatalogFile,
    /// The catalog with every evaluated command applied, committed or not.
    ahead: Catalog,
    has_caught_up: bool,
    listener: L,
}

impl<L: CatalogListener> CatalogMachine<L> {
    /// A machine that continues from a file, with no limits but these.
    pub fn new(file: CatalogFile, limits: Limits, listener: L) -> Self {
        let ahead = file.catalog.clone();
        Self { limits, file, ahead, has_caught_up: false, listener }
    }
}

/// The answer, which waits for the command to be committed.
pub struct PendingCatalogReply {
    outcome: Result<Changed, CatalogError>,
    reply: CatalogReply,
}

fn read_snapshot(index: u64, snapshot: &[u8]) -> Result<CatalogFile, String> {
    let catalog = serde_json::from_slice(snapshot).map_err(|error| format!("a catalog cannot be read: {error}"))?;
    Ok(CatalogFile { applied_index: index, catalog })
}

impl<L: CatalogListener> StateMachine for CatalogMachine<L> {
    type Command = CatalogRequest;
    type PendingReply = PendingCatalogReply;

    fn evaluate(
        &mut self,
        _group: GroupId,
        request: CatalogRequest,
        payload: &mut BytesMut,
    ) -> Evaluated<PendingCatalogReply> {
        let CatalogRequest { command, reply } = request;
        let before = self.ahead.clone();
        let outcome = self.ahead.apply(&command, &self.limits);
        if outcome.is_err() {
            // In the log it would be refused again, and nothing after it could be applied.
            self.ahead = before.clone();
        }
        let changes = self.ahead != before;
        let reply = PendingCatalogReply { outcome, reply };
        if !changes {
            return Evaluated::NoChange { reply, confirm: false };
        }
        // One command a line: serde_json writes no line breaks.
        serde_json::to_writer(payload.writer(), &command).expect("commands have a JSON form");
        payload.put_u8(b'\n');
        Evaluated::Replicate { reply, sync: true, leader_acked: false }
    }

    fn proposed(&mut self, _group: GroupId, _index: u64, _payload: &Bytes) {}

    fn apply(&mut self, committed: &[Committed]) -> Result<Vec<GroupId>, String> {
        // The copy shares everything that does not change.
        let before = self.file.catalog.clone();
        let outcome = committed.iter().try_for_each(|Committed { index, payloads, .. }| {
            let mut next = self.file.clone();
            next.apply(*index, payloads.iter().map(|payload| &payload[..]), &self.limits)?;
            self.file = next;
            Ok::<(), String>(())
        });
        if self.file.catalog != before {
            self.listener.changed(&self.file);
        }
        outcome?;
        Ok(Vec::new())
    }

    fn answer(&mut self, pending: PendingCatalogReply, outcome: Result<(), Failure>) {
        (pending.reply)(outcome.map(|()| pending.outcome));
    }

    fn refuse(&mut self, request: CatalogRequest, failure: Failure) {
        (request.reply)(Err(failure));
    }

    fn leader(&mut self, _group: GroupId, _term: u64, leader: ReplicaId) {
        self.listener.leader(leader.node);
    }

    fn set_aside(&mut self, _group: GroupId, reason: &Inconsistent) {
        self.listener.set_aside(reason);
    }

    fn stepped_down(&mut self, _group: GroupId) {
        self.ahead = self.file.catalog.clone();
    }

    fn snapshot(&mut self, _group: GroupId) -> Option<(u64, Vec<u8>)> {
        let catalog = serde_json::to_vec(&self.file.catalog).expect("a catalog has a JSON form");
        Some((self.file.applied_index, catalog))
    }

    fn prepare(&mut self, _group: GroupId, index: u64, snapshot: &[u8]) -> bool {
        match read_snapshot(index, snapshot) {
            Ok(next) => self.listener.is_to_be_replaced(&next),
            Err(_) => return true, // as `restore` will say
        }
        false
    }

    fn restore(&mut self, _group: GroupId, index: u64, snapshot: &[u8]) -> Result<(), String> {
        let next = read_snapshot(index, snapshot)?;
        self.ahead = next.catalog.clone();
        self.file = next;
        Ok(())
    }

    fn fresh(&mut self, _group: GroupId, as_of: Option<Moment>) {
        self.listener.fresh(as_of);
        if !std::mem::replace(&mut self.has_caught_up, true) {
            self.listener.caught_up(&self.file.catalog);
        }
    }

    fn serving(&mut self, _group: GroupId) {
        self.ahead = self.file.catalog.clone();
        self.listener.caught_up(&self.file.catalog);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Site;
    use tessera_types::{EngineKind, TableId};

    struct Nobody;

    impl CatalogListener for Nobody {
        fn changed(&mut self, _file: &CatalogFile) {}
        fn is_to_be_replaced(&mut self, _file: &CatalogFile) {}
        fn caught_up(&mut self, _catalog: &Catalog) {}
        fn leader(&mut self, _node: NodeId) {}
    }

    /// A replica that there is not, which an operator has mistyped.
    fn refused() -> CatalogCommand {
        let replica = ReplicaId { node: NodeId(2), incarnation: 41 };
        CatalogCommand::Replace { table: TableId(0), partition: 0, replica }
    }

    fn file() -> CatalogFile {
        CatalogFile { applied_index: 7, catalog: Catalog::of_new_cluster(Site::default(), EngineKind::Memory) }
    }

    /// It once was, since it had changed a counter before it was refused. No node could apply it, or anything after it, or start again.
    #[test]
    fn a_command_that_is_refused_is_not_replicated() {
        let mut machine = CatalogMachine::new(file(), Limits::default(), Nobody);
        let mut payload = BytesMut::new();
        let request = CatalogRequest { command: refused(), reply: Box::new(|_| ()) };
        let evaluated = machine.evaluate(CATALOG_GROUP, request, &mut payload);
        let Evaluated::NoChange { reply, .. } = evaluated else { panic!("it changes nothing") };
        assert!(matches!(reply.outcome, Err(CatalogError::NotReplaceable(_))));
        assert!(payload.is_empty() && machine.ahead == file().catalog);
    }

    #[test]
    fn a_log_in_which_an_earlier_version_has_left_such_a_command_can_be_applied() {
        let mut applied = file();
        let database = CatalogCommand::CreateDatabase { name: "d".into() };
        let lines = [refused(), database].map(|command| serde_json::to_string(&command).unwrap()).join("\n");
        applied.apply(8, [lines.as_bytes()], &Limits::default()).unwrap();
        assert_ne!(applied.catalog, file().catalog, "what stands behind it counts");
    }
}
