//! Asking the nodes that have a table's documents for what pipelines make of them, and putting together what they answer.
//!
//! Partitions are asked beside each other, slice after slice ([`crate::evaluation`]). Without an order, or where a pipeline has a terminal,
//! what comes is put together as it comes; with an order, rows are merged by the keys of their documents. A position says for each
//! partition that was begun behind which document it is.

use crate::position;
use crate::route::Place;
use crate::scan::{check_kind, document_range, index_range, key_order, not_built, only_key, scan_work, split};
use crate::tables::{Tables, damaged, mode};
use crate::work::{EvaluateWork, Reply, ScanWork, Slice, SliceEnd, Work, put_option, take_option};
use bytes::{Buf as _, BufMut as _, Bytes};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tessera_document::Document;
use tessera_engine::Order as KeyOrder;
use tessera_reql::{
    Env, Error, Evaluated, Lazy, Order, Page, Partial, Pipeline, Position, Result, Scan, TableInfo, evaluate_page,
};
use tessera_store::Table;
use tessera_types::Space;

/// Partitions that are asked at one time.
const WINDOW: usize = 16;
/// Documents that are evaluated here where the functions for one take long.
const SLOW_DOCUMENTS: u32 = 1;

/// A pipeline that is larger, by the values of its variables, is not sent to each partition with each slice.
const PIPELINE_BYTES: usize = 16 << 20;

/// What is to be evaluated.
struct Question<'a> {
    table: &'a Arc<Table>,
    info: &'a TableInfo,
    scan: &'a Scan,
    keys: ScanWork,
    pipeline: &'a Arc<Pipeline>,
    /// The pipeline, as it is sent.
    encoded: Bytes,
}

/// Partitions under way, each with the last document that was evaluated, and the first one that was not begun.
struct Progress {
    space: Space,
    partitions: u32,
    under_way: VecDeque<(u32, Option<Bytes>)>,
    next: u32,
}

impl Progress {
    fn begin(space: Space, partitions: u32) -> Self {
        Self { space, partitions, under_way: VecDeque::new(), next: 0 }
    }

    fn read(position: &Position, question: &Question<'_>, partitions: u32) -> Result<Self> {
        let mut input = Bytes::copy_from_slice(&position.0);
        let mut read = || {
            let space = Space(input.try_get_u32_le().ok()?);
            let mut progress = Self::begin(space, input.try_get_u32_le().ok()?);
            progress.next = input.try_get_u32_le().ok()?;
            while !input.is_empty() {
                let partition = input.try_get_u32_le().ok()?;
                progress.under_way.push_back((partition, take_option(&mut input)?));
            }
            Some(progress)
        };
        let progress = read().ok_or_else(damaged)?;
        position::check(progress.space, question.keys.space, question.info, question.scan)?;
        if progress.partitions == partitions { Ok(progress) } else { Err(split()) }
    }

    fn position(&self) -> Option<Position> {
        if self.under_way.is_empty() && self.next == self.partitions {
            return None;
        }
        let mut out = Vec::new();
        out.put_u32_le(self.space.0);
        out.put_u32_le(self.partitions);
        out.put_u32_le(self.next);
        for (partition, last) in &self.under_way {
            out.put_u32_le(*partition);
            put_option(&mut out, last.as_ref());
        }
        Some(Position(out))
    }

    fn fill(&mut self) {
        while self.under_way.len() < WINDOW && self.next < self.partitions {
            self.under_way.push_back((self.next, None));
            self.next += 1;
        }
    }
}

