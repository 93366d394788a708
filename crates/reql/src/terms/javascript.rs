//! `r.js`: a value or a function out of JavaScript.

use std::sync::Arc;
use std::time::Duration;

use crate::call::Call;
use crate::env::Env;
use crate::error::{At as _, Error, Result};
use crate::function::{Body, Function};
use crate::plan::Definition;
use crate::script::{ScriptSource, Scripted};
use crate::val::Val;
use crate::value::ValueExt as _;

pub const TERMS: &[Definition] = &[Definition::new(11, 1, 1, javascript).optargs(&["timeout"]).nondeterministic()];

/// How long a program may run at a time if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(5);

fn javascript(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let timeout = match call.optarg(env, "timeout")? {
        None => TIMEOUT,
        Some(value) => seconds(value.as_number()?).at(value.frame)?,
    };
    // RethinkDB blames the term for a program that is no text, and the argument for one that is no value.
    let text = call.datum(env, 0)?.to_text()?.clone();
    let source = ScriptSource { text, timeout };
    match env.evaluate_script(&source)? {
        Scripted::Value(value) => call.value(value),
        Scripted::Function => {
            let frame = call.frame();
            Ok(Val::function(frame, Arc::new(Function { frame, body: Body::Script(source) })))
        }
    }
}

fn seconds(seconds: f64) -> Result<Duration> {
    if seconds < 0.0 {
        return Err(Error::logic("`timeout` must not be negative."));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RethinkDB ends when it is asked for the first, and for the last.
    #[test]
    fn any_number_is_a_timeout_or_refused() {
        assert!(seconds(-1.0).is_err());
        let is = |number: f64| seconds(number).unwrap();
        assert_eq!((is(-0.0), is(0.5)), (Duration::ZERO, Duration::from_millis(500)));
        assert_eq!((is(9_007_199_254_740_993.0).as_secs(), is(1e300)), (9_007_199_254_740_992, Duration::MAX));
    }
}
