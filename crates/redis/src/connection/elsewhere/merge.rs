//! One reply out of several.

use crate::connection::batch;
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
    /// How many replies become one.
    pub(super) fn parts(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Sum(count) | Self::Same(count) | Self::Arrays(count) => *count,
            Self::Gather(places) => places.len(),
        }
    }

    pub(in crate::connection) fn write(&self, replies: Vec<Vec<u8>>, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Self::One => out.extend_from_slice(&replies[0]),
            Self::Sum(_) => batch::sum(replies.iter().map(Vec::as_slice), protocol, out),
            Self::Same(_) => {
                // An error is worth more than an OK.
                let error = replies.iter().find(|reply| reply.first() == Some(&b'-'));
                out.extend_from_slice(error.unwrap_or(&replies[0]));
            }
            Self::Gather(places) => gather(places, &replies, protocol, out),
            Self::Arrays(_) => join_arrays(&replies, protocol, out),
        }
    }
}

/// Puts arrays together so that each element stands where it was asked for; places count from one.
fn gather(places: &[Vec<usize>], replies: &[Vec<u8>], protocol: Protocol, out: &mut Vec<u8>) {
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

fn join_arrays(replies: &[Vec<u8>], protocol: Protocol, out: &mut Vec<u8>) {
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
