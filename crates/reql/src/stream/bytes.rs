//! Pipelines, what they have come to and why they failed, as bytes: a scan's pipeline goes to where the documents are, and partial
//! results come back. Both nodes have the same version, or one that knows the form; nothing of this is kept.
//!
//! A pipeline is the array limit of its query (`u64`), the moment that `now` means (a value), the number of its operations (`u32`), each a
//! byte for its kind and its fields, and its terminal. A partial result is a byte 0 and rows after their number, or a byte 1, the
//! number of groups, and each group with its accumulator. Texts, values and rows follow their length.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tessera_document::Document;

use super::accumulator::{Sorted, State};
use super::{Accumulator, Operation, Partial, Pipeline, Terminal};
use crate::env::{Env, Pacer};
use crate::error::{Error, ErrorKind, FrameId, Result};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::stored::{Reader, Writer};

fn unreadable() -> Error {
    Error::new(ErrorKind::Internal, "What another node has answered cannot be read.")
}

impl Writer {
    fn put_functions<'a>(&mut self, functions: impl ExactSizeIterator<Item = &'a Arc<Function>>) -> Result<()> {
        self.put_length(functions.len());
        functions.into_iter().try_for_each(|function| self.put_function(function))
    }

    fn put_row(&mut self, row: &Lazy) {
        match row {
            Lazy::Document(document) => self.put_bytes(document.bytes()),
            Lazy::Value(value) => self.put_value(value),
        }
    }

    fn put_rows<'a>(&mut self, rows: impl ExactSizeIterator<Item = &'a Lazy>) {
        self.put_length(rows.len());
        rows.for_each(|row| self.put_row(row));
    }

    fn put_option<T>(&mut self, option: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.out.push(u8::from(option.is_some()));
        if let Some(value) = option {
            put(self, value);
        }
    }

    fn put_operation(&mut self, operation: &Operation) -> Result<()> {
        match operation {
            Operation::Map(function) => {
                self.out.push(0);
                self.put_function(function)
            }
            Operation::Filter(function, default) => {
                self.out.push(1);
                self.put_function(function)?;
                self.put_functions(default.as_slice().iter())
            }
            Operation::ConcatMap(function, frame) => {
                self.out.push(2);
                self.put_place(*frame);
                self.put_function(function)
            }
            Operation::MapPresent(function) => {
                self.out.push(3);
                self.put_function(function)
            }
            Operation::Group { frame, functions, multi } => {
                self.out.extend_from_slice(&[4, u8::from(*multi)]);
                self.put_place(*frame);
                self.put_functions(functions.iter())
            }
            Operation::Zip(frame) => {
                self.out.push(5);
                self.put_place(*frame);
                Ok(())
            }
        }
    }

    fn put_terminal(&mut self, terminal: &Terminal) -> Result<()> {
        match terminal {
            Terminal::Count => self.out.push(0),
            Terminal::Sum(function) => {
                self.out.push(1);
                self.put_functions(function.as_slice().iter())?;
            }
            Terminal::Average(function) => {
                self.out.push(2);
                self.put_functions(function.as_slice().iter())?;
            }
            Terminal::Min(function) => {
                self.out.push(3);
                self.put_functions(function.as_slice().iter())?;
            }
            Terminal::Max(function) => {
                self.out.push(4);
                self.put_functions(function.as_slice().iter())?;
            }
            Terminal::Reduce(function) => {
                self.out.push(5);
                self.put_function(function)?;
            }
            Terminal::Collect => self.out.push(6),
            Terminal::Distinct => self.out.push(7),
            Terminal::Sort(keys, limit) => {
                self.out.push(8);
                self.put_option(*limit, Self::put_size);
                for (descending, _) in keys {
                    self.out.push(1 + u8::from(*descending));
                }
                self.out.push(0);
                self.put_functions(keys.iter().map(|(_, function)| function))?;
            }
        }
        Ok(())
    }

    fn put_size(&mut self, size: usize) {
        self.out.extend_from_slice(&(size as u64).to_le_bytes());
    }

    fn put_state(&mut self, state: &State) {
        match state {
            State::Numbers { count, sum } => {
                self.out.extend_from_slice(&count.to_le_bytes());
                self.out.extend_from_slice(&sum.to_le_bytes());
            }
            State::Best(best) => self.put_option(best.as_ref(), |writer, (row, key)| {
                writer.put_row(row);
                writer.put_value(key);
            }),
            State::Reduced(reduced) => self.put_option(reduced.as_ref(), Self::put_value),
            State::Rows(rows) => self.put_rows(rows.iter()),
            State::Set(set) => {
                self.put_length(set.len());
                set.iter().for_each(|value| self.put_value(value));
            }
            State::Sorted(sorted) => {
                self.put_rows(sorted.alone.as_slice().iter());
                self.put_length(sorted.rows.len());
                for (keys, row) in &sorted.rows {
                    keys.iter().for_each(|key| self.put_option(key.as_ref(), Self::put_value));
                    self.put_row(row);
                }
            }
        }
    }
}

