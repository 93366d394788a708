//! Requests and replies of etcd's version 3: `etcdserverpb.KV` over gRPC, which is HTTP/2 of which a client that sends small
//! requests and takes all that comes needs little. A record is one value, all its fields together. Reads are linearizable, as by default.

use super::frames::Frames;
use super::{Errors, Replies};
use crate::workload::{RecordShape, Values};

/// Types and flags of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const HEAD_BYTES: usize = 9;
/// What a server takes in a frame, and on a stream, unless it says otherwise.
const FRAME_BYTES: usize = 16 << 10;
/// Values are at most so long: a stream's window, 65,535 bytes, has to take them.
pub const VALUE_BYTES: usize = 60_000;
const LARGEST_WINDOW: u32 = (1 << 31) - 1;
const FIRST_WINDOW: u32 = 65_535;

const PUT: &str = "/etcdserverpb.KV/Put";
const RANGE: &str = "/etcdserverpb.KV/Range";

/// Writes the requests of operations.
pub(super) struct Encoder {
    shape: RecordShape,
    key: Vec<u8>,
    message: Vec<u8>,
    /// The number of the next request. Its stream's is the odd one above twice that.
    next: i32,
}

impl Encoder {
    pub(super) fn new(shape: RecordShape) -> Self {
        Self { shape, key: Vec::new(), message: Vec::new(), next: 0 }
    }

    fn request(&mut self, path: &str, value: Option<&[u8]>, out: &mut Vec<u8>) {
        let stream = 2 * self.next.unsigned_abs() + 1;
        self.next = self.next.wrapping_add(1);
        // Literals whose names are in the static table of RFC 7541, but for the last one.
        let mut headers = vec![0x83, 0x86, 0x04];
        text(&mut headers, path);
        headers.push(0x01);
        text(&mut headers, "localhost");
        headers.extend([0x0f, 0x10]);
        text(&mut headers, "application/grpc");
        headers.push(0x00);
        text(&mut headers, "te");
        text(&mut headers, "trailers");
        frame(out, HEADERS, END_HEADERS, stream, headers.len());
        out.extend_from_slice(&headers);
        // Not compressed; its length; then fields 1 and 2 of the message.
        self.message.clear();
        self.message.extend_from_slice(&[0; 5]);
        field(&mut self.message, 1, &self.key);
        if let Some(value) = value {
            field(&mut self.message, 2, value);
        }
        let length = u32::try_from(self.message.len() - 5).expect("values are short");
        self.message[1..5].copy_from_slice(&length.to_be_bytes());
        let mut parts = self.message.chunks(FRAME_BYTES).peekable();
        while let Some(part) = parts.next() {
            frame(out, DATA, if parts.peek().is_none() { END_STREAM } else { 0 }, stream, part.len());
            out.extend_from_slice(part);
        }
    }
}

impl super::Encoder for Encoder {
    /// No header is to be referred to later, and the server may send what it likes. After 2 GiB of replies on a connection it
    /// would have to be told so again.
    fn opening(&self) -> Vec<u8> {
        let mut out = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        // The size of the table of headers, and a stream's window.
        let settings = [(1_u16, 0), (4, LARGEST_WINDOW)];
        frame(&mut out, SETTINGS, 0, 0, 6 * settings.len());
        for (setting, value) in settings {
            out.extend_from_slice(&setting.to_be_bytes());
            out.extend_from_slice(&value.to_be_bytes());
        }
        frame(&mut out, WINDOW_UPDATE, 0, 0, 4);
        out.extend_from_slice(&(LARGEST_WINDOW - FIRST_WINDOW).to_be_bytes());
        out
    }

    fn next(&self) -> Option<i32> {
        Some(self.next)
    }

    fn read(&mut self, number: u64, _values: &mut Values, out: &mut Vec<u8>) {
        self.shape.names.write(number, &mut self.key);
        self.request(RANGE, None, out);
    }

    fn write(&mut self, number: u64, _is_insert: bool, values: &mut Values, out: &mut Vec<u8>) {
        self.shape.names.write(number, &mut self.key);
        self.request(PUT, Some(values.next(self.shape.bytes())), out);
    }

    fn counter(&self) -> Box<dyn super::ReplyCounter> {
        Box::new(ReplyCounter::default())
    }
}

/// The head of a frame.
fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, length: usize) {
    let length = u32::try_from(length).expect("frames are short");
    out.extend_from_slice(&length.to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
}

/// A short text of a header.
fn text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("texts of headers are short"));
    out.extend_from_slice(text.as_bytes());
}

/// A field of bytes in a Protocol Buffers message.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(bytes);
}

/// Whether the answer to a range has a record: what `frame` begins with, after its head, is the message's flag and length, the
/// answer's header as field 1, and then its records as field 2. A message that comes later is taken for one with a record.
fn has_record(frame: &[u8]) -> bool {
    let Some(message @ [_, ..]) = frame.get(HEAD_BYTES + 5..) else { return true };
    let after_header = match message {
        [0x0a, length, rest @ ..] => rest.get(usize::from(*length)..).unwrap_or_default(),
        _ => message,
    };
    after_header.first() == Some(&0x12)
}

