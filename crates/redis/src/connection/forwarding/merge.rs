//! One reply out of several.

use crate::commands::{Command, FanOut, OUTCOME_UNKNOWN};
use crate::connection::replies::{OneReply, Replies};
use crate::number::parse_integer;
use crate::resp::{Protocol, reply_length};
use smallvec::SmallVec;
use tessera_types::RequestError;

/// How a reply is made of those of the next parts.
pub(in crate::connection) enum Merge {
    One,
    /// The sum of integers.
    Sum {
        parts: usize,
        is_write: bool,
    },
    /// They are all the same, and so is the reply.
    Same {
        parts: usize,
    },
    /// Arrays: for each part, where its elements belong.
    Gather(Vec<Vec<usize>>),
    Arrays(usize),
    /// It has no parts here: it is that of the next command that is carried out where the client is connected.
    Here,
}

impl Merge {
    /// For a command that was split into so many parts.
    pub(in crate::connection) fn of(parts: usize, command: &Command) -> Self {
        match (parts, command.fan_out) {
            (1, _) => Self::One,
            (parts, FanOut::Sum) => Self::Sum { parts, is_write: command.flags.write },
            (parts, _) => Self::Same { parts },
        }
    }

    /// Of how many parts the reply is made.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Sum { parts, .. } | Self::Same { parts } | Self::Arrays(parts) => *parts,
            Self::Gather(places) => places.len(),
            Self::Here => 0,
        }
    }

    /// Takes as many of the replies as become one, and writes that.
    pub(in crate::connection) fn write<'a>(
        &self,
        replies: &mut impl Iterator<Item = OneReply<'a>>,
        protocol: Protocol,
        out: &mut Replies,
    ) {
        match self {
            Self::One => out.push(replies.next().expect("a reply for each part")),
            Self::Sum { parts, is_write } => {
                let replies: SmallVec<[_; 16]> = replies.take(*parts).collect();
                match error_among(&replies, *is_write) {
                    Some(error) => out.push(error.one()),
                    None => sum(replies.into_iter(), protocol, out),
                }
            }
            Self::Same { parts } => {
                let replies: SmallVec<[_; 16]> = replies.take(*parts).collect();
                match error_among(&replies, true) {
                    Some(error) => out.push(error.one()),
                    None => replies.first().into_iter().for_each(|reply| out.push(*reply)),
                }
            }
            Self::Gather(places) => {
                let replies: Vec<_> = replies.take(places.len()).collect();
                gather(places, &replies, protocol, out);
            }
            Self::Arrays(count) => {
                let replies: Vec<_> = replies.take(*count).collect();
                join_arrays(&replies, protocol, out);
            }
            Self::Here => {}
        }
    }
}

/// The error that answers a command if one of its parts failed. When others of its parts have changed something, the error must
/// not say that nothing was done.
fn error_among(replies: &[OneReply<'_>], is_write: bool) -> Option<Replies> {
    let error = replies.iter().find(|reply| reply.is_error())?;
    let mut out = Replies::default();
    if !is_write || replies.iter().all(OneReply::is_error) {
        // One of which it is not known whether it was done counts for all.
        let unknown = replies.iter().find(|reply| reply.failure == Some(&RequestError::Interrupted));
        out.push(*unknown.unwrap_or(error));
    } else {
        let mut mixed = format!("-ERR {OUTCOME_UNKNOWN}some of the partitions have done their part, another has not: ");
        mixed += &String::from_utf8_lossy(&error.bytes[1..]);
        out.push(OneReply { bytes: mixed.as_bytes(), failure: Some(&RequestError::Interrupted) });
    }
    Some(out)
}

/// Adds up integer replies; an error among them is the reply.
pub(in crate::connection) fn sum<'a>(parts: impl Iterator<Item = OneReply<'a>>, protocol: Protocol, out: &mut Replies) {
    let (mut sum, mut error) = (0, None);
    for part in parts {
        let integer = || parse_integer(part.bytes.strip_prefix(b":")?.strip_suffix(b"\r\n")?);
        match integer() {
            Some(number) => sum += number,
            None => error = Some(part),
        }
    }
    match error {
        Some(part) => out.push(part),
        None => out.writer(protocol).integer(sum),
    }
}

