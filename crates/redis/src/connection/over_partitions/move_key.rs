//! RENAME, RENAMENX and COPY from one partition to another.
//!
//! What is under the key is read first. The transaction then puts it under the other key, on the condition that it has not changed; if it
//! has, all of it begins anew.

use super::plan::Plan;
use super::step::{Refusal, Step};
use super::{Carried, OVERTAKEN, error_of};
use crate::commands::{self, Command, CommandError, CopyOptions};
use crate::connection::Connection;
use crate::connection::frame::OwnedFrame;
use crate::connection::replies::Replies;
use std::time::Instant;
use tessera_types::RequestError;

impl Connection {
    pub(super) async fn move_key(
        &mut self,
        command: &'static Command,
        frame: &OwnedFrame,
        out: &mut Replies,
    ) -> Result<(), CommandError> {
        let args = frame.arguments();
        let (from, to) = (args[1], args[2]);
        let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
        // Whether the key goes, whether it may take the place of another, and whether the reply is a number.
        let (moves, replaces, counts) = match command.name {
            "rename" => (true, true, false),
            "renamenx" => (true, false, true),
            "copy" => (false, CopyOptions::parse(&args, table.number())?.replaces, true),
            _ => return Err(RequestError::CrossPartition.into()),
        };
        let protocol = self.session.protocol;
        loop {
            let table = self.session.table().ok_or(CommandError::NO_TABLE)?;
            let records = self.records_under(&table, &[from]).await?.pop().unwrap_or_default();
            if records.is_empty() {
                if moves {
                    return Err(CommandError::NO_SUCH_KEY);
                }
                out.writer(protocol).boolean(false);
                return Ok(());
            }
            let mut plan = Plan::default();
            let digest = commands::digest_of(&records).into_bytes();
            plan.add_condition(&table, from, Step::Unchanged { key: from.to_vec(), digest });
            if moves {
                let del = OwnedFrame::from_arguments([&b"DEL"[..], from].into_iter());
                plan.add(&table, commands::find(b"del").expect("DEL is a command"), &del)?;
            }
            if !replaces {
                plan.add_condition(&table, to, Step::Absent(to.to_vec()));
            }
            plan.add_step(&table, to, Step::Put { key: to.to_vec(), records });
            match self.carry_out_plan(&table, &plan, false).await? {
                Carried::Out(_) if counts => out.writer(protocol).boolean(true),
                Carried::Out(_) => out.writer(protocol).ok(),
                // A copy is not made where something is, whatever has become of the key since it was read.
                Carried::Refused(Refusal::Present) if !moves => out.writer(protocol).boolean(false),
                Carried::Refused(Refusal::Present) if self.are_both_there(from, to).await? => {
                    out.writer(protocol).boolean(false);
                }
                Carried::Refused(Refusal::Present | Refusal::Changed | Refusal::Outdated) | Carried::Split => {
                    if Instant::now() >= self.patience.until() {
                        return Err(OVERTAKEN);
                    }
                    continue;
                }
                Carried::Refused(refusal) => return Err(error_of(refusal)),
            }
            return Ok(());
        }
    }

    /// Whether there is something under both keys at one instant.
    async fn are_both_there(&mut self, one: &[u8], other: &[u8]) -> Result<bool, CommandError> {
        let exists = OwnedFrame::from_arguments([&b"EXISTS"[..], one, other].into_iter());
        let mut counted = Replies::default();
        self.read_plan(commands::find(b"exists").expect("EXISTS is a command"), &exists, &mut counted).await?;
        Ok(counted.bytes() == b":2\r\n")
    }
}
