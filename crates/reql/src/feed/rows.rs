//! The stream of a feed: what comes in the logs of its tables becomes messages.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::message;
use super::options::FeedOptions;
use super::range::RangeFeed;
use super::squash::Squashed;
use super::tail::{State, Tail, split_within_a_change};
use super::token::{self, TableToken};
use super::window::WindowFeed;
use crate::change_log::{DocumentChange, Interest, LogEvent, Resume};
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::lazy::Lazy;
use crate::scan::TableInfo;
use crate::stream::{FeedKind, FeedSort, Rows, Subject};
use crate::value::{self, Value};

/// Events that are taken from a log at one time, about.
const EVENTS: usize = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Begun,
    ShowsInitial,
    Ready,
}

pub struct FeedRows {
    tails: Vec<Tail>,
    /// The term that has made the feed.
    frame: FrameId,
    sort: FeedSort,
    options: FeedOptions,
    messages: VecDeque<Value>,
    squashed: Option<Squashed>,
    /// Tables and their subjects with rows that are to be shown before changes count.
    initial: VecDeque<(usize, usize)>,
    phase: Phase,
}

fn sort_of(subjects: &[Subject], includes_states: bool) -> FeedSort {
    let kind = |subject: &Subject| match subject {
        Subject { first: Some(_), .. } => FeedKind::OrderedLimit,
        Subject { is_point: true, .. } => FeedKind::Point,
        _ => FeedKind::Sequence,
    };
    // Of a feed of several sequences RethinkDB does not tell it.
    let includes_states = includes_states && subjects.len() == 1;
    let sorts = subjects.iter().map(|subject| FeedSort { kind: kind(subject), includes_states });
    sorts.reduce(FeedSort::with).unwrap_or(FeedSort { kind: FeedKind::Sequence, includes_states })
}

fn check(subjects: &[Subject], options: &FeedOptions) -> Result<()> {
    let wants_token = options.include_resume_token || options.resume.is_some();
    for subject in subjects {
        if options.include_offsets && subject.first.is_none() {
            let what = if subject.is_point { "point" } else { "range" };
            return Err(Error::logic(format!("Cannot include offsets for {what} subs.")));
        }
        if wants_token && subject.first.is_some() {
            return Err(Error::logic(
                "Cannot use resume tokens with the first rows of an order: they depend on all rows.",
            ));
        }
        if wants_token && subject.table.info.is_system() {
            return Err(Error::logic("Cannot use resume tokens with system tables: their changes are not retained."));
        }
    }
    Ok(())
}

impl FeedRows {
    /// Subscribes to what the subjects are about.
    ///
    /// # Errors
    /// If the options do not fit, or the source cannot tell of changes.
    pub fn open(env: &Env, subjects: Vec<Subject>, options: FeedOptions, frame: FrameId) -> Result<Self> {
        check(&subjects, &options)?;
        let sort = sort_of(&subjects, options.include_states);
        let tokens = options.resume.as_deref().map(token::read).transpose()?;
        let mut by_table: Vec<(TableInfo, Vec<Subject>)> = Vec::new();
        for subject in subjects {
            match by_table.iter_mut().find(|(table, _)| table.id == subject.table.info.id) {
                Some((_, own)) => own.push(subject),
                None => by_table.push((subject.table.info.clone(), vec![subject])),
            }
        }
        if let Some(tokens) = &tokens
            && (tokens.len() != by_table.len()
                || tokens.iter().zip(&by_table).any(|(one, (table, _))| one.table != table.id))
        {
            return Err(Error::logic("The resume token is of a changefeed of other tables."));
        }
        let squashed = options.squash.map(|within| Squashed::new(within, options.queue_size));
        let (messages, initial) = (VecDeque::new(), VecDeque::new());
        let mut feed =
            Self { tails: Vec::new(), frame, sort, options, messages, squashed, initial, phase: Phase::Begun };
        for (at, (table, subjects)) in by_table.into_iter().enumerate() {
            let token = tokens.as_ref().map(|tokens| &tokens[at]);
            feed.subscribe(env, table, subjects, token)?;
        }
        Ok(feed)
    }

