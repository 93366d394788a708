//! Frames: what is on the wire after the handshake. All numbers are little-endian.
//!
//! ```text
//! u32 length of what follows | u8 type | ...
//!   1 message  | u8 kind | payload
//!   2 request  | u64 number | u8 service | payload
//!   3 response | u64 number | payload
//!   4 alive    | u64 what the sender's clock says, in milliseconds since the Unix epoch (sent now and then, and answered
//!              | by the same)
//!   5 failed   | u64 number (of a request that will have no response)
//!   6 piece    | bytes
//!   7 end      | bytes
//! ```
//!
//! A frame is no longer than [`FRAME_BYTES`]. A longer one is cut into pieces, which follow one another and finish with
//! an end; put together, they are a type and its content.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::io;
use tessera_types::UnixMillis;

/// The length of the longest frame, not counting its length field.
pub(crate) const FRAME_BYTES: usize = 16 << 20;
/// The longest message, request or response when its pieces are put together. One write to a partition may have a
/// gibibyte (`Limits::WRITE_BYTES_CEILING`), and this leaves room for what travels with it.
pub(crate) const WHOLE_BYTES: usize = (1 << 30) + (64 << 20);
/// The longest frame of a node without identity, which may not send pieces. It only asks to be let in.
pub(crate) const STRANGER_BYTES: usize = 64 << 10;
/// How much is read from a connection at once.
const READ_BYTES: usize = 64 << 10;
/// The largest number of bytes that a frame has in addition to its payload.
pub(crate) const HEAD: usize = 16;

const MESSAGE: u8 = 1;
const REQUEST: u8 = 2;
const RESPONSE: u8 = 3;
const ALIVE: u8 = 4;
const FAILED: u8 = 5;
const PIECE: u8 = 6;
const END: u8 = 7;

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Message { kind: u8, payload: Bytes },
    Request { number: u64, service: u8, payload: Bytes },
    Response { number: u64, payload: Bytes },
    Alive { clock: u64 },
    Failed { number: u64 },
}

fn frame(out: &mut BytesMut, write: impl FnOnce(&mut BytesMut)) {
    let begin = out.len();
    out.put_u32_le(0);
    write(out);
    let length = out.len() - begin - 4;
    if length <= FRAME_BYTES {
        out[begin..begin + 4].copy_from_slice(&short(length));
    } else {
        let body = out.split_off(begin);
        cut(&body[4..], out);
    }
}

fn short(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("no frame is longer than FRAME_BYTES").to_le_bytes()
}

fn cut(body: &[u8], out: &mut BytesMut) {
    let mut pieces = body.chunks(FRAME_BYTES - 1).peekable();
    while let Some(piece) = pieces.next() {
        out.put_slice(&short(1 + piece.len()));
        out.put_u8(if pieces.peek().is_some() { PIECE } else { END });
        out.put_slice(piece);
    }
}

/// Appends a message. Returns whether it was short enough; if not, nothing is appended.
#[must_use]
pub(crate) fn message(out: &mut BytesMut, kind: u8, write: impl FnOnce(&mut BytesMut)) -> bool {
    let begin = out.len();
    let mut is_short = true;
    frame(out, |out| {
        out.put_u8(MESSAGE);
        out.put_u8(kind);
        write(out);
        is_short = out.len() - begin <= WHOLE_BYTES;
        if !is_short {
            out.truncate(begin + 4);
        }
    });
    if !is_short {
        out.truncate(begin);
    }
    is_short
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

pub(crate) fn failed(out: &mut BytesMut, number: u64) {
    frame(out, |out| {
        out.put_u8(FAILED);
        out.put_u64_le(number);
    });
}

pub(crate) fn alive(out: &mut BytesMut) {
    frame(out, |out| {
        out.put_u8(ALIVE);
        out.put_u64_le(UnixMillis::now().get());
    });
}

/// The input of a connection, with the limit of a frame.
pub(crate) struct Input {
    pub(crate) bytes: BytesMut,
    /// The pieces that have arrived so far.
    pieces: BytesMut,
    frame_bytes: usize,
    whole_bytes: usize,
}

impl Input {
    /// The input from a node of the cluster.
    pub(crate) fn of_node() -> Self {
        Self::new(FRAME_BYTES, WHOLE_BYTES)
    }

    /// The input from a node without identity.
    pub(crate) fn of_stranger() -> Self {
        Self::new(STRANGER_BYTES, 0)
    }

    fn new(frame_bytes: usize, whole_bytes: usize) -> Self {
        // Whenever its frames have been taken and it is made anew it gets as much as it was made with, and so much is
        // read at once.
        Self { bytes: BytesMut::with_capacity(READ_BYTES), pieces: BytesMut::new(), frame_bytes, whole_bytes }
    }

    /// Takes a whole frame from the front, if there is one.
    ///
    /// # Errors
    /// If the input is no frame, or the frame is too long.
    pub(crate) fn take(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let Some(body) = self.take_body()? else { return Ok(None) };
            match body.first() {
                Some(&kind @ (PIECE | END)) => {
                    if self.pieces.len() + body.len() - 1 > self.whole_bytes {
                        return Err(io::Error::other("what another node sent in pieces is too long"));
                    }
                    self.pieces.extend_from_slice(&body[1..]);
                    if kind == END {
                        return parse(std::mem::take(&mut self.pieces).freeze()).map(Some);
                    }
                }
                _ if self.pieces.is_empty() => return parse(body).map(Some),
                _ => return Err(damaged()),
            }
        }
    }

    fn take_body(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.bytes.first_chunk::<4>().map(|length| u32::from_le_bytes(*length) as usize) else {
            return Ok(None);
        };
        if length == 0 {
            return Err(damaged());
        }
        if length > self.frame_bytes {
            let limit = self.frame_bytes;
            return Err(io::Error::other(format!(
                "another node announced a frame of {length} bytes; at most {limit} are taken"
            )));
        }
        if self.bytes.len() < 4 + length {
            // The buffer grows little by little, because the announced bytes may never come.
            self.bytes.reserve((4 + length - self.bytes.len()).min(1 << 20));
            return Ok(None);
        }
        self.bytes.advance(4);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }
}