impl Tables {
    /// What a pipeline makes of a page of documents, or, if it has a terminal, of all.
    pub(crate) fn evaluated(
        &self,
        env: &Env,
        info: &TableInfo,
        scan: &Scan,
        pipeline: &Arc<Pipeline>,
    ) -> Result<Evaluated> {
        let table = &self.open(info)?;
        if only_key(scan).is_some() {
            return evaluate_page(env, pipeline, self.page(env, info, scan)?);
        }
        let encoded = Bytes::from(pipeline.to_bytes(env)?);
        if encoded.len() > PIPELINE_BYTES {
            return evaluate_page(env, pipeline, self.page(env, info, scan)?);
        }
        let (space, keys) = match &scan.index {
            None => (Space::DOCUMENTS, document_range(scan)?),
            Some(name) => {
                let index = self.index(table, name).ok_or_else(|| info.index_not_found(name))?;
                check_kind(info, &index, name, scan)?;
                let range = index_range(scan)?;
                if range.has_doubts() {
                    // The index's function decides here which documents belong to it.
                    return evaluate_page(env, pipeline, self.page(env, info, scan)?);
                }
                (Space(index.space), range.keys)
            }
        };
        let keys = scan_work(space, &keys, key_order(scan.order), None, scan.limit);
        let keys = ScanWork { cells: scan.cells.clone(), ..keys };
        let question = Question { table, info, scan, keys, pipeline, encoded };
        if scan.order == Order::Any || pipeline.terminal.is_some() {
            self.evaluate_in_any_order(env, &question)
        } else {
            self.evaluate_in_order(env, &question)
        }
    }

