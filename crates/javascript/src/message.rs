//! What a node and its worker say to each other: frames of a length in four bytes, little-endian, and a body.

use bytes::Bytes;
use tessera_document::{Document, Value};

/// The longest body, as much as one write may have.
pub const MESSAGE_BYTES: usize = 64 << 20;

const EVALUATE: u8 = 0;
const CALL: u8 = 1;
const FORGET: u8 = 2;

const VALUE: u8 = 0;
const FUNCTION: u8 = 1;
const FAILED: u8 = 2;

/// What a worker is to do.
#[derive(Debug, PartialEq)]
pub enum Request<'a> {
    /// To run a program.
    Evaluate(&'a str),
    /// To call a function, by the number that it was answered with.
    Call { function: u32, args: Vec<&'a [u8]> },
    /// To forget all programs. This has no answer.
    Forget,
}

/// What came of it.
#[derive(Debug, PartialEq)]
pub enum Reply {
    Value(Value),
    /// The program gives a function, which has this number.
    Function(u32),
    Failed(String),
}

/// The frame of a body, or `None` if it is too long for one.
fn frame(write: impl FnOnce(&mut Vec<u8>)) -> Option<Vec<u8>> {
    let mut out = vec![0; 4];
    write(&mut out);
    let length = out.len() - 4;
    if length > MESSAGE_BYTES {
        return None;
    }
    out[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Some(out)
}

/// The length of the body behind the first four bytes of a frame, if it is one that may be.
pub fn body_length(head: [u8; 4]) -> Option<usize> {
    Some(u32::from_le_bytes(head) as usize).filter(|length| *length <= MESSAGE_BYTES)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    take(rest, 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes)
}

impl<'a> Request<'a> {
    pub fn frame(&self) -> Option<Vec<u8>> {
        frame(|out| match self {
            Self::Evaluate(source) => {
                out.push(EVALUATE);
                out.extend_from_slice(source.as_bytes());
            }
            Self::Call { function, args } => {
                out.push(CALL);
                out.extend_from_slice(&function.to_le_bytes());
                for arg in args {
                    // One that is longer makes the whole too long.
                    out.extend_from_slice(&(arg.len() as u32).to_le_bytes());
                    out.extend_from_slice(arg);
                }
            }
            Self::Forget => out.push(FORGET),
        })
    }

    pub fn read(body: &'a [u8]) -> Option<Self> {
        let (kind, mut rest) = body.split_first()?;
        match *kind {
            EVALUATE => std::str::from_utf8(rest).ok().map(Self::Evaluate),
            CALL => {
                let (function, mut args) = (take_number(&mut rest)?, Vec::new());
                while !rest.is_empty() {
                    let length = take_number(&mut rest)? as usize;
                    args.push(take(&mut rest, length)?);
                }
                Some(Self::Call { function, args })
            }
            FORGET => Some(Self::Forget),
            _ => None,
        }
    }
}

impl Reply {
    pub fn frame(&self) -> Vec<u8> {
        let written = frame(|out| match self {
            Self::Value(value) => {
                out.push(VALUE);
                value.encode(out);
            }
            Self::Function(number) => {
                out.push(FUNCTION);
                out.extend_from_slice(&number.to_le_bytes());
            }
            Self::Failed(text) => {
                out.push(FAILED);
                out.extend_from_slice(text.as_bytes());
            }
        });
        written.unwrap_or_else(|| {
            let text = format!("The result has more than {MESSAGE_BYTES} bytes (limit `MESSAGE_BYTES`).");
            Self::Failed(text).frame()
        })
    }

    /// Reads what may be anything: a program may have taken over the worker.
    pub fn read(body: Vec<u8>) -> Option<Self> {
        let mut body = Bytes::from(body);
        let kind = *body.first()?;
        let rest = body.split_off(1);
        match kind {
            VALUE => Document::check(rest).ok()?.value().to_value().ok().map(Self::Value),
            FUNCTION => rest[..].try_into().ok().map(u32::from_le_bytes).map(Self::Function),
            FAILED => Some(Self::Failed(String::from_utf8_lossy(&rest).into_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]
mod tests {
    use super::*;

    fn body(frame: &[u8]) -> &[u8] {
        let (head, body) = frame.split_at(4);
        assert_eq!(body_length(head.try_into().unwrap()), Some(body.len()));
        body
    }

    #[test]
    fn what_is_written_is_read() {
        let (one, two) = (Document::encode(&Value::from("a")), Document::encode(&Value::empty_array()));
        for request in [
            Request::Evaluate("1 + 1"),
            Request::Call { function: 7, args: vec![one.bytes(), two.bytes()] },
            Request::Call { function: 0, args: Vec::new() },
            Request::Forget,
        ] {
            assert_eq!(Request::read(body(&request.frame().unwrap())), Some(request));
        }
        let value = Value::array(vec![Value::Null, Value::from(1)]).unwrap();
        for reply in [Reply::Value(value), Reply::Function(3), Reply::Failed("no".into())] {
            assert_eq!(Reply::read(body(&reply.frame()).to_vec()), Some(reply));
        }
    }

    #[test]
    fn what_is_no_message_is_not_taken_for_one() {
        for body in [&[][..], &[9], &[VALUE], &[VALUE, 0x0B + 0x20], &[FUNCTION, 1], &[VALUE, 1, 255, 255]] {
            assert_eq!(Reply::read(body.to_vec()), None, "{body:?}");
        }
        for body in [&[][..], &[9], &[CALL], &[CALL, 0, 0, 0, 0, 9, 0, 0, 0, 1], &[EVALUATE, 0xff]] {
            assert_eq!(Request::read(body), None, "{body:?}");
        }
        assert_eq!(body_length(u32::MAX.to_le_bytes()), None);
        let long = "a".repeat(MESSAGE_BYTES);
        assert_eq!(Request::Evaluate(&long).frame(), None);
        let told = Reply::read(body(&Reply::Value(Value::from(long)).frame()).to_vec());
        assert!(matches!(told, Some(Reply::Failed(text)) if text.contains("MESSAGE_BYTES")));
    }
}
