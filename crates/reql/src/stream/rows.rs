//! Where rows come from.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{BATCH_ROWS, FeedSort, Rows, Stream, Subject, eager};
use crate::env::{Env, Later};
use crate::error::{At as _, Error, FrameId, Result};
use crate::function::Function;
use crate::lazy::Lazy;
use crate::size::Size;
use crate::value::{self, Array, Value};

/// The elements of an array.
pub struct ArrayRows {
    items: Array,
    at: usize,
}

impl ArrayRows {
    pub fn new(items: Array) -> Self {
        Self { items, at: 0 }
    }
}

impl Rows for ArrayRows {
    fn next(&mut self, _env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let end = (self.at + limit).min(self.items.len());
        let rows = self.items[self.at..end].iter().cloned().map(Lazy::Value).collect();
        self.at = end;
        Ok(rows)
    }

    fn is_array(&self) -> bool {
        true
    }
}

/// Rows that are there, but not as an array.
pub struct ReadyRows(VecDeque<Lazy>);

impl ReadyRows {
    pub fn new(rows: Vec<Lazy>) -> Self {
        Self(rows.into())
    }
}

impl Rows for ReadyRows {
    fn next(&mut self, _env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let count = self.0.len().min(limit);
        Ok(self.0.drain(..count).collect())
    }
}

type MakeRows = dyn FnOnce(&Env) -> Result<Vec<Value>> + Send;

/// Rows that are made all at once, when the first one is asked for.
pub struct DeferredRows {
    make: Option<Box<MakeRows>>,
    ready: VecDeque<Lazy>,
}

impl DeferredRows {
    pub fn new(make: impl FnOnce(&Env) -> Result<Vec<Value>> + Send + 'static) -> Self {
        Self { make: Some(Box::new(make)), ready: VecDeque::new() }
    }
}

impl Rows for DeferredRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        if let Some(make) = self.make.take() {
            self.ready = make(env)?.into_iter().map(Lazy::Value).collect();
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).collect())
    }
}

/// Integers from `at` up to, but without, `end`; without an end for ever.
pub struct RangeRows {
    pub at: i64,
    pub end: Option<i64>,
}

impl Rows for RangeRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let until = self.at.saturating_add(limit as i64);
        let until = self.end.map_or(until, |end| until.min(end));
        let mut rows = Vec::new();
        while self.at < until {
            env.step()?;
            rows.push(value::number(self.at as f64)?.into());
            self.at += 1;
        }
        Ok(rows)
    }

    fn is_infinite(&self) -> bool {
        self.end.is_none()
    }
}

/// Rows of a stream from one position to another.
pub struct SliceRows {
    inner: Stream,
    at: u64,
    from: u64,
    until: Option<u64>,
}

impl SliceRows {
    pub fn new(inner: Stream, from: u64, until: Option<u64>) -> Self {
        Self { inner, at: 0, from, until }
    }
}

impl Rows for SliceRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        while self.at < self.from {
            let skipped = self.inner.next_rows(env, (self.from - self.at).min(BATCH_ROWS as u64) as usize)?;
            if skipped.is_empty() {
                return Ok(skipped);
            }
            self.at += skipped.len() as u64;
        }
        let wanted = self.until.map_or(limit, |until| (until.saturating_sub(self.at)).min(limit as u64) as usize);
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let rows = self.inner.next_rows(env, wanted)?;
        self.at += rows.len() as u64;
        Ok(rows)
    }

    fn is_array(&self) -> bool {
        self.inner.is_array()
    }

    fn is_infinite(&self) -> bool {
        self.inner.is_infinite()
    }

    fn feed(&self) -> Option<FeedSort> {
        self.inner.feed()
    }

    fn subjects(self: Box<Self>, place: FrameId) -> Result<Vec<Subject>> {
        let (from, until, frame) = (self.from, self.until, self.inner.frame);
        let mut subjects = self.inner.subjects(place)?;
        match (from, until, &mut subjects[..]) {
            (0, Some(count), [subject]) => subject.limit(count)?,
            _ => return Err(eager().at(frame)),
        }
        Ok(subjects)
    }
}

