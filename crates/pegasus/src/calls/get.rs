//! GET, the commonest call, whose bytes are laid out here by hand; the general way through the `thrift` crate takes a third of a
//! pipelined read. A test holds both against each other.

use super::Origin;
use crate::calls::{Read, Request};
use crate::execute::DataCall;
use crate::frame::Call;
use crate::status::{NOT_FOUND, OK};
use crate::wire::Blob;
use tessera_types::{ReadMode, RequestError, UnixMillis};

/// A field's type and number: the one argument, a struct or what is said to be one.
const ARGUMENT: [u8; 3] = [12, 0, 1];

/// Reads the arguments of a GET if they are laid out as clients lay them out.
pub(super) fn parse(arguments: &[u8]) -> Option<Request> {
    let (length, rest) = arguments.strip_prefix(&ARGUMENT)?.split_first_chunk::<4>()?;
    let (key, end) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    (end == [0]).then(|| Request::Read(Read::Get(Blob(key.to_vec()))))
}

/// Appends the reply, as a [`ReadResponse`](super::messages::ReadResponse) would be written.
pub(crate) fn write_value(out: &mut Vec<u8>, call: &Call, value: Option<&[u8]>, origin: Origin<'_>) {
    let error = if value.is_some() { OK } else { NOT_FOUND };
    let value = value.unwrap_or_default();
    let (name, server) = (call.name().as_bytes(), origin.server.as_bytes());
    let length =
        4 + (4 + 6) + (4 + 4 + name.len() + 4 + 4) + 3 + 7 + (7 + value.len()) + 7 + 7 + (7 + server.len()) + 2;
    // Lengths are far below 4 GiB: a value is one that was written.
    let word = |length: usize| (length as u32).to_be_bytes();
    out.reserve(length);
    let began = out.len();
    out.extend_from_slice(&word(length));
    out.extend_from_slice(b"\0\0\0\x06ERR_OK\x80\x01\0\x02");
    out.extend_from_slice(&word(name.len() + 4));
    out.extend_from_slice(name);
    out.extend_from_slice(b"_ACK");
    out.extend_from_slice(&call.sequence.to_be_bytes());
    out.extend_from_slice(b"\x0c\0\0\x08\0\x01");
    out.extend_from_slice(&error.to_be_bytes());
    out.extend_from_slice(b"\x0c\0\x02");
    out.extend_from_slice(&word(value.len()));
    out.extend_from_slice(value);
    out.extend_from_slice(b"\x08\0\x03");
    out.extend_from_slice(&origin.table.to_be_bytes());
    out.extend_from_slice(b"\x08\0\x04");
    out.extend_from_slice(&origin.partition.to_be_bytes());
    out.extend_from_slice(b"\x0b\0\x06");
    out.extend_from_slice(&word(server.len()));
    out.extend_from_slice(server);
    out.extend_from_slice(&[0, 0]);
    debug_assert_eq!(out.len() - began, length);
}

/// GETs of one table, made together. `answer` gets each with what it found, in place.
///
/// # Errors
/// If one of them cannot be made here; then none counts, whatever was answered.
pub(crate) fn get_many(
    calls: &[Box<DataCall>],
    answer: &mut dyn FnMut(&DataCall, Option<&[u8]>),
) -> Result<(), RequestError> {
    let now = UnixMillis::now();
    let keys: Vec<_> = calls.iter().filter_map(|call| call.key()).collect();
    let Some(first) = calls.first().filter(|_| keys.len() == calls.len()) else { return Ok(()) };
    // A batch of one mode: those who may get what was also may get what is.
    let reads = if calls.iter().all(|call| call.reads() == first.reads()) { first.reads() } else { ReadMode::Single };
    first.table.read_many(&keys, reads, now, &mut |at, stored| {
        answer(&calls[at], stored.map(|stored| stored.payload));
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls::Response;
    use crate::calls::messages::ReadResponse;
    use crate::frame::{Taken, read_argument, read_call, take};
    use crate::wire::{input, output, write_field};
    use thrift::protocol::TOutputProtocol;

    fn call() -> Call {
        let mut request = b"THFT".to_vec();
        let message = b"\x80\x01\0\x01\0\0\0\x11RPC_RRDB_RRDB_GET\0\0\0\x07\0";
        for word in [0, 48, 0, message.len() as u32, 0, 1, 0, 0, 0, 0, 0] {
            request.extend(u32::to_be_bytes(word));
        }
        request.extend(message);
        match take(&mut request[..].into(), 1_000) {
            Ok(Taken::Request(frame)) => read_call(&frame).unwrap().0,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_laid_out_by_hand_is_what_the_library_writes() {
        let server = "127.0.0.1:34801".into();
        let origin = Origin { table: 3, partition: 5, decree: 9, server: &server };
        for value in [None, Some(&b""[..]), Some(&[7; 1_000])] {
            let (mut by_hand, mut by_library) = (Vec::new(), Vec::new());
            write_value(&mut by_hand, &call(), value, origin);
            let error = if value.is_some() { OK } else { NOT_FOUND };
            let response =
                ReadResponse { error, value: Blob(value.unwrap_or_default().to_vec()), ..Default::default() };
            Response::Read(response).write(&mut by_library, &call(), origin);
            assert_eq!(by_hand, by_library);
        }
    }

    #[test]
    fn arguments_are_read_as_the_library_reads_them() {
        let mut arguments = Vec::new();
        let mut written = output(&mut arguments);
        write_field(&mut written, 1, &Blob(b"\0\x01key".to_vec())).unwrap();
        written.write_field_stop().unwrap();
        let Some(Request::Read(Read::Get(by_hand))) = parse(&arguments) else { panic!("{arguments:?}") };
        let by_library: Blob = read_argument(&mut input(&arguments)).unwrap();
        assert_eq!(by_hand, by_library);
        for length in 0..arguments.len() {
            assert!(parse(&arguments[..length]).is_none());
        }
        arguments.push(0);
        assert!(parse(&arguments).is_none(), "the general way is for what is laid out otherwise");
    }
}
