//! What terms evaluate to: values, and what is more than a value, such as streams, tables and functions.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::function::{Body, Function};
use crate::selection::{Database, Row, Table, TableSlice};
use crate::size::Size;
use crate::stream::Stream;
use crate::value::{Time, Value, ValueExt as _};

/// Values by group.
#[derive(Debug, Default)]
pub struct Groups {
    values: BTreeMap<Value, Value>,
    size: Size,
}

impl Groups {
    /// # Errors
    /// If the values are larger together than a query allows.
    pub fn insert(&mut self, group: Value, value: Value) -> Result<()> {
        self.size.add(group.encoded_len().saturating_add(value.encoded_len()))?;
        self.values.insert(group, value);
        Ok(())
    }

    pub fn into_iter(self) -> impl Iterator<Item = (Value, Value)> {
        self.values.into_iter()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Value, &Value)> {
        self.values.iter()
    }
}

/// A result of a term, with the term's place for complaints about it.
pub struct Val {
    pub frame: FrameId,
    pub kind: Kind,
}

pub enum Kind {
    Datum(Value),
    /// A document that `get` found, or did not.
    Row(Row),
    Stream(Stream),
    /// Documents of a table, which may be written to.
    Selection(Arc<Table>, Stream),
    Slice(TableSlice),
    Table(Arc<Table>),
    Database(Database),
    Function(Arc<Function>),
    Grouped(Groups),
}

/// What a value means where a function is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortcut {
    /// Nothing: only functions are taken.
    None,
    Constant,
    GetField,
    Pluck,
}

impl Val {
    pub fn datum(frame: FrameId, value: Value) -> Self {
        Self { frame, kind: Kind::Datum(value) }
    }

    pub fn function(frame: FrameId, function: Arc<Function>) -> Self {
        Self { frame, kind: Kind::Function(function) }
    }

    pub fn from_stream(env: &Env, frame: FrameId, stream: Stream) -> Result<Self> {
        if stream.is_array() && !stream.is_grouped() {
            let items = stream.collect(env)?;
            return Ok(Self::datum(frame, env.array(items)?));
        }
        Ok(Self { frame, kind: Kind::Stream(stream) })
    }

