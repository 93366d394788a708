//! JavaScript of `r.js`, as whoever runs it sees it.

use std::sync::Arc;
use std::time::Duration;

use tessera_document::Document;

use crate::value::Value;

/// What a program gives.
#[derive(Debug)]
pub enum Scripted {
    /// A value.
    Value(Value),
    /// A function, which [`Script::call`] calls.
    Function,
}

/// Why a program gives nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptFailure {
    /// It threw an exception, or gave what is no value of ReQL: the text.
    Failed(String),
    /// Its time was over, or nobody waits for it any more.
    Late,
    /// Its time was over before it could begin, since as many programs run as may at one time.
    Busy,
    /// What ran it has ended without an answer.
    Crashed,
}

/// A program of JavaScript and when it has taken too long.
#[derive(Debug, Clone)]
pub struct ScriptSource {
    /// The text.
    pub text: Arc<str>,
    /// How long it may run at a time: once to give a value or a function, and each time that the function is called.
    pub timeout: Duration,
}

/// Whoever runs JavaScript.
pub trait ScriptEngine: Send + Sync {
    /// Something to run the programs of one query in. Costs nothing until it is used.
    fn begin(&self) -> Box<dyn Script>;
}

/// Where the programs of one query run, apart from those of others. What tells whether it goes on does not wait.
pub trait Script: Send {
    /// Runs a program. One that has given a function before is not run again. Blocks while `goes_on` says that the answer is wanted.
    ///
    /// # Errors
    /// Why there is no answer.
    fn evaluate(&mut self, source: &ScriptSource, goes_on: &dyn Fn() -> bool) -> Result<Scripted, ScriptFailure>;

    /// Calls the function that a program gives.
    ///
    /// # Errors
    /// Why there is no answer.
    fn call(
        &mut self,
        source: &ScriptSource,
        args: &[Document],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Value, ScriptFailure>;
}