/// Puts arrays together so that each element stands where it was asked for; places count from one.
fn gather(places: &[Vec<usize>], replies: &[OneReply<'_>], protocol: Protocol, out: &mut Replies) {
    let count = places.iter().map(Vec::len).sum();
    let mut elements: Vec<&[u8]> = vec![b""; count];
    for (places, reply) in places.iter().zip(replies) {
        let Some(mut rest) = array_elements(reply.bytes).map(|(_, elements)| elements) else {
            return out.push(*reply); // an error
        };
        for place in places {
            let (element, after) = rest.split_at(reply_length(rest).unwrap_or(rest.len()));
            (elements[place - 1], rest) = (element, after);
        }
    }
    out.writer(protocol).array(count);
    elements.into_iter().for_each(|element| out.buffer().extend_from_slice(element));
}

fn join_arrays(replies: &[OneReply<'_>], protocol: Protocol, out: &mut Replies) {
    let mut arrays = Vec::with_capacity(replies.len());
    for reply in replies {
        match array_elements(reply.bytes) {
            Some(array) => arrays.push(array),
            None => return out.push(*reply),
        }
    }
    out.writer(protocol).array(arrays.iter().map(|(count, _)| count).sum());
    arrays.into_iter().for_each(|(_, elements)| out.buffer().extend_from_slice(elements));
}

/// Number of an array's elements, and their bytes.
fn array_elements(reply: &[u8]) -> Option<(usize, &[u8])> {
    let line = memchr::memmem::find(reply, b"\r\n")?;
    let count = std::str::from_utf8(reply[..line].strip_prefix(b"*")?).ok()?.parse().ok()?;
    Some((count, &reply[line + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands;

    fn merged(command: &[u8], replies: &[(&str, Option<RequestError>)]) -> (String, Option<RequestError>) {
        let mut out = Replies::default();
        let merge = Merge::of(replies.len(), commands::find(command).unwrap());
        let replies =
            replies.iter().map(|(reply, failure)| OneReply { bytes: reply.as_bytes(), failure: failure.as_ref() });
        merge.write(&mut { replies }, Protocol::Resp2, &mut out);
        (String::from_utf8(out.bytes().to_vec()).unwrap(), out.failure_at(0).cloned())
    }

    #[test]
    fn a_command_that_some_partitions_did_is_not_answered_as_not_done() {
        let done = |reply| (reply, None);
        let not_done = || ("-LOADING x\r\n", Some(RequestError::NotReady));
        let unknown = || ("-ERR outcome unknown: y\r\n", Some(RequestError::Interrupted));
        assert_eq!(merged(b"del", &[done(":1\r\n"), done(":2\r\n")]), (":3\r\n".into(), None));
        assert_eq!(merged(b"mset", &[done("+OK\r\n"), done("+OK\r\n")]), ("+OK\r\n".into(), None));
        for (command, replies) in [(&b"del"[..], [not_done(), not_done()]), (b"exists", [done(":1\r\n"), not_done()])] {
            assert_eq!(merged(command, &replies), ("-LOADING x\r\n".into(), Some(RequestError::NotReady)));
        }
        for (command, reply) in [("del", ":1\r\n"), ("mset", "+OK\r\n")] {
            let (mixed, failure) = merged(command.as_bytes(), &[done(reply), not_done()]);
            assert!(mixed.starts_with("-ERR outcome unknown: ") && mixed.ends_with(": LOADING x\r\n"), "{mixed}");
            assert_eq!(failure, Some(RequestError::Interrupted));
            assert_eq!(merged(command.as_bytes(), &[not_done(), unknown()]), (unknown().0.into(), unknown().1));
        }
    }
}
