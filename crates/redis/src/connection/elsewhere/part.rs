//! A part of what goes to other nodes: commands for one partition, and what became of them.
//!
//! Parts of one partition are in the order of the pipeline. Some may be asked again when an answer says that they were not done, or
//! is lost; never one that comes before a part that was done, or may have been: it would see what came after it, or undo that.

use super::{Merge, NO_PARTITION, split};
use crate::commands::{CommandError, NOT_READY, Run, SessionCommand};
use crate::connection::dispatch;
use crate::connection::frame::OwnedFrame;
use crate::resp::{Protocol, Reply, reply_length};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use tessera_store::{Leader, RequestFailure, Table};
use tessera_types::{NodeId, ReadMode, RequestError};

/// Commands that go to one partition together.
pub(super) struct Part {
    pub(super) partition: u32,
    /// A command on a whole table, of which this partition is to do its part.
    pub(super) is_confined: bool,
    pub(super) may_repeat: bool,
    /// Any replica may answer.
    pub(super) may_be_outdated: bool,
    /// The last one's reply counts.
    pub(super) commands: Vec<OwnedFrame>,
    pub(super) reply: Option<Vec<u8>>,
}

impl Part {
    /// One that nobody need carry out any more.
    pub(super) fn answered(reply: Vec<u8>) -> Self {
        Self {
            partition: NO_PARTITION,
            is_confined: false,
            may_repeat: false,
            may_be_outdated: false,
            commands: Vec::new(),
            reply: Some(reply),
        }
    }

    /// The parts of this one in a table that was split, and how their replies become one.
    pub(super) fn split(&self, table: &Table) -> Result<(Vec<Self>, Merge), RequestError> {
        let on = |partition: u32, commands| Self { partition, commands, reply: None, ..*self };
        let [frame] = &self.commands[..] else {
            let commands = self.commands.iter().filter_map(|frame| {
                let command = crate::commands::find(frame.arguments()[0])?;
                Some((command, frame))
            });
            let partition = dispatch::partition_of_all(table, commands)?.unwrap_or(0);
            return Ok((vec![on(partition, self.commands.clone())], Merge::One));
        };
        let command = crate::commands::find(frame.arguments()[0]).ok_or(RequestError::NotReady)?;
        let schema = table.schema();
        if let Run::Session(which @ (SessionCommand::Keys | SessionCommand::Flush)) = command.run {
            let children = schema.partitioner.children_of(self.partition, schema.partitions);
            let parts = children.map(|child| on(child, vec![frame.clone()]));
            let count = children.len();
            let is_flush = which == SessionCommand::Flush;
            return Ok((parts.into(), if is_flush { Merge::Same { parts: count } } else { Merge::Arrays(count) }));
        }
        // Commands on whole tables begin anew; a cursor means what it meant, or less.
        let (parts, merge) = split(table, command, frame).ok_or(RequestError::NotReady)?;
        Ok((parts.into_iter().map(|(partition, frame)| on(partition, vec![frame])).collect(), merge))
    }
}

/// Which parts go to whom, this node being `None`. Those whose leader is not known stay out.
///
/// All of a partition go to one node: its leader is looked up once, since it may change meanwhile, and of two parts that go
/// different ways the later one could take effect first. Only outdated reads, of which no order is promised, go their own ways:
/// `place_of` is given the partition, and whether any replica may answer.
pub(super) fn by_leader(
    parts: &[Part],
    reads: ReadMode,
    mut place_of: impl FnMut(u32, bool) -> Leader,
) -> BTreeMap<Option<NodeId>, Vec<usize>> {
    let mut places: BTreeMap<(u32, bool), Leader> = BTreeMap::new();
    let mut by_leader: BTreeMap<Option<NodeId>, Vec<usize>> = BTreeMap::new();
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| part.reply.is_none()) {
        let is_outdated = part.may_be_outdated && reads == ReadMode::Outdated;
        let place =
            places.entry((part.partition, is_outdated)).or_insert_with(|| place_of(part.partition, is_outdated));
        match *place {
            Leader::Here => by_leader.entry(None).or_default().push(at),
            Leader::Node(node) => by_leader.entry(Some(node)).or_default().push(at),
            Leader::Unknown => {}
        }
    }
    by_leader
}

