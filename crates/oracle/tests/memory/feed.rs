//! A feed that is played.

use std::time::{Duration, Instant};

use tessera_oracle::{JSON_DEPTH, Json, parse_json};
use tessera_reql::{Cursor, Failure, write_row};

use crate::player::{object, refusal, string};

/// How long recorded messages may take. Where none are recorded, none are waited for.
const PATIENCE: Duration = Duration::from_secs(5);

const NOTES: [&str; 5] = ["SEQUENCE_FEED", "ATOM_FEED", "ORDER_BY_LIMIT_FEED", "UNIONED_FEED", "INCLUDES_STATES"];

pub struct Feed {
    cursor: Box<Cursor>,
    /// Messages that have come and were not asked for yet.
    ready: Vec<Json>,
    /// The answer with which it has ended.
    pub end: Option<Json>,
    last: Vec<Json>,
}

impl Feed {
    pub fn new(cursor: Box<Cursor>) -> Self {
        Self { cursor, ready: Vec::new(), end: None, last: Vec::new() }
    }

    fn notes(&self) -> Json {
        Json::Array(self.cursor.notes().into_iter().map(|note| string(NOTES[usize::from(note) - 1])).collect())
    }

    /// The first answer, without its rows.
    pub fn first(&mut self) -> Result<Json, Failure> {
        let is_ended = self.take()?;
        let (kind, rows) = match is_ended {
            true => ("SUCCESS_SEQUENCE", self.ready.clone()),
            false => ("SUCCESS_PARTIAL", Vec::new()),
        };
        Ok(object(vec![("t", string(kind)), ("r", Json::Array(rows)), ("n", self.notes())]))
    }

    /// Takes what has come. Returns whether that was all there will be.
    fn take(&mut self) -> Result<bool, Failure> {
        let rows = self.cursor.next(1000)?;
        if rows.is_empty() {
            return Ok(self.cursor.wait().is_none());
        }
        self.last.clear();
        for row in &rows {
            let mut out = Vec::new();
            write_row(row, &mut out)?;
            let row = parse_json(std::str::from_utf8(&out).unwrap(), JSON_DEPTH).unwrap();
            self.last.push(row.clone());
            self.ready.push(row);
        }
        Ok(false)
    }

    /// Waits for so many messages, and takes those that are there then.
    pub fn drain(&mut self, count: usize) -> Vec<Json> {
        let began = Instant::now();
        while self.end.is_none() {
            let before = self.ready.len();
            match self.take() {
                Err(failure) => self.end = Some(refusal(&failure)),
                Ok(true) => {
                    let rows = Json::Array(std::mem::take(&mut self.last));
                    let reply = vec![("t", string("SUCCESS_SEQUENCE")), ("r", rows), ("n", self.notes())];
                    self.end = Some(object(reply));
                }
                Ok(false) if self.ready.len() > before => {}
                Ok(false) if self.ready.len() >= count || began.elapsed() > PATIENCE => break,
                Ok(false) => std::thread::park_timeout(Duration::from_millis(5)),
            }
        }
        std::mem::take(&mut self.ready)
    }

    /// Takes so many messages as the step says.
    pub fn read(&mut self, step: &Json) -> Json {
        let count = if let Some(Json::Number(count)) = step.get("count") { *count as usize } else { 0 };
        let mut rows = self.drain(count);
        self.ready = rows.split_off(count.min(rows.len()));
        let mut reply = vec![("t", string("MESSAGES")), ("r", Json::Array(rows))];
        reply.extend(self.end.clone().map(|end| ("end", end)));
        object(reply)
    }
}
