//! What stands around a Thrift message.
//!
//! A request is a header of one of two versions, then the message; integers are big-endian. Version 0, 48 bytes:
//! `"THFT" | u32 version | u32 length of the header | u32 | u32 length of the message | u32 | i32 table | i32 partition |
//! i32 timeout in ms | i32 | u64 partition hash`. Version 1, 16 bytes: `"THFT" | u32 version | u32 length of a struct |
//! u32 length of the message`, then the struct. A reply is `u32 length with these four bytes | name of an error | message`,
//! the strings and the message as Thrift writes them.

use crate::wire::{Input, Output, Wire, input, output, read_fields, record, write_field};
use bytes::{Bytes, BytesMut};
use std::time::Duration;
use tessera_store::PATIENCE;
use tessera_types::ReadMode;
use thrift::protocol::TOutputProtocol;

/// Longest message besides what a write may have: names, and many small keys.
const SPARE_BYTES: usize = 1 << 20;
/// Longest header of version 1.
const META_BYTES: usize = 4 << 10;
/// As much of a message as tells which call it is.
const BEGINNING: usize = 256;
const MAGIC: &[u8; 4] = b"THFT";
const HEADER_V0: usize = 48;
const HEADER_V1: usize = 16;

/// Why a connection cannot go on: where the next request begins is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    NotThrift,
    Version(u32),
    Header,
}

record! {
    /// What a request of version 1 says about itself.
    RequestMeta {
        1: table: i32, 2: partition: i32, 3: timeout_ms: i32, 4: partition_hash: i64, 5: is_backup_request: bool,
    }
}

impl RequestMeta {
    pub(crate) fn reads(&self) -> ReadMode {
        // The client asks a replica that need not lead, because the one that does is slow.
        if self.is_backup_request { ReadMode::Outdated } else { ReadMode::Single }
    }
}

/// A whole request.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) meta: RequestMeta,
    /// All of it, to be handed to another node as it is.
    pub(crate) bytes: Bytes,
    message_at: usize,
}

impl Frame {
    pub(crate) fn message(&self) -> &[u8] {
        &self.bytes[self.message_at..]
    }

