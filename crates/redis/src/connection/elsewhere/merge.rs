//! One reply out of several.

use crate::commands::{Command, FanOut, OUTCOME_UNKNOWN};
use crate::number::parse_integer;
use crate::resp::{Protocol, Reply, reply_length};

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
        }
    }

    /// Takes as many of the replies as become one, and writes that.
    pub(in crate::connection) fn write<'a>(
        &self,
        replies: &mut impl Iterator<Item = &'a [u8]>,
        protocol: Protocol,
        out: &mut Vec<u8>,
    ) {
        match self {
            Self::One => out.extend_from_slice(replies.next().expect("a reply for each part")),
            Self::Sum { parts, is_write } => {
                let replies: Vec<_> = replies.take(*parts).collect();
                match error_among(&replies, *is_write) {
                    Some(error) => out.extend_from_slice(&error),
                    None => sum(replies.into_iter(), protocol, out),
                }
            }
            Self::Same { parts } => {
                let replies: Vec<_> = replies.take(*parts).collect();
                match error_among(&replies, true) {
                    Some(error) => out.extend_from_slice(&error),
                    None => out.extend_from_slice(replies.first().copied().unwrap_or_default()),
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
        }
    }
}

/// The error that answers a command if one of its parts failed. When others of its parts have changed something, the error must
/// not say that nothing was done.
fn error_among(replies: &[&[u8]], is_write: bool) -> Option<Vec<u8>> {
    let is_error = |reply: &&[u8]| reply.first() == Some(&b'-');
    let error = *replies.iter().find(|reply| is_error(reply))?;
    if !is_write || replies.iter().all(is_error) {
        // One of which it is not known whether it was done counts for all.
        let unknown = replies.iter().find(|reply| is_error(reply) && reply.starts_with(OUTCOME_UNKNOWN));
        return Some(unknown.copied().unwrap_or(error).to_vec());
    }
    let mut mixed = OUTCOME_UNKNOWN.to_vec();
    mixed.extend_from_slice(b"some of the partitions have done their part, another has not: ");
    mixed.extend_from_slice(&error[1..]);
    Some(mixed)
}

/// Adds up integer replies; an error among them is the reply.
pub(in crate::connection) fn sum<'a>(parts: impl Iterator<Item = &'a [u8]>, protocol: Protocol, out: &mut Vec<u8>) {
    let (mut sum, mut error) = (0, None);
    for part in parts {
        let integer = || parse_integer(part.strip_prefix(b":")?.strip_suffix(b"\r\n")?);
        match integer() {
            Some(number) => sum += number,
            None => error = Some(part),
        }
    }
    match error {
        Some(part) => out.extend_from_slice(part),
        None => Reply::new(out, protocol).integer(sum),
    }
}

/// Puts arrays together so that each element stands where it was asked for; places count from one.
fn gather(places: &[Vec<usize>], replies: &[&[u8]], protocol: Protocol, out: &mut Vec<u8>) {
    let count = places.iter().map(Vec::len).sum();
    let mut elements: Vec<&[u8]> = vec![b""; count];
    for (places, reply) in places.iter().zip(replies) {
        let Some(mut rest) = array_elements(reply).map(|(_, elements)| elements) else {
            return out.extend_from_slice(reply); // an error
        };
        for place in places {
            let (element, after) = rest.split_at(reply_length(rest).unwrap_or(rest.len()));
            (elements[place - 1], rest) = (element, after);
        }
    }
    Reply::new(out, protocol).array(count);
    elements.into_iter().for_each(|element| out.extend_from_slice(element));
}

fn join_arrays(replies: &[&[u8]], protocol: Protocol, out: &mut Vec<u8>) {
    let mut arrays = Vec::with_capacity(replies.len());
    for reply in replies {
        match array_elements(reply) {
            Some(array) => arrays.push(array),
            None => return out.extend_from_slice(reply),
        }
    }
    Reply::new(out, protocol).array(arrays.iter().map(|(count, _)| count).sum());
    arrays.into_iter().for_each(|(_, elements)| out.extend_from_slice(elements));
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

    fn merged(command: &[u8], replies: &[&str]) -> String {
        let mut out = Vec::new();
        let merge = Merge::of(replies.len(), commands::find(command).unwrap());
        merge.write(&mut replies.iter().map(|reply| reply.as_bytes()), Protocol::Resp2, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_command_that_some_partitions_did_is_not_answered_as_not_done() {
        assert_eq!(merged(b"del", &[":1\r\n", ":2\r\n"]), ":3\r\n");
        assert_eq!(merged(b"mset", &["+OK\r\n", "+OK\r\n"]), "+OK\r\n");
        assert_eq!(merged(b"del", &["-LOADING x\r\n", "-LOADING x\r\n"]), "-LOADING x\r\n");
        assert_eq!(merged(b"exists", &[":1\r\n", "-LOADING x\r\n"]), "-LOADING x\r\n");
        for (command, done) in [("del", ":1\r\n"), ("mset", "+OK\r\n")] {
            let mixed = merged(command.as_bytes(), &[done, "-LOADING x\r\n"]);
            assert!(mixed.starts_with("-ERR outcome unknown: ") && mixed.ends_with(": LOADING x\r\n"), "{mixed}");
            let unknown = merged(command.as_bytes(), &["-LOADING x\r\n", "-ERR outcome unknown: y\r\n"]);
            assert_eq!(unknown, "-ERR outcome unknown: y\r\n");
        }
    }
}
