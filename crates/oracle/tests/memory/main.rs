//! Plays what a RethinkDB server was recorded to answer against the evaluator over a source in memory (`make oracle`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on is to fail")]

mod player;

use std::path::Path;

use tessera_oracle::Expected;

#[test]
fn answers_are_those_of_rethinkdb() {
    let expected = Expected::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memory"));
    expected.check(vec![player::MemoryPlayer::new(), player::MemoryPlayer::new()]);
}
