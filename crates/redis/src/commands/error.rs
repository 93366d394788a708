use std::borrow::Cow;
use tessera_types::{Outcome, RequestError};

/// Why a command fails, with the text that Redis has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The reply's text with its code. The command changed nothing.
    Reply(Cow<'static, str>),
    /// The store refused. A transaction that it happens in is given up as a whole.
    Request(RequestError),
}

impl CommandError {
    /// The key holds a value of another type.
    pub const WRONG_TYPE: Self = Self::text("WRONGTYPE Operation against a key holding the wrong kind of value");
    /// The arguments are not in the form of the command.
    pub const SYNTAX: Self = Self::text("ERR syntax error");
    /// An argument is no integer of 64 bits.
    pub const NOT_INTEGER: Self = Self::text("ERR value is not an integer or out of range");
    /// An argument is no finite number.
    pub const NOT_FLOAT: Self = Self::text("ERR value is not a valid float");
    /// The key does not exist.
    pub const NO_SUCH_KEY: Self = Self::text("ERR no such key");
    /// The result would not fit into an integer of 64 bits.
    pub const OVERFLOW: Self = Self::text("ERR increment or decrement would overflow");
    /// The result would be no finite number.
    pub const NAN_OR_INFINITY: Self = Self::text("ERR increment would produce NaN or Infinity");
    /// An argument is a number that the command does not allow.
    pub const OUT_OF_RANGE: Self = Self::text("ERR value is out of range");

    /// The reply would be longer than one command may answer.
    pub const REPLY_TOO_LONG: Self =
        Self::text("ERR the reply would be longer than 512 MiB, the limit for one command; ask for less at a time");

    /// The connection's table was dropped.
    pub const NO_TABLE: Self =
        Self::text("ERR the chosen table does not exist any more; choose another with SELECT or TABLE");

    /// An error reply with this text, its code included.
    pub const fn text(text: &'static str) -> Self {
        Self::Reply(Cow::Borrowed(text))
    }

    /// The command got too few or too many arguments.
    pub fn arity(command: &str) -> Self {
        Self::Reply(format!("ERR wrong number of arguments for '{command}' command").into())
    }

    /// The expiry is not positive, or too far away.
    pub fn expire_time(command: &str) -> Self {
        Self::Reply(format!("ERR invalid expire time in '{command}' command").into())
    }

    /// What whoever has the command carried out must know beside the reply: that it was not done because its partition is not
    /// led here, or this node stops, and may be done elsewhere, or that nobody knows whether it was done. `None` for all other errors,
    /// which changed nothing, and would come again.
    pub fn failure(&self) -> Option<&RequestError> {
        match self {
            Self::Request(error @ (RequestError::NotReady | RequestError::ShuttingDown)) => Some(error),
            Self::Request(error) => Some(error).filter(|error| error.outcome() == Outcome::Unknown),
            Self::Reply(_) => None,
        }
    }

    /// The error line of the reply.
    pub fn line(&self) -> Cow<'static, str> {
        match self {
            Self::Reply(text) => text.clone(),
            Self::Request(error) => request_error_line(error).into(),
        }
    }
}

/// What stands before the reason where a command may have been done, or a part of it.
pub const OUTCOME_UNKNOWN: &str = "outcome unknown: ";

/// Codes that client libraries know where there is one: LOADING, OOM, MISCONF, CROSSSLOT and TRYAGAIN are acted upon.
pub fn request_error_line(error: &RequestError) -> String {
    let code = match error {
        RequestError::NotReady => "LOADING",
        RequestError::MemoryFull { .. } => "OOM",
        RequestError::DiskFull
        | RequestError::DiskFailed(_)
        | RequestError::NotApplied(_)
        | RequestError::DiskUnreadable(_) => "MISCONF",
        RequestError::Busy | RequestError::Throttled | RequestError::Held | RequestError::Contended => "TRYAGAIN",
        RequestError::CrossPartition => {
            return "CROSSSLOT Keys in request don't hash to the same slot: they are in different partitions of the \
                    table, and this command must be atomic. On a table created with --partitioner redis-slots, keys with \
                    the same {tag} share a partition"
                .into();
        }
        _ => "ERR",
    };
    let outcome = match error.outcome() {
        Outcome::NotDone => "",
        Outcome::Unknown => OUTCOME_UNKNOWN,
    };
    format!("{code} {outcome}{error}")
}

impl From<RequestError> for CommandError {
    fn from(error: RequestError) -> Self {
        Self::Request(error)
    }
}
