//! What a query runs in: where its data is, its options and limits, and whether it is to stop.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::error::{Error, ErrorKind, FrameId, Result};
use crate::function::Scope;
use crate::gathered::Gathered;
use crate::lazy::Lazy;
use crate::node::Node;
use crate::profile::Profile;
use crate::script::Script;
use crate::source::Source;
use crate::val::Val;
use crate::value::Value;

/// The largest array of a query that says nothing else.
pub const DEFAULT_ARRAY_LIMIT: usize = 100_000;

/// The largest array of any query, whatever limit it asks for. RethinkDB has no such limit; it ends when memory does.
pub const MAX_ARRAY_LIMIT: usize = 1 << 24;

/// The longest string that a query may put together. RethinkDB has no such limit; it ends when memory does.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// An option of the query may be a term that asks for another option, and so on; but not for itself.
const MAX_OPEN_OPTIONS: usize = 4;

/// Options of a query that no function heeds which could be carried out elsewhere.
const STAYING_OPTIONS: &[&str] = &[
    "array_limit",
    "atomic",
    "binary_format",
    "db",
    "durability",
    "first_batch_scaledown_factor",
    "group_format",
    "max_batch_bytes",
    "max_batch_rows",
    "max_batch_seconds",
    "min_batch_rows",
    "noreply",
    "profile",
    "read_mode",
    "time_format",
];

/// After this many steps a query looks whether it is to stop.
const STEPS_PER_CHECK: u32 = 256;

/// So many bytes that are compared, copied or searched count as a step.
const BYTES_PER_STEP: usize = 1 << 10;

/// Tells a running query to stop, and lets it give way to others.
pub trait Pacer: Send + Sync {
    /// Called often while a query runs. May wait; false ends the query.
    fn goes_on(&self) -> bool;

    /// Has something done outside of the query, which asks often whether the answer is still wanted. That does not wait: what is done may
    /// hold what others wait for. If it takes long, others have the query's turn meanwhile.
    fn outside(&self, act: &mut dyn FnMut(&dyn Fn() -> bool)) {
        act(&|| self.goes_on());
    }

    /// Called from any thread when a feed of the query, which [waits](crate::Wait), may have got something.
    fn wake(&self) {}
}

/// Runs until it is told to stop.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Has the query end with an error at the next step that asks.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Pacer for Stop {
    fn goes_on(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// Evaluates terms for those who know plans, functions and streams, but not what the terms mean.
pub(crate) trait Evaluator: Send + Sync {
    /// Evaluates a node with the values of its variables. `literals` says whether markers of `r.literal` may come out.
    ///
    /// # Errors
    /// What the term complains about, or that the query was interrupted.
    fn evaluate(&self, env: &Env, node: &Arc<Node>, scope: &Scope, literals: bool) -> Result<Val>;

    /// Evaluates a node with a row in the place of its first argument, as part of a sequence.
    ///
    /// # Errors
    /// As [`Evaluator::evaluate`].
    fn evaluate_for(&self, env: &Env, node: &Arc<Node>, scope: &Scope, row: &Lazy) -> Result<Val>;

    /// The field of this name of an object, or of the objects in an array.
    ///
    /// # Errors
    /// If the value has no such field, or can have none.
    fn field_of(&self, env: &Env, frame: FrameId, value: Value, name: &Value) -> Result<Val>;

    /// The object, or the objects in an array, with those fields only that the paths lead to.
    ///
    /// # Errors
    /// If the value is no object, or the paths are none.
    fn part_of(&self, env: &Env, frame: FrameId, value: &Value, paths: &Value) -> Result<Val>;
}

/// That a feed has nothing yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// When to ask again although nobody says that something has come.
    pub look_again: Option<Duration>,
}

/// A row that was looked for.
pub enum Later<T> {
    Row(T),
    /// There is none yet.
    Wait,
    End,
}

/// What a query is evaluated with.
pub struct Env {
    /// The most elements that an array or a group may have.
    pub array_limit: usize,
    /// The time at which the query began, which `r.now` gives.
    pub now: Value,
    /// Whether functions do the same elsewhere: they heed options of the query, which do not travel with them.
    pub is_portable: bool,
    /// The tables; `None` where nothing asks for any.
    source: Option<Arc<dyn Source>>,
    evaluator: &'static dyn Evaluator,
    pacer: Arc<dyn Pacer>,
    /// Whether the client waits for what feeds have.
    pub(crate) is_awaited: Cell<bool>,
    /// Set while a feed has nothing, which its error cannot say.
    wait: Cell<Option<Wait>>,
    globals: Vec<(Arc<str>, Arc<Node>)>,
    steps: Cell<u32>,
    /// Options of the query that are being evaluated, one for another.
    options_open: Cell<usize>,
    /// Whether the query has written something at once.
    pub(crate) has_written: Cell<bool>,
    /// What is to be written at the end, if it is to take effect [together](crate::together).
    pub(crate) gathered: RefCell<Option<Gathered>>,
    /// Who measures how long the parts of the query take, if anybody does.
    pub(crate) profile: Option<Arc<Profile>>,
    /// Where the query's programs of JavaScript run, once there was one.
    pub(crate) script: RefCell<Option<Box<dyn Script>>>,
}

