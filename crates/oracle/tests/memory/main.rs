//! Plays what a RethinkDB server was recorded to answer against the evaluator over a source in memory (`make oracle`).

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on is to fail")]

mod cut;
mod feed;
mod player;

use std::path::Path;

use player::{MemoryPlayer, Tables};
use tessera_oracle::Expected;

#[test]
#[ignore = "is no test: the others start it as a worker for JavaScript"]
fn javascript_worker() {
    tessera_javascript::serve();
}

#[test]
fn answers_are_those_of_rethinkdb() {
    expected().check(vec![MemoryPlayer::new(Tables::Whole), MemoryPlayer::new(Tables::Whole)]);
}

/// In parts, rows that are evaluated one after the other agree with RethinkDB where batches do not.
#[test]
fn answers_are_those_of_rethinkdb_from_the_parts_of_tables() {
    expected().or_better().check(vec![MemoryPlayer::new(Tables::Cut), MemoryPlayer::new(Tables::Cut)]);
}

fn expected() -> Expected {
    Expected::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/memory"))
}
