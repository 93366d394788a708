//! The catalog as a replicated state machine.

use crate::{Catalog, CatalogCommand, CatalogError};
use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tessera_consensus::{Committed, Evaluated, Failure, GroupId, StateMachine};
use tessera_types::{Limits, TableId};

/// The group that agrees on the catalog.
pub const CATALOG_GROUP: GroupId = GroupId(0);

/// A catalog on disk, with the log index that it reflects. Written anew as a whole at every change: changes are rare,
/// and an operator can read it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogFile {
    pub applied_index: u64,
    pub catalog: Catalog,
}

impl CatalogFile {
    /// Reads the file; a new cluster's catalog if there is none.
    ///
    /// # Errors
    /// If the file cannot be read or is no catalog.
    pub fn load(path: &Path) -> io::Result<Self> {
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(io::Error::other),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn save(&self, path: &Path) -> io::Result<()> {
        let unfinished = path.with_extension("unfinished");
        let mut file = File::create(&unfinished)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// The way back of a command: the catalog's answer inside, the group's outside.
pub type CatalogReply = Box<dyn FnOnce(Result<Result<Option<TableId>, CatalogError>, Failure>) + Send>;

/// A command on its way, with the way back.
pub struct CatalogRequest {
    pub command: CatalogCommand,
    pub reply: CatalogReply,
}

/// Is told of every new state of the catalog, in order; opens and closes tables to match.
pub trait CatalogListener {
    /// # Errors
    /// If the node cannot follow now. It is told again later.
    fn changed(&mut self, catalog: &Catalog) -> Result<(), String>;

    /// Everything agreed on before the start has been told.
    fn caught_up(&mut self, catalog: &Catalog);
}

/// Drives a [`Catalog`] by the log.
pub struct CatalogMachine<L> {
    path: PathBuf,
    limits: Limits,
    file: CatalogFile,
    /// The catalog with everything evaluated, committed or not.
    ahead: Catalog,
    listener: L,
}

impl<L: CatalogListener> CatalogMachine<L> {
    pub fn new(path: PathBuf, file: CatalogFile, limits: Limits, listener: L) -> Self {
        let ahead = file.catalog.clone();
        Self { path, limits, file, ahead, listener }
    }
}

/// The answer, which waits for the command to be committed.
pub struct CatalogTicket {
    outcome: Result<Option<TableId>, CatalogError>,
    reply: CatalogReply,
}

impl<L: CatalogListener> StateMachine for CatalogMachine<L> {
    type Command = CatalogRequest;
    type Ticket = CatalogTicket;

    fn evaluate(
        &mut self,
        _group: GroupId,
        request: CatalogRequest,
        payload: &mut BytesMut,
    ) -> Evaluated<CatalogTicket> {
        let CatalogRequest { command, reply } = request;
        let outcome = self.ahead.apply(&command, &self.limits);
        let changes = outcome.is_ok();
        let ticket = CatalogTicket { outcome, reply };
        if !changes {
            return Evaluated::NoChange { ticket };
        }
        // One command a line: serde_json writes no line breaks.
        serde_json::to_writer(payload.writer(), &command).expect("commands have a JSON form");
        payload.put_u8(b'\n');
        Evaluated::Replicate { ticket, sync: true }
    }

    fn proposed(&mut self, _group: GroupId, _index: u64, _payload: &Bytes) {}

    fn apply(&mut self, committed: &[Committed]) -> Result<(), String> {
        for Committed { index, payloads, .. } in committed {
            if *index <= self.file.applied_index {
                continue;
            }
            let mut next = self.file.clone();
            next.applied_index = *index;
            for line in payloads.iter().flat_map(|payload| payload.split(|&byte| byte == b'\n')) {
                if line.is_empty() {
                    continue;
                }
                let command: CatalogCommand = serde_json::from_slice(line)
                    .map_err(|error| format!("a catalog command cannot be read: {error}"))?;
                // Limits may have been lowered since; what was agreed on stands.
                let unlimited = Limits { tables: usize::MAX, partitions_per_table: u32::MAX, ..self.limits.clone() };
                next.catalog.apply(&command, &unlimited).map_err(|error| error.to_string())?;
            }
            if next.catalog != self.file.catalog {
                self.listener.changed(&next.catalog)?;
                next.save(&self.path).map_err(|error| format!("{}: {error}", self.path.display()))?;
            }
            self.file = next;
        }
        Ok(())
    }

    fn answer(&mut self, ticket: CatalogTicket, outcome: Result<(), Failure>) {
        (ticket.reply)(outcome.map(|()| ticket.outcome));
    }

    fn refuse(&mut self, request: CatalogRequest, failure: Failure) {
        (request.reply)(Err(failure));
    }

    fn serving(&mut self, _group: GroupId) {
        self.ahead = self.file.catalog.clone();
        self.listener.caught_up(&self.file.catalog);
    }
}
