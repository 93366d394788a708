//! Answers as they go over the wire.

use tessera_document::EncodedValue;
use tessera_reql::{ErrorKind, Failure, Lazy, Profile, Stage, Step, write_answer, write_row};

pub(crate) const ATOM: u8 = 1;
pub(crate) const SEQUENCE: u8 = 2;
pub(crate) const PARTIAL: u8 = 3;
/// The longest answer. Its length goes before it in 32 bits, which some drivers read as a number with a sign.
pub(crate) const MAX_ANSWER_BYTES: usize = i32::MAX as usize;
const WAIT_COMPLETE: &[u8] = br#"{"t":4,"r":[]}"#;
const NO_MORE: &[u8] = br#"{"t":2,"r":[],"n":[]}"#;

/// Kinds of errors, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Client,
    Compile,
    Internal,
    ResourceLimit,
    QueryLogic,
    NonExistence,
    OpFailed,
    OpIndeterminate,
    User,
    Permission,
}

impl Class {
    pub(crate) const NAMES: [&str; 10] = [
        "client",
        "compile",
        "internal",
        "resource_limit",
        "query_logic",
        "non_existence",
        "op_failed",
        "op_indeterminate",
        "user",
        "permission",
    ];

    fn of(failure: &Failure) -> Self {
        match (failure.stage, failure.kind) {
            (Stage::Client, _) => Self::Client,
            (Stage::Compile, _) => Self::Compile,
            (Stage::Run, ErrorKind::Internal | ErrorKind::Interrupted) => Self::Internal,
            (Stage::Run, ErrorKind::ResourceLimit) => Self::ResourceLimit,
            (Stage::Run, ErrorKind::QueryLogic | ErrorKind::EmptyUser) => Self::QueryLogic,
            (Stage::Run, ErrorKind::NonExistence) => Self::NonExistence,
            (Stage::Run, ErrorKind::OpFailed) => Self::OpFailed,
            (Stage::Run, ErrorKind::OpIndeterminate) => Self::OpIndeterminate,
            (Stage::Run, ErrorKind::User) => Self::User,
            (Stage::Run, ErrorKind::Permission) => Self::Permission,
        }
    }
}

/// What is answered.
pub(crate) struct Reply {
    pub(crate) text: Vec<u8>,
    /// The kind of the error, if it is one.
    pub(crate) class: Option<Class>,
}

impl Reply {
    pub(crate) fn good(text: Vec<u8>) -> Self {
        Self { text, class: None }
    }

    pub(crate) fn wait_complete() -> Self {
        Self::good(WAIT_COMPLETE.to_vec())
    }

    /// The end of a stream that was stopped.
    pub(crate) fn no_more() -> Self {
        Self::good(NO_MORE.to_vec())
    }
}

/// An answer with values, to which one after the other is added.
pub(crate) struct Values {
    out: Vec<u8>,
    count: usize,
    limit: usize,
}

impl Values {
    const HEAD: &[u8] = b"{\"t\":";
    /// What stands behind the values, at most: a profile, and notes about the stream.
    const END_BYTES: usize = 1 << 20;

    pub(crate) fn new() -> Self {
        Self::up_to(MAX_ANSWER_BYTES)
    }

    fn up_to(limit: usize) -> Self {
        let mut out = Self::HEAD.to_vec();
        out.extend_from_slice(b"0,\"r\":[");
        Self { out, count: 0, limit: limit - Self::END_BYTES }
    }

    /// # Errors
    /// If the value cannot be answered, or makes the answer too long; the answer is of no use then.
    pub(crate) fn push(&mut self, value: &tessera_document::Value) -> Result<(), Failure> {
        self.separate();
        write_answer(value, &mut self.out)?;
        self.check()
    }

    /// # Errors
    /// As [`Values::push`].
    pub(crate) fn push_row(&mut self, row: &Lazy) -> Result<(), Failure> {
        self.separate();
        write_row(row, &mut self.out)?;
        self.check()
    }

