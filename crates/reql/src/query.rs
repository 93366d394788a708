//! Queries as they come over the wire, and what is answered.

use std::sync::Arc;
use std::time::Duration;

use crate::account::{Administrator, Requester};
use crate::env::{Env, Pacer, Wait};
use crate::error::{At as _, Error, ErrorKind, FrameId, Frames, Result, Step};
use crate::function::Scope;
use crate::json::{self, Json};
use crate::lazy::Lazy;
use crate::node::Node;
use crate::permitted::Permitted;
use crate::plan;
use crate::printed;
use crate::profile::Profile;
use crate::source::Source;
use crate::stream::{FeedSort, Stream, no_end};
use crate::system::WithSystemTables;
use crate::term;
use crate::terms;
use crate::together;
use crate::val::Kind;
use crate::value::{self, Value};

/// The deepest nesting of the JSON of a query: terms are arrays in arrays.
const MAX_JSON_DEPTH: usize = 2 * term::MAX_TERM_DEPTH + 20;

/// The longest answer of a stream that an option can ask for, in bytes, but for its last row.
const MAX_BATCH_BYTES: usize = 64 << 20;

/// Options that a whole query may have; most of them stand for those of its terms.
const GLOBAL_OPTARGS: &[&str] = &[
    "_EVAL_FLAGS_",
    "_NO_RECURSE_",
    "_SHORTCUT_",
    "array_limit",
    "atomic",
    "attempts",
    "auth",
    "base",
    "binary_format",
    "changefeed_queue_size",
    "conflict",
    "data",
    "db",
    "default",
    "default_timezone",
    "dry_run",
    "durability",
    "emergency_repair",
    "emit",
    "fill",
    "final_emit",
    "first_batch_scaledown_factor",
    "float",
    "geo",
    "geo_system",
    "group_format",
    "header",
    "identifier_format",
    "ignore_write_hook",
    "include_initial",
    "include_offsets",
    "include_states",
    "include_types",
    "index",
    "interleave",
    "left_bound",
    "max_batch_bytes",
    "max_batch_rows",
    "max_batch_seconds",
    "max_dist",
    "max_results",
    "method",
    "min_batch_rows",
    "multi",
    "non_atomic",
    "nonvoting_replica_tags",
    "noreply",
    "num_vertices",
    "ordered",
    "overwrite",
    "page",
    "page_limit",
    "params",
    "primary_key",
    "primary_replica_tag",
    "profile",
    "read_mode",
    "redirects",
    "replicas",
    "result_format",
    "return_changes",
    "return_vals",
    "right_bound",
    "shards",
    "squash",
    "step",
    "time_format",
    "timeout",
    "unit",
    "use_outdated",
    "verify",
    "wait_for",
];

/// What a client asks.
#[derive(Debug)]
pub enum Request {
    /// Starts a query (`START`).
    Start(Box<Query>),
    /// Asks for more of a query's stream (`CONTINUE`).
    Continue,
    /// Ends a query's stream (`STOP`).
    Stop,
    /// Waits until all queries that asked for no reply are done (`NOREPLY_WAIT`).
    NoreplyWait,
    /// Asks for the name and identifier of the node (`SERVER_INFO`).
    ServerInfo,
}

/// A query that was read, but not yet checked.
#[derive(Debug)]
pub struct Query {
    term: Json,
    optargs: Vec<(Arc<str>, Json)>,
}

/// Why a query has no result, ready to be answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// Where the query failed.
    pub stage: Stage,
    /// The kind, by which drivers choose the class of their exception.
    pub kind: ErrorKind,
    /// The text for the client.
    pub message: String,
    /// The path from the query's outermost term to the term that is blamed.
    pub backtrace: Vec<Step>,
}

/// Where a query failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It is not in the form of a query.
    Client,
    /// Its terms do not fit together.
    Compile,
    /// It failed while it ran.
    Run,
}

impl Failure {
    fn new(stage: Stage, error: &Error, frames: &Frames) -> Self {
        let backtrace = error.frame().map(|frame| frames.path(frame)).unwrap_or_default();
        Self { stage, kind: error.kind(), message: error.message().into(), backtrace }
    }

    fn client(message: impl Into<String>) -> Self {
        Self { stage: Stage::Client, kind: ErrorKind::QueryLogic, message: message.into(), backtrace: Vec::new() }
    }