    fn subscribe(
        &mut self,
        env: &Env,
        table: TableInfo,
        subjects: Vec<Subject>,
        from: Option<&TableToken>,
    ) -> Result<()> {
        let interest = subjects.iter().map(Subject::interest).reduce(Interest::or);
        let resume = from.map(|token| Resume { scheme: token.scheme, reached: token.reached() });
        let log = env.source()?.subscribe(env, &table, &interest.unwrap_or(Interest::All), resume)?;
        let reached: BTreeMap<u32, (u64, u64)> = log.begin().into_iter().map(|(part, at)| (part, (at, 0))).collect();
        let parts: Vec<u32> = reached.keys().copied().collect();
        let include_initial = self.options.include_initial && from.is_none();
        let mut states = Vec::new();
        for mut subject in subjects {
            if include_initial {
                self.initial.push_back((self.tails.len(), states.len()));
            }
            states.push(match subject.first.take() {
                None => State::Range(Box::new(RangeFeed::new(env, subject, &parts, include_initial)?)),
                Some(first) => State::Window(Box::new(WindowFeed::new(env, subject, first, &*log)?)),
            });
        }
        let known: BTreeMap<u32, u64> = from.map_or_else(BTreeMap::new, |token| {
            token.parts.iter().filter(|(_, (_, known))| *known > 0).map(|(part, (_, known))| (*part, *known)).collect()
        });
        if !known.is_empty() && from.is_some_and(|token| token.scheme != log.scheme()) {
            return Err(split_within_a_change());
        }
        let reached = reached.into_iter().map(|(part, (at, _))| (part, (at, known.get(&part).copied().unwrap_or(0))));
        let (reached, shown) = (reached.collect(), BTreeMap::new());
        self.tails.push(Tail { table, log, states, reached, shown, known, retry: None });
        Ok(())
    }

    fn push(&mut self, message: Value) -> Result<()> {
        let has_token = self.options.include_resume_token && self.phase == Phase::Ready;
        let message = match has_token && self.tails.iter().all(Tail::has_passed_initial) {
            false => message,
            true => {
                let token = Value::from(self.token().as_str());
                message.merge(&value::object([("resume_token", token)])?)?
            }
        };
        self.messages.push_back(message);
        Ok(())
    }

    fn token(&self) -> String {
        let of = |tail: &Tail| TableToken {
            table: tail.table.id.clone(),
            scheme: tail.log.scheme(),
            parts: tail.reached.clone(),
        };
        token::write(&self.tails.iter().map(of).collect::<Vec<_>>())
    }

    /// Makes messages of what was there when the feed began. Returns whether there may be more to make.
    fn show_initial(&mut self, env: &Env) -> Result<bool> {
        match self.phase {
            Phase::Ready => return Ok(false),
            Phase::Begun => {
                self.phase = Phase::ShowsInitial;
                if self.options.include_states && !self.initial.is_empty() {
                    self.push(message::state("initializing", &self.options)?)?;
                    return Ok(true);
                }
            }
            Phase::ShowsInitial => {}
        }
        let Some((table, at)) = self.initial.front().copied() else {
            self.phase = Phase::Ready;
            if self.options.include_states {
                self.push(message::state("ready", &self.options)?)?;
            }
            return Ok(true);
        };
        let reached = self.tails[table].positions();
        let Tail { log, states, shown, .. } = &mut self.tails[table];
        let rows: Option<Vec<(Option<usize>, Value)>> = match &mut states[at] {
            State::Range(range) => range.initial(env, &**log, &reached)?.map(|(rows, (part, stamp))| {
                let shown = shown.entry(part).or_default();
                *shown = stamp.max(*shown);
                rows.into_iter().map(|row| (None, row)).collect()
            }),
            State::Window(window) => {
                self.initial.pop_front();
                let rows = window.initial(env)?;
                Some(rows.into_iter().map(|(at, row)| (Some(at), row)).collect())
            }
        };
        match rows {
            None => drop(self.initial.pop_front()),
            Some(rows) => {
                for (offset, row) in rows {
                    self.push(message::initial(row, offset, &self.options)?)?;
                }
            }
        }
        Ok(true)
    }

