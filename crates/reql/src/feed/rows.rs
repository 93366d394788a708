//! The stream of a feed: what comes in the logs of its tables becomes messages.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::message::{self, RowChange};
use super::options::FeedOptions;
use super::range::RangeFeed;
use super::squash::Squashed;
use super::token::{self, TableToken};
use super::window::WindowFeed;
use crate::change_log::{ChangeLog, DocumentChange, Interest, LogEvent, Resume};
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::lazy::Lazy;
use crate::scan::TableInfo;
use crate::stream::{FeedKind, FeedSort, Rows, Subject};
use crate::value::{self, Value};

/// Events that are taken from a log at one time, about.
const EVENTS: usize = 1000;

enum State {
    Range(Box<RangeFeed>),
    Window(Box<WindowFeed>),
}

/// A table of the feed.
struct Tail {
    table: TableInfo,
    log: Box<dyn ChangeLog>,
    states: Vec<State>,
    /// For each part up to which change the client knows it, and how many messages after that.
    reached: BTreeMap<u32, (u64, u64)>,
    /// Up to these changes of parts, initial values show some of them: positions before stand for no state that the client knows.
    shown: BTreeMap<u32, u64>,
    /// Messages of parts that the client knows already.
    known: BTreeMap<u32, u64>,
}

impl Tail {
    /// Whether what the client knows is a state that the log has had, and not partly a later one.
    fn has_passed_initial(&self) -> bool {
        let is_passed = |part, shown| self.reached.get(part).is_none_or(|(at, _)| at >= shown);
        self.shown.iter().all(|(part, shown)| is_passed(part, shown))
    }
}

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
                Some(first) => State::Window(Box::new(WindowFeed::new(env, subject, first, &*log, &parts)?)),
            });
        }
        let known: BTreeMap<u32, u64> = from.map_or_else(BTreeMap::new, |token| {
            token.parts.iter().filter(|(_, (_, known))| *known > 0).map(|(part, (_, known))| (*part, *known)).collect()
        });
        if !known.is_empty() && from.is_some_and(|token| token.scheme != log.scheme()) {
            return Err(Error::failed(
                "The table was split after the message with this resume token, which is one of several messages of one change. \
                 Resume with the token of the message before it.",
            ));
        }
        let reached = reached.into_iter().map(|(part, (at, _))| (part, (at, known.get(&part).copied().unwrap_or(0))));
        self.tails.push(Tail { table, log, states, reached: reached.collect(), shown: BTreeMap::new(), known });
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
        let Tail { log, states, shown, .. } = &mut self.tails[table];
        let rows: Option<Vec<(Option<usize>, Value)>> = match &mut states[at] {
            State::Range(range) => range.initial(env, &**log)?.map(|(rows, (part, stamp))| {
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

    /// What a change means for all subjects of its table.
    fn row_changes(&mut self, env: &Env, table: usize, change: &DocumentChange) -> Result<Vec<RowChange>> {
        let Tail { log, states, reached, .. } = &mut self.tails[table];
        let parts: Vec<u32> = reached.keys().copied().collect();
        let mut out = Vec::new();
        for state in states {
            out.extend(match state {
                State::Range(range) => range.change(env, change)?,
                State::Window(window) => window.change(env, change, &**log, &parts)?,
            });
        }
        Ok(out)
    }

    fn show(&mut self, env: &Env, table: usize, change: &DocumentChange) -> Result<()> {
        let rows = self.row_changes(env, table, change)?;
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

    fn split(&mut self, table: usize, of: u32, into: &[u32]) {
        let tail = &mut self.tails[table];
        for state in &mut tail.states {
            match state {
                State::Range(range) => range.split(of, into),
                State::Window(window) => window.split(of, into),
            }
        }
        if let Some(reached) = tail.reached.remove(&of) {
            tail.reached.extend(into.iter().map(|part| (*part, reached)));
        }
        if let Some(shown) = tail.shown.remove(&of) {
            tail.shown.extend(into.iter().map(|part| (*part, shown)));
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
                match event {
                    LogEvent::Split { of, into } => self.split(table, of, &into),
                    LogEvent::Reached { part, at } => drop(self.tails[table].reached.insert(part, (at, 0))),
                    LogEvent::Change(change) => {
                        let is_settled = |state: &State| match state {
                            State::Range(range) => range.is_settled(&change),
                            State::Window(window) => window.is_settled(&change),
                        };
                        match &mut self.squashed {
                            Some(squashed) if self.tails[table].states.iter().all(is_settled) => {
                                squashed.add(table, change, now);
                            }
                            _ => self.show(env, table, &change)?,
                        }
                    }
                }
            }
        }
        let ready = self.squashed.as_mut().map_or_else(Vec::new, |squashed| squashed.take(now));
        for (table, change) in ready {
            self.show(env, table, &change)?;
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
        let logs = self.tails.iter().filter_map(|tail| tail.log.look_again());
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