    /// JSON that is no request.
    fn no_request(what: &str) -> Self {
        Self::client(format!("Server could not parse query: {what}"))
    }
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// If the text is no request.
    pub fn read(text: &str) -> Result<Self, Failure> {
        let buggy = || Failure::client("Client is buggy (failed to deserialize query).");
        let json = match json::parse(text, MAX_JSON_DEPTH) {
            Ok(json) => json,
            Err(json::TOO_DEEP) => {
                return Err(Failure::client(format!("The query is nested deeper than {MAX_JSON_DEPTH} levels.")));
            }
            Err(_) => return Err(buggy()),
        };
        let Json::Array(items) = json else {
            return Err(Failure::no_request(&format!(
                "Expected a query to be an array, but found {}.",
                json.type_name()
            )));
        };
        if items.is_empty() || items.len() > 3 {
            return Err(Failure::no_request(&format!(
                "Expected 1 to 3 elements in the top-level query, but found {}.",
                items.len()
            )));
        }
        let Json::Number(kind) = items[0] else {
            return Err(Failure::no_request(&format!(
                "Expected a query type as a number, but found {}.",
                items[0].type_name()
            )));
        };
        match kind as i32 {
            1 => {}
            2 => return Ok(Self::Continue),
            3 => return Ok(Self::Stop),
            4 => return Ok(Self::NoreplyWait),
            5 => return Ok(Self::ServerInfo),
            other => return Err(Failure::no_request(&format!("Unrecognized QueryType: {other}."))),
        }
        let mut items = items.into_iter().skip(1);
        let Some(term) = items.next() else { return Err(buggy()) };
        let optargs = match items.next() {
            None => Vec::new(),
            Some(Json::Object(fields)) => fields,
            Some(other) => {
                return Err(Failure::no_request(&format!(
                    "Expected global optargs as an object, but found {}.",
                    other.type_name()
                )));
            }
        };
        Ok(Self::Start(Box::new(Query { term, optargs })))
    }
}

impl Query {
    pub(crate) fn term(&self) -> &Json {
        &self.term
    }

    pub(crate) fn options(&self) -> &[(Arc<str>, Json)] {
        &self.optargs
    }

    /// What the query says, for people: about as in JavaScript, without passwords. It is cut after so many bytes.
    pub fn text(&self, limit: usize) -> String {
        printed::print(&self.term, &self.optargs, limit)
    }

    /// An option that must be known before the query runs, such as `noreply`.
    pub fn flag(&self, name: &str) -> bool {
        let value = self.optargs.iter().find(|(optarg, _)| &**optarg == name).map(|(_, value)| value);
        match value {
            Some(Json::Bool(value)) => *value,
            Some(Json::Array(items)) => matches!(items[..], [Json::Number(1.0), Json::Bool(true)]),
            _ => false,
        }
    }

    /// Checks the query and makes its plan. `now` is what `r.now()` means in it.
    ///
    /// # Errors
    /// What RethinkDB calls a compile error.
    pub fn prepare(self, now: Value) -> Result<Prepared, Failure> {
        let mut frames = Frames::default();
        self.prepare_with(&mut frames, now)
            .map_err(|error| Failure::new(Stage::Compile, &error, &frames))
            .map(|(root, globals, now)| Prepared { root, globals, frames, now, profile: None })
    }

    #[allow(clippy::type_complexity, reason = "the parts of a plan")]
    fn prepare_with(self, frames: &mut Frames, now: Value) -> Result<(Arc<Node>, Vec<(Arc<str>, Arc<Node>)>, Value)> {
        let term = term::read(&self.term, frames, terms::exists)?;
        let mut globals: Vec<(Arc<str>, Arc<Node>)> = Vec::new();
        for (name, json) in &self.optargs {
            if !GLOBAL_OPTARGS.contains(&&**name) {
                return Err(Error::logic(format!("Unrecognized global optional argument `{name}`.")));
            }
            if globals.iter().any(|(earlier, _)| earlier == name) {
                return Err(Error::logic(format!("Duplicate global optional argument: `{name}`.")));
            }
            // Options have no place of their own in backtraces.
            let term = term::read(json, &mut Frames::default(), terms::exists).map_err(|error| error.elsewhere())?;
            globals.push((name.clone(), plan::compile(&term).map_err(|error| error.elsewhere())?));
        }
        let root = plan::compile(&term)?;
        Ok((root, globals, now))
    }
}

/// A query that can run.
pub struct Prepared {
    root: Arc<Node>,
    globals: Vec<(Arc<str>, Arc<Node>)>,
    frames: Frames,
    now: Value,
    profile: Option<Arc<Profile>>,
}

/// What a query gives.
pub enum Answer {
    /// One value, answered at once.
    Value(Value),
    /// A stream.
    Cursor(Box<Cursor>),
}

/// A stream that is answered in batches.
pub struct Cursor {
    env: Env,
    frames: Frames,
    stream: Stream,
    batches: Batches,
    wait: Option<Wait>,
}

/// When an answer of a stream is long enough: once it has `rows`, or `bytes` and `min_rows`, or took `time` and has a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batches {
    /// The most rows of an answer.
    pub rows: usize,
    /// The fewest rows before `bytes` counts.
    pub min_rows: usize,
    /// The bytes from which an answer is long enough.
    pub bytes: usize,
    /// The time after which an answer with a row is given.
    pub time: Duration,
    /// The first answer of a stream is so many times smaller, so that something comes soon.
    pub first_divisor: usize,
}