impl Reader<'_> {
    fn functions(&mut self) -> Result<Vec<Arc<Function>>> {
        (0..self.length()?).map(|_| self.one_function()).collect()
    }

    fn one_function(&mut self) -> Result<Arc<Function>> {
        self.function(0).map(Arc::new)
    }

    fn row(&mut self) -> Result<Lazy> {
        self.kept_bytes().map(|bytes| Lazy::Document(Document::trusted(bytes)))
    }

    fn rows(&mut self) -> Result<Vec<Lazy>> {
        (0..self.length()?).map(|_| self.row()).collect()
    }

    fn option<T>(&mut self, take: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.byte()? == 0 { Ok(None) } else { take(self).map(Some) }
    }

    fn size(&mut self) -> Result<usize> {
        self.take().map(|bytes| usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX))
    }

    fn operation(&mut self) -> Result<Operation> {
        Ok(match self.byte()? {
            0 => Operation::Map(self.one_function()?),
            1 => Operation::Filter(self.one_function()?, self.functions()?.pop()),
            2 => {
                let frame = self.place()?;
                Operation::ConcatMap(self.one_function()?, frame)
            }
            3 => Operation::MapPresent(self.one_function()?),
            4 => {
                let (multi, frame) = (self.byte()? != 0, self.place()?);
                Operation::Group { frame, functions: self.functions()?, multi }
            }
            5 => Operation::Zip(self.place()?),
            _ => return Err(unreadable()),
        })
    }

    fn terminal(&mut self) -> Result<Terminal> {
        Ok(match self.byte()? {
            0 => Terminal::Count,
            1 => Terminal::Sum(self.functions()?.pop()),
            2 => Terminal::Average(self.functions()?.pop()),
            3 => Terminal::Min(self.functions()?.pop()),
            4 => Terminal::Max(self.functions()?.pop()),
            5 => Terminal::Reduce(self.one_function()?),
            6 => Terminal::Collect,
            7 => Terminal::Distinct,
            8 => {
                let (limit, mut directions) = (self.option(Self::size)?, Vec::new());
                loop {
                    match self.byte()? {
                        0 => break,
                        direction => directions.push(direction == 2),
                    }
                }
                Terminal::Sort(directions.into_iter().zip(self.functions()?).collect(), limit)
            }
            _ => return Err(unreadable()),
        })
    }

    /// The state of an accumulator of the terminal; `state` is an empty one.
    fn state(&mut self, terminal: &Terminal, state: State) -> Result<State> {
        Ok(match state {
            State::Numbers { .. } => {
                let count = u64::from_le_bytes(self.take()?);
                State::Numbers { count, sum: f64::from_le_bytes(self.take()?) }
            }
            State::Best(_) => State::Best(self.option(|reader| Ok((reader.row()?, reader.value()?)))?),
            State::Reduced(_) => State::Reduced(self.option(Self::value)?),
            State::Rows(_) => State::Rows(self.rows()?),
            State::Set(_) => State::Set((0..self.length()?).map(|_| self.value()).collect::<Result<_>>()?),
            State::Sorted(_) => {
                let keys = if let Terminal::Sort(keys, _) = terminal { keys.len() } else { 0 };
                let mut sorted = Sorted { alone: self.rows()?.pop(), ..Sorted::default() };
                for _ in 0..self.length()? {
                    let keys = (0..keys).map(|_| self.option(Self::value)).collect::<Result<_>>()?;
                    sorted.rows.push((keys, self.row()?));
                }
                State::Sorted(sorted)
            }
        })
    }

    fn end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(unreadable()) }
    }
}

