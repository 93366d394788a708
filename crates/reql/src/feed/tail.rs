//! A table of a feed: its log, and what is made of the changes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::message::RowChange;
use super::range::RangeFeed;
use super::window::WindowFeed;
use crate::change_log::{ChangeLog, DocumentChange, Reached, Unread};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::scan::TableInfo;

/// Between two tries to read rows that cannot be read just now.
const PAUSE: Duration = Duration::from_secs(1);

/// What is made of the changes of one subject.
pub enum State {
    Range(Box<RangeFeed>),
    Window(Box<WindowFeed>),
}

/// See the [module](self).
pub struct Tail {
    pub table: TableInfo,
    pub log: Box<dyn ChangeLog>,
    pub states: Vec<State>,
    /// The number of the last change of each part that the client knows, and how many messages it was told after that.
    pub reached: BTreeMap<u32, (u64, u64)>,
    /// Up to these changes of parts, initial values show some of them: positions before stand for no state that the client knows.
    pub shown: BTreeMap<u32, u64>,
    /// Messages of parts that the client knows already.
    pub known: BTreeMap<u32, u64>,
    /// When to try again to read rows that could not be read.
    pub retry: Option<Instant>,
}

/// The error of a feed that is to go on in the middle of a change.
pub fn split_within_a_change() -> Error {
    Error::failed(
        "The table was split after the message with this resume token, which is one of several messages of one change. \
         Resume with the token of the message before it.",
    )
}

impl Tail {
    /// Up to which change the client knows each part.
    pub fn positions(&self) -> Vec<Reached> {
        self.reached.iter().map(|(part, (at, _))| (*part, *at)).collect()
    }

    /// Whether what the client knows is a state that the log has had, and not partly a later one.
    pub fn has_passed_initial(&self) -> bool {
        let is_passed = |part, shown| self.reached.get(part).is_none_or(|(at, _)| at >= shown);
        self.shown.iter().all(|(part, shown)| is_passed(part, shown))
    }

    /// Whether initial values have shown nothing that the change could be a part of.
    pub fn is_settled(&self, change: &DocumentChange) -> bool {
        self.states.iter().all(|state| match state {
            State::Range(range) => range.is_settled(change),
            State::Window(window) => window.is_settled(change),
        })
    }

    /// What a change means for all subjects of the table.
    ///
    /// # Errors
    /// If the query was stopped, or a document is damaged.
    pub fn change(&mut self, env: &Env, change: &DocumentChange) -> Result<Vec<RowChange>> {
        let mut out = Vec::new();
        for state in &mut self.states {
            out.extend(match state {
                State::Range(range) => range.change(env, change)?,
                State::Window(window) => window.change(env, change, &*self.log)?,
            });
        }
        Ok(out)
    }

    /// The log has passed a change of a part, and so has everything that was made of it.
    pub fn pass(&mut self, part: u32, at: u64) {
        for state in &mut self.states {
            match state {
                State::Range(range) => range.pass(part, at),
                State::Window(window) => window.pass(part, at),
            }
        }
    }

    /// Whether rows must be read before subjects can tell what has changed for them.
    pub fn is_short(&self) -> bool {
        self.states.iter().any(|state| matches!(state, State::Window(window) if window.is_short()))
    }

    /// Reads rows where too few are known, and tells what has changed by that. What cannot be read just now is tried again later.
    ///
    /// # Errors
    /// If rows cannot be read.
    pub fn refill(&mut self, env: &Env) -> Result<Vec<RowChange>> {
        if !self.is_short() || self.retry.is_some_and(|retry| Instant::now() < retry) {
            return Ok(Vec::new());
        }
        self.retry = None;
        let (reached, mut out) = (self.positions(), Vec::new());
        for state in &mut self.states {
            let State::Window(window) = state else { continue };
            match window.refill(env, &*self.log, &reached) {
                Ok(rows) => out.extend(rows),
                Err(Unread::Later(_)) => self.retry = Some(Instant::now() + PAUSE),
                Err(Unread::Failed(error)) => return Err(error),
            }
        }
        Ok(out)
    }

    /// When to look again although nobody says that something has come.
    pub fn look_again(&self) -> Option<Duration> {
        let retry = self.retry.map(|retry| retry.saturating_duration_since(Instant::now()));
        retry.into_iter().chain(self.log.look_again()).min()
    }

    /// A part was split.
    ///
    /// # Errors
    /// If the client knows some messages of a change in it: which of the new parts has that change cannot be told.
    pub fn split(&mut self, of: u32, into: &[u32]) -> Result<()> {
        if self.known.remove(&of).is_some_and(|known| known > 0) {
            return Err(split_within_a_change());
        }
        for state in &mut self.states {
            match state {
                State::Range(range) => range.split(of, into),
                State::Window(window) => window.split(of, into),
            }
        }
        if let Some(reached) = self.reached.remove(&of) {
            self.reached.extend(into.iter().map(|part| (*part, reached)));
        }
        if let Some(shown) = self.shown.remove(&of) {
            self.shown.extend(into.iter().map(|part| (*part, shown)));
        }
        // What could not be read of the old parts may be read of the new ones.
        self.retry = None;
        Ok(())
    }
}
