//! The table `cluster_config`: how long a node may be silent before it counts as disconnected.

use crate::error::{Error, Result};
use crate::source::Source;
use crate::value::{self, Value, ValueExt as _};

const TIMEOUT: &str = "heartbeat_timeout_secs";

pub(super) fn rows(source: &dyn Source) -> Result<Vec<Value>> {
    let row = |limit: std::time::Duration| {
        value::object([("id", Value::from("heartbeat")), (TIMEOUT, value::number(limit.as_secs_f64())?)])
    };
    source.monitor().map(|monitor| row(monitor.silence_limit())).into_iter().collect()
}

/// Makes of the row `old` the other row `new`; `null` stands for none.
pub(super) fn carry_out(source: &dyn Source, old: &Value, new: &Value) -> Result<()> {
    let refuse = |what: &str| Err(Error::failed(what));
    if old.is_null() {
        return refuse("It's illegal to insert new rows into the `rethinkdb.cluster_config` table.");
    }
    if new.is_null() {
        return refuse("It's illegal to delete rows from the `rethinkdb.cluster_config` table.");
    }
    for (field, value) in &new.to_fields()? {
        if **field == *TIMEOUT && !matches!(value, Value::Number(_)) {
            return Err(Error::failed(format!("Expected a number; got {}", value.print()?)));
        }
        if old.get_field(field).is_none() {
            return Err(Error::failed(format!("Unexpected key(s): {field}")));
        }
    }
    let limit = source.monitor().map_or(0.0, |monitor| monitor.silence_limit().as_secs_f64());
    Err(Error::failed(format!(
        "Tessera counts a server as disconnected after {limit} seconds, and this cannot be changed."
    )))
}
