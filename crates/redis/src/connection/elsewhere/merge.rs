//! One reply out of several.

use crate::commands::FanOut;
use crate::number::parse_integer;
use crate::resp::{Protocol, Reply, reply_length};

/// How a reply is made of those of the next parts.
pub(in crate::connection) enum Merge {
    One,
    Sum(usize),
    Same(usize),
    /// Arrays: for each part, where its elements belong.
    Gather(Vec<Vec<usize>>),
    Arrays(usize),
}

impl Merge {
    /// For a command that was split into so many parts.
    pub(in crate::connection) fn of(parts: usize, fan_out: FanOut) -> Self {
        match (parts, fan_out) {
            (1, _) => Self::One,
            (count, FanOut::Sum) => Self::Sum(count),
            (count, _) => Self::Same(count),
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
            Self::Sum(count) => sum(replies.take(*count), protocol, out),
            Self::Same(count) => {
                let mut shown = &b""[..];
                // An error is worth more than an OK.
                for reply in replies.take(*count) {
                    if shown.is_empty() || reply.first() == Some(&b'-') {
                        shown = reply;
                    }
                }
                out.extend_from_slice(shown);
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
