//! Programs of JavaScript as parts of a query.

use tessera_document::Document;

use crate::env::Env;
use crate::error::{Error, Result};
use crate::script::{Script, ScriptFailure, ScriptSource, Scripted};
use crate::value::Value;

impl Env {
    /// What a program of the query gives.
    ///
    /// # Errors
    /// What the program throws, that it takes too long, or that there is no JavaScript here.
    pub(crate) fn evaluate_script(&self, source: &ScriptSource) -> Result<Scripted> {
        let given = self.with_script(source, |script, goes_on| script.evaluate(source, goes_on))?;
        if let Scripted::Value(value) = &given {
            self.check_arrays(value)?;
        }
        Ok(given)
    }

    /// What the function that a program gives makes of the arguments.
    ///
    /// # Errors
    /// As [`Env::evaluate_script`].
    pub(crate) fn call_script(&self, source: &ScriptSource, args: &[Document]) -> Result<Value> {
        let value = self.with_script(source, |script, goes_on| script.call(source, args, goes_on))?;
        self.check_arrays(&value)?;
        Ok(value)
    }

    fn with_script<T>(
        &self,
        source: &ScriptSource,
        act: impl Fn(&mut dyn Script, &dyn Fn() -> bool) -> Result<T, ScriptFailure>,
    ) -> Result<T> {
        let Some(engine) = self.source()?.scripts() else {
            return Err(Error::logic("JavaScript is turned off on this server."));
        };
        let mut script = self.script.borrow_mut();
        let script = script.get_or_insert_with(|| engine.begin());
        // What a query that was stopped did not wait for is no fault of the program.
        let done = self.outside(|is_wanted| match source.timeout.is_zero() {
            true => Err(ScriptFailure::Late),
            false => act(&mut **script, is_wanted),
        })?;
        done.map_err(|failure| failure.of(source))
    }
}

impl ScriptFailure {
    /// The error, in the words of RethinkDB where it has some.
    fn of(self, source: &ScriptSource) -> Error {
        let (text, seconds) = (&source.text, source.timeout.as_secs_f64());
        match self {
            Self::Failed(message) => Error::logic(message),
            Self::Late => Error::logic(format!("JavaScript query `{text}` timed out after {seconds:.3} seconds.")),
            Self::Busy => Error::limit(format!(
                "JavaScript query `{text}` could not begin within {seconds:.3} seconds: this server runs as many as it may at one time."
            )),
            Self::Crashed => Error::logic(format!("JavaScript query `{text}` caused a crash in a worker process.")),
        }
    }
}
