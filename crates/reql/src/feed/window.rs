//! A feed of the first rows of an order.
//!
//! More rows are kept than are shown: all up to a bound, as far as was read. A change of a document takes its rows out and puts the new
//! ones in, if these are not behind the bound. Where rows go until fewer are left than are to be shown, more are read, and what differs
//! from what was shown is told; the changes that this read shows already do not count again.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::message::RowChange;
use super::range::{Images, apply};
use super::seen::{Counts, SeenDocuments};
use crate::change_log::{ChangeLog, DocumentChange};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::index;
use crate::key;
use crate::lazy::{self, Lazy};
use crate::scan::{Order, Scan};
use crate::stream::{FirstRows, Subject};
use crate::value::Value;

/// Rows that are kept beyond those that are shown, so that more must seldom be read: as many as are shown, but no fewer and no more than
/// these.
const LEAST_RESERVE: usize = 32;
const MOST_RESERVE: usize = 1000;
/// Rows of a page.
const MOST_PAGE_ROWS: usize = 1000;

/// The place of a row in the order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    is_descending: bool,
    secondary: Vec<u8>,
    primary: Vec<u8>,
    /// Which of several equal keys of the document.
    tag: u32,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let of = |place: &Self| (place.secondary.clone(), place.primary.clone(), place.tag);
        let ascending = of(self).cmp(&of(other));
        if self.is_descending { ascending.reverse() } else { ascending }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub struct WindowFeed {
    subject: Subject,
    scan: Scan,
    first: FirstRows,
    images: Images,
    rows: BTreeMap<Place, Value>,
    /// The last place up to which all rows are known; none if all are.
    bound: Option<Place>,
    seen: SeenDocuments,
}

impl WindowFeed {
    /// # Errors
    /// If documents cannot be read, or there is no such index.
    pub fn new(env: &Env, mut subject: Subject, first: FirstRows, log: &dyn ChangeLog, parts: &[u32]) -> Result<Self> {
        let images = Images::of(env, &subject)?;
        let (scan, _) = subject.scans.pop().ok_or_else(lazy::damaged)?;
        if let (Some(index), None) = (&scan.index, &images.definition) {
            return Err(subject.table.info.index_not_found(index));
        }
        let (rows, bound, seen) = (BTreeMap::new(), None, SeenDocuments::default());
        let mut feed = Self { subject, scan, first, images, rows, bound, seen };
        feed.load(env, log, parts)?;
        Ok(feed)
    }

    fn kept(&self) -> usize {
        self.first.count.saturating_add(self.first.count.clamp(LEAST_RESERVE, MOST_RESERVE))
    }

    /// The rows of a document, each with its place.
    fn places(&self, env: &Env, primary: &[u8], document: Lazy) -> Result<Vec<(Place, Value)>> {
        let value = document.to_value()?;
        let range = &self.scan.range;
        let mut places = Vec::new();
        let mut add = |secondary: Vec<u8>, tag| {
            let is_descending = self.scan.order == Order::Descending;
            places.push(Place { is_descending, secondary, primary: primary.to_vec(), tag });
        };
        match &self.images.definition {
            None => {
                let key = value.get_field(&self.images.primary_key).unwrap_or(Value::Null);
                if range.contains(&key) {
                    add(Vec::new(), 0);
                }
            }
            Some(definition) => {
                let mut tags = BTreeMap::<Vec<u8>, u32>::new();
                for value in index::keys(&env.without_options(), definition, &value) {
                    let Ok(encoded) = key::secondary_key(&value) else { continue };
                    let tag = tags.entry(encoded.clone()).or_default();
                    if range.contains(&value) {
                        add(encoded, *tag);
                    }
                    *tag += 1;
                }
            }
        }
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let image = apply(env, &self.subject.operations, document)?.pop();
        Ok(image.map_or_else(Vec::new, |image| places.into_iter().map(|place| (place, image.clone())).collect()))
    }

    /// Reads rows anew, and takes note of what the pages show.
    fn load(&mut self, env: &Env, log: &dyn ChangeLog, parts: &[u32]) -> Result<()> {
        let wanted = self.kept();
        let limit = wanted.clamp(1, MOST_PAGE_ROWS);
        (self.rows, self.bound, self.seen) = (BTreeMap::new(), None, SeenDocuments::default());
        let scan = |after| Scan { after, limit, ..self.scan.clone() };
        let mut asked: Vec<(u32, Scan)> = parts.iter().map(|part| (*part, scan(None))).collect();
        let (mut rows, mut seen) = (BTreeMap::new(), SeenDocuments::default());
        let mut counts = BTreeMap::<u32, (usize, Option<Place>)>::new();
        let mut bounds = BTreeSet::new();
        while !asked.is_empty() {
            let pages = log.pages(asked.clone())?;
            let mut more = Vec::new();
            for ((part, _), page) in asked.iter().zip(pages) {
                seen.page(*part, page.stamp);
                let (count, last) = counts.entry(*part).or_default();
                for (key, row) in page.rows {
                    if !seen.add(*part, &key, page.stamp) {
                        continue;
                    }
                    for (place, row) in self.places(env, &key, row)? {
                        *count += 1;
                        // A document of several keys also has rows where the scan has not been yet.
                        *last = last.take().max(Some(place.clone()));
                        rows.insert(place, row);
                    }
                }
                match page.next {
                    Some(next) if *count < wanted => more.push((*part, scan(Some(next)))),
                    Some(_) => bounds.extend(last.clone()),
                    None => {}
                }
            }
            asked = more;
        }
        (self.rows, self.seen) = (rows, seen);
        self.bound = bounds.pop_first();
        if let Some(bound) = self.bound.clone() {
            self.rows.retain(|place, _| *place <= bound);
        }
        Ok(())
    }

