//! Answers as they go over the wire.

use tessera_reql::{ErrorKind, Failure, Stage, Step, write_answer};

pub(crate) const ATOM: u8 = 1;
pub(crate) const SEQUENCE: u8 = 2;
pub(crate) const PARTIAL: u8 = 3;
pub(crate) const WAIT_COMPLETE: &[u8] = br#"{"t":4,"r":[]}"#;
pub(crate) const NO_MORE: &[u8] = br#"{"t":2,"r":[],"n":[]}"#;

/// Values in an answer of this type.
pub(crate) fn values<'a>(
    kind: u8,
    values: impl IntoIterator<Item = &'a tessera_document::Value>,
    has_profile: bool,
) -> Result<Vec<u8>, Failure> {
    let mut out = format!("{{\"t\":{kind},\"r\":[").into_bytes();
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_answer(value, &mut out)?;
    }
    out.extend_from_slice(if has_profile { b"],\"p\":[],\"n\":[]}" } else { b"],\"n\":[]}" });
    Ok(out)
}

pub(crate) fn failure(failure: &Failure) -> Vec<u8> {
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
    answer.to_string().into_bytes()
}

/// An error that is not about the terms of a query.
pub(crate) fn client_error(message: String) -> Vec<u8> {
    failure(&Failure { stage: Stage::Client, kind: ErrorKind::QueryLogic, message, backtrace: Vec::new() })
}