impl Operation {
    /// Whether the operation may be carried out where the rows are.
    pub fn is_portable(&self) -> bool {
        self.functions().all(|function| function.is_portable())
    }
}

impl Pipeline {
    /// Whether all of it may be carried out where the rows are.
    pub fn is_portable(&self) -> bool {
        let terminal = self.terminal.as_ref().map_or_else(Vec::new, |(terminal, _)| terminal.functions());
        self.operations.iter().all(Operation::is_portable) && terminal.iter().all(|function| function.is_portable())
    }

    /// The pipeline as bytes, with what its functions need to know of the query.
    ///
    /// # Errors
    /// If a document among the values of variables is damaged.
    pub fn to_bytes(&self, env: &Env) -> Result<Vec<u8>> {
        let mut writer = Writer::new();
        writer.put_size(env.array_limit);
        writer.put_value(&env.now);
        writer.put_length(self.operations.len());
        self.operations.iter().try_for_each(|operation| writer.put_operation(operation))?;
        writer.out.push(u8::from(self.terminal.is_some()));
        if let Some((terminal, frame)) = &self.terminal {
            writer.put_place(*frame);
            writer.put_terminal(terminal)?;
        }
        Ok(writer.out)
    }

    /// Reads what [`Pipeline::to_bytes`] has written, and makes what it runs in.
    ///
    /// # Errors
    /// If the bytes are no pipeline.
    pub fn from_bytes(bytes: &[u8], pacer: Arc<dyn Pacer>) -> Result<(Arc<Self>, Env)> {
        let mut reader = Reader::new(bytes);
        let array_limit = reader.size()?;
        let mut env = Env::for_functions(pacer, reader.value()?);
        env.array_limit = array_limit;
        let operations = (0..reader.length()?).map(|_| reader.operation()).collect::<Result<_>>()?;
        let terminal = reader.option(|reader| {
            let frame = reader.place()?;
            Ok((Arc::new(reader.terminal()?), frame))
        })?;
        reader.end()?;
        Ok((Arc::new(Self { operations, terminal }), env))
    }
}

impl Partial {
    /// Encodes the result, so that another node can read it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        match self {
            Self::Rows(rows) => {
                writer.out.push(0);
                writer.put_rows(rows.iter());
            }
            Self::Groups(groups) => {
                writer.out.push(1);
                writer.put_length(groups.len());
                for (group, accumulator) in groups {
                    writer.put_option(group.as_ref(), Writer::put_value);
                    writer.put_state(&accumulator.state);
                }
            }
        }
        writer.out
    }

    /// Reads what [`Partial::to_bytes`] has written of what the pipeline has made.
    ///
    /// # Errors
    /// If the bytes are no such result.
    pub fn from_bytes(bytes: &Bytes, pipeline: &Pipeline) -> Result<Self> {
        let mut reader = Reader::sharing(bytes);
        let partial = match (reader.byte()?, &pipeline.terminal) {
            (0, _) => Self::Rows(reader.rows()?),
            (1, Some((terminal, frame))) => {
                let mut groups = BTreeMap::new();
                for _ in 0..reader.length()? {
                    let group = reader.option(Reader::value)?;
                    let mut accumulator = Accumulator::new(terminal.clone(), *frame);
                    accumulator.state = reader.state(terminal, accumulator.state)?;
                    accumulator.measure();
                    groups.insert(group, accumulator);
                }
                Self::Groups(groups)
            }
            _ => return Err(unreadable()),
        };
        reader.end()?;
        Ok(partial)
    }
}

impl Error {
    /// The error as bytes, with its place in the query.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.out.push(self.kind() as u8);
        writer.put_option(self.frame(), Writer::put_place);
        writer.put_text(self.message());
        writer.out
    }

    /// Reads what [`Error::to_bytes`] has written; of other bytes, that they cannot be read.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut reader = Reader::new(bytes);
        let mut read = || -> Result<Self> {
            let kind = reader.byte()?;
            let kind = ErrorKind::ALL.into_iter().find(|own| *own as u8 == kind).ok_or_else(unreadable)?;
            let frame: Option<FrameId> = reader.option(Reader::place)?;
            let error = Self::new(kind, reader.text()?);
            Ok(frame.map_or(error.clone(), |frame| error.at(frame)))
        };
        read().unwrap_or_else(|error| error)
    }
}
