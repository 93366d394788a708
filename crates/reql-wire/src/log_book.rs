//! The last lines of a node's log, which the table `rethinkdb.logs` shows.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tessera_reql::LogLine;

/// The lines that are kept.
const LINES: usize = 1000;
/// Their bytes, about.
const BYTES: usize = 1 << 20;
/// The bytes of a line that are kept.
const LINE_BYTES: usize = 16 << 10;

/// The last lines of a log, a bounded number of them.
pub struct LogBook {
    started: Instant,
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    last_nanos: u64,
}

impl fmt::Debug for LogBook {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LogBook").finish_non_exhaustive()
    }
}

impl Default for LogBook {
    fn default() -> Self {
        Self { started: Instant::now(), lines: Mutex::default() }
    }
}

impl LogBook {
    /// Adds a line. The level is one of RethinkDB's: `debug`, `info`, `notice`, `warn` or `error`.
    pub fn add(&self, level: &str, mut message: String) {
        message.truncate(message.floor_char_boundary(LINE_BYTES));
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(since.as_nanos()).unwrap_or(u64::MAX);
        let uptime = self.started.elapsed().as_secs_f64();
        let mut kept = self.lines.lock();
        // Lines are told apart by their times, also those of one moment, and when the clock was put back.
        let nanos = now.max(kept.last_nanos + 1);
        kept.last_nanos = nanos;
        kept.bytes += message.len();
        kept.lines.push_back(LogLine { nanos, uptime, level: level.into(), message });
        while kept.lines.len() > LINES || kept.bytes > BYTES {
            let Some(first) = kept.lines.pop_front() else { break };
            kept.bytes -= first.message.len();
        }
    }

    /// The lines that are kept, the oldest first.
    pub(crate) fn lines(&self) -> Vec<LogLine> {
        self.lines.lock().lines.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept_within_bounds() {
        let book = LogBook::default();
        for number in 0..=LINES {
            book.add("info", number.to_string());
        }
        let lines = book.lines();
        assert_eq!((lines.len(), &*lines[0].message), (LINES, "1"));
        assert!(lines.windows(2).all(|pair| pair[0].nanos < pair[1].nanos && pair[0].uptime <= pair[1].uptime));
        for _ in 0..200 {
            book.add("warn", "é".repeat(LINE_BYTES));
        }
        let lines = book.lines();
        assert_eq!(lines.len(), BYTES / LINE_BYTES);
        assert!(lines.iter().all(|line| line.message.len() == LINE_BYTES && line.level == "warn"));
    }
}
