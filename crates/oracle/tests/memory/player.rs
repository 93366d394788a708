//! Runs recorded queries against databases in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use tessera_javascript::{Launch, Workers};
use tessera_reql::{
    Administrator, Answer, ErrorKind, Failure, Json, MemorySource, Query, Request, Requester, Source, Stage, Step,
    Stop, write_answer, write_row,
};
use tessera_types::Rights;

use tessera_oracle::{ENDLESS_ROWS, ENDLESS_SHOWN, JSON_DEPTH, Player, parse_json, text, write};

use crate::cut::CutSource;
use crate::feed::Feed;

/// What tables are like.
#[derive(Clone, Copy)]
pub enum Tables {
    /// One piece, whose documents the evaluator gets.
    Whole,
    /// Parts that evaluate what they can.
    Cut,
}

pub struct MemoryPlayer {
    tables: Tables,
    source: Arc<dyn Source>,
    /// Who has logged in on a connection; on the others it is `admin`.
    users: BTreeMap<i64, Arc<User>>,
    /// Feeds of the scenario by their names.
    feeds: BTreeMap<String, Feed>,
    /// Queries so far: each one has a time of its own, however fast they run.
    queries: std::cell::Cell<u32>,
}

/// Somebody who asks. Nobody checks a password here.
struct User {
    name: String,
    source: Arc<dyn Source>,
}

impl Requester for User {
    fn name(&self) -> &str {
        &self.name
    }

    fn rights(&self) -> Arc<Rights> {
        let account = self.source.accounts().unwrap().into_iter().find(|account| account.name == self.name);
        Arc::new(account.map(|account| account.rights).unwrap_or_default())
    }
}

fn connection(step: &Json) -> i64 {
    if let Some(Json::Number(number)) = step.get("conn") { *number as i64 } else { 0 }
}

pub fn string(text: &str) -> Json {
    Json::String(Arc::from(text))
}

pub fn object(fields: Vec<(&str, Json)>) -> Json {
    Json::Object(fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect())
}

impl Player for MemoryPlayer {
    fn begin(&mut self) {
        *self = Self::new(self.tables);
    }

    fn play(&mut self, step: &Json) -> Option<Json> {
        let connection = connection(step);
        if text(step, "op") == Some("login") {
            let user = User { name: text(step, "user").unwrap().into(), source: self.source.clone() };
            self.users.insert(connection, Arc::new(user));
            return None;
        }
        if let Some(played) = self.play_feed(step) {
            return played;
        }
        let query = match (text(step, "op")?, step.get("q"), step.get("text")) {
            ("q", Some(query), _) => write(query),
            ("text", _, Some(Json::String(text))) => text.to_string(),
            _ => return None,
        };
        Some(match self.answer(connection, &query) {
            Ok(reply) => reply,
            Err(failure) => refusal(&failure),
        })
    }
}

impl MemoryPlayer {
    pub fn new(tables: Tables) -> Self {
        let launch = Launch::itself(&["javascript_worker", "--exact", "--ignored"]);
        let scripts = Workers::new(launch, 1);
        let source = Arc::new(MemorySource::new("oracle").with_scripts(Box::new(scripts)));
        source.create_database("test").unwrap();
        let source: Arc<dyn Source> = match tables {
            Tables::Whole => source,
            Tables::Cut => Arc::new(CutSource(source)),
        };
        Self { tables, source, users: BTreeMap::new(), feeds: BTreeMap::new(), queries: std::cell::Cell::default() }
    }

    /// Plays a step about feeds, if it is one.
    fn play_feed(&mut self, step: &Json) -> Option<Option<Json>> {
        let names = match step.get("feeds") {
            Some(Json::Array(names)) => names
                .iter()
                .filter_map(|name| if let Json::String(name) = name { Some(name.to_string()) } else { None })
                .collect(),
            _ => vec![text(step, "feed").unwrap_or_default().to_string()],
        };
        let expected = step.get("reply").unwrap();
        Some(match text(step, "op")? {
            "open" => {
                let name = names.into_iter().next().unwrap();
                let run = || {
                    let Request::Start(query) = Request::read(&write(step.get("q").unwrap()))? else {
                        panic!("no query")
                    };
                    let Answer::Cursor(cursor) = self.run(connection(step), *query)? else { panic!("no feed") };
                    let mut feed = Feed::new(cursor);
                    Ok((feed.first()?, feed))
                };
                match run() {
                    Err(failure) => Some(refusal(&failure)),
                    Ok((reply, feed)) => {
                        self.feeds.insert(name, feed);
                        Some(reply)
                    }
                }
            }
            "read" => self.feeds.get_mut(&names[0]).map(|feed| feed.read(step)),
            "drain" => {
                let (mut messages, mut ends) = (Vec::new(), Vec::new());
                for name in &names {
                    let count = expected.get("r").and_then(|feeds| feeds.get(name)).map_or(0, |rows| match rows {
                        Json::Array(rows) => rows.len(),
                        _ => 0,
                    });
                    let Some(feed) = self.feeds.get_mut(name) else { continue };
                    messages.push((&**name, Json::Array(feed.drain(count))));
                    ends.extend(feed.end.clone().map(|end| (&**name, end)));
                }
                let mut reply = vec![("t", string("MESSAGES")), ("r", object(messages))];
                if !ends.is_empty() {
                    reply.push(("end", object(ends)));
                }
                Some(object(reply))
            }
            // How many answers there are is told by those who speak the protocol.
            "stop" => {
                self.feeds.remove(&names[0]);
                None
            }
            _ => return None,
        })
    }