/// Several streams: one after the other, or merged by an order that each of them has.
pub struct UnionRows {
    streams: VecDeque<Stream>,
    /// How to compare two rows, if the streams are merged.
    order: Option<Box<RowOrder>>,
    heads: Vec<Option<Lazy>>,
}

type RowOrder = dyn Fn(&Env, &Lazy, &Lazy) -> Result<std::cmp::Ordering> + Send;

impl UnionRows {
    pub fn new(streams: Vec<Stream>) -> Self {
        Self { streams: streams.into(), order: None, heads: Vec::new() }
    }

    pub fn merged(streams: Vec<Stream>, order: Box<RowOrder>) -> Self {
        Self { streams: streams.into(), order: Some(order), heads: Vec::new() }
    }

    fn next_merged(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let Some(order) = &self.order else { return Ok(Vec::new()) };
        if self.heads.is_empty() {
            for stream in &mut self.streams {
                self.heads.push(stream.next(env)?.map(Lazy::Value));
            }
        }
        let (mut rows, mut size) = (Vec::new(), Size::default());
        while rows.len() < limit && !size.is_batch() {
            let mut best: Option<usize> = None;
            for (at, head) in self.heads.iter().enumerate() {
                let Some(head) = head else { continue };
                let is_better = match best.and_then(|best| self.heads[best].as_ref()) {
                    None => true,
                    Some(so_far) => order(env, head, so_far)?.is_lt(),
                };
                if is_better {
                    best = Some(at);
                }
            }
            let Some(best) = best else { break };
            let next = self.streams[best].next(env)?.map(Lazy::Value);
            if let Some(row) = std::mem::replace(&mut self.heads[best], next) {
                size.add(row.encoded_len())?;
                rows.push(row);
            }
        }
        Ok(rows)
    }
}

impl Rows for UnionRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        if self.order.is_some() {
            return self.next_merged(env, limit);
        }
        let (mut waits, mut look_again) = (false, None);
        let mut at = 0;
        while let Some(stream) = self.streams.get_mut(at) {
            match stream.next_rows(env, limit) {
                Ok(rows) if !rows.is_empty() => {
                    if self.streams.iter().all(|stream| stream.feed().is_some()) {
                        // None waits for ever for another one that always has something.
                        self.streams.rotate_left(at + 1);
                    }
                    return Ok(rows);
                }
                Ok(_) => drop(self.streams.remove(at)),
                // The others may have something.
                Err(error) => match env.take_wait() {
                    None => return Err(error),
                    Some(wait) => {
                        look_again = [look_again, wait.look_again].into_iter().flatten().min();
                        waits = true;
                        at += 1;
                    }
                },
            }
        }
        if waits { Err(env.wait(look_again)) } else { Ok(Vec::new()) }
    }

    fn is_array(&self) -> bool {
        self.streams.iter().all(Stream::is_array)
    }

    fn is_infinite(&self) -> bool {
        self.streams.iter().any(Stream::is_infinite)
    }

    fn feed(&self) -> Option<FeedSort> {
        self.streams.iter().filter_map(Stream::feed).reduce(FeedSort::with)
    }

    fn subjects(self: Box<Self>, place: FrameId) -> Result<Vec<Subject>> {
        if self.order.is_some() {
            return Err(eager());
        }
        let subjects = self.streams.into_iter().map(|stream| stream.subjects(place));
        Ok(subjects.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

/// A function of one row of each of several streams, as long as all of them have rows.
pub struct MapRows {
    streams: Vec<Stream>,
    function: Arc<Function>,
    /// Rows of the first streams while the others have none yet.
    args: Vec<Value>,
}

impl MapRows {
    pub fn new(streams: Vec<Stream>, function: Arc<Function>) -> Self {
        Self { streams, function, args: Vec::new() }
    }
}

impl Rows for MapRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let (mut rows, mut size) = (Vec::new(), Size::default());
        while rows.len() < limit && !size.is_batch() {
            while let Some(stream) = self.streams.get_mut(self.args.len()) {
                match env.row_or_later(stream.next(env), !rows.is_empty())? {
                    Later::Row(row) => self.args.push(row),
                    Later::Wait | Later::End => return Ok(rows),
                }
            }
            let args = std::mem::take(&mut self.args);
            let row = self.function.call(env, &args, false)?.into_datum().at(self.function.frame)?;
            size.add(row.encoded_len())?;
            rows.push(row.into());
            if self.streams.is_empty() {
                env.step()?;
            }
        }
        Ok(rows)
    }

    fn is_array(&self) -> bool {
        !self.streams.is_empty() && self.streams.iter().all(Stream::is_array)
    }

    fn is_infinite(&self) -> bool {
        self.streams.iter().all(Stream::is_infinite)
    }

    fn feed(&self) -> Option<FeedSort> {
        self.streams.iter().filter_map(Stream::feed).reduce(FeedSort::with)
    }
}

