//! The log of a node: to standard error, and its last lines for the table `rethinkdb.logs`.

use crate::config::{Config, LogFormat};
use crate::exit::ExitError;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::Arc;
use tessera_reql_wire::LogBook;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Has the process log as the configuration says. Returns where the last lines are kept.
///
/// # Errors
/// If the filter is none.
pub fn start(config: &Config) -> Result<Arc<LogBook>, ExitError> {
    let filter = tracing_subscriber::EnvFilter::try_new(&config.logging.filter)
        .map_err(|error| ExitError::Config(format!("logging.filter: {error}")))?;
    let is_read_by_people = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(is_read_by_people);
    let book = Arc::<LogBook>::default();
    let logs = tracing_subscriber::registry().with(filter).with(filter_fn(may_be_logged)).with(Keeper(book.clone()));
    match config.logging.format {
        LogFormat::Text => logs.with(lines).init(),
        LogFormat::Json => logs.with(lines.json()).init(),
    }
    Ok(book)
}

/// What the client of HTTP traces are the requests of queries, with what they show to servers of others.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    !metadata.target().starts_with("ureq") || *metadata.level() <= Level::DEBUG
}

/// Keeps what is logged.
struct Keeper(Arc<LogBook>);

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        // The levels have the names that RethinkDB gives them.
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            Level::DEBUG | Level::TRACE => "debug",
        };
        self.0.add(level, line.message + &line.fields);
    }
}

/// The message of an event, and its fields as `name=value` behind it.
#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            // Where the line of another library comes from, which its message says as well as it needs to be said.
            name if name.starts_with("log.") => Ok(()),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}