impl Env {
    /// An environment with the default options, in which terms mean what the evaluator says.
    pub(crate) fn with_evaluator(
        evaluator: &'static dyn Evaluator,
        source: Option<Arc<dyn Source>>,
        pacer: Arc<dyn Pacer>,
        now: Value,
    ) -> Self {
        Self {
            array_limit: DEFAULT_ARRAY_LIMIT,
            now,
            is_portable: true,
            source,
            evaluator,
            pacer,
            is_awaited: Cell::new(true),
            wait: Cell::new(None),
            globals: Vec::new(),
            steps: Cell::new(0),
            options_open: Cell::new(0),
            has_written: Cell::new(false),
            gathered: RefCell::new(None),
            profile: None,
            script: RefCell::new(None),
        }
    }

    /// The same for a function that must give the same in every query, whose options it does not heed: that of an index.
    #[must_use]
    pub fn without_options(&self) -> Self {
        Self::with_evaluator(self.evaluator, self.source.clone(), self.pacer.clone(), Value::Null)
    }

    /// The tables.
    ///
    /// # Errors
    /// If there are none, since this is [for functions](Self::for_functions) that ask for none.
    pub(crate) fn source(&self) -> Result<&dyn Source> {
        let missing = || Error::new(ErrorKind::Internal, "A function asks for tables that must ask for none.");
        self.source.as_deref().ok_or_else(missing)
    }

    /// As [`Evaluator::evaluate`].
    ///
    /// # Errors
    /// What the term complains about, or that the query was interrupted.
    pub(crate) fn evaluate(&self, node: &Arc<Node>, scope: &Scope, literals: bool) -> Result<Val> {
        self.evaluator.evaluate(self, node, scope, literals)
    }

    /// As [`Evaluator::evaluate_for`].
    pub(crate) fn evaluate_for(&self, node: &Arc<Node>, scope: &Scope, row: &Lazy) -> Result<Val> {
        self.evaluator.evaluate_for(self, node, scope, row)
    }

    /// As [`Evaluator::field_of`].
    pub(crate) fn field_of(&self, frame: FrameId, value: Value, name: &Value) -> Result<Val> {
        self.evaluator.field_of(self, frame, value, name)
    }

    /// As [`Evaluator::part_of`].
    pub(crate) fn part_of(&self, frame: FrameId, value: &Value, paths: &Value) -> Result<Val> {
        self.evaluator.part_of(self, frame, value, paths)
    }

    /// Sets the options of the whole query and reads the limits among them.
    ///
    /// # Errors
    /// If a limit is no number, or out of range.
    pub fn set_globals(&mut self, globals: Vec<(Arc<str>, Arc<Node>)>) -> Result<()> {
        self.is_portable = globals.iter().all(|(name, _)| STAYING_OPTIONS.contains(&&**name));
        self.globals = globals;
        if let Some(limit) = self.global_optarg("array_limit")? {
            let limit = limit.as_integer()?;
            if limit < 1 {
                return Err(Error::logic(format!("Illegal array size limit `{limit}`.  (Must be >= 1.)")));
            }
            self.array_limit = (limit as usize).min(MAX_ARRAY_LIMIT);
        }
        if let Some(size) = self.global_optarg("changefeed_queue_size")? {
            let size = size.as_integer()?;
            if size < 1 {
                return Err(Error::logic(format!("Illegal changefeed queue size `{size}`.  (Must be >= 1.)")));
            }
        }
        Ok(())
    }

    /// An option of the whole query.
    ///
    /// # Errors
    /// What its term complains about.
    pub fn global_optarg(&self, name: &str) -> Result<Option<Val>> {
        let Some((_, node)) = self.globals.iter().find(|(global, _)| &**global == name) else { return Ok(None) };
        let open = self.options_open.get();
        if open >= MAX_OPEN_OPTIONS {
            let message = format!("The option `{name}` of the query needs itself to be known.");
            return Err(Error::new(ErrorKind::Internal, message));
        }
        self.options_open.set(open + 1);
        let value = self.evaluate(node, &Scope::default(), false);
        self.options_open.set(open);
        value.map(Some)
    }

    /// Whoever is to be told of the query's feeds.
    pub fn pacer(&self) -> &Arc<dyn Pacer> {
        &self.pacer
    }

