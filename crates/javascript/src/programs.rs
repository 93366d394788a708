//! The programs of queries, as `reql` wants them run.

use crate::message::{Reply, Request};
use crate::pool::{Counts, Pool};
use crate::worker::Launch;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use tessera_document::{Document, Value};
use tessera_reql::{Script, ScriptEngine, ScriptFailure, ScriptSource, Scripted};

/// Programs of a query that are known to give functions.
const MAX_KNOWN: usize = 1000;

/// Workers that run the programs of all queries of a node.
#[derive(Clone)]
pub struct Workers(Arc<Pool>);

impl fmt::Debug for Workers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Workers").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl Workers {
    /// Has at most so many workers at one time. They are started when they are needed.
    pub fn new(launch: Launch, most: usize) -> Self {
        Self(Arc::new(Pool::new(launch, most)))
    }

    /// What the workers have done so far.
    pub fn counts(&self) -> Counts {
        self.0.counts()
    }
}

impl ScriptEngine for Workers {
    fn begin(&self) -> Box<dyn Script> {
        let number = self.0.number();
        Box::new(Programs { pool: self.0.clone(), number, functions: HashSet::new() })
    }
}

/// The programs of one query.
struct Programs {
    pool: Arc<Pool>,
    number: u64,
    /// Those that are known to give functions.
    functions: HashSet<Arc<str>>,
}

impl Drop for Programs {
    fn drop(&mut self) {
        self.pool.end_query(self.number);
    }
}

impl Script for Programs {
    fn evaluate(&mut self, source: &ScriptSource, goes_on: &dyn Fn() -> bool) -> Result<Scripted, ScriptFailure> {
        let text = &source.text;
        if self.functions.contains(text) {
            return Ok(Scripted::Function);
        }
        match self.pool.with(self.number, source, goes_on, |worker, patience| worker.evaluate(text, patience))? {
            Reply::Value(value) => Ok(Scripted::Value(value)),
            Reply::Failed(text) => Err(ScriptFailure::Failed(text)),
            Reply::Function(_) => {
                if self.functions.len() >= MAX_KNOWN {
                    self.functions.clear();
                }
                self.functions.insert(text.clone());
                Ok(Scripted::Function)
            }
        }
    }

    fn call(
        &mut self,
        source: &ScriptSource,
        args: &[Document],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Value, ScriptFailure> {
        let reply = self.pool.with(self.number, source, goes_on, |worker, patience| {
            let function = match worker.function(&source.text) {
                Some(function) => function,
                // This worker has not run the program yet.
                None => match worker.evaluate(&source.text, patience)? {
                    Reply::Function(function) => function,
                    Reply::Failed(text) => return Ok(Reply::Failed(text)),
                    Reply::Value(_) => return Ok(Reply::Failed("The program gives no function any more.".into())),
                },
            };
            let args = args.iter().map(|arg| &arg.bytes()[..]).collect();
            worker.ask(&Request::Call { function, args }, patience)
        })?;
        match reply {
            Reply::Value(value) => Ok(value),
            Reply::Failed(text) => Err(ScriptFailure::Failed(text)),
            // A worker does not answer a call so.
            Reply::Function(_) => Err(ScriptFailure::Crashed),
        }
    }
}
