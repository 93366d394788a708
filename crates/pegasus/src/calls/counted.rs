//! How calls are counted.

use super::{Read, Request, Write};
use crate::status;
use std::time::Instant;
use tessera_store::{FaceMeter, RequestKind, Table};

/// The calls that are counted, and for each whether it looks for a key. Everything that is no call for data counts as one.
pub(crate) const COUNTED: [(&str, bool); 15] = [
    ("get", true),
    ("ttl", true),
    ("multi_get", false),
    ("batch_get", false),
    ("sortkey_count", false),
    ("put", false),
    ("remove", false),
    ("multi_put", false),
    ("multi_remove", false),
    ("incr", false),
    ("check_and_set", false),
    ("check_and_mutate", false),
    ("get_scanner", false),
    ("scan", false),
    ("other", false),
];

pub(super) const GET: usize = 0;
const OTHER: usize = COUNTED.len() - 1;

/// A request that is counted when it is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tally {
    /// The place of its call among those that are counted.
    place: usize,
    kind: RequestKind,
    received: Instant,
}

impl Tally {
    pub(crate) fn of(request: &Request, received: Instant) -> Self {
        let place = match request {
            Request::Read(Read::Get(_)) => GET,
            Request::Read(Read::Ttl(_)) => 1,
            Request::Read(Read::MultiGet(_)) => 2,
            Request::Read(Read::BatchGet(_)) => 3,
            Request::Read(Read::SortKeyCount(_)) => 4,
            Request::Write(Write::Put(_)) => 5,
            Request::Write(Write::Remove(_)) => 6,
            Request::Write(Write::MultiPut(_)) => 7,
            Request::Write(Write::MultiRemove(_)) => 8,
            Request::Write(Write::Incr(_)) => 9,
            Request::Write(Write::CheckAndSet(_)) => 10,
            Request::Write(Write::CheckAndMutate(_)) => 11,
            Request::GetScanner(_) => 12,
            Request::Scan(_) => 13,
            Request::ClearScanner(_) => OTHER,
        };
        let kind = if matches!(request, Request::Write(_)) { RequestKind::Write } else { RequestKind::Read };
        Self { place, kind, received }
    }

    /// Of a request that was not understood, or is not for data.
    pub(crate) fn of_call(name: &str, received: Instant) -> Self {
        let name = name.strip_prefix("RPC_RRDB_RRDB_").unwrap_or_default();
        let place = COUNTED.iter().position(|(known, _)| known.eq_ignore_ascii_case(name)).unwrap_or(OTHER);
        Self { place, kind: RequestKind::Other, received }
    }

    /// Counts the request, which has been answered with this.
    pub(crate) fn note(self, meter: &FaceMeter, table: Option<&Table>, reply: &[u8]) {
        let code = if self.place == OTHER { is_ok(reply).then_some(status::OK) } else { code(reply) };
        match code {
            Some(status::OK) if COUNTED[self.place].1 => meter.note_lookups(self.place, 1, 0),
            Some(status::NOT_FOUND) if COUNTED[self.place].1 => meter.note_lookups(self.place, 0, 1),
            Some(status::OK | status::NOT_FOUND | status::INCOMPLETE | status::TRY_AGAIN) => {}
            _ => meter.note_errors(self.place, 1),
        }
        meter.note_requests(table, self.kind, 1, self.received.elapsed());
    }
}

/// The word of a reply that is no error, with its length, behind the length of the reply.
const OK: &[u8] = b"\0\0\0\x06ERR_OK";

fn is_ok(reply: &[u8]) -> bool {
    reply.get(4..).is_some_and(|reply| reply.starts_with(OK))
}

/// The code in the body of the reply to a call for data, where it comes first; `None` if the reply has no body.
fn code(reply: &[u8]) -> Option<i32> {
    // What comes before the name, and what comes behind it: the type of the message, and its number.
    let (length, named) = reply.get(4..)?.strip_prefix(OK)?.get(4..)?.split_first_chunk()?;
    let body = named.get(u32::from_be_bytes(*length) as usize..)?.get(4..)?;
    // A struct, whose first field is a number.
    Some(i32::from_be_bytes(*body.strip_prefix(b"\x0c\0\0\x08\0\x01")?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::{Origin, Response, parse};
    use crate::frame::{Taken, read_call, take, write_error};
    use crate::fuzzing::request;
    use crate::wire::Blob;

    #[test]
    fn the_code_of_every_reply_is_found() {
        let asked = request("RPC_RRDB_RRDB_GET", &Blob(b"\0\x01hs".to_vec()));
        let Ok(Taken::Request(frame)) = take(&mut asked[..].into(), 1_000) else { panic!("{asked:?}") };
        let (call, arguments) = read_call(&frame).unwrap();
        let Some(Ok(get)) = parse(call.name(), arguments) else { panic!("a GET") };
        let server = "127.0.0.1:34801".into();
        let origin = Origin { table: 3, partition: 5, decree: 9, server: &server };
        let answered = |response: Response| {
            let mut reply = Vec::new();
            response.write(&mut reply, &call, origin);
            assert!(is_ok(&reply));
            code(&reply)
        };
        for known in [status::OK, status::NOT_FOUND, status::IO_ERROR] {
            assert_eq!(answered(Response::failed(&get, known)), Some(known));
            let scan = Request::ClearScanner(0);
            assert_eq!(answered(Response::failed(&scan, known)), Some(known));
            for write in [Write::Remove(Blob::default()), Write::Incr(Default::default())] {
                assert_eq!(answered(Response::write_failed(&write, known)), Some(known));
            }
        }
        let mut refused = Vec::new();
        write_error(&mut refused, &call, "ERR_BUSY");
        assert_eq!((is_ok(&refused), code(&refused)), (false, None));
        for length in 0..refused.len() {
            assert_eq!(code(&refused[..length]), None);
        }
    }

    #[test]
    fn calls_are_counted_under_their_names() {
        let now = Instant::now();
        for (place, (name, _)) in COUNTED.iter().enumerate() {
            let call = format!("RPC_RRDB_RRDB_{}", name.to_uppercase());
            assert_eq!(Tally::of_call(&call, now).place, place);
        }
        assert_eq!(Tally::of_call("RPC_CM_LIST_APPS", now).place, OTHER);
        assert_eq!(Tally::of(&Request::Read(Read::Get(Blob::default())), now).place, GET);
        assert_eq!(COUNTED[Tally::of(&Request::Scan(Default::default()), now).place].0, "scan");
    }
}