    /// Runs a query to its first answer.
    fn run(&self, connection: i64, query: Query) -> Result<Answer, Failure> {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        self.queries.set(self.queries.get() + 1);
        let now = now + f64::from(self.queries.get()) / 1000.0;
        let now = tessera_document::Time::new(now, tessera_document::Timezone::UTC).unwrap();
        let requester: Arc<dyn Requester> = match self.users.get(&connection) {
            Some(user) => user.clone(),
            None => Arc::new(Administrator),
        };
        query.prepare(now.into())?.run_for(requester, self.source.clone(), Arc::new(Stop::default()))
    }

    fn answer(&self, connection: i64, query: &str) -> Result<Json, Failure> {
        let Request::Start(query) = Request::read(query)? else { return Ok(string("no query")) };
        let has_profile = query.flag("profile");
        let read = |text: &[u8]| parse_json(std::str::from_utf8(text).unwrap(), JSON_DEPTH).unwrap();
        let to_json = |value: &tessera_document::Value| -> Result<Json, Failure> {
            let mut out = Vec::new();
            write_answer(value, &mut out)?;
            Ok(read(&out))
        };
        let (kind, rows) = match self.run(connection, *query)? {
            Answer::Cursor(cursor) if !cursor.notes().is_empty() => {
                let mut reply = Feed::new(cursor).first()?;
                if let (true, Json::Object(fields)) = (has_profile, &mut reply) {
                    fields.push((Arc::from("p"), Json::Bool(true)));
                }
                return Ok(reply);
            }
            Answer::Value(value) => ("SUCCESS_ATOM", vec![to_json(&value)?]),
            Answer::Cursor(mut cursor) => {
                let mut rows = Vec::new();
                loop {
                    let batch = cursor.next(1000)?;
                    if batch.is_empty() {
                        break ("SUCCESS_SEQUENCE", rows);
                    }
                    for row in &batch {
                        let mut out = Vec::new();
                        write_row(row, &mut out)?;
                        rows.push(read(&out));
                    }
                    if rows.len() > ENDLESS_ROWS {
                        rows.truncate(ENDLESS_SHOWN);
                        break ("ENDLESS", rows);
                    }
                }
            }
        };
        let mut reply = vec![("t", string(kind)), ("r", Json::Array(rows))];
        if has_profile {
            reply.push(("p", Json::Bool(true)));
        }
        Ok(object(reply))
    }
}

pub fn refusal(failure: &Failure) -> Json {
    let kind = match failure.stage {
        Stage::Client => "CLIENT_ERROR",
        Stage::Compile => "COMPILE_ERROR",
        Stage::Run => "RUNTIME_ERROR",
    };
    let backtrace = failure
        .backtrace
        .iter()
        .map(|step| match step {
            Step::Position(at) => Json::Number(f64::from(*at)),
            Step::Name(name) => string(name),
        })
        .collect();
    let mut reply =
        vec![("t", string(kind)), ("r", Json::Array(vec![string(&failure.message)])), ("b", Json::Array(backtrace))];
    if failure.stage == Stage::Run {
        reply.push((
            "e",
            string(match failure.kind {
                ErrorKind::Internal | ErrorKind::Interrupted => "INTERNAL",
                ErrorKind::ResourceLimit => "RESOURCE_LIMIT",
                ErrorKind::QueryLogic | ErrorKind::EmptyUser => "QUERY_LOGIC",
                ErrorKind::NonExistence => "NON_EXISTENCE",
                ErrorKind::OpFailed => "OP_FAILED",
                ErrorKind::OpIndeterminate => "OP_INDETERMINATE",
                ErrorKind::User => "USER",
                ErrorKind::Permission => "PERMISSION_ERROR",
            }),
        ));
    }
    object(reply)
}
