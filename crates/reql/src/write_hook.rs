//! Write hooks: a function of a table through which every write of its documents goes.

use crate::error::Result;
use crate::function::Function;
use crate::printed;
use crate::value::{self, Value};
use std::sync::Arc;

/// What stands before the bytes of a hook's function.
const SOURCE_PREFIX: &[u8] = b"$reql_write_hook_function$";

/// A longer text of a hook is cut.
const MOST_TEXT: usize = 64 << 10;

/// The hook of a table: it is called with what is known of a write, the document before and after it, and returns the document that is
/// written.
#[derive(Debug)]
pub struct WriteHook {
    function: Arc<Function>,
    source: Arc<[u8]>,
    query: String,
}

impl WriteHook {
    /// # Errors
    /// If the function only lives within its query.
    pub(crate) fn new(function: Arc<Function>) -> Result<Self> {
        let source = [SOURCE_PREFIX, &function.to_bytes()?].concat().into();
        let query = format!("setWriteHook({})", printed::print_function(&function, MOST_TEXT));
        Ok(Self { function, source, query })
    }

    /// The hook that has this [`source`](Self::source) and was made by this query; `None` if the bytes are none.
    pub fn from_source(source: Arc<[u8]>, query: String) -> Option<Self> {
        let function = Function::from_bytes(source.strip_prefix(SOURCE_PREFIX)?).ok()?;
        Some(Self { function: Arc::new(function), source, query })
    }

    /// The function as bytes, which make the same hook again.
    pub fn source(&self) -> &Arc<[u8]> {
        &self.source
    }

    /// The query that made the hook, for people.
    pub fn query(&self) -> &str {
        &self.query
    }

    pub(crate) fn function(&self) -> &Arc<Function> {
        &self.function
    }

    /// What `get_write_hook` and the table's configuration tell of it.
    pub(crate) fn row(&self) -> Result<Value> {
        value::object([("function", Value::Binary(self.source.clone())), ("query", Value::from(self.query.clone()))])
    }
}