    /// Makes room for values that have so many bytes when they are encoded; as JSON they have a few more.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes + bytes / 8);
    }

    fn check(&self) -> Result<(), Failure> {
        let (size, limit) = (self.out.len(), self.limit);
        if size <= limit {
            return Ok(());
        }
        let message = format!("Response size ({size}) greater than maximum ({limit}).");
        Err(Failure { stage: Stage::Run, kind: ErrorKind::ResourceLimit, message, backtrace: Vec::new() })
    }

    fn separate(&mut self) {
        if self.count > 0 {
            self.out.push(b',');
        }
        self.count += 1;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn finish(self, kind: u8, profile: Option<&Profile>) -> Vec<u8> {
        self.finish_with(kind, profile, &[])
    }

    /// With notes about the stream that the values are from.
    pub(crate) fn finish_with(mut self, kind: u8, profile: Option<&Profile>, notes: &[u8]) -> Vec<u8> {
        self.out[Self::HEAD.len()] = b'0' + kind;
        self.out.push(b']');
        if let Some(profile) = profile {
            self.out.extend_from_slice(b",\"p\":");
            self.out.extend_from_slice(&profile.take());
        }
        self.out.extend_from_slice(b",\"n\":[");
        for (at, note) in notes.iter().enumerate() {
            self.out.extend_from_slice(if at > 0 { b"," } else { b"" });
            self.out.push(b'0' + note);
        }
        self.out.extend_from_slice(b"]}");
        self.out
    }
}

/// An answer that is a stored document, or `null`; none if it cannot be written.
pub(crate) fn document(document: Option<EncodedValue<'_>>) -> Option<Reply> {
    let mut out = Vec::with_capacity(64 + document.map_or(0, |document| document.as_bytes().len() * 5 / 4));
    out.extend_from_slice(b"{\"t\":1,\"r\":[");
    match document {
        Some(document) => document.write_json(&mut out).ok()?,
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b"],\"n\":[]}");
    Some(Reply::good(out))
}

pub(crate) fn failure(failure: &Failure) -> Reply {
    let step = |step: &Step| match step {
        Step::Position(at) => serde_json::Value::from(*at),
        Step::Name(name) => serde_json::Value::from(&**name),
    };
    let backtrace: Vec<_> = failure.backtrace.iter().map(step).collect();
    let kind = match failure.stage {
        Stage::Client => 16,
        Stage::Compile => 17,
        Stage::Run => 18,
    };
    let mut answer = serde_json::json!({"t": kind, "r": [failure.message], "b": backtrace});
    if failure.stage == Stage::Run {
        answer["e"] = failure.kind.code().into();
    }
    Reply { text: answer.to_string().into_bytes(), class: Some(Class::of(failure)) }
}

/// An error that is not about the terms of a query.
pub(crate) fn client_error(message: String) -> Reply {
    failure(&Failure { stage: Stage::Client, kind: ErrorKind::QueryLogic, message, backtrace: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_document::Value;

    /// The length of the frame said less, so that the client took the rest for other answers.
    #[test]
    fn an_answer_that_is_too_long_is_an_error() {
        let limit = Values::HEAD.len() + 200 + Values::END_BYTES;
        let row = |length| Lazy::Value(Value::from("x".repeat(length)));
        let mut values = Values::up_to(limit);
        values.push_row(&row(150)).unwrap();
        let failure = values.push_row(&row(150)).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::ResourceLimit);
        assert!(failure.message.starts_with("Response size (3"), "{}", failure.message);
        assert!(Values::up_to(limit).push(&Value::from("x".repeat(300))).is_err());
        let mut values = Values::up_to(limit);
        values.push(&Value::from("x".repeat(150))).unwrap();
        let notes = [1; 10];
        assert!(values.finish_with(PARTIAL, Some(&Profile::default()), &notes).len() <= limit);
    }
}