    /// How long the request is tried: as long as the client says that it waits for the answer, and no longer than [`PATIENCE`].
    pub(crate) fn patience(&self) -> Duration {
        let timeout = u64::try_from(self.meta.timeout_ms).ok().filter(|ms| *ms > 0);
        timeout.map_or(PATIENCE, Duration::from_millis).min(PATIENCE)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The lengths of a request: of what stands before its message, and of all of it; `None` while too little is there to know.
pub(crate) fn lengths(buffer: &[u8]) -> Result<Option<(usize, usize)>, FrameError> {
    let magic = buffer.len().min(MAGIC.len());
    if buffer[..magic] != MAGIC[..magic] {
        return Err(FrameError::NotThrift);
    }
    if buffer.len() < 8 {
        return Ok(None);
    }
    let (before, message) = match u32_at(buffer, 4) {
        0 if buffer.len() < HEADER_V0 => return Ok(None),
        0 if u32_at(buffer, 8) as usize != HEADER_V0 => return Err(FrameError::Header),
        0 => (HEADER_V0, u32_at(buffer, 16) as usize),
        1 if buffer.len() < HEADER_V1 => return Ok(None),
        1 if u32_at(buffer, 8) as usize > META_BYTES => return Err(FrameError::Header),
        1 => (HEADER_V1 + u32_at(buffer, 8) as usize, u32_at(buffer, 12) as usize),
        version => return Err(FrameError::Version(version)),
    };
    Ok(Some((before, before + message)))
}

/// Reads what stands before a message, of a length that is right.
pub(crate) fn read_meta(header: &[u8]) -> Result<RequestMeta, FrameError> {
    if u32_at(header, 4) > 0 {
        return RequestMeta::read(&mut input(&header[HEADER_V1..])).map_err(|_| FrameError::Header);
    }
    Ok(RequestMeta {
        table: u32_at(header, 24).cast_signed(),
        partition: u32_at(header, 28).cast_signed(),
        timeout_ms: u32_at(header, 32).cast_signed(),
        partition_hash: i64::from_be_bytes(header[40..48].try_into().expect("eight bytes")),
        is_backup_request: false,
    })
}

/// What the beginning of a buffer turned out to be.
#[derive(Debug)]
pub(crate) enum Taken {
    Request(Frame),
    /// With how many bytes it needs, as far as that is known.
    Incomplete(usize),
    /// The beginning of a request that is longer than any may be, and how many bytes of it are still to come.
    TooLong(Frame, usize),
}

/// Takes the next request out of the buffer.
///
/// # Errors
/// If what is there is no request.
pub(crate) fn take(buffer: &mut BytesMut, write_bytes: usize) -> Result<Taken, FrameError> {
    let Some((message_at, length)) = lengths(buffer)? else { return Ok(Taken::Incomplete(0)) };
    let is_too_long = length - message_at > write_bytes.saturating_add(SPARE_BYTES);
    let wanted = if is_too_long { message_at + BEGINNING } else { length };
    if buffer.len() < wanted {
        return Ok(Taken::Incomplete(wanted));
    }
    let bytes = buffer.split_to(wanted).freeze();
    let meta = read_meta(&bytes[..message_at])?;
    let frame = Frame { meta, bytes, message_at };
    Ok(if is_too_long { Taken::TooLong(frame, length - wanted) } else { Taken::Request(frame) })
}

/// What a message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// A part of the frame.
    name: Bytes,
    pub(crate) sequence: i32,
}

impl Call {
    /// Empty for one that is not even text.
    pub(crate) fn name(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default()
    }
}

/// Version and type of messages, in the strict form of the binary protocol.
const CALL: u32 = 0x8001_0001;
const REPLY: u32 = 0x8001_0002;
const ONE_WAY: u32 = 0x8001_0004;

/// Reads the beginning of a frame's message, and returns its arguments too. The `thrift` crate would make a string of each
/// name.
pub(crate) fn read_call(frame: &Frame) -> Option<(Call, &[u8])> {
    let (version, rest) = frame.message().split_first_chunk::<4>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (name, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let (sequence, arguments) = rest.split_first_chunk::<4>()?;
    let is_call = [CALL, ONE_WAY].contains(&u32::from_be_bytes(*version));
    let call = Call { name: frame.bytes.slice_ref(name), sequence: i32::from_be_bytes(*sequence) };
    is_call.then_some((call, arguments))
}

/// Reads the one argument of a call.
pub(crate) fn read_argument<T: Wire + Default>(input: &mut Input<'_>) -> thrift::Result<T> {
    let mut argument = T::default();
    read_fields(input, |input, id, field_type| {
        let is_it = id == 1 && field_type == T::TYPE;
        if is_it {
            argument = T::read(input)?;
        }
        Ok(is_it)
    })?;
    Ok(argument)
}

/// Appends a reply.
pub(crate) fn write_reply<T: Wire>(out: &mut Vec<u8>, call: &Call, result: &T) {
    write_frame(out, "ERR_OK", call, |output| {
        write_field(output, 0, result)?;
        output.write_field_stop()
    });
}

/// Appends a reply that says only which error there was; its content is not read.
pub(crate) fn write_error(out: &mut Vec<u8>, call: &Call, error: &str) {
    write_frame(out, error, call, |output| output.write_field_stop());
}

fn write_frame(out: &mut Vec<u8>, error: &str, call: &Call, write: impl FnOnce(&mut Output<'_>) -> thrift::Result<()>) {
    let began = out.len();
    out.extend_from_slice(&[0; 4]);
    write_content(&mut output(out), error, call, write).expect("memory takes what is written");
    let length = u32::try_from(out.len() - began).expect("replies are far below 4 GiB");
    out[began..began + 4].copy_from_slice(&length.to_be_bytes());
}

fn write_content(
    output: &mut Output<'_>,
    error: &str,
    call: &Call,
    write: impl FnOnce(&mut Output<'_>) -> thrift::Result<()>,
) -> thrift::Result<()> {
    output.write_string(error)?;
    output.write_i32(REPLY.cast_signed())?;
    output.write_bytes(&[&call.name[..], b"_ACK"].concat())?;
    output.write_i32(call.sequence)?;
    write(output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::request;
    use crate::wire::Blob;

    #[test]
    fn a_request_is_tried_for_as_long_as_its_client_waits() {
        let patience = |timeout_ms: i32| {
            let mut request = request("RPC_RRDB_RRDB_GET", &Blob(b"\0\x01hs".to_vec()));
            request[32..36].copy_from_slice(&timeout_ms.to_be_bytes());
            let Ok(Taken::Request(frame)) = take(&mut request[..].into(), 1_000) else { panic!("{request:?}") };
            frame.patience()
        };
        assert_eq!(patience(300), Duration::from_millis(300));
        for says_nothing_or_too_much in [0, -1, i32::MAX] {
            assert_eq!(patience(says_nothing_or_too_much), PATIENCE);
        }
    }
}