    fn shown(&self) -> Vec<(Place, Value)> {
        self.rows.iter().take(self.first.count).map(|(place, row)| (place.clone(), row.clone())).collect()
    }

    fn passes(&self, env: &Env, row: &Value) -> Result<bool> {
        Ok(self.first.filters.is_empty() || !apply(env, &self.first.filters, row.clone().into())?.is_empty())
    }

    /// The rows that are shown when the feed begins, each with its position.
    ///
    /// # Errors
    /// If the query was stopped.
    pub fn initial(&self, env: &Env) -> Result<Vec<(usize, Value)>> {
        let mut rows: Vec<_> = self.shown().into_iter().map(|(_, row)| row).enumerate().collect();
        let mut outcome = Ok(());
        rows.retain(|(_, row)| {
            self.passes(env, row).unwrap_or_else(|error| {
                outcome = Err(error);
                false
            })
        });
        outcome.map(|()| rows)
    }

    /// What a change means for the rows that are shown.
    ///
    /// # Errors
    /// If the query was stopped, or more documents are needed and cannot be read.
    pub fn change(
        &mut self,
        env: &Env,
        change: &DocumentChange,
        log: &dyn ChangeLog,
        parts: &[u32],
    ) -> Result<Vec<RowChange>> {
        if self.seen.counts(change) == Counts::Not {
            return Ok(Vec::new());
        }
        let places = |document: &Option<tessera_document::Document>| match document {
            Some(document) => self.places(env, &change.key, Lazy::Document(document.clone())),
            None => Ok(Vec::new()),
        };
        let (old, new) = (places(&change.old)?, places(&change.new)?);
        let last = self.rows.keys().nth(self.first.count.saturating_sub(1)).cloned();
        let is_shown = |(place, _): &(Place, Value)| last.as_ref().is_none_or(|last| place <= last);
        // Most changes are behind the rows that are shown.
        let before = old.iter().chain(&new).any(is_shown).then(|| self.shown());
        for (place, _) in old {
            self.rows.remove(&place);
        }
        let is_known = |place: &Place| self.bound.as_ref().is_none_or(|bound| place <= bound);
        let new: Vec<_> = new.into_iter().filter(|(place, _)| is_known(place)).collect();
        self.rows.extend(new);
        while self.rows.len() > self.kept().saturating_mul(2) {
            self.rows.pop_last();
            self.bound = self.rows.last_key_value().map(|(place, _)| place.clone());
        }
        if self.rows.len() < self.first.count && self.bound.is_some() {
            self.load(env, log, parts)?;
        }
        before.map_or(Ok(Vec::new()), |before| self.differences(env, before))
    }

    fn differences(&self, env: &Env, before: Vec<(Place, Value)>) -> Result<Vec<RowChange>> {
        let identity = |place: &Place| (place.primary.clone(), place.tag);
        let after = self.shown();
        let mut came: BTreeMap<_, _> = BTreeMap::new();
        for (at, (place, row)) in after.into_iter().enumerate() {
            came.insert(identity(&place), (at, row));
        }
        let (mut left, mut out) = (Vec::new(), Vec::new());
        for (at, (place, row)) in before.into_iter().enumerate() {
            match came.remove(&identity(&place)) {
                None => left.push((at, row)),
                Some((now, new)) if new != row => out.push((Some((at, row)), Some((now, new)))),
                Some(_) => {}
            }
        }
        let mut came: Vec<_> = came.into_values().collect();
        came.sort_by_key(|(at, _)| *at);
        let count = left.len().max(came.len());
        let (mut left, mut came) = (left.into_iter(), came.into_iter());
        out.extend((0..count).map(|_| (left.next(), came.next())));
        let mut changes = Vec::with_capacity(out.len());
        for (old, new) in out {
            let shown = |row: Option<(usize, Value)>| match row {
                Some((at, row)) if self.passes(env, &row)? => Ok::<_, Error>((Some(at), row)),
                _ => Ok((None, Value::Null)),
            };
            let ((old_at, old), (new_at, new)) = (shown(old)?, shown(new)?);
            if old != new {
                changes.push(RowChange { old, new, offsets: [old_at, new_at] });
            }
        }
        Ok(changes)
    }

    pub fn split(&mut self, of: u32, into: &[u32]) {
        self.seen.split(of, into);
    }

    pub fn is_settled(&self, change: &DocumentChange) -> bool {
        self.seen.is_settled(change)
    }
}