/// Takes replies apart as far as they say which request they answer, and whether they have a record. One that ends without a
/// message has failed; why is in headers that are not decoded.
#[derive(Default)]
struct ReplyCounter {
    frames: Frames,
    /// Streams whose message has come, or begun to, and whether it has a record.
    answered: Vec<(u32, bool)>,
    finished: Vec<i32>,
    /// Of each that is finished, how many records are not there.
    absent: Vec<u32>,
    errors: Errors,
}

impl super::ReplyCounter for ReplyCounter {
    fn take(&mut self, bytes: &[u8]) -> Replies<'_> {
        self.finished.clear();
        self.absent.clear();
        let length = |head: &[u8; HEAD_BYTES]| HEAD_BYTES + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        self.frames.cut(bytes, length, |frame| {
            let (kind, flags) = (frame[3], frame[4]);
            let stream = u32::from_be_bytes([frame[5] & 0x7f, frame[6], frame[7], frame[8]]);
            let place = self.answered.iter().position(|(answered, _)| *answered == stream);
            let ends = matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0;
            if kind == DATA && place.is_none() {
                self.answered.push((stream, has_record(frame)));
            }
            if ends || kind == RST_STREAM {
                let mut has_record = true;
                match place.filter(|_| ends) {
                    Some(place) => has_record = self.answered.swap_remove(place).1,
                    None => self.errors.add("the request was answered without a message".into()),
                }
                self.finished.push((stream / 2) as i32);
                self.absent.push(u32::from(!has_record));
            }
        });
        Replies::to(&self.finished, &self.absent)
    }

    fn errors(&mut self) -> &mut Errors {
        &mut self.errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Encoder as _, ReplyCounter as _};
    use crate::workload::Operation;

    #[test]
    fn replies_are_told_apart_however_they_are_cut() {
        let mut stream = Vec::new();
        let mut add = |kind, flags, id, payload: &[u8]| {
            frame(&mut stream, kind, flags, id, payload.len());
            stream.extend_from_slice(payload);
        };
        add(SETTINGS, 0, 0, &[0; 6]);
        add(HEADERS, END_HEADERS, 3, b"headers");
        add(DATA, 0, 3, &[7; 1_000]);
        add(HEADERS, END_HEADERS, 1, b"headers");
        add(WINDOW_UPDATE, 0, 0, &[0; 4]);
        add(DATA, 0, 3, &[7; 10]);
        add(HEADERS, END_HEADERS | END_STREAM, 3, b"trailers");
        add(DATA, 0, 1, &[7; 10]);
        add(HEADERS, END_HEADERS | END_STREAM, 1, b"trailers");
        add(HEADERS, END_HEADERS | END_STREAM, 5, b"only trailers");
        add(RST_STREAM, 0, 7, &[0; 4]);
        for cut in 0..=stream.len() {
            let mut counter = ReplyCounter::default();
            let mut numbers = counter.take(&stream[..cut]).numbers.unwrap().to_vec();
            numbers.extend(counter.take(&stream[cut..]).numbers.unwrap());
            assert_eq!((numbers, counter.errors.count), (vec![1, 0, 2, 3], 2), "cut at {cut}");
            assert!(counter.answered.is_empty());
        }
    }

    /// As etcd 3 answers a range: the header, and then the record if there is one, and how many there are.
    #[test]
    fn an_answer_without_a_record_is_told_from_one_with_a_record() {
        let header = [&[0x0a, 25][..], &[0x08; 25]].concat();
        let record = [&header[..], &[0x12, 3, 0x0a, 1, b'k', 0x20, 1]].concat();
        let mut stream = Vec::new();
        for (id, message) in [(1, &header), (3, &record)] {
            let prefix = [0, 0, 0, 0, u8::try_from(message.len()).unwrap()];
            frame(&mut stream, HEADERS, END_HEADERS, id, 0);
            frame(&mut stream, DATA, 0, id, prefix.len() + message.len());
            stream.extend([&prefix[..], message].concat());
            frame(&mut stream, HEADERS, END_HEADERS | END_STREAM, id, 0);
        }
        let mut counter = ReplyCounter::default();
        let replies = counter.take(&stream);
        assert_eq!((replies.numbers.unwrap(), replies.absent), (&[0, 1][..], &[1, 0][..]));
    }

    #[test]
    fn a_request_is_cut_into_frames_that_end_with_it() {
        let mut encoder = Encoder::new(RecordShape::whole(1, 40_000));
        let mut out = Vec::new();
        assert_eq!(encoder.encode(Operation::Read, 7, &mut Values::new(1), &mut out), (1, Some(0)));
        assert_eq!(encoder.encode(Operation::Update, 7, &mut Values::new(1), &mut out), (1, Some(1)));
        let (mut rest, mut heads) = (&out[..], Vec::new());
        while let Some((head, after)) = rest.split_at_checked(HEAD_BYTES) {
            heads.push((head[3], head[4], head[8]));
            rest = &after[u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize..];
        }
        let put = [(HEADERS, END_HEADERS, 3), (DATA, 0, 3), (DATA, 0, 3), (DATA, END_STREAM, 3)];
        assert_eq!(heads, [&[(HEADERS, END_HEADERS, 1), (DATA, END_STREAM, 1)][..], &put].concat());
    }
}
