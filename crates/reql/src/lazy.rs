//! Rows that may still be encoded.

use std::sync::Arc;

use tessera_document::{Document, EncodedObject, View};

use crate::error::{Error, ErrorKind, Result};
use crate::value::{ObjectBuilder, Value};

/// A row: a value, or a document as it is stored, which is decoded only when somebody needs more than some of its fields.
#[derive(Debug, Clone)]
pub enum Lazy {
    /// A decoded value.
    Value(Value),
    /// An encoded document, which is read in place.
    Document(Document),
}

pub(crate) fn damaged() -> Error {
    Error::new(ErrorKind::Internal, "A stored document is damaged.")
}

/// # Errors
/// If the document is damaged.
pub(crate) fn decode(document: &Document) -> Result<Value> {
    document.value().to_value().map_err(|_| damaged())
}

/// The fields of a document that is an object and no pseudotype.
pub(crate) fn fields(document: &Document) -> Option<EncodedObject<'_>> {
    if let View::Object(object) = document.value().view() { Some(object) } else { None }
}

/// The field of a document that is an object, without decoding the rest.
pub(crate) fn field(document: &Document, name: &Arc<str>) -> Option<Result<Value>> {
    Some(match fields(document)?.get(name) {
        Some(found) => found.to_value().map_err(|_| damaged()),
        None => Err(Error::no_attribute(name, document)),
    })
}

/// An object of those fields of a document that have these names, without decoding the others.
pub(crate) fn part<'a>(document: &Document, names: impl Iterator<Item = &'a str>) -> Option<Value> {
    let (fields, mut builder) = (fields(document)?, ObjectBuilder::default());
    for name in names {
        if let Some(found) = fields.get(name) {
            builder.insert(name, found.to_value().ok()?);
        }
    }
    builder.finish().ok()
}

impl Lazy {
    /// # Errors
    /// If a stored document is damaged.
    pub fn to_value(&self) -> Result<Value> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Document(document) => decode(document),
        }
    }

    /// # Errors
    /// If a stored document is damaged.
    pub fn into_value(self) -> Result<Value> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Document(document) => decode(&document),
        }
    }

    /// The row as an encoded document.
    pub fn to_document(&self) -> Document {
        match self {
            Self::Value(value) => Document::encode(value),
            Self::Document(document) => document.clone(),
        }
    }

    /// How many bytes the row takes when it is encoded.
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Value(value) => value.encoded_len(),
            Self::Document(document) => document.bytes().len(),
        }
    }
}

impl From<Value> for Lazy {
    fn from(value: Value) -> Self {
        Self::Value(value)
    }
}

/// # Errors
/// If a stored document is damaged.
pub(crate) fn values(rows: Vec<Lazy>) -> Result<Vec<Value>> {
    rows.into_iter().map(Lazy::into_value).collect()
}
