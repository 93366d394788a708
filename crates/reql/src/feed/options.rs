//! What the client asks of a feed.

use std::time::Duration;

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::val::Val;
use crate::value::Value;

/// Messages that wait for a client that does not say how many may.
const QUEUE_SIZE: usize = 100_000;

/// The options of `changes`.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedOptions {
    /// Changes of a document that come within this time are told as one; zero joins those only that have come already.
    pub squash: Option<Duration>,
    /// The most messages that wait for the client; if more come while it does not ask, they are dropped, and it is told how many.
    pub queue_size: usize,
    pub include_initial: bool,
    pub include_states: bool,
    pub include_types: bool,
    pub include_offsets: bool,
    pub include_resume_token: bool,
    /// The token of the message after which to go on.
    pub resume: Option<String>,
}

impl FeedOptions {
    /// # Errors
    /// If an option is not what it must be.
    pub fn of(call: &Call<'_>, env: &Env) -> Result<Self> {
        let flag = |name| Ok::<_, Error>(call.optarg_bool(env, name)?.unwrap_or(false));
        let resume = call.optarg(env, "resume")?.map(|token| token.as_string()).transpose()?;
        let options = Self {
            squash: call.optarg(env, "squash")?.map_or(Ok(None), |squash| squash_of(&squash))?,
            queue_size: queue_size(call, env)?,
            include_initial: flag("include_initial")?,
            include_states: flag("include_states")?,
            include_types: flag("include_types")?,
            include_offsets: flag("include_offsets")?,
            include_resume_token: flag("include_resume_token")?,
            resume: resume.map(|token| token.to_string()),
        };
        if options.squash.is_some() && (options.include_resume_token || options.resume.is_some()) {
            return Err(Error::logic(
                "Cannot use resume tokens with `squash`: one message stands for several changes.",
            ));
        }
        Ok(options)
    }
}

fn squash_of(option: &Val) -> Result<Option<Duration>> {
    let error = |message: String| Error::logic(message).at(option.frame);
    match option.as_datum()? {
        Value::Bool(squashes) => Ok(squashes.then_some(Duration::ZERO)),
        Value::Number(seconds) if seconds.get() < 0.0 => {
            Err(error("Expected BOOL or a positive NUMBER but found a negative NUMBER.".into()))
        }
        Value::Number(seconds) => Ok(Some(Duration::try_from_secs_f64(seconds.get()).unwrap_or(Duration::MAX))),
        other => Err(error(format!("Expected BOOL or NUMBER but found {}.", other.type_name()))),
    }
}

fn queue_size(call: &Call<'_>, env: &Env) -> Result<usize> {
    let Some(option) = call.optarg(env, "changefeed_queue_size")? else { return Ok(QUEUE_SIZE) };
    let size = option.as_integer()?;
    match usize::try_from(size) {
        Ok(size) if size > 0 => Ok(size),
        _ => Err(Error::logic(format!("Illegal changefeed queue size `{size}`.  (Must be >= 1.)"))),
    }
}