    /// The slices of partitions, each behind a document.
    fn slices<'a>(
        &self,
        question: &Question<'_>,
        places: impl Iterator<Item = &'a (u32, Option<Bytes>)>,
        wants_keys: bool,
    ) -> Result<Vec<Slice>> {
        let work = places.map(|(partition, last)| {
            let scan = ScanWork { after: last.clone(), ..question.keys.clone() };
            let evaluate = EvaluateWork { scan, pipeline: question.encoded.clone(), wants_keys };
            (Place::Partition(*partition), Work::Evaluate(evaluate))
        });
        let replies = self.reach(question.table, mode(question.scan.reads), work.collect())?;
        let slice = |reply| match reply {
            Reply::Slice(slice) => Ok(slice),
            Reply::NotBuilt => Err(not_built(question.info, question.scan)),
            _ => Err(damaged()),
        };
        replies.into_iter().map(slice).collect()
    }

    /// What a pipeline makes of documents whose functions take too long for the node that has them. Here they can be interrupted.
    fn evaluate_slow(
        &self,
        env: &Env,
        question: &Question<'_>,
        place: &mut (u32, Option<Bytes>),
    ) -> Result<(Partial, bool)> {
        let work = Work::Scan(ScanWork { after: place.1.clone(), limit: SLOW_DOCUMENTS, ..question.keys.clone() });
        let replies = self.reach(question.table, mode(question.scan.reads), vec![(Place::Partition(place.0), work)])?;
        let Some(Reply::Page(rows, has_more)) = replies.into_iter().next() else { return Err(damaged()) };
        place.1 = rows.last().map(|(key, _)| key.clone()).or_else(|| place.1.take());
        let rows = rows.into_iter().map(|(_, document)| Lazy::Document(Document::trusted(document))).collect();
        Ok((evaluate_page(env, question.pipeline, Page { rows, next: None })?.partial, has_more))
    }

    /// What a pipeline makes of documents in any order: of all, if it has a terminal.
    fn evaluate_in_any_order(&self, env: &Env, question: &Question<'_>) -> Result<Evaluated> {
        let partitions = question.table.schema().partitions;
        let has_terminal = question.pipeline.terminal.is_some();
        let mut progress = match &question.scan.after {
            None => Progress::begin(question.keys.space, partitions),
            Some(position) => Progress::read(position, question, partitions)?,
        };
        let mut all = question.pipeline.nothing();
        loop {
            progress.fill();
            let slices = self.slices(question, progress.under_way.iter(), false)?;
            let (mut failure, mut under_way) = (None, VecDeque::new());
            for (mut place, slice) in std::mem::take(&mut progress.under_way).into_iter().zip(slices) {
                all.merge(env, question.pipeline, Partial::from_bytes(&slice.partial, question.pipeline)?)?;
                place.1 = slice.last.or(place.1);
                let has_more = match slice.end {
                    SliceEnd::All => false,
                    SliceEnd::Turn => true,
                    SliceEnd::Slow(_) => {
                        let (partial, has_more) = self.evaluate_slow(env, question, &mut place)?;
                        all.merge(env, question.pipeline, partial)?;
                        has_more
                    }
                    SliceEnd::Failed(_, error) => {
                        failure.get_or_insert(error);
                        true
                    }
                };
                if has_more {
                    under_way.push_back(place);
                }
            }
            progress.under_way = under_way;
            let has_enough = !has_terminal && all.row_count() >= question.scan.limit.max(1);
            // Rows that are enough without it make that it need not be known.
            if let (Some(error), false) = (failure, has_enough) {
                return Err(Error::from_bytes(&error));
            }
            let next = progress.position();
            if has_enough || next.is_none() {
                return Ok(Evaluated { partial: all, next });
            }
            env.check()?;
            if !has_terminal && all.row_count() > 0 {
                return Ok(Evaluated { partial: all, next });
            }
        }
    }

    /// The rows that a pipeline without a terminal makes of a page of documents, in the order of their keys.
    fn evaluate_in_order(&self, env: &Env, question: &Question<'_>) -> Result<Evaluated> {
        let partitions = question.table.schema().partitions;
        let order = question.keys.order;
        let space = question.keys.space;
        let mut after = position::key_before(space, question.info, question.scan)?;
        loop {
            let places: Vec<_> = (0..partitions).map(|partition| (partition, after.clone())).collect();
            let slices = self.slices(question, places.iter(), true)?;
            let mut merged: BTreeMap<Bytes, Vec<Lazy>> = BTreeMap::new();
            let mut least: Option<Frontier> = None;
            for (place, slice) in places.into_iter().zip(slices) {
                let mut rows = Partial::from_bytes(&slice.partial, question.pipeline)?.into_rows().into_iter();
                for (key, count) in slice.keys {
                    merged.entry(key).or_default().extend(rows.by_ref().take(count as usize));
                }
                let until = match &slice.end {
                    SliceEnd::All => continue,
                    SliceEnd::Turn => slice.last.clone(),
                    SliceEnd::Slow(next) | SliceEnd::Failed(next, _) => Some(next.clone()),
                };
                let is_less = least.as_ref().is_none_or(|least| match (&until, &least.until) {
                    (Some(until), Some(least)) => order.compare(until, least).is_lt(),
                    (until, least) => until.is_none() && least.is_some(),
                });
                if is_less {
                    least = Some(Frontier { until, partition: place.0, last: slice.last.or(place.1), end: slice.end });
                }
            }
            let Some(Frontier { until, partition, last, end }) = least else {
                return Ok(in_order(merged, question.scan.order, None));
            };
            match &until {
                Some(until) => merged.retain(|key, _| order.compare(key, until).is_le()),
                None => merged.clear(),
            }
            let furthest = match order {
                KeyOrder::Ascending => merged.last_key_value(),
                KeyOrder::Descending => merged.first_key_value(),
            };
            if let Some((furthest, _)) = furthest {
                let last =
                    last.filter(|last| order.compare(last, furthest).is_gt()).unwrap_or_else(|| furthest.clone());
                return Ok(in_order(merged, question.scan.order, Some(position::behind(space, &last))));
            }
            let mut place = (partition, last);
            match end {
                SliceEnd::Failed(_, error) => return Err(Error::from_bytes(&error)),
                SliceEnd::Slow(_) => {
                    let (partial, _) = self.evaluate_slow(env, question, &mut place)?;
                    if partial.row_count() > 0 {
                        let next = place.1.map(|last| position::behind(space, &last));
                        return Ok(Evaluated { partial, next });
                    }
                }
                SliceEnd::All | SliceEnd::Turn => {}
            }
            after = place.1;
            env.check()?;
        }
    }
}

/// How far the partition has come that has not come further than any other one: rows behind that have to wait.
struct Frontier {
    /// The last document that it has evaluated, or the next one, if that is the reason why it has ended there.
    until: Option<Bytes>,
    partition: u32,
    last: Option<Bytes>,
    end: SliceEnd,
}

/// Rows in the order of their keys.
fn in_order(merged: BTreeMap<Bytes, Vec<Lazy>>, order: Order, next: Option<Position>) -> Evaluated {
    let rows: Vec<Lazy> = match order {
        Order::Descending => merged.into_values().rev().flatten().collect(),
        Order::Any | Order::Ascending => merged.into_values().flatten().collect(),
    };
    Evaluated { partial: Partial::Rows(rows), next }
}
