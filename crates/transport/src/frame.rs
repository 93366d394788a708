//! What is on the wire after the handshake: frames, all numbers little-endian.
//!
//! ```text
//! u32 length of what follows | u8 type | ...
//!   1 message  | u8 kind | payload
//!   2 request  | u64 number | u8 service | payload
//!   3 response | u64 number | payload
//!   4 alive    | (nothing; sent now and then, and answered by the same)
//! ```

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;

/// Longest frame. A snapshot of a partition travels in one.
const FRAME_BYTES: usize = u32::MAX as usize;

const MESSAGE: u8 = 1;
const REQUEST: u8 = 2;
const RESPONSE: u8 = 3;
const ALIVE: u8 = 4;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Message { kind: u8, payload: Bytes },
    Request { number: u64, service: u8, payload: Bytes },
    Response { number: u64, payload: Bytes },
    Alive,
}

fn frame(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let begin = out.len();
    out.put_u32_le(0);
    write(out);
    let length = u32::try_from(out.len() - begin - 4).expect("frames are shorter than 4 GiB");
    out[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
}

pub(crate) fn message(out: &mut BytesMut, kind: u8, write: impl FnOnce(&mut BytesMut)) {
    frame(out, |out| {
        out.put_u8(MESSAGE);
        out.put_u8(kind);
        write(out);
    });
}

pub(crate) fn request(out: &mut BytesMut, number: u64, service: u8, payload: &[u8]) {
    frame(out, |out| {
        out.put_u8(REQUEST);
        out.put_u64_le(number);
        out.put_u8(service);
        out.put_slice(payload);
    });
}

pub(crate) fn response(out: &mut BytesMut, number: u64, payload: &[u8]) {
    frame(out, |out| {
        out.put_u8(RESPONSE);
        out.put_u64_le(number);
        out.put_slice(payload);
    });
}

pub(crate) fn alive(out: &mut BytesMut) {
    frame(out, |out| out.put_u8(ALIVE));
}

/// Takes a whole frame from the front of `bytes`, if there is one.
///
/// # Errors
/// If that is no frame.
pub(crate) fn take(bytes: &mut BytesMut) -> io::Result<Option<Frame>> {
    let damaged = || io::Error::other("what another node sent is no frame");
    let Some(length) = bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize) else {
        return Ok(None);
    };
    if length == 0 || length > FRAME_BYTES {
        return Err(damaged());
    }
    if bytes.len() < 4 + length {
        // A little at a time: what was announced need not come.
        bytes.reserve((4 + length - bytes.len()).min(1 << 20));
        return Ok(None);
    }
    bytes.advance(4);
    let mut body = bytes.split_to(length).freeze();
    let parse = |body: &mut Bytes| {
        Some(match body.try_get_u8().ok()? {
            MESSAGE => Frame::Message { kind: body.try_get_u8().ok()?, payload: body.split_off(0) },
            REQUEST => Frame::Request {
                number: body.try_get_u64_le().ok()?,
                service: body.try_get_u8().ok()?,
                payload: body.split_off(0),
            },
            RESPONSE => Frame::Response { number: body.try_get_u64_le().ok()?, payload: body.split_off(0) },
            ALIVE => Frame::Alive,
            _ => return None,
        })
    };
    parse(&mut body).map(Some).ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_and_in_order() {
        let mut wire = BytesMut::new();
        message(&mut wire, 7, |out| out.put_slice(b"one"));
        request(&mut wire, 8, 9, b"two");
        response(&mut wire, 10, b"");
        alive(&mut wire);
        let (mut got, mut buffer) = (Vec::new(), BytesMut::new());
        for byte in wire {
            buffer.put_u8(byte);
            got.extend(take(&mut buffer).unwrap());
        }
        let payload = Bytes::from_static;
        assert_eq!(got[0], Frame::Message { kind: 7, payload: payload(b"one") });
        assert_eq!(got[1], Frame::Request { number: 8, service: 9, payload: payload(b"two") });
        assert_eq!(got[2..], [Frame::Response { number: 10, payload: payload(b"") }, Frame::Alive]);
        for damaged in [&[0, 0, 0, 0][..], &[1, 0, 0, 0, 99], &[1, 0, 0, 0, 2]] {
            take(&mut BytesMut::from(damaged)).unwrap_err();
        }
    }
}