impl Default for Batches {
    fn default() -> Self {
        Self { rows: usize::MAX, min_rows: 8, bytes: 1 << 20, time: Duration::from_millis(500), first_divisor: 4 }
    }
}

impl Batches {
    /// Those of the first answer.
    #[must_use]
    pub fn first(self) -> Self {
        let part = |number: usize| (number / self.first_divisor).max(1);
        Self {
            rows: part(self.rows),
            min_rows: part(self.min_rows),
            bytes: part(self.bytes),
            time: self.time / u32::try_from(self.first_divisor).unwrap_or(u32::MAX),
            ..self
        }
    }
}

impl Prepared {
    /// Has the parts of the query measured while it runs, and while its stream is read.
    #[must_use]
    pub fn measured(self, profile: Option<Arc<Profile>>) -> Self {
        Self { profile, ..self }
    }

    /// Runs the query for somebody who may do everything: to its end, or until its result turns out to be a stream.
    ///
    /// # Errors
    /// What RethinkDB calls a runtime error.
    pub fn run(self, source: Arc<dyn Source>, pacer: Arc<dyn Pacer>) -> Result<Answer, Failure> {
        self.run_for(Arc::new(Administrator), source, pacer)
    }

    /// Runs the query, as [`Self::run`] does, for somebody who may not do everything.
    ///
    /// # Errors
    /// What RethinkDB calls a runtime error.
    pub fn run_for(
        self,
        requester: Arc<dyn Requester>,
        source: Arc<dyn Source>,
        pacer: Arc<dyn Pacer>,
    ) -> Result<Answer, Failure> {
        let Self { root, globals, frames, now, profile } = self;
        let source = Permitted::new(WithSystemTables::new(source), requester);
        let mut env = Env::new(Arc::new(source), pacer, now);
        env.profile = profile;
        let stream = match Self::evaluate(&root, globals, &mut env) {
            Ok(Ok(value)) => return Ok(Answer::Value(value)),
            Ok(Err(stream)) => stream,
            Err(error) => {
                // A value that can be known only when something changes.
                let error = match env.take_wait() {
                    Some(_) => no_end().at(error.frame().unwrap_or(FrameId::ROOT)),
                    None => env.unless_written(error),
                };
                return Err(Failure::new(Stage::Run, &error, &frames));
            }
        };
        match batches(&env) {
            Ok(batches) => Ok(Answer::Cursor(Box::new(Cursor { env, frames, stream, batches, wait: None }))),
            Err(error) => Err(Failure::new(Stage::Run, &error, &frames)),
        }
    }

    fn evaluate(root: &Arc<Node>, globals: Vec<(Arc<str>, Arc<Node>)>, env: &mut Env) -> Result<Result<Value, Stream>> {
        env.set_globals(globals).map_err(|error| error.elsewhere())?;
        let is_atomic = match env.global_optarg(together::OPTARG).map_err(|error| error.elsewhere())? {
            Some(value) => value.as_bool().map_err(|error| error.elsewhere())?,
            None => false,
        };
        let evaluate = || env.evaluate(root, &Scope::default(), false);
        let result = if is_atomic { together::evaluate(env, evaluate)? } else { evaluate()? };
        let frame = result.frame;
        match result.kind {
            Kind::Datum(value) => Ok(Ok(value)),
            Kind::Row(row) => row.error.map_or(Ok(Ok(row.value)), Err),
            Kind::Grouped(groups) => Ok(Ok(grouped(env, groups)?)),
            Kind::Stream(stream) | Kind::Selection(_, stream) if stream.is_grouped() => {
                let groups = stream.into_groups(env)?;
                Ok(Ok(grouped(env, groups)?))
            }
            Kind::Stream(stream) | Kind::Selection(_, stream) if stream.is_array() => {
                let items = stream.collect(env)?;
                Ok(Ok(env.array(items)?))
            }
            Kind::Stream(stream) | Kind::Selection(_, stream) => Ok(Err(stream)),
            Kind::Table(table) => Ok(Err(crate::selection::TableSlice::whole(table).stream(env, frame))),
            Kind::Slice(slice) => Ok(Err(slice.stream(env, frame))),
            Kind::Database(_) | Kind::Function(_) => {
                let name = if matches!(result.kind, Kind::Database(_)) { "DATABASE" } else { "FUNCTION" };
                Err(Error::logic(format!("Query result must be of type DATUM, GROUPED_DATA, or STREAM (got {name})."))
                    .at(FrameId::ROOT))
            }
        }
    }
}

