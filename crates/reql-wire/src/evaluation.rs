//! Pipelines of queries, carried out where the documents are: a slice of a partition's documents at a time.
//!
//! A slice ends when it has taken long enough, or has made enough, and says after which document the next one begins. So whoever
//! leads the partition then can go on, nothing is held between two slices, and queries take turns. A document whose functions take
//! very long is left to the node that was asked, which knows whether its query is still wanted.

use crate::partition;
use crate::shared::Shared;
use crate::work::{EvaluateWork, Reply, ScanWork, Slice, SliceEnd};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tessera_document::Document;
use tessera_reql::{Env, Error, ErrorKind, Lazy, Pacer, Partial, Pipeline, Run};
use tessera_store::Table;
use tessera_types::{ReadMode, RequestError};

/// How long a slice is evaluated.
const SLICE: Duration = Duration::from_millis(50);
/// How long the functions for one document may take here.
const SLOW: Duration = Duration::from_secs(1);
/// Bytes of a partial result, about.
const PARTIAL_BYTES: usize = 1 << 20;
/// What a document may make here, about: whoever asks evaluates those that make more.
const MOST_BYTES: usize = 32 << 20;
/// Documents that are read in one go.
const PAGE_DOCUMENTS: usize = 256;
const LEAST_PAGE_DOCUMENTS: usize = 16;
/// The clock is looked at after so many documents at most.
const DOCUMENTS_PER_LOOK: u32 = 64;
/// Documents that take less than this together are more than one to a look at the clock.
const SHORT: Duration = Duration::from_micros(500);

/// Lets the functions for a document run for a while.
struct Patience {
    until: Instant,
    is_stopping: Arc<AtomicBool>,
}

impl Pacer for Patience {
    fn goes_on(&self) -> bool {
        Instant::now() < self.until && !self.is_stopping.load(Ordering::Relaxed)
    }
}

/// Evaluates a slice. Blocks.
pub(crate) fn evaluate(
    shared: &Arc<Shared>,
    table: &Table,
    partition: u32,
    reads: ReadMode,
    evaluate: &EvaluateWork,
) -> Result<Reply, RequestError> {
    let page = |scan: &ScanWork| partition::scan(shared, table, partition, reads, scan);
    slice(shared.stopping_flag(), evaluate, page)
}

/// Evaluates the documents of a page that was read before, and no more.
pub(crate) fn evaluate_page(
    shared: &Arc<Shared>,
    evaluate: &EvaluateWork,
    page: &Reply,
) -> Result<Reply, RequestError> {
    slice(shared.stopping_flag(), evaluate, |scan| match page {
        // It was all that this slice is to have.
        Reply::Page(_, true) if scan.after != evaluate.scan.after => Ok(Reply::Page(Vec::new(), true)),
        page => Ok(page.clone()),
    })
}

/// What is read for a slice at first.
pub(crate) fn first_page(evaluate: &EvaluateWork) -> ScanWork {
    ScanWork { limit: PAGE_DOCUMENTS as u32, ..evaluate.scan.clone() }
}

fn slice(
    is_stopping: &Arc<AtomicBool>,
    evaluate: &EvaluateWork,
    mut page: impl FnMut(&ScanWork) -> Result<Reply, RequestError>,
) -> Result<Reply, RequestError> {
    let mut documents = usize::MAX;
    loop {
        let began = Instant::now();
        let patience = Arc::new(Patience { until: began + SLOW, is_stopping: is_stopping.clone() });
        let (pipeline, env) = match Pipeline::from_bytes(&evaluate.pipeline, patience) {
            Ok(read) => read,
            Err(error) => return Ok(Reply::Refused(error.to_string())),
        };
        let run = pipeline.run();
        let under_way = UnderWay {
            evaluate,
            has_terminal: pipeline.terminal.is_some(),
            env,
            run,
            began,
            keys: Vec::new(),
            last: None,
        };
        match under_way.go(&mut page, documents)? {
            Ended::Slice(slice) => return Ok(Reply::Slice(slice)),
            Ended::Reply(reply) => return Ok(reply),
            Ended::Interrupted(_) if is_stopping.load(Ordering::Relaxed) => return Err(RequestError::ShuttingDown),
            // What the document has added so far cannot be taken back: those before it are evaluated again, without it.
            Ended::Interrupted(before) | Ended::TooMuch(before) => documents = before,
        }
    }
}

enum Ended {
    Slice(Slice),
    Reply(Reply),
    /// The functions of a document took too long; so many documents were before it.
    Interrupted(usize),
    /// A document made too much; so many documents were before it.
    TooMuch(usize),
}

struct UnderWay<'a> {
    evaluate: &'a EvaluateWork,
    has_terminal: bool,
    env: Env,
    run: Run,
    began: Instant,
    keys: Vec<(Bytes, u32)>,
    last: Option<Bytes>,
}

