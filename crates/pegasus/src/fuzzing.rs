//! Parsing without a server, for the fuzz target and the tests.

use crate::calls::{self, Get, Read, Request};
use crate::frame::{Taken, read_call, take};
use bytes::BytesMut;

/// Longest write of the imagined server.
const WRITE_BYTES: usize = 1 << 16;

/// Parses a stream of requests as a connection does. Returns how many data calls there were, and how many of them could be
/// read.
///
/// # Panics
/// If a request that is cut short is taken for something else, or a GET is read in two ways.
pub fn parse_requests(bytes: &[u8]) -> (usize, usize) {
    let (mut calls, mut read) = (0, 0);
    let mut buffer = BytesMut::from(bytes);
    loop {
        let before = buffer.len();
        let whole = buffer.clone();
        let by_hand = Get::read(&whole);
        let Ok(Taken::Request(frame)) = take(&mut buffer, WRITE_BYTES) else { return (calls, read) };
        let length = before - buffer.len();
        let mut cut = BytesMut::from(&whole[..length - 1]);
        assert!(matches!(take(&mut cut, WRITE_BYTES), Ok(Taken::Incomplete(_))), "a request that is cut short");
        let Some((call, arguments)) = read_call(&frame) else { return (calls, read) };
        let request = calls::parse(call.name(), arguments);
        if let Some(get) = by_hand {
            assert_eq!((&get.meta, get.sequence, get.length), (&frame.meta, call.sequence, length));
            let Some(Ok(request @ Request::Read(Read::Get(_)))) = &request else { panic!("{request:?}") };
            assert_eq!(request.key(), Ok(Some(get.key)));
        }
        if let Some(request) = request {
            calls += 1;
            // A key may be none, and says so.
            read += usize::from(request.is_ok_and(|request| request.key().is_ok()));
        }
    }
}

/// A call as clients send it.
#[cfg(test)]
pub(crate) fn request(name: &str, argument: &impl crate::wire::Wire) -> Vec<u8> {
    use crate::wire::{output, write_field};
    use thrift::protocol::TOutputProtocol;
    let mut message = vec![0x80, 1, 0, 1];
    message.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
    message.extend(name.as_bytes());
    message.extend([0, 0, 0, 1]);
    let mut arguments = output(&mut message);
    write_field(&mut arguments, 1, argument).unwrap();
    arguments.write_field_stop().unwrap();
    let mut frame = b"THFT".to_vec();
    for word in [0, 48, 0, u32::try_from(message.len()).unwrap(), 0, 1, 0, 0, 0, 0, 0] {
        frame.extend(u32::to_be_bytes(word));
    }
    frame.extend(message);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::messages::{MultiGetRequest, PutRequest};
    use crate::wire::Blob;
    use proptest::prelude::*;

    fn requests() -> Vec<u8> {
        let put = PutRequest { key: Blob(b"\0\x01hs".to_vec()), value: Blob(vec![1; 300]), expire_ts: 5 };
        let multi_get = MultiGetRequest {
            hash_key: Blob(b"h".to_vec()),
            sort_keys: vec![Blob(b"a".to_vec()), Blob(Vec::new())],
            max_count: 9,
            ..Default::default()
        };
        let get = request("RPC_RRDB_RRDB_GET", &put.key);
        [request("RPC_RRDB_RRDB_PUT", &put), get, request("RPC_RRDB_RRDB_MULTI_GET", &multi_get)].concat()
    }

    #[test]
    fn whole_requests_are_read() {
        assert_eq!(parse_requests(&requests()), (3, 3));
    }

    proptest! {
        #[test]
        fn changed_requests_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8)) {
            let mut bytes = requests();
            for (place, byte) in changes {
                let at = place.index(bytes.len());
                bytes[at] = byte;
            }
            let (calls, read) = parse_requests(&bytes);
            prop_assert!(read <= calls && calls <= 3);
        }
    }
}