/// What the options say that bound the batches of a stream.
fn batches(env: &Env) -> Result<Batches> {
    let count = |name: &str| -> Result<Option<usize>> {
        let Some(value) = env.global_optarg(name).map_err(|error| error.elsewhere())? else { return Ok(None) };
        let number = value.as_integer().map_err(|error| error.elsewhere())?;
        if number < 1 {
            let message = format!("The option `{name}` must be at least 1.");
            return Err(Error::new(ErrorKind::Internal, message).at(FrameId::ROOT));
        }
        Ok(Some(usize::try_from(number).unwrap_or(usize::MAX)))
    };
    let mut batches = Batches::default();
    let min_rows = count("min_batch_rows")?;
    batches.rows = count("max_batch_rows")?.unwrap_or(batches.rows);
    batches.min_rows = min_rows.unwrap_or(batches.min_rows).min(batches.rows);
    batches.bytes = count("max_batch_bytes")?.unwrap_or(batches.bytes).min(MAX_BATCH_BYTES);
    batches.first_divisor = count("first_batch_scaledown_factor")?.unwrap_or(batches.first_divisor);
    if let Some(value) = env.global_optarg("max_batch_seconds").map_err(|error| error.elsewhere())? {
        let number = value.as_number().map_err(|error| error.elsewhere())?;
        if number <= 0.0 {
            let shown = tessera_document::reconstructable(number);
            return Err(Error::logic(format!("max_batch_seconds must be positive (got `{shown}`).")).at(FrameId::ROOT));
        }
        batches.time = Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX);
    }
    Ok(batches)
}

/// Grouped data as it is answered. It is no value of the language, so it is made of parts.
fn grouped(env: &Env, groups: crate::val::Groups) -> Result<Value> {
    let mut data = Vec::new();
    for (group, value) in groups.into_iter() {
        data.push(Value::array(vec![group, value])?);
    }
    env.check_array(data.len())?;
    // A pseudotype that only answers have: the marker is put in when the answer is written.
    value::object([(GROUPED_KEY, Value::array(data)?)])
}

/// The field under which grouped data stands in the value of an answer; see [`write_answer`].
const GROUPED_KEY: &str = "\0grouped_data";

/// Appends the value of an answer as JSON.
///
/// # Errors
/// If the value is, or holds, `MINVAL` or `MAXVAL`; the text is then incomplete, and the query is answered with this.
pub fn write_answer(value: &Value, out: &mut Vec<u8>) -> Result<(), Failure> {
    let written = match value {
        Value::Object(object) if object.contains_key(GROUPED_KEY) => {
            out.extend_from_slice(b"{\"$reql_type$\":\"GROUPED_DATA\",\"data\":");
            let written = object.get(GROUPED_KEY).map_or(Ok(()), |data| data.write_json(out));
            out.push(b'}');
            written
        }
        other => other.write_json(out),
    };
    written.map_err(|error| unwritable(error.into()))
}

/// Appends a row of an answer as JSON.
///
/// # Errors
/// As [`write_answer`].
pub fn write_row(row: &Lazy, out: &mut Vec<u8>) -> Result<(), Failure> {
    match row {
        Lazy::Value(value) => write_answer(value, out),
        Lazy::Document(document) => document.value().write_json(out).map_err(|error| unwritable(error.into())),
    }
}

fn unwritable(error: Error) -> Failure {
    Failure::new(Stage::Run, &error, &Frames::default())
}

impl Cursor {
    /// What the options of the query say about its answers.
    pub fn batches(&self) -> Batches {
        self.batches
    }

    /// The next rows, at most `limit`; none means that the stream has ended, unless it [waits](Self::wait). Fewer than `limit` mean
    /// nothing.
    ///
    /// # Errors
    /// What RethinkDB calls a runtime error.
    pub fn next(&mut self, limit: usize) -> Result<Vec<Lazy>, Failure> {
        let rows = self.stream.next_rows(&self.env, limit).at(FrameId::ROOT);
        self.wait = self.env.take_wait();
        match rows {
            Err(_) if self.wait.is_some() => Ok(Vec::new()),
            rows => rows.map_err(|error| Failure::new(Stage::Run, &self.env.unless_written(error), &self.frames)),
        }
    }

    /// Says whether the client has waited for the next rows. Of those that have come before it asked, a feed drops those that are more
    /// than the client wants to have kept.
    pub fn note_awaited(&self, is_awaited: bool) {
        self.env.is_awaited.set(is_awaited);
    }

    /// Whether the last batch was empty because the stream, a feed, has nothing yet.
    pub fn wait(&self) -> Option<Wait> {
        self.wait
    }

    /// The numbers by which the protocol tells what kind of feed the stream is; none if it is no feed.
    pub fn notes(&self) -> Vec<u8> {
        self.stream.feed().map_or_else(Vec::new, FeedSort::notes)
    }
}
