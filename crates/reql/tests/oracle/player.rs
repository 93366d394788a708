//! Runs recorded queries against databases in memory.

use std::sync::Arc;

use tessera_reql::{
    Answer, ErrorKind, Failure, Json, MemorySource, Request, Source, Stage, Step, Stop, parse_json, write_answer,
    write_row,
};

use crate::compare::write;
use crate::cut::CutSource;

/// Streams with more rows than this were stopped when they were recorded.
const ENDLESS_ROWS: usize = 150_000;

/// What tables are like.
#[derive(Clone, Copy)]
pub enum Tables {
    /// One piece, whose documents the evaluator gets.
    Whole,
    /// Parts that evaluate what they can.
    Cut,
}

pub struct Player {
    source: Arc<dyn Source>,
    /// Queries so far: each one has a time of its own, however fast they run.
    queries: std::cell::Cell<u32>,
}

/// Terms that belong to what this crate does not have yet: scripts, requests to elsewhere, geometry, changefeeds,
/// permissions, write hooks.
const OUT_OF_SCOPE: &[i32] =
    &[11, 152, 153, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 171, 188, 189, 190];

/// System tables that this crate does not have yet.
const ABSENT_TABLES: &[&str] = &["cluster_config", "jobs", "logs", "permissions", "stats", "users", "_debug_scratch"];

/// Whether this crate is to answer the step as recorded.
pub fn is_in_scope(step: &Json) -> bool {
    match step.get("q") {
        Some(query) => terms_in_scope(query),
        None => true,
    }
}

fn terms_in_scope(json: &Json) -> bool {
    match json {
        Json::Array(items) => {
            if let [Json::Number(code), Json::Array(args), ..] = &items[..] {
                let code = *code as i32;
                let is_absent =
                    code == 15 && matches!(&args[..], [_, Json::String(name)] if ABSENT_TABLES.contains(&&**name));
                if OUT_OF_SCOPE.contains(&code) || is_absent {
                    return false;
                }
            }
            items.iter().all(terms_in_scope)
        }
        Json::Object(fields) => fields.iter().all(|(name, value)| {
            let is_geometry = &**name == "$reql_type$" && matches!(value, Json::String(text) if &**text == "GEOMETRY");
            !is_geometry && terms_in_scope(value)
        }),
        _ => true,
    }
}

fn string(text: &str) -> Json {
    Json::String(Arc::from(text))
}

fn object(fields: Vec<(&str, Json)>) -> Json {
    Json::Object(fields.into_iter().map(|(name, value)| (Arc::from(name), value)).collect())
}

impl Player {
    /// What each scenario begins with: an empty database.
    pub fn new(tables: Tables) -> Self {
        let source = Arc::new(MemorySource::new("oracle"));
        source.create_database("test").unwrap();
        let source: Arc<dyn Source> = match tables {
            Tables::Whole => source,
            Tables::Cut => Arc::new(CutSource(source)),
        };
        Self { source, queries: std::cell::Cell::default() }
    }

    /// The reply to a step; none if it is no query.
    pub fn play(&self, step: &Json) -> Option<Json> {
        let query = match (crate::text(step, "op")?, step.get("q"), step.get("text")) {
            ("q", Some(query), _) => write(query),
            ("text", _, Some(Json::String(text))) => text.to_string(),
            _ => return None,
        };
        Some(match self.answer(&query) {
            Ok(reply) => reply,
            Err(failure) => refusal(&failure),
        })
    }

    fn answer(&self, text: &str) -> Result<Json, Failure> {
        let Request::Start(query) = Request::read(text)? else { return Ok(string("no query")) };
        let has_profile = query.flag("profile");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        self.queries.set(self.queries.get() + 1);
        let now = now + f64::from(self.queries.get()) / 1000.0;
        let now = tessera_document::Time::new(now, tessera_document::Timezone::UTC).unwrap();
        let prepared = query.prepare(now.into())?;
        let read = |text: &[u8]| parse_json(std::str::from_utf8(text).unwrap(), crate::JSON_DEPTH).unwrap();
        let to_json = |value: &tessera_document::Value| -> Result<Json, Failure> {
            let mut out = Vec::new();
            write_answer(value, &mut out)?;
            Ok(read(&out))
        };
        let (kind, rows) = match prepared.run(self.source.clone(), Arc::new(Stop::default()))? {
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
                        rows.truncate(5);
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

fn refusal(failure: &Failure) -> Json {
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
