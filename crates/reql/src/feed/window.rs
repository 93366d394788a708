//! A feed of the first rows of an order.
//!
//! More rows are kept than are shown: all up to a bound, as far as was read. A change of a document takes its rows out and puts the new
//! ones in, if these are not behind the bound. Where rows go until fewer are left than are to be shown, more are read, and what differs
//! from what was shown is told; the changes that this read shows already do not count again. Where they cannot be read just now, nothing
//! is told until they were.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use super::message::RowChange;
use super::range::{Images, apply};
use super::seen::{Counts, SeenDocuments};
use crate::change_log::{ChangeLog, DocumentChange, Entry, Reached, Unread};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::index;
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
    entry: Entry,
}

impl Ord for Place {
    fn cmp(&self, other: &Self) -> Ordering {
        let ascending = self.entry.cmp(&other.entry);
        if self.is_descending { ascending.reverse() } else { ascending }
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What was read of a part.
#[derive(Default)]
struct Read {
    /// Also rows behind the end: a document of several keys comes with all of its rows.
    rows: BTreeMap<Place, Value>,
    /// The last place up to which all rows were read; none if all were.
    end: Option<Place>,
}

impl Read {
    /// Whether so many rows are known that come first.
    fn has(&self, count: usize) -> bool {
        let is_read = |end: &Place| self.rows.range(..=end).nth(count.saturating_sub(1)).is_some();
        self.rows.len() >= count && self.end.as_ref().is_none_or(is_read)
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
    /// The rows that the client knows, while it is told nothing because too few are known here.
    told: Option<Vec<(Place, Value)>>,
}

impl WindowFeed {
    /// # Errors
    /// If documents cannot be read, there is no such index, or more rows are to be kept than an array may have.
    pub fn new(env: &Env, mut subject: Subject, first: FirstRows, log: &dyn ChangeLog) -> Result<Self> {
        env.check_array(first.count)?;
        let images = Images::of(env, &subject)?;
        let (scan, _) = subject.scans.pop().ok_or_else(lazy::damaged)?;
        if let (Some(index), None) = (&scan.index, &images.definition) {
            return Err(subject.table.info.index_not_found(index));
        }
        let (rows, seen) = (BTreeMap::new(), SeenDocuments::default());
        let mut feed = Self { subject, scan, first, images, rows, bound: None, seen, told: None };
        feed.load(env, log, &log.begin())?;
        Ok(feed)
    }

    fn kept(&self) -> usize {
        self.first.count.saturating_add(self.first.count.clamp(LEAST_RESERVE, MOST_RESERVE))
    }

    fn place(&self, entry: Entry) -> Place {
        Place { is_descending: self.scan.order == Order::Descending, entry }
    }

    /// The rows of a document, each with its place.
    fn places(&self, env: &Env, log: &dyn ChangeLog, primary: &[u8], document: Lazy) -> Result<Vec<(Place, Value)>> {
        let value = document.to_value()?;
        let range = &self.scan.range;
        let entry = |secondary, place| self.place(Entry { secondary, primary: primary.to_vec(), place });
        let places: Vec<Place> = match &self.images.definition {
            None => {
                let key = value.get_field(&self.images.primary_key).unwrap_or(Value::Null);
                range.contains(&key).then(|| entry(Vec::new(), 0)).into_iter().collect()
            }
            Some(definition) => {
                let keys = index::keys_with_places(&env.without_options(), definition, &value).into_iter();
                let keys = keys.filter(|(key, _)| range.contains(key));
                keys.filter_map(|(key, place)| Some(entry(log.index_key(&key)?, place))).collect()
            }
        };
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let image = apply(env, &self.subject.operations, document)?.pop();
        Ok(image.map_or_else(Vec::new, |image| places.into_iter().map(|place| (place, image.clone())).collect()))
    }

    /// Reads rows anew, and takes note of what the pages show. `reached` are the changes up to which the feed knows the parts.
    fn load(&mut self, env: &Env, log: &dyn ChangeLog, reached: &[Reached]) -> Result<(), Unread> {
        let wanted = self.kept();
        let limit = wanted.clamp(1, MOST_PAGE_ROWS);
        let scan = |after| Scan { after, limit, ..self.scan.clone() };
        let mut asked: Vec<(u32, Scan)> = reached.iter().map(|(part, _)| (*part, scan(None))).collect();
        let (mut read, mut seen) = (BTreeMap::<u32, Read>::new(), SeenDocuments::default());
        while !asked.is_empty() {
            env.check()?;
            let pages = log.pages(asked.clone())?;
            let mut more = Vec::new();
            for ((part, _), page) in asked.iter().zip(pages) {
                seen.page(*part, page.stamp)?;
                let of_part = read.entry(*part).or_default();
                for (key, row) in page.rows {
                    env.step()?;
                    if seen.add(*part, &key, page.stamp) {
                        of_part.rows.extend(self.places(env, log, &key, row)?);
                    }
                }
                let (next, end) = page.next.unzip();
                of_part.end = end.map(|entry| self.place(entry));
                if let Some(next) = next.filter(|_| !of_part.has(wanted)) {
                    more.push((*part, scan(Some(next))));
                }
            }
            asked = more;
        }
        reached.iter().for_each(|(part, at)| seen.pass(*part, *at));
        self.seen = seen;
        self.bound = read.values().filter_map(|of_part| of_part.end.clone()).min();
        self.rows = read.into_values().flat_map(|of_part| of_part.rows).collect();
        if let Some(bound) = &self.bound {
            self.rows.retain(|place, _| place <= bound);
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

    /// What a change means for the rows that are shown. Nothing is told while too few are known: see [`Self::refill`].
    ///
    /// # Errors
    /// If the query was stopped.
    pub fn change(&mut self, env: &Env, change: &DocumentChange, log: &dyn ChangeLog) -> Result<Vec<RowChange>> {
        if self.seen.counts(change) == Counts::Not {
            return Ok(Vec::new());
        }
        let places = |document: &Option<tessera_document::Document>| match document {
            Some(document) => self.places(env, log, &change.key, Lazy::Document(document.clone())),
            None => Ok(Vec::new()),
        };
        let (old, new) = (places(&change.old)?, places(&change.new)?);
        let last = self.rows.keys().nth(self.first.count.saturating_sub(1)).cloned();
        let is_shown = |(place, _): &(Place, Value)| last.as_ref().is_none_or(|last| place <= last);
        // Most changes are behind the rows that are shown.
        if self.told.is_none() && old.iter().chain(&new).any(is_shown) {
            self.told = Some(self.shown());
        }
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
        self.tell(env)
    }

    /// Whether rows are to be shown that are behind the bound.
    pub fn is_short(&self) -> bool {
        self.rows.len() < self.first.count && self.bound.is_some()
    }

    /// Reads rows if too few are known, and tells what was not told because of that.
    ///
    /// # Errors
    /// If the query was stopped, or documents cannot be read, or not now: then everything is as before.
    pub fn refill(&mut self, env: &Env, log: &dyn ChangeLog, reached: &[Reached]) -> Result<Vec<RowChange>, Unread> {
        if self.is_short() {
            self.load(env, log, reached)?;
        }
        Ok(self.tell(env)?)
    }

    /// What the client does not know yet.
    fn tell(&mut self, env: &Env) -> Result<Vec<RowChange>> {
        let told = if self.is_short() { None } else { self.told.take() };
        told.map_or(Ok(Vec::new()), |told| self.differences(env, told))
    }

    fn differences(&self, env: &Env, before: Vec<(Place, Value)>) -> Result<Vec<RowChange>> {
        let mut came: BTreeMap<Place, (usize, Value)> =
            self.shown().into_iter().enumerate().map(|(at, (place, row))| (place, (at, row))).collect();
        let (mut moved, mut out) = (Vec::new(), Vec::new());
        for (at, (place, row)) in before.into_iter().enumerate() {
            match came.remove(&place) {
                None => moved.push((place.entry.primary, (at, row))),
                Some((now, new)) if new != row => out.push((Some((at, row)), Some((now, new)))),
                Some(_) => {}
            }
        }
        // A row of the same document elsewhere is the same row.
        let mut elsewhere = BTreeMap::<Vec<u8>, VecDeque<Place>>::new();
        for place in came.keys() {
            elsewhere.entry(place.entry.primary.clone()).or_default().push_back(place.clone());
        }
        let mut left = Vec::new();
        for (primary, row) in moved {
            let now = elsewhere.get_mut(&primary).and_then(VecDeque::pop_front).and_then(|place| came.remove(&place));
            match now {
                None => left.push(row),
                Some((_, new)) if new == row.1 => {}
                Some(new) => out.push((Some(row), Some(new))),
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

    /// The log has passed a change of a part.
    pub fn pass(&mut self, part: u32, at: u64) {
        self.seen.pass(part, at);
    }

    pub fn is_settled(&self, change: &DocumentChange) -> bool {
        !self.is_short() && self.seen.is_settled(change)
    }
}
