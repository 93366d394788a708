//! What queries hold in memory is bounded, whatever they ask for.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tables::{Tables, t};
use tessera_document::{Time, Timezone};
use tessera_reql::{Answer, ErrorKind, Failure, MemorySource, Request, Stop};

/// Counts the bytes that are held.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn note(held: usize) {
    MOST.fetch_max(held, Ordering::Relaxed);
}

#[allow(
    unsafe_code,
    reason = "an allocator is unsafe by its trait; this one counts, and hands everything on to the system's"
)]
// SAFETY: all that is asked of an allocator is done by `System`.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(HELD.fetch_add(layout.size(), Ordering::Relaxed) + layout.size());
        // SAFETY: the caller vouches for the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the place is from `alloc`, that is from `System`, with this layout.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test at a time: they share the memory that is counted.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a function holds at most, beside what is held already.
fn most_held<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = work();
    (result, MOST.load(Ordering::Relaxed) - before)
}

/// How many rows the first answer of a query has; a value is one.
fn answer(term: &Value) -> Result<usize, Failure> {
    let Request::Start(query) = Request::read(&json!([1, term]).to_string())? else { panic!("a query") };
    let prepared = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into())?;
    match prepared.run(Arc::new(MemorySource::new("test")), Arc::new(Stop::default()))? {
        Answer::Value(_) => Ok(1),
        Answer::Cursor(mut cursor) => Ok(cursor.next(1000)?.len()),
    }
}

fn function(parameters: &[u32], body: &Value) -> Value {
    json!([69, [[2, parameters], body]])
}

fn var(number: u32) -> Value {
    json!([10, [number]])
}

/// A string of 16 bytes that is doubled so often.
fn text(doublings: u32) -> Value {
    json!([187, [[173, [doublings]], "0123456789abcdef", function(&[1, 2], &json!([24, [var(1), var(1)]]))]])
}

fn range(count: u32) -> Value {
    json!([173, [count]])
}

/// A text of a megabyte, and the number of the row: another one for each row.
fn large_row(number: u32) -> Value {
    json!([24, [[10, [99]], [51, [var(number), "string"]]]])
}

/// The term with the variable 99 being a text of a megabyte.
fn with_large_text(term: &Value) -> Value {
    json!([64, [function(&[99], term), text(16)]])
}

const MIB: usize = 1 << 20;

#[test]
fn strings_that_terms_put_together_are_bounded() {
    let _alone = alone();
    let twenty = vec![var(1); 20];
    let with_text = |term: Value| json!([64, [function(&[1], &term), text(18)]]);
    for term in [
        // Templates, texts of values, and what tells of them.
        json!([197, ["{a}".repeat(40), {"a": var(1)}]]),
        json!([197, ["{a}", {"a": [2, twenty]}]]),
        json!([51, [[2, twenty], "string"]]),
        json!([172, [[2, twenty]]]),
        json!([79, [[2, twenty]]]),
    ] {
        let (answered, held) = most_held(|| answer(&with_text(term.clone())));
        assert_eq!(answered.unwrap_err().kind, ErrorKind::ResourceLimit, "{term}");
        assert!(held < 256 * MIB, "{term}: {held}");
    }
}

#[test]
fn a_string_is_not_split_into_more_than_an_array_may_have() {
    let _alone = alone();
    for separator in [json!(""), json!("a")] {
        let (answered, held) = most_held(|| answer(&json!([149, [text(18), separator]])));
        assert_eq!(answered.unwrap_err().kind, ErrorKind::ResourceLimit);
        assert!(held < 48 * MIB, "{held}");
    }
}

#[test]
fn error_messages_show_so_much_of_a_value() {
    let _alone = alone();
    let twice = function(&[1, 2], &json!([2, [var(1), var(1)]]));
    let once = function(&[1, 2], &json!([2, [var(1)]]));
    // Each of the many leaves stands behind 400 tabs.
    let value = json!([187, [range(400), [187, [range(17), "a", twice]], once]]);
    let (answered, held) = most_held(|| answer(&json!([38, [[2, [1]], value]])));
    let message = answered.unwrap_err().message;
    assert!(message.starts_with("Expected type FUNCTION but found DATUM:\n["), "{}", &message[..100]);
    assert!(message.ends_with("..."));
    assert!(message.len() < 2 * MIB && held < 24 * MIB, "{} {held}", message.len());
}

