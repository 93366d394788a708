//! A feed of ranges of documents.

use std::collections::VecDeque;
use std::sync::Arc;

use super::message::RowChange;
use super::seen::{Counts, SeenDocuments, SeenKeys};
use crate::change_log::{ChangeLog, DocumentChange, Reached};
use crate::env::Env;
use crate::error::{ErrorKind, Result};
use crate::index;
use crate::lazy::{self, Lazy};
use crate::scan::{IndexDefinition, Position, Scan};
use crate::stream::{BATCH_ROWS, Operation, Subject};
use crate::value::{Value, ValueExt as _};

/// Of one subject: its documents, and what was shown of them.
pub struct RangeFeed {
    subject: Subject,
    images: Images,
    keys: Vec<SeenKeys>,
    documents: SeenDocuments,
    /// Scans of parts that are to be read before changes count.
    unread: VecDeque<(usize, u32, Option<Position>)>,
}

/// What a subject shows of a document.
pub struct Images {
    pub primary_key: Arc<str>,
    /// Of the index that the subject's scans are of.
    pub definition: Option<IndexDefinition>,
    pub is_by_index: bool,
}

/// The key of a document, and how often it counts for these scans.
fn copies(env: &Env, images: &Images, scans: &[(Scan, usize)], document: &Value) -> usize {
    if !images.is_by_index {
        let key = document.get_field(&images.primary_key).unwrap_or(Value::Null);
        return scans.iter().filter(|(scan, _)| scan.range.contains(&key)).map(|(_, times)| times).sum();
    }
    // An exact search among the operations says whether a document of a geospatial index belongs.
    if scans.iter().any(|(scan, _)| scan.cells.is_some()) {
        return scans.iter().map(|(_, times)| times).sum();
    }
    let Some(definition) = &images.definition else { return 0 };
    let keys = index::keys(&env.without_options(), definition, document);
    let matches = |scan: &Scan| keys.iter().filter(|key| scan.range.contains(key)).count();
    scans.iter().map(|(scan, times)| times * matches(scan)).sum()
}

impl Images {
    /// # Errors
    /// If the source cannot tell how an index derives keys.
    pub fn of(env: &Env, subject: &Subject) -> Result<Self> {
        let table = &subject.table.info;
        let name = subject.scans.iter().find_map(|(scan, _)| scan.index.clone());
        let definition = match &name {
            Some(name) => env.source()?.index_definition(table, name)?,
            None => None,
        };
        Ok(Self { primary_key: table.primary_key.clone(), definition, is_by_index: name.is_some() })
    }
}

/// What operations make of a row: nothing where they fail.
///
/// # Errors
/// If the query was stopped.
pub fn apply(env: &Env, operations: &[Operation], row: Lazy) -> Result<Vec<Value>> {
    let mut rows = vec![row];
    for operation in operations {
        let mut out = Vec::new();
        for row in rows {
            let applied = operation.apply_to_row(env, row, &mut |row| {
                out.push(row);
                Ok(())
            });
            match applied {
                Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
                Err(_) | Ok(()) => {}
            }
        }
        rows = out;
    }
    lazy::values(rows)
}

impl RangeFeed {
    /// # Errors
    /// As [`Images::of`].
    pub fn new(env: &Env, subject: Subject, parts: &[u32], include_initial: bool) -> Result<Self> {
        let images = Images::of(env, &subject)?;
        let keys = subject.scans.iter().map(|_| SeenKeys::default()).collect();
        let mut feed = Self { images, keys, documents: SeenDocuments::default(), unread: VecDeque::new(), subject };
        if include_initial {
            let scans = 0..feed.subject.scans.len();
            feed.unread = scans.flat_map(|scan| parts.iter().map(move |part| (scan, *part, None))).collect();
        }
        Ok(feed)
    }