    /// The error of a feed that has nothing yet. Whoever has rows of the same batch hands those out, and tries again later.
    pub fn wait(&self, look_again: Option<Duration>) -> Error {
        self.wait.set(Some(Wait { look_again }));
        Error::new(ErrorKind::Interrupted, "The feed has nothing yet.")
    }

    /// Whether the last error was that a feed has nothing yet, which is hereby known.
    pub fn take_wait(&self) -> Option<Wait> {
        self.wait.take()
    }

    /// What came of looking for a row. That there is none yet is no error if others are there already, which are to be handed out.
    ///
    /// # Errors
    /// Those of the result.
    pub fn row_or_later<T>(&self, found: Result<Option<T>>, has_others: bool) -> Result<Later<T>> {
        match found {
            Ok(found) => Ok(found.map_or(Later::End, Later::Row)),
            Err(_) if has_others && self.take_wait().is_some() => Ok(Later::Wait),
            Err(error) => Err(error),
        }
    }

    /// Counts a step of evaluation.
    ///
    /// # Errors
    /// If the query was stopped.
    pub fn step(&self) -> Result<()> {
        let steps = self.steps.get() + 1;
        if steps < STEPS_PER_CHECK {
            self.steps.set(steps);
            return Ok(());
        }
        self.check()
    }

    /// Counts the steps of work on a value of so many bytes, which is not interrupted itself.
    ///
    /// # Errors
    /// If the query was stopped.
    pub fn work(&self, bytes: usize) -> Result<()> {
        let more = u32::try_from(bytes / BYTES_PER_STEP).unwrap_or(u32::MAX);
        self.steps.set(self.steps.get().saturating_add(more));
        if self.steps.get() < STEPS_PER_CHECK { Ok(()) } else { self.check() }
    }

    /// Looks whether the query goes on.
    ///
    /// # Errors
    /// If the query was stopped.
    pub fn check(&self) -> Result<()> {
        self.steps.set(0);
        if self.pacer.goes_on() {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Interrupted, "Query interrupted.").at(FrameId::ROOT))
        }
    }

    /// Has something done outside of the query, as [`Pacer::outside`] does.
    ///
    /// # Errors
    /// If the query was stopped.
    pub(crate) fn outside<T>(&self, mut act: impl FnMut(&dyn Fn() -> bool) -> T) -> Result<T> {
        let mut done = None;
        self.pacer.outside(&mut |is_wanted| done = Some(act(is_wanted)));
        self.check()?;
        done.ok_or_else(|| Error::new(ErrorKind::Internal, "What is outside of the query was not asked."))
    }

    /// # Errors
    /// If an array of this size is larger than the query allows.
    pub fn check_array(&self, size: usize) -> Result<()> {
        if size <= self.array_limit {
            return Ok(());
        }
        Err(Error::limit(format!(
            "Array over size limit `{}`.  To raise the number of allowed elements, modify the `array_limit` option to \
             `.run` (not available in the Data Explorer), or use an index.",
            self.array_limit
        )))
    }

    /// # Errors
    /// If an array in the value is larger than the query allows.
    pub fn check_arrays(&self, value: &Value) -> Result<()> {
        match value {
            Value::Array(items) => {
                self.check_array(items.len())?;
                items.iter().try_for_each(|item| self.check_arrays(item))
            }
            Value::Object(object) => object.values().try_for_each(|item| self.check_arrays(item)),
            _ => Ok(()),
        }
    }

    /// # Errors
    /// If a string of this many bytes is longer than queries may make.
    pub fn check_text(&self, bytes: usize) -> Result<()> {
        if bytes <= MAX_TEXT_BYTES {
            return Ok(());
        }
        Err(Error::limit(format!("String over size limit of {MAX_TEXT_BYTES} bytes (limit `MAX_TEXT_BYTES`).")))
    }

    /// A value as compact JSON.
    ///
    /// # Errors
    /// If that is longer than strings of queries may be, or the value has no JSON.
    pub fn json_text(&self, value: &Value) -> Result<Arc<str>> {
        self.work(value.encoded_len())?;
        self.whole_text(value.json_within(MAX_TEXT_BYTES)?)
    }

    /// A value as error messages show it, but whole.
    ///
    /// # Errors
    /// As [`Env::json_text`].
    pub fn pretty_text(&self, value: &Value) -> Result<Arc<str>> {
        self.work(value.encoded_len())?;
        self.whole_text(value.pretty_json_within(MAX_TEXT_BYTES)?)
    }

    fn whole_text(&self, text: Option<String>) -> Result<Arc<str>> {
        let Some(text) = text else {
            self.check_text(usize::MAX)?;
            return Ok(Arc::default());
        };
        Ok(text.into())
    }

    /// An array of a query.
    ///
    /// # Errors
    /// If it is larger than the query allows.
    pub fn array(&self, items: Vec<Value>) -> Result<Value> {
        self.check_array(items.len())?;
        Ok(Value::array(items)?)
    }
}
