//! What can go wrong in a query: the classes, texts and places of RethinkDB's errors.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tessera_document::{Document, Value};

/// A name as messages show it: RethinkDB writes them with C's functions, which stop at a zero.
pub fn until_nul(text: &str) -> &str {
    text.split('\0').next().unwrap_or_default()
}

/// A place in a query: the position of a term in the tree of [`Frames`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub(crate) u32);

impl FrameId {
    /// The outermost term.
    pub const ROOT: Self = Self(0);
}

/// One step from a term to a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The argument at this position.
    Position(u32),
    /// The optional argument, or the field of an object, of this name.
    Name(Box<str>),
}

/// The places of all terms of a query: a term's parent and the step from there.
#[derive(Debug, Clone)]
pub struct Frames {
    places: Vec<(u32, Step)>,
}

impl Default for Frames {
    fn default() -> Self {
        Self { places: vec![(0, Step::Position(0))] }
    }
}

impl Frames {
    pub fn add(&mut self, parent: FrameId, step: Step) -> FrameId {
        self.places.push((parent.0, step));
        FrameId((self.places.len() - 1) as u32)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The steps from the outermost term to this one: the backtrace of an error there.
    pub fn path(&self, frame: FrameId) -> Vec<Step> {
        let (mut at, mut path) = (frame.0, Vec::new());
        while at != 0 {
            let Some((parent, step)) = self.places.get(at as usize) else { break };
            path.push(step.clone());
            at = *parent;
        }
        path.reverse();
        path
    }
}

/// The class of an error, as drivers tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// A fault of the server.
    Internal,
    /// A limit was exceeded.
    ResourceLimit,
    /// The query is wrong.
    QueryLogic,
    /// Something is not there; `default` catches this.
    NonExistence,
    /// An operation was certainly not carried out.
    OpFailed,
    /// An operation may have been carried out.
    OpIndeterminate,
    /// `r.error(message)`.
    User,
    /// `r.error()` without a message, which rethrows inside of `default`.
    EmptyUser,
    /// The user may not do this.
    Permission,
    /// The query was stopped.
    Interrupted,
}

impl ErrorKind {
    pub(crate) const ALL: [Self; 10] = [
        Self::Internal,
        Self::ResourceLimit,
        Self::QueryLogic,
        Self::NonExistence,
        Self::OpFailed,
        Self::OpIndeterminate,
        Self::User,
        Self::EmptyUser,
        Self::Permission,
        Self::Interrupted,
    ];

    /// The number that the protocol has for this class.
    pub fn code(self) -> u32 {
        match self {
            Self::Internal | Self::Interrupted => 1_000_000,
            Self::ResourceLimit => 2_000_000,
            Self::QueryLogic | Self::EmptyUser => 3_000_000,
            Self::NonExistence => 3_100_000,
            Self::OpFailed => 4_100_000,
            Self::OpIndeterminate => 4_200_000,
            Self::User => 5_000_000,
            Self::Permission => 6_000_000,
        }
    }
}

/// An error with its message and, once a term has claimed it, its place.
#[derive(Clone)]
pub struct Error(Box<Fault>);

#[derive(Debug, Clone)]
struct Fault {
    kind: ErrorKind,
    message: OnceLock<String>,
    /// The field that the object has not: the message, which shows the object, is made when somebody looks at it, since most errors
    /// of this kind say only that a row is to be left out.
    absent: Option<(Arc<str>, Document)>,
    frame: Option<FrameId>,
}

/// A result with an [`Error`] of ReQL.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error that no term is blamed for yet.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = OnceLock::from(message.into());
        Self(Box::new(Fault { kind, message, absent: None, frame: None }))
    }

    /// That an object has no such field.
    pub(crate) fn no_attribute(name: &Arc<str>, object: &Document) -> Self {
        let absent = Some((name.clone(), object.clone()));
        Self(Box::new(Fault { kind: ErrorKind::NonExistence, message: OnceLock::new(), absent, frame: None }))
    }

    /// An error of kind [`ErrorKind::QueryLogic`].
    pub fn logic(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::QueryLogic, message)
    }

    /// An error of kind [`ErrorKind::NonExistence`], which `default` catches.
    pub fn non_existence(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NonExistence, message)
    }

    /// An error of kind [`ErrorKind::OpFailed`].
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::OpFailed, message)
    }

    /// An error of kind [`ErrorKind::ResourceLimit`].
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::ResourceLimit, message)
    }

    /// A complaint about the type of a value: that null is no number means that something is not there.
    pub fn typed(value: &Value, message: impl Into<String>) -> Self {
        Self::new(if matches!(value, Value::Null) { ErrorKind::NonExistence } else { ErrorKind::QueryLogic }, message)
    }

    /// That a feed ends because its table cannot tell of changes any more.
    pub fn aborted_feed() -> Self {
        Self::failed("Changefeed aborted (unavailable).")
    }

    /// The kind, by which drivers choose the class of their exception.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The text for the client.
    pub fn message(&self) -> &str {
        self.0.message.get_or_init(|| {
            let Some((name, object)) = &self.0.absent else { return String::new() };
            let shown = object.value().to_value().ok().and_then(|object| object.to_pretty_json().ok());
            let name = until_nul(name);
            format!("No attribute `{name}` in object:\n{}", shown.unwrap_or_default())
        })
    }

    /// The term that is blamed, if one is.
    pub fn frame(&self) -> Option<FrameId> {
        self.0.frame
    }

    /// Gives the error its place if it has none yet.
    #[must_use]
    pub fn at(mut self, frame: FrameId) -> Self {
        self.0.frame.get_or_insert(frame);
        self
    }

    /// The error without a place in the query: it struck in an option of the whole query.
    #[must_use]
    pub fn elsewhere(mut self) -> Self {
        self.0.frame = Some(FrameId::ROOT);
        self
    }

    /// The same error with another text.
    #[must_use]
    pub fn with_message(mut self, message: String) -> Self {
        self.0.message = OnceLock::from(message);
        self
    }

    /// The same error with another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Whether `default` catches it.
    pub fn is_non_existence(&self) -> bool {
        self.0.kind == ErrorKind::NonExistence
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.message())
    }
}

impl std::error::Error for Error {}

/// Gives errors of a result their place if they have none yet.
pub trait At {
    #[must_use]
    fn at(self, frame: FrameId) -> Self;
}

impl<T> At for Result<T> {
    fn at(self, frame: FrameId) -> Self {
        self.map_err(|error| error.at(frame))
    }
}