impl UnderWay<'_> {
    /// Rows that were made, if they are not brought to a value.
    fn rows(&self) -> usize {
        if self.has_terminal { 0 } else { self.run.row_count() }
    }

    /// Evaluates `most` documents at most; the one behind those takes too long.
    fn go(
        mut self,
        page: &mut impl FnMut(&ScanWork) -> Result<Reply, RequestError>,
        most: usize,
    ) -> Result<Ended, RequestError> {
        let wanted = if self.has_terminal { usize::MAX } else { (self.evaluate.scan.limit as usize).max(1) };
        let (mut documents, mut per_look, mut next_look, mut looked) = (0, 1, 1, self.began);
        let mut scan = self.evaluate.scan.clone();
        loop {
            let count = wanted.saturating_sub(self.rows()).clamp(LEAST_PAGE_DOCUMENTS, PAGE_DOCUMENTS);
            scan.limit = u32::try_from(count).unwrap_or(u32::MAX);
            scan.after = self.last.clone().or_else(|| self.evaluate.scan.after.clone());
            let (rows, has_more) = match page(&scan)? {
                Reply::Page(rows, has_more) => (rows, has_more),
                other => return Ok(Ended::Reply(other)),
            };
            let is_empty = rows.is_empty();
            for (key, document) in rows {
                if documents == most {
                    return Ok(self.ended(SliceEnd::Slow(key)));
                }
                let before = self.rows();
                if let Err(error) = self.run.add(&self.env, Lazy::Document(Document::trusted(document))) {
                    return Ok(self.failed(&error, key, documents, before));
                }
                if self.run.bytes() > MOST_BYTES {
                    return Ok(Ended::TooMuch(documents));
                }
                documents += 1;
                let made = self.rows() - before;
                if self.evaluate.wants_keys && made > 0 {
                    self.keys.push((key.clone(), u32::try_from(made).unwrap_or(u32::MAX)));
                }
                self.last = Some(key);
                if self.rows() >= wanted || self.run.bytes() >= PARTIAL_BYTES {
                    return Ok(self.ended(SliceEnd::Turn));
                }
                next_look -= 1;
                if next_look == 0 {
                    let now = Instant::now();
                    if now - self.began >= SLICE {
                        return Ok(self.ended(SliceEnd::Turn));
                    }
                    per_look = if now - looked < SHORT { (2 * per_look).min(DOCUMENTS_PER_LOOK) } else { 1 };
                    (next_look, looked) = (per_look, now);
                }
            }
            if !has_more {
                return Ok(self.ended(SliceEnd::All));
            }
            if is_empty {
                return Ok(self.ended(SliceEnd::Turn));
            }
        }
    }

    fn ended(self, end: SliceEnd) -> Ended {
        let partial = self.run.finish().to_bytes().into();
        Ended::Slice(Slice { partial, keys: self.keys, last: self.last, end })
    }

    fn failed(mut self, error: &Error, key: Bytes, documents: usize, rows: usize) -> Ended {
        if error.kind() == ErrorKind::Interrupted {
            return Ended::Interrupted(documents);
        }
        let partial = match std::mem::replace(&mut self.run, Arc::<Pipeline>::default().run()).finish() {
            Partial::Rows(mut made) => {
                made.truncate(rows);
                Partial::Rows(made)
            }
            groups => groups,
        };
        let end = SliceEnd::Failed(key, error.to_bytes().into());
        Ended::Slice(Slice { partial: partial.to_bytes().into(), keys: self.keys, last: self.last, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_document::Value;
    use tessera_engine::Order;
    use tessera_reql::Stop;
    use tessera_types::Space;

    /// The slices of a partition whose documents have these lengths: their numbers of rows, and how they end.
    fn slices(lengths: &[usize]) -> Vec<(usize, SliceEnd)> {
        let document = |length: &usize| Document::encode(&Value::from("x".repeat(*length))).into_bytes();
        let keys = (1_u8..).map(|number| Bytes::from(vec![number]));
        let documents: Vec<(Bytes, Bytes)> = keys.zip(lengths.iter().map(document)).collect();
        let env = Env::for_functions(Arc::new(Stop::default()), Value::Null);
        let pipeline = Arc::<Pipeline>::default();
        let mut after = None;
        let mut slices = Vec::new();
        loop {
            let scan = ScanWork {
                space: Space::DOCUMENTS,
                start: Bytes::new(),
                end: None,
                cells: None,
                order: Order::Ascending,
                after: after.clone(),
                limit: 100,
            };
            let evaluate = EvaluateWork { scan, pipeline: pipeline.to_bytes(&env).unwrap().into(), wants_keys: false };
            let page = |scan: &ScanWork| {
                let is_behind = |(key, _): &&(Bytes, Bytes)| scan.after.as_ref().is_none_or(|after| key > after);
                Ok(Reply::Page(documents.iter().filter(is_behind).cloned().collect(), false))
            };
            let Ok(Reply::Slice(slice)) = slice(&Arc::default(), &evaluate, page) else { panic!("a slice") };
            let rows = Partial::from_bytes(&slice.partial, &pipeline).unwrap().into_rows().len();
            // Whoever asks evaluates a document that is left to it.
            after = match &slice.end {
                SliceEnd::Slow(next) => Some(next.clone()),
                _ => slice.last,
            };
            slices.push((rows, slice.end));
            if slices.last().is_some_and(|(_, end)| *end == SliceEnd::All) {
                return slices;
            }
        }
    }

    #[test]
    fn a_document_that_makes_too_much_is_left_to_whoever_asks() {
        const MIB: usize = 1 << 20;
        let left = SliceEnd::Slow(Bytes::from_static(&[2]));
        assert_eq!(slices(&[9, 33 * MIB, 9]), [(1, left.clone()), (1, SliceEnd::All)]);
        assert_eq!(slices(&[9, 9]), [(2, SliceEnd::All)]);
        // What makes less is in a slice, which ends behind it.
        assert_eq!(slices(&[9, 31 * MIB, 9]), [(2, SliceEnd::Turn), (1, SliceEnd::All)]);
        // The first one of a slice has nothing before it.
        assert_eq!(slices(&[2 * MIB, 33 * MIB]), [(1, SliceEnd::Turn), (0, left), (0, SliceEnd::All)]);
    }
}
