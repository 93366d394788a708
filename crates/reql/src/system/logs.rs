//! The table `logs`: the last lines of the logs of all nodes.

use super::rows::{array, name};
use crate::cluster::Server;
use crate::error::Result;
use crate::monitor::LogLine;
use crate::source::Source;
use crate::value::{self, Time, Value};
use tessera_document::Timezone;

const NANOS: u64 = 1_000_000_000;

pub(super) fn rows(source: &dyn Source) -> Result<Vec<Value>> {
    let Some(monitor) = source.monitor() else { return Ok(Vec::new()) };
    let mut rows = Vec::new();
    for (server, lines) in monitor.log_lines()? {
        for line in lines.into_iter().flatten() {
            rows.push(row(&server, &line)?);
        }
    }
    Ok(rows)
}

fn row(server: &Server, line: &LogLine) -> Result<Value> {
    let seconds = (line.nanos / NANOS) as f64;
    let whole = crate::time::to_iso8601(&Time::new(seconds, Timezone::UTC)?)?;
    let date = whole.split(['+', 'Z']).next().unwrap_or_default();
    // A double cannot hold all nanoseconds, by which lines are told apart.
    let id = [format!("{date}.{:09}", line.nanos % NANOS), server.id.clone()];
    let timestamp = Time::new((line.nanos / 1_000_000) as f64 / 1000.0, Timezone::UTC)?;
    value::object([
        ("id", array(id.map(Value::from))?),
        ("level", Value::from(line.level.clone())),
        ("message", Value::from(line.message.clone())),
        ("server", name(server)),
        ("timestamp", Value::from(timestamp)),
        ("uptime", value::number(line.uptime)?),
    ])
}