/// Gives parts their replies out of an answer; those that certainly were not done stay without.
pub(super) fn take_replies(parts: &mut [Part], which: &[usize], answer: Result<Bytes, RequestFailure>) {
    let mut replies: &[u8] = match &answer {
        Ok(answer) => answer,
        Err(RequestFailure::NotSent) => return,
        Err(RequestFailure::Lost) => {
            for at in which {
                let part = &mut parts[*at];
                part.reply = (!part.may_repeat).then(|| error_reply(RequestError::Interrupted));
            }
            return keep_order(parts, which);
        }
    };
    if replies.is_empty() {
        return; // refused as a whole: the other node is just starting, or does not know the table yet
    }
    for at in which {
        let part = &mut parts[*at];
        let mut last: &[u8] = b"";
        for _ in &part.commands {
            let Some(length) = reply_length(replies) else {
                part.reply = Some(error_reply(RequestError::Interrupted));
                break;
            };
            (last, replies) = replies.split_at(length);
        }
        if part.reply.is_none() && !last.starts_with(NOT_READY) {
            part.reply = Some(last.to_vec());
        }
    }
    keep_order(parts, which);
}

/// What comes later in the pipeline must not take effect earlier: when a partition began to serve halfway, what came before that
/// stays undone. So does a read whose answer was lost, if a write that came after it went the same way: asked again, the read could
/// see that.
pub(super) fn keep_order(parts: &mut [Part], which: &[usize]) {
    let mut served = BTreeSet::new();
    for at in which.iter().rev() {
        let part = &mut parts[*at];
        if part.reply.is_some() {
            served.insert(part.partition);
        } else if served.contains(&part.partition) {
            part.reply = Some(error_reply(RequestError::NotReady));
        }
    }
}

pub(super) fn error_reply(error: RequestError) -> Vec<u8> {
    let mut reply = Vec::new();
    Reply::new(&mut reply, Protocol::Resp2).error(&CommandError::Request(error).line());
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(partition: u32, may_repeat: bool) -> Part {
        Part {
            may_repeat,
            may_be_outdated: may_repeat,
            reply: None,
            partition,
            commands: vec![frame()],
            ..Part::answered(Vec::new())
        }
    }

    fn frame() -> OwnedFrame {
        OwnedFrame::from_arguments([&b"TYPE"[..], b"key"].into_iter())
    }

    fn replies(parts: &[Part]) -> Vec<Option<String>> {
        let code = |reply: &Vec<u8>| String::from_utf8_lossy(reply).split(':').next().unwrap().to_string();
        parts.iter().map(|part| part.reply.as_ref().map(code)).collect()
    }

    /// A leader was killed after it had done everything and before it could say so. The read that came first was asked again, and
    /// its successor answered what the write after it had left.
    #[test]
    fn a_read_whose_answer_was_lost_with_that_of_a_later_write_is_not_asked_again() {
        let (read, write) = (|partition| part(partition, true), |partition| part(partition, false));
        let mut parts = [read(1), read(2), write(1), read(1), read(2)];
        take_replies(&mut parts, &[0, 1, 2, 3, 4], Err(RequestFailure::Lost));
        let [first, others @ ..] = &replies(&parts)[..] else { unreachable!() };
        assert!(first.as_ref().is_some_and(|reply| reply.starts_with("-LOADING ")), "{first:?}");
        assert_eq!(others, [None, Some("-ERR outcome unknown".into()), None, None]);
    }

    #[test]
    fn what_came_before_something_done_stays_undone() {
        let mut parts = [part(1, true), part(1, false), part(1, true)];
        take_replies(&mut parts, &[0, 1, 2], Ok(Bytes::from_static(b"-LOADING x\r\n+1\r\n-LOADING x\r\n")));
        let [first, others @ ..] = &replies(&parts)[..] else { unreachable!() };
        assert!(first.as_ref().is_some_and(|reply| reply.starts_with("-LOADING ")), "{first:?}");
        assert_eq!(others, [Some("+1\r\n".into()), None]);
    }

    /// Each part once went to whoever led when its turn came.
    #[test]
    fn parts_of_one_partition_go_to_one_node_whoever_leads_meanwhile() {
        let parts = [part(1, true), part(2, true), part(1, false), part(2, false), part(1, true)];
        let mut looks = 0;
        let by_leader = by_leader(&parts, ReadMode::Single, |_, _| {
            looks += 1;
            Leader::Node(NodeId(looks))
        });
        let which: Vec<_> = by_leader.into_values().collect();
        assert_eq!(which, [vec![0, 2, 4], vec![1, 3]]);
    }
}
