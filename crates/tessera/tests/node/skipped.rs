//! Tests that leave themselves out, since they need what only root may do, or a library that is not installed.
//!
//! Such a test passes without having tested anything. A run by root therefore fails instead, unless `TESSERA_MAY_SKIP` is set:
//! there, a network or a disk that cannot be made is a machine that lacks something. Every run ends with a list of what it left
//! out. The list is also kept in `target/skipped-tests`, which `make test` shows after the tests of all crates.

use std::fmt::Write;
use std::panic::Location;
use std::path::Path;
use std::sync::{Mutex, Once};

/// A line for each test that was left out.
static SKIPPED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Leaves the calling test out, which is to return at once. `reason` says what it needs.
///
/// # Panics
/// If this process is root's and `TESSERA_MAY_SKIP` is not set.
#[track_caller]
pub fn skip(reason: &str) {
    static AT_THE_END: Once = Once::new();
    let thread = std::thread::current();
    // Tests that run one at a time have no thread of their own.
    let place = Location::caller().to_string();
    let test = thread.name().filter(|name| *name != "main").unwrap_or(&place);
    let is_root = rustix::process::geteuid().is_root();
    assert!(
        !is_root || std::env::var_os("TESSERA_MAY_SKIP").is_some(),
        "this machine cannot run the test: {reason}. Tests that root runs are only left out if TESSERA_MAY_SKIP=1 is set"
    );
    SKIPPED.lock().unwrap().push(format!("{test}: {reason}"));
    AT_THE_END.call_once(|| {
        #[expect(unsafe_code, reason = "the test harness has no hook for the end of a run")]
        // SAFETY: the function is there until the process has ended, and does not unwind.
        let _ = unsafe { libc::atexit(tell) };
    });
}

/// Writes what was left out, after the last test.
extern "C" fn tell() {
    let Ok(mut skipped) = SKIPPED.lock() else { return };
    skipped.sort_unstable();
    let mut list = format!("Skipped tests: {}\n", skipped.len());
    for line in &*skipped {
        let _ = writeln!(list, "  {line}");
    }
    eprint!("{list}");
    let _ = std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/skipped-tests"), list);
}