    pub fn type_name(&self) -> &'static str {
        match &self.kind {
            Kind::Datum(_) => "DATUM",
            Kind::Row(_) => "SINGLE_SELECTION",
            Kind::Stream(_) => "SEQUENCE",
            Kind::Selection(..) => "SELECTION",
            Kind::Slice(_) => "TABLE_SLICE",
            Kind::Table(_) => "TABLE",
            Kind::Database(_) => "DATABASE",
            Kind::Function(_) => "FUNCTION",
            Kind::Grouped(_) => "GROUPED_DATA",
        }
    }

    /// # Errors
    /// `MINVAL` and `MAXVAL` cannot be shown.
    pub fn print(&self) -> Result<String> {
        Ok(match &self.kind {
            Kind::Datum(value) => value.print()?,
            Kind::Row(row) => row.value.print()?,
            Kind::Selection(table, _) => format!("SELECTION ON table({})", table.name()),
            Kind::Slice(slice) => format!("SELECTION ON table({})", slice.table.name()),
            Kind::Table(table) => format!("table(\"{}\")", table.name()),
            Kind::Database(database) => format!("db(\"{}\")", database.name),
            other => {
                let name = match other {
                    Kind::Stream(_) => "SEQUENCE",
                    Kind::Function(_) => "FUNCTION",
                    _ => "GROUPED_DATA",
                };
                format!("VALUE {name}")
            }
        })
    }

    /// The error that says which type was expected here.
    pub fn expected(&self, name: &str) -> Error {
        match self.print() {
            Ok(shown) => self.typed_error(format!("Expected type {name} but found {}:\n{shown}", self.type_name())),
            Err(error) => error,
        }
    }

    /// A complaint about this value: about null it says that something is not there.
    pub fn typed_error(&self, message: String) -> Error {
        let is_null = match &self.kind {
            Kind::Datum(value) => value.is_null(),
            Kind::Row(row) => row.value.is_null(),
            _ => false,
        };
        let error = if is_null { Error::non_existence(message) } else { Error::logic(message) };
        error.at(self.frame)
    }

    /// The value, if this is one, or a document.
    pub fn peek(&self) -> Option<&Value> {
        match &self.kind {
            Kind::Datum(value) => Some(value),
            Kind::Row(row) => Some(&row.value),
            _ => None,
        }
    }

    pub fn as_datum(&self) -> Result<&Value> {
        if let Kind::Row(Row { error: Some(error), .. }) = &self.kind {
            return Err(error.clone());
        }
        self.peek().ok_or_else(|| self.expected("DATUM"))
    }

    pub fn into_datum(self) -> Result<Value> {
        match self.kind {
            Kind::Datum(value) => Ok(value),
            Kind::Row(row) => row.error.map_or(Ok(row.value), Err),
            kind => Err(Self { frame: self.frame, kind }.expected("DATUM")),
        }
    }

    pub fn as_bool(&self) -> Result<bool> {
        self.as_datum()?.to_bool().map_err(|error| error.at(self.frame))
    }

    pub fn as_number(&self) -> Result<f64> {
        self.as_datum()?.to_number().map_err(|error| error.at(self.frame))
    }

    pub fn as_integer(&self) -> Result<i64> {
        self.as_datum()?.to_integer().map_err(|error| error.at(self.frame))
    }

    pub fn as_small_integer(&self) -> Result<i32> {
        let integer = self.as_integer()?;
        i32::try_from(integer).map_err(|_| Error::logic(format!("Integer too large: {integer}")).at(self.frame))
    }

    pub fn as_string(&self) -> Result<Arc<str>> {
        self.as_datum()?.to_text().cloned().map_err(|error| error.at(self.frame))
    }

    pub fn as_binary(&self) -> Result<Arc<[u8]>> {
        self.as_datum()?.to_bytes().cloned().map_err(|error| error.at(self.frame))
    }

    pub fn as_time(&self) -> Result<Time> {
        if let Some(Value::Binary(_)) = self.peek() {
            return Err(Error::logic("Expected type OBJECT but found PTYPE<BINARY>."));
        }
        if let Some(geometry @ Value::Geometry(_)) = self.peek() {
            // RethinkDB takes any pseudotype for a time, and complains about what it lacks.
            geometry.field("epoch_time")?;
        }
        self.as_datum()?.to_time().map_err(|error| error.at(self.frame))
    }

    pub fn is_sequence(&self) -> bool {
        matches!(self.kind, Kind::Datum(_) | Kind::Stream(_) | Kind::Selection(..) | Kind::Slice(_) | Kind::Table(_))
    }

    pub fn is_selection(&self) -> bool {
        matches!(self.kind, Kind::Selection(..) | Kind::Slice(_) | Kind::Table(_))
    }

    pub fn into_stream(self, env: &Env) -> Result<Stream> {
        let frame = self.frame;
        match self.kind {
            Kind::Stream(stream) | Kind::Selection(_, stream) => Ok(stream),
            Kind::Table(table) => Ok(TableSlice::whole(table).stream(env, frame)),
            Kind::Slice(slice) => Ok(slice.stream(env, frame)),
            Kind::Datum(Value::Array(items)) => Ok(Stream::of_array(frame, items)),
            Kind::Datum(value) => {
                let message = format!("Cannot convert {} to SEQUENCE", value.type_name());
                Err(Error::typed(&value, message))
            }
            kind => Err(Self { frame, kind }.expected("SEQUENCE")),
        }
    }

    pub fn into_selection(self, env: &Env) -> Result<(Arc<Table>, Stream)> {
        let frame = self.frame;
        match self.kind {
            Kind::Selection(table, stream) => Ok((table, stream)),
            Kind::Table(table) => Ok((table.clone(), TableSlice::whole(table).stream(env, frame))),
            Kind::Slice(slice) => Ok((slice.table.clone(), slice.stream(env, frame))),
            kind => Err(Self { frame, kind }.expected("SELECTION")),
        }
    }

    pub fn into_table(self) -> Result<Arc<Table>> {
        match self.kind {
            Kind::Table(table) => Ok(table),
            kind => Err(Self { frame: self.frame, kind }.expected("TABLE")),
        }
    }

    pub fn into_slice(self) -> Result<TableSlice> {
        match self.kind {
            Kind::Table(table) => Ok(TableSlice::whole(table)),
            Kind::Slice(slice) => Ok(slice),
            kind => Err(Self { frame: self.frame, kind }.expected("TABLE_SLICE")),
        }
    }

    pub fn into_database(self) -> Result<Database> {
        match self.kind {
            Kind::Database(database) => Ok(database),
            kind => Err(Self { frame: self.frame, kind }.expected("DATABASE")),
        }
    }

    pub fn into_function(self, shortcut: Shortcut) -> Result<Arc<Function>> {
        let frame = self.frame;
        let value = match self.kind {
            Kind::Function(function) => return Ok(function),
            Kind::Datum(value) if shortcut != Shortcut::None => value,
            Kind::Row(row) if shortcut != Shortcut::None => row.value,
            kind => return Err(Self { frame, kind }.expected("FUNCTION")),
        };
        let body = match shortcut {
            Shortcut::GetField => Body::GetField(value),
            Shortcut::Pluck => Body::Pluck(value),
            Shortcut::Constant | Shortcut::None => Body::Constant(value),
        };
        Ok(Arc::new(Function { frame, body }))
    }
}