fn damaged() -> io::Error {
    io::Error::other("what another node sent is no frame")
}

fn parse(mut body: Bytes) -> io::Result<Frame> {
    let parse = |body: &mut Bytes| {
        Some(match body.try_get_u8().ok()? {
            MESSAGE => Frame::Message { kind: body.try_get_u8().ok()?, payload: body.split_off(0) },
            REQUEST => Frame::Request {
                number: body.try_get_u64_le().ok()?,
                service: body.try_get_u8().ok()?,
                payload: body.split_off(0),
            },
            RESPONSE => Frame::Response { number: body.try_get_u64_le().ok()?, payload: body.split_off(0) },
            FAILED => Frame::Failed { number: body.try_get_u64_le().ok()? },
            ALIVE => Frame::Alive { clock: body.try_get_u64_le().ok()? },
            _ => return None,
        })
    };
    parse(&mut body).ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(limits: Input, bytes: &[u8]) -> Input {
        Input { bytes: BytesMut::from(bytes), ..limits }
    }

    #[test]
    fn frames_come_back_whole_and_in_order() {
        let mut wire = BytesMut::new();
        assert!(message(&mut wire, 7, |out| out.put_slice(b"one")));
        request(&mut wire, 8, 9, b"two");
        response(&mut wire, 10, b"");
        alive(&mut wire);
        failed(&mut wire, 11);
        let (mut got, mut buffer) = (Vec::new(), Input::of_stranger());
        for byte in wire {
            buffer.bytes.put_u8(byte);
            got.extend(buffer.take().unwrap());
        }
        let payload = Bytes::from_static;
        assert_eq!(got[0], Frame::Message { kind: 7, payload: payload(b"one") });
        assert_eq!(got[1], Frame::Request { number: 8, service: 9, payload: payload(b"two") });
        assert_eq!(got[2], Frame::Response { number: 10, payload: payload(b"") });
        assert!(matches!(got[3], Frame::Alive { clock } if clock <= UnixMillis::now().get()));
        assert_eq!(got[4..], [Frame::Failed { number: 11 }]);
        for damaged in [&[0, 0, 0, 0][..], &[1, 0, 0, 0, 99], &[1, 0, 0, 0, 2]] {
            input(Input::of_node(), damaged).take().unwrap_err();
        }
    }

    /// Buffers that began empty were made anew for 64 bytes at a time: as many more reads of a connection.
    #[test]
    fn a_buffer_whose_frames_are_kept_is_made_anew_as_large_as_it_was() {
        let (mut input, mut kept) = (Input::of_node(), Vec::new());
        for _ in 0..100 {
            let _ = message(&mut input.bytes, 7, |out| out.put_slice(&[0; 5_000]));
            kept.push(input.take().unwrap().unwrap());
        }
        // What is left of it is used up; then a reader asks for a little.
        let left = input.bytes.capacity() - input.bytes.len();
        kept.push({
            assert!(message(&mut input.bytes, 7, |out| out.put_bytes(0, left.saturating_sub(6))));
            input.take().unwrap().unwrap()
        });
        input.bytes.reserve(64);
        assert!(input.bytes.capacity() >= READ_BYTES / 2, "{}", input.bytes.capacity());
    }

    #[test]
    fn what_is_longer_than_a_frame_comes_in_pieces() {
        for length in [FRAME_BYTES - 2, FRAME_BYTES - 1, 2 * FRAME_BYTES, 2 * FRAME_BYTES - 3] {
            let long: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut wire = BytesMut::new();
            assert!(message(&mut wire, 7, |out| out.put_slice(&long)));
            alive(&mut wire);
            let mut input = input(Input::of_node(), &wire);
            assert_eq!(input.take().unwrap(), Some(Frame::Message { kind: 7, payload: long.into() }));
            assert!(matches!(input.take().unwrap(), Some(Frame::Alive { .. })));
            assert_eq!((input.take().unwrap(), input.bytes.len()), (None, 0));
        }
    }

    #[test]
    fn what_is_too_long_is_refused_as_soon_as_it_is_announced() {
        let announced = |length: usize| [&short(length)[..], &[MESSAGE]].concat();
        assert_eq!(input(Input::of_node(), &announced(FRAME_BYTES)).take().unwrap(), None);
        input(Input::of_node(), &announced(FRAME_BYTES + 1)).take().unwrap_err();
        input(Input::of_stranger(), &announced(STRANGER_BYTES + 1)).take().unwrap_err();
        let pieces = [&short(3)[..], &[PIECE, 1, 2], &short(3), &[END, 3, 4]].concat();
        input(Input::of_stranger(), &pieces).take().unwrap_err();
        input(Input::new(FRAME_BYTES, 3), &pieces).take().unwrap_err();
        let between = [&short(3)[..], &[PIECE, MESSAGE, 2], &short(1), &[ALIVE]].concat();
        input(Input::of_node(), &between).take().unwrap_err();
    }
}