    fn show(&mut self, env: &Env, table: usize, change: &DocumentChange) -> Result<()> {
        let rows = self.tails[table].change(env, change)?;
        let count = rows.len();
        for (at, row) in rows.into_iter().enumerate() {
            let tail = &mut self.tails[table];
            if let Some(known) = tail.known.get_mut(&change.part).filter(|known| **known > 0) {
                *known -= 1;
                continue;
            }
            let reached = tail.reached.entry(change.part).or_default();
            *reached = if at + 1 == count { (change.at, 0) } else { (reached.0, reached.1 + 1) };
            let message = row.message(&self.options)?;
            self.push(message)?;
        }
        self.tails[table].reached.insert(change.part, (change.at, 0));
        Ok(())
    }

    /// Shows changes that were to be told as one with later ones.
    fn show_squashed(&mut self, env: &Env, changes: Vec<(usize, DocumentChange)>) -> Result<()> {
        changes.into_iter().try_for_each(|(table, change)| self.show(env, table, &change))
    }

    /// All of them: what is done next must not come before them.
    fn end_squashing(&mut self, env: &Env) -> Result<()> {
        let waiting = self.squashed.as_mut().map_or_else(Vec::new, Squashed::take_all);
        self.show_squashed(env, waiting)
    }

    fn take(&mut self, env: &Env, table: usize, event: LogEvent, now: Instant) -> Result<()> {
        match event {
            LogEvent::Split { of, into } => {
                self.end_squashing(env)?;
                self.tails[table].split(of, &into)
            }
            LogEvent::Reached { part, at } => {
                let tail = &mut self.tails[table];
                tail.reached.insert(part, (at, 0));
                if self.squashed.as_ref().is_none_or(Squashed::is_empty) {
                    tail.pass(part, at);
                }
                Ok(())
            }
            LogEvent::Change(change) => match &mut self.squashed {
                Some(squashed) if self.tails[table].is_settled(&change) => {
                    squashed.add(table, change, now);
                    Ok(())
                }
                _ => {
                    self.end_squashing(env)?;
                    self.show(env, table, &change)
                }
            },
        }
    }

    /// Makes messages of what has come. Returns whether anything had.
    fn fetch(&mut self, env: &Env) -> Result<bool> {
        let (now, mut has_come) = (Instant::now(), false);
        for table in 0..self.tails.len() {
            let events = self.tails[table].log.next(EVENTS)?;
            has_come |= !events.is_empty();
            for event in events {
                env.step()?;
                self.take(env, table, event, now)?;
            }
        }
        let ready = self.squashed.as_mut().map_or_else(Vec::new, |squashed| squashed.take(now));
        self.show_squashed(env, ready)?;
        for table in 0..self.tails.len() {
            if self.tails[table].is_short() {
                self.end_squashing(env)?;
                for row in self.tails[table].refill(env)? {
                    let message = row.message(&self.options)?;
                    self.push(message)?;
                }
            }
        }
        if !env.is_awaited.get() {
            self.bound_queue()?;
        }
        Ok(has_come)
    }

    /// Drops messages as RethinkDB does where more have come than may wait for a client that did not ask.
    fn bound_queue(&mut self) -> Result<()> {
        let size = self.options.queue_size;
        if self.messages.len() <= size {
            return Ok(());
        }
        // Each time that one more comes than has room, all that wait are dropped.
        let skipped = self.messages.len() / (size + 1) * (size + 1);
        self.messages.drain(..skipped);
        self.messages.push_front(message::skipped(skipped)?);
        Ok(())
    }

    fn look_again(&self) -> Option<Duration> {
        let logs = self.tails.iter().filter_map(Tail::look_again);
        logs.chain(self.squashed.as_ref().and_then(|squashed| squashed.look_again(Instant::now()))).min()
    }
}

impl Rows for FeedRows {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        while self.messages.is_empty() && self.show_initial(env)? {
            env.step()?;
        }
        // What comes may mean nothing for this feed.
        while self.messages.is_empty() && self.fetch(env)? {}
        if self.messages.is_empty() {
            return Err(env.wait(self.look_again()).at(self.frame));
        }
        let count = self.messages.len().min(limit);
        Ok(self.messages.drain(..count).map(Lazy::Value).collect())
    }

    fn is_infinite(&self) -> bool {
        true
    }

    fn feed(&self) -> Option<FeedSort> {
        Some(self.sort)
    }
}

#[cfg(test)]
mod tests;