#[test]
fn rows_of_a_stream_are_made_as_they_are_taken() {
    let _alone = alone();
    let make = function(&[1], &large_row(1));
    let make_of_two = function(&[1, 2], &large_row(1));
    let emit = function(&[1, 2, 3], &json!([2, [large_row(2)]]));
    for stream in [
        json!([38, [range(300), make]]),
        json!([38, [[38, [range(300), make]], function(&[1], &json!([141, [var(1)]]))]]),
        json!([38, [range(300), range(300), make_of_two]]),
        json!([187, [range(300), 0, function(&[1, 2], &json!(0))], {"emit": emit}]),
        json!([44, [[38, [range(300), make]], [38, [range(300), make]]], {"interleave": function(&[1], &json!(1))}]),
    ] {
        let (answered, held) = most_held(|| answer(&with_large_text(&stream)));
        assert!((1..20).contains(&answered.unwrap()), "{stream}");
        assert!(held < 24 * MIB, "{stream}: {held}");
    }
}

#[test]
fn what_is_gathered_is_bounded_in_bytes() {
    let _alone = alone();
    let rows = json!([38, [range(1700), function(&[1], &large_row(1))]]);
    let pairs = json!([38, [range(1700), function(&[1], &json!([2, [[51, [var(1), "string"]], large_row(1)]]))]]);
    let first = function(&[1, 2], &var(1));
    let grouped = json!([144, [range(1700), function(&[1], &var(1))]]);
    for term in [
        json!([51, [rows, "array"]]),
        json!([51, [pairs, "object"]]),
        json!([81, [rows, 2000]]),
        json!([41, [rows, function(&[1], &var(1))]]),
        json!([37, [[38, [grouped, function(&[1], &large_row(1))]], first]]),
    ] {
        let (answered, held) = most_held(|| answer(&with_large_text(&term)));
        assert_eq!(answered.unwrap_err().kind, ErrorKind::ResourceLimit, "{term}");
        assert!(held < 1200 * MIB, "{term}: {held}");
    }
}

#[test]
fn groups_of_one_row_are_bounded() {
    let _alone = alone();
    let items = |count: u32| json!([51, [range(count), "array"]]);
    let several =
        json!([43, [[144, [[2, [{"a": items(47), "b": items(47), "c": items(47)}]], "a", "b", "c"], {"multi": true}]]]);
    let one = json!([43, [[150, [[43, [[144, [[2, [{"a": items(100_000)}]], "a"], {"multi": true}]]]]]]]);
    let began = Instant::now();
    let (refused, held) = most_held(|| answer(&several));
    assert_eq!(refused.unwrap_err().kind, ErrorKind::ResourceLimit);
    assert!(held < 4 * MIB, "{held}");
    assert_eq!(answer(&one).unwrap(), 1);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn the_largest_array_is_bounded_whatever_a_query_asks_for() {
    let _alone = alone();
    let options = json!({"array_limit": 1_000_000_000_000_u64});
    let tables = Tables::new(&[]);
    let many = tables.ask(&json!([26, [[2, [1, 2]], 500_000_000_000_u64]]), &options);
    assert_eq!(many.unwrap_err().kind, ErrorKind::ResourceLimit);
}

#[test]
fn documents_of_one_key_are_joined_page_by_page() {
    let _alone = alone();
    let tables = Tables::new(&["t"]);
    let ask = |term: &Value, options: &Value| tables.ask(term, options);
    ask(&json!([75, [t(), "k"]]), &json!({})).unwrap();
    let documents = json!([38, [range(20_000), function(&[1], &json!({"id": var(1), "k": 1}))]]);
    assert_eq!(ask(&json!([56, [t(), documents]]), &json!({})).unwrap()["inserted"], 20_000);
    let joined = |left: &Value| json!([50, [left, "k", t()], {"index": "k"}]);
    let stream = json!([38, [range(2), function(&[1], &json!({"k": 1}))]]);
    let (count, held) = most_held(|| ask(&json!([43, [[71, [joined(&stream), 10]]]]), &json!({})));
    assert_eq!(count.unwrap(), 10);
    assert!(held < MIB, "{held}");
    assert_eq!(ask(&json!([43, [joined(&stream)]]), &json!({})).unwrap(), 40_000);
    let array = json!([2, [{"k": 1}]]);
    let (refused, held) = most_held(|| ask(&joined(&array), &json!({"array_limit": 100})));
    assert_eq!(refused.unwrap_err().kind, ErrorKind::ResourceLimit);
    assert!(held < MIB, "{held}");
}
