//! Messages of a feed as the client gets them.

use super::options::FeedOptions;
use crate::error::Result;
use crate::value::{self, ObjectBuilder, Value, ValueExt as _};

/// What a row was and is; `null` where there is none.
#[derive(Debug, Clone, PartialEq)]
pub struct RowChange {
    pub old: Value,
    pub new: Value,
    /// Where the row was and is among the first rows of an order.
    pub offsets: [Option<usize>; 2],
}

impl RowChange {
    pub fn new(old: Value, new: Value) -> Self {
        Self { old, new, offsets: [None, None] }
    }

    /// # Errors
    /// If the message would be larger than a value may be.
    pub fn message(self, options: &FeedOptions) -> Result<Value> {
        let kind = match (self.old.is_null(), self.new.is_null()) {
            (true, false) => "add",
            (_, true) => "remove",
            (false, false) => "change",
        };
        let mut fields = vec![("new_val", self.new), ("old_val", self.old)];
        if options.include_offsets {
            let [old, new] = self.offsets.map(|offset| offset.map_or(Value::Null, value::integer));
            fields.extend([("old_offset", old), ("new_offset", new)]);
        }
        object(fields, options, kind)
    }
}

/// The message for a row that was there when the feed began.
///
/// # Errors
/// As [`RowChange::message`].
pub fn initial(row: Value, offset: Option<usize>, options: &FeedOptions) -> Result<Value> {
    let mut fields = vec![("new_val", row)];
    if let (true, Some(offset)) = (options.include_offsets, offset) {
        fields.push(("new_offset", value::integer(offset)));
    }
    object(fields, options, "initial")
}

/// # Errors
/// As [`RowChange::message`].
pub fn state(state: &str, options: &FeedOptions) -> Result<Value> {
    object(vec![("state", Value::from(state))], options, "state")
}

/// # Errors
/// As [`RowChange::message`].
pub fn skipped(count: usize) -> Result<Value> {
    let message = format!("Changefeed cache over array size limit, skipped {count} elements.");
    value::object([("error", Value::from(message.as_str()))])
}

fn object(mut fields: Vec<(&'static str, Value)>, options: &FeedOptions, kind: &str) -> Result<Value> {
    if options.include_types {
        fields.push(("type", Value::from(kind)));
    }
    let mut builder = ObjectBuilder::default();
    fields.into_iter().for_each(|(name, value)| builder.insert(name, value));
    Ok(builder.finish()?)
}
