//! Commands that need what is under keys of several partitions at once: `RENAME`, `COPY` and `MSETNX` between `MULTI` and `EXEC`, and
//! `LCS`.
//!
//! What is under the keys is copied to this node, and the commands are evaluated on the copies. What has come of them is then written
//! where the keys are, on the condition that nothing under any of them has changed; if something has, all of it begins anew.

use super::plan::Plan;
use super::step::Step;
use crate::commands::{self, Call, Command, CommandError, StoredRecords, stored_records};
use crate::connection::Connection;
use crate::connection::frame::OwnedFrame;
use crate::connection::open_transaction::longest_transaction;
use crate::connection::partitions::parts;
use crate::connection::replies::Replies;
use crate::resp::{Protocol, Reply};
use std::collections::BTreeSet;
use std::sync::Arc;
use tessera_store::{Copies, PartOutcome, Table, Transaction, Verdict};
use tessera_types::RequestError;

/// Whether a command has keys in several partitions, and cannot be split into commands on each of them.
pub(super) fn needs_copies(table: &Table, command: &Command, frame: &OwnedFrame) -> bool {
    matches!(parts(table, command, frame.clone()), Err(CommandError::Request(RequestError::CrossPartition)))
}

/// All keys of commands.
pub(super) fn keys_of<'a>(commands: impl Iterator<Item = (&'static Command, &'a OwnedFrame)>) -> BTreeSet<&'a [u8]> {
    commands.flat_map(|(command, frame)| command.key_positions(frame.len()).map(|at| frame.argument(at))).collect()
}

impl Connection {
    /// Evaluates commands on copies of what is under their keys, and adds to the plan what has come of it. Returns the replies, and
    /// whether the commands are to take effect.
    pub(super) async fn evaluate_on_copies(
        &mut self,
        table: &Arc<Table>,
        plan: &mut Plan,
        keys: &BTreeSet<&[u8]>,
        evaluate: impl FnOnce(&mut Replies, &mut Transaction<'_>) -> Verdict,
    ) -> Result<(Replies, Verdict), CommandError> {
        let keys: Vec<&[u8]> = keys.iter().copied().collect();
        let before = self.records_under(table, &keys).await?;
        let (mut replies, mut unread, mut copies) = (Replies::default(), Vec::new(), Copies::default());
        let mut transaction = Transaction::on_copies(table, self.server.store.now(), &mut copies);
        for (key, records) in keys.iter().zip(&before) {
            records.iter().for_each(|(sort_key, record)| transaction.put_copy(key, sort_key, record));
        }
        let verdict = evaluate(&mut replies, &mut transaction);
        let reply = Reply::new(&mut unread, Protocol::Resp2);
        let call = Call { args: &[], transaction: &mut transaction, reply };
        for (key, before) in keys.into_iter().zip(before) {
            let digest = commands::digest_of(&before).into_bytes();
            plan.add_condition(table, key, Step::Copied { key: key.to_vec(), digest });
            let after = call.records(key)?;
            if after != before {
                plan.add_step(table, key, Step::Put { key: key.to_vec(), records: after });
            }
        }
        Ok((replies, verdict))
    }

    /// All that is under each of some keys, wherever they are.
    pub(super) async fn records_under(
        &mut self,
        table: &Arc<Table>,
        keys: &[&[u8]],
    ) -> Result<Vec<StoredRecords>, CommandError> {
        let not_found = |outcome: PartOutcome| match outcome.reply() {
            Err(error) => CommandError::Request(error),
            Ok(line) => {
                let line = line.trim_ascii_end().strip_prefix(b"-").unwrap_or(&line);
                CommandError::Reply(String::from_utf8_lossy(line).into_owned().into())
            }
        };
        let found = self.look(table, keys, b"RECORDS").await.map_err(not_found)?;
        let (bytes, limit) = (found.iter().map(Vec::len).sum::<usize>(), longest_transaction(table));
        if bytes > limit {
            let text = format!(
                "ERR what is under the keys, {bytes} bytes, is more than {limit} bytes, which is the most that is moved or copied \
                 between partitions; nothing was done"
            );
            return Err(CommandError::Reply(text.into()));
        }
        let decoded = found.into_iter().map(|bytes| stored_records::decode(bytes.into()));
        decoded.collect::<Option<_>>().ok_or(CommandError::Request(RequestError::NotReady))
    }
}