    /// Rows of the next page that is to be read before changes count, and the part with the last change that the page shows; `None` when
    /// there is no such page. `reached` are the changes up to which the feed knows the parts.
    ///
    /// # Errors
    /// If documents cannot be read.
    pub fn initial(
        &mut self,
        env: &Env,
        log: &dyn ChangeLog,
        reached: &[Reached],
    ) -> Result<Option<(Vec<Value>, Reached)>> {
        let Some((at, part, after)) = self.unread.pop_front() else { return Ok(None) };
        let (scan, times) = &self.subject.scans[at];
        let order = if scan.index.is_none() { crate::scan::Order::Ascending } else { scan.order };
        let scan = Scan { after, limit: BATCH_ROWS, order, ..scan.clone() };
        let page = log.pages(vec![(part, scan)])?.pop();
        let page = page.ok_or_else(lazy::damaged)?;
        let is_last = page.next.is_none();
        if let Some((next, _)) = page.next {
            self.unread.push_front((at, part, Some(next)));
        }
        let (mut out, by_key) = (Vec::new(), !self.images.is_by_index);
        if by_key {
            let end = (!is_last).then(|| page.rows.last().map(|(key, _)| key.clone())).flatten();
            self.keys[at].add(part, end, page.stamp);
        } else {
            self.documents.page(part, page.stamp)?;
        }
        for (key, row) in page.rows {
            let copies = match by_key {
                true => *times,
                // A document that has moved to another place of the index is shown once.
                false if !self.documents.add(part, &key, page.stamp) => 0,
                false => copies(env, &self.images, &self.subject.scans, &row.to_value()?),
            };
            let rows = if copies == 0 { Vec::new() } else { apply(env, &self.subject.operations, row)? };
            for row in rows.into_iter().filter(|row| !row.is_null()) {
                out.extend(std::iter::repeat_n(row, copies));
            }
        }
        if self.subject.is_point && out.is_empty() {
            out.push(Value::Null);
        }
        // Of a part in which nothing was written meanwhile, nothing need be remembered.
        if !self.unread.iter().any(|(_, unread, _)| *unread == part) {
            reached.iter().filter(|(known, _)| *known == part).for_each(|(_, reached)| self.pass(part, *reached));
        }
        Ok(Some((out, (part, page.stamp))))
    }

    /// What a change means for the rows of the feed.
    ///
    /// # Errors
    /// If the query was stopped, or a document is damaged.
    pub fn change(&mut self, env: &Env, change: &DocumentChange) -> Result<Vec<RowChange>> {
        let counts = match self.images.is_by_index {
            true => self.documents.counts(change),
            false => self.scan_of(change)?.map_or(Counts::Fully, |scan| self.keys[scan].counts(change)),
        };
        let old = if counts == Counts::Fully { change.old.clone() } else { None };
        if counts == Counts::Not {
            return Ok(Vec::new());
        }
        let rows = |document: Option<tessera_document::Document>| self.rows(env, document.map(Lazy::Document));
        let (old, new) = (rows(old)?, rows(change.new.clone())?);
        let count = old.len().max(new.len());
        let (mut old, mut new) = (old.into_iter(), new.into_iter());
        let pairs =
            (0..count).map(|_| RowChange::new(old.next().unwrap_or(Value::Null), new.next().unwrap_or(Value::Null)));
        Ok(pairs.filter(|pair| pair.old != pair.new).collect())
    }

    fn rows(&self, env: &Env, document: Option<Lazy>) -> Result<Vec<Value>> {
        let Some(document) = document else { return Ok(Vec::new()) };
        let value = document.to_value()?;
        let copies = copies(env, &self.images, &self.subject.scans, &value);
        if copies == 0 {
            return Ok(Vec::new());
        }
        let rows = apply(env, &self.subject.operations, document)?;
        Ok(rows.into_iter().flat_map(|row| std::iter::repeat_n(row, copies)).collect())
    }

    /// The scan that finds the document by its primary key.
    fn scan_of(&self, change: &DocumentChange) -> Result<Option<usize>> {
        let Some(document) = change.new.as_ref().or(change.old.as_ref()) else { return Ok(None) };
        let key = document.value().get_field(&self.images.primary_key).map(|key| key.to_value());
        let key = key.transpose().map_err(|_| lazy::damaged())?.unwrap_or(Value::Null);
        Ok(self.subject.scans.iter().position(|(scan, _)| scan.range.contains(&key)))
    }

    /// The log has passed a change of a part.
    pub fn pass(&mut self, part: u32, at: u64) {
        self.keys.iter_mut().for_each(|keys| keys.pass(part, at));
        self.documents.pass(part, at);
    }

    pub fn split(&mut self, of: u32, into: &[u32]) {
        self.keys.iter_mut().for_each(|keys| keys.split(of, into));
        self.documents.split(of, into);
    }

    /// Whether pages have shown nothing that the change could be a part of.
    pub fn is_settled(&self, change: &DocumentChange) -> bool {
        self.documents.is_settled(change) && self.keys.iter().all(|keys| keys.is_settled(change))
    }
}