/// Which rows of a stream fulfil a condition, by position.
pub struct OffsetRows {
    inner: Stream,
    function: Arc<Function>,
    at: usize,
}

impl OffsetRows {
    pub fn new(inner: Stream, function: Arc<Function>) -> Self {
        Self { inner, function, at: 0 }
    }
}

impl Rows for OffsetRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        let mut rows = Vec::new();
        while rows.len() < limit {
            let Later::Row(row) = env.row_or_later(self.inner.next(env), !rows.is_empty())? else { break };
            if self.function.accepts(env, &Lazy::Value(row), None)? {
                rows.push(value::integer(self.at).into());
            }
            self.at += 1;
        }
        Ok(rows)
    }

    fn is_array(&self) -> bool {
        self.inner.is_array()
    }

    fn is_infinite(&self) -> bool {
        self.inner.is_infinite()
    }

    fn feed(&self) -> Option<FeedSort> {
        self.inner.feed()
    }
}

/// The steps of a fold.
pub struct FoldSteps {
    pub accumulator: Value,
    pub step: Arc<Function>,
    pub emit: Option<Arc<Function>>,
    pub final_emit: Option<Arc<Function>>,
}

/// What a fold emits on its way.
pub struct FoldRows {
    inner: Stream,
    steps: FoldSteps,
    ready: VecDeque<Value>,
    /// What was made ready since rows were asked for.
    size: Size,
    is_done: bool,
}

impl FoldRows {
    pub fn new(inner: Stream, steps: FoldSteps) -> Self {
        Self { inner, steps, ready: VecDeque::new(), size: Size::default(), is_done: false }
    }

    fn emit(&mut self, env: &Env, function: &Function, args: &[Value]) -> Result<()> {
        let emitted = function.call(env, args, false)?;
        let value = emitted.into_datum()?;
        let Value::Array(items) = value else {
            let message = format!("Expected type ARRAY but found {}.", value.type_name());
            return Err(Error::typed(&value, message));
        };
        for item in items.iter() {
            self.size.add(item.encoded_len())?;
            self.ready.push_back(item.clone());
        }
        Ok(())
    }
}

impl Rows for FoldRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        self.size = Size::default();
        while self.ready.len() < limit && !self.size.is_batch() && !self.is_done {
            let row = match env.row_or_later(self.inner.next(env), !self.ready.is_empty())? {
                Later::Row(row) => row,
                Later::Wait => break,
                Later::End => {
                    self.is_done = true;
                    if let Some(function) = self.steps.final_emit.clone() {
                        let args = [self.steps.accumulator.clone()];
                        self.emit(env, &function, &args)?;
                    }
                    break;
                }
            };
            let old = self.steps.accumulator.clone();
            let new = self.steps.step.call(env, &[old.clone(), row.clone()], false)?.into_datum()?;
            if let Some(function) = self.steps.emit.clone() {
                self.emit(env, &function, &[old, row, new.clone()])?;
            }
            self.steps.accumulator = new;
        }
        let count = self.ready.len().min(limit);
        Ok(self.ready.drain(..count).map(Lazy::Value).collect())
    }

    fn is_array(&self) -> bool {
        self.inner.is_array()
    }

    fn is_infinite(&self) -> bool {
        self.inner.is_infinite()
    }

    fn feed(&self) -> Option<FeedSort> {
        self.inner.feed()
    }
}
