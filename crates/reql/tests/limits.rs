//! Queries that ask for too much get an error, and harm nobody: nesting, loops without end, arrays and strings that grow.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tessera_document::{Time, Timezone};
use tessera_reql::{
    Answer, ErrorKind, Failure, MAX_TERM_DEPTH, MemorySource, Pacer, Request, Source as _, Stage, Stop,
};

fn answer(text: &str, stop: &Arc<Stop>) -> Result<usize, Failure> {
    let Request::Start(query) = Request::read(text)? else { panic!("not a query: {text}") };
    let prepared = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into())?;
    let source = MemorySource::new("test");
    source.create_database("test").unwrap();
    match prepared.run(Arc::new(source), stop.clone())? {
        Answer::Value(_) => Ok(1),
        Answer::Cursor(mut cursor) => Ok(cursor.next(1000)?.len()),
    }
}

fn failure(text: &str) -> Failure {
    answer(text, &Arc::new(Stop::default())).unwrap_err()
}

/// A query of terms in terms.
fn nested(open: &str, inner: &str, close: &str, depth: usize) -> String {
    format!("[1,{}{inner}{}]", open.repeat(depth), close.repeat(depth))
}

/// Runs with the stack that threads of servers usually have.
fn with_usual_stack(test: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(test).unwrap().join().unwrap();
}

#[test]
fn terms_nest_up_to_a_limit_within_the_usual_stack() {
    with_usual_stack(|| {
        let stop = Arc::new(Stop::default());
        // The deepest chains of calls, of functions and of streams in streams.
        for (open, inner, close, terms) in [
            ("[23,[", "true", "]]", 1),
            ("[92,[", "1", ",2]]", 1),
            ("[35,[{},", "{}", "]]", 1),
            ("[64,[[69,[[2,[1]],", "1", "]],1]]", 2),
            ("[40,[[2,[1]],[69,[[2,[1]],", "[2,[1]]", "]]]]", 2),
            ("[39,[", "[173,[3]]", ",true]]", 1),
            ("[71,[", "[173,[3]]", ",3]]", 1),
            ("[44,[", "[173,[3]]", "]]", 1),
            ("[48,[[2,[1]],", "[2,[1]]", ",true]]", 1),
            ("[49,[[2,[1]],", "[2,[1]]", ",[69,[[2,[1,2]],true]]]]", 1),
            ("[70,[", "[2,[1]]", ",0]]", 1),
            ("[95,[", "[2,[1]]", ",[2,[]]]]", 1),
        ] {
            let depth = MAX_TERM_DEPTH / terms - 2;
            let answered = answer(&nested(open, inner, close, depth), &stop);
            // Joins are rewritten into more terms than they are, so that fewer of them fit.
            let is_refused = matches!(&answered, Err(failure) if failure.message.contains("nested"));
            assert!(answered.is_ok() || (is_refused && open.contains("[2,[1]],")), "{open}: {answered:?}");
            let shallower = answer(&nested(open, inner, close, depth / 5), &stop);
            assert!(shallower.is_ok(), "{open}: {shallower:?}");
            let deeper = failure(&nested(open, inner, close, 2 * MAX_TERM_DEPTH));
            assert!(deeper.message.contains("nested"), "{deeper:?}");
        }
    });
}

#[test]
fn a_hundred_thousand_nested_terms_are_refused() {
    with_usual_stack(|| {
        for (open, close) in [("[23,[", "]]"), ("[", "]"), ("{\"a\":", "}")] {
            let refused = failure(&nested(open, "1", close, 100_000));
            assert_eq!(refused.stage, Stage::Client);
            assert!(refused.message.contains("nested"), "{refused:?}");
        }
    });
}

#[test]
fn a_function_may_have_any_number_of_parameters() {
    with_usual_stack(|| {
        let numbers = (1..=200_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
        let query = format!("[1,[64,[[69,[[2,[{numbers}]],[10,[7]]]],{numbers}]],{{\"array_limit\":1000000}}]");
        assert_eq!(answer(&query, &Arc::new(Stop::default())).unwrap(), 1);
    });
}

#[test]
fn many_variables_are_found_in_time() {
    let numbers = (1..=200_000).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let mentions = vec!["[10,[200000]]"; 200_000].join(",");
    let query = format!("[1,[64,[[69,[[2,[{numbers}]],[2,[{mentions}]]]],{numbers}]],{{\"array_limit\":1000000}}]");
    let began = Instant::now();
    assert_eq!(answer(&query, &Arc::new(Stop::default())).unwrap(), 1);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn many_fields_are_read_in_time() {
    let fields = (0..200_000).map(|number| format!("\"field{number}\":1")).collect::<Vec<_>>().join(",");
    let began = Instant::now();
    assert_eq!(answer(&format!("[1,{{{fields}}}]"), &Arc::new(Stop::default())).unwrap(), 1);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let twice = failure(&format!("[1,{{{fields},\"field7\":1}}]"));
    assert_eq!(twice.message, "Duplicate object key: field7.");
}

#[test]
fn many_names_are_found_in_time() {
    let list = |part: fn(u32) -> String| (0..200_000).map(part).collect::<Vec<_>>().join(",");
    let fields = list(|number| format!("\"field{number}\":1"));
    let names = list(|number| format!("\"field{number}\""));
    let pairs = list(|number| format!("\"field{number}\",1"));
    for term in [format!("[143,[{pairs}]]"), format!("[34,[{{{fields}}},{names}]]")] {
        let began = Instant::now();
        assert_eq!(answer(&format!("[1,{term}]"), &Arc::new(Stop::default())).unwrap(), 1);
        assert!(began.elapsed() < Duration::from_secs(5), "{}: {:?}", &term[..4], began.elapsed());
    }
}

#[test]
fn terms_that_double_their_arguments_are_bounded() {
    // `with_fields` has its paths twice, so that of forty ones in each other there are a million millions.
    let many = failure(&nested("[96,[{\"a\":1},", "\"a\"", "]]", 40));
    assert_eq!(many.kind, ErrorKind::ResourceLimit);
}

#[test]
fn spread_arguments_do_not_stand_for_those_of_terms_that_are_rewritten() {
    for query in ["[1,[48,[[154,[[2,[true,1,2]]]]]]]", "[1,[53,[[154,[[2,[]]]]]]]"] {
        assert_eq!(failure(query).stage, Stage::Compile);
    }
}

#[test]
fn options_that_need_themselves_are_refused() {
    with_usual_stack(|| {
        let options = "{\"read_mode\":[42,[[15,[\"t\"]]]],\"db\":[14,[\"test\"]]}";
        let refused = failure(&format!("[1,[15,[\"t\"]],{options}]"));
        assert_eq!(refused.kind, ErrorKind::Internal);
    });
}

#[test]
fn loops_without_end_can_be_stopped() {
    for query in [
        "[1,[39,[[173,[]],false]]]",
        "[1,[40,[[173,[]],[69,[[2,[1]],[2,[]]]]]]]",
        "[1,[38,[[2,[1]],[69,[[2,[1]],[43,[[173,[1000000000000]]]]]]]]]",
        "[1,[187,[[173,[1000000000000]],0,[69,[[2,[1,2]],0]]]]]",
        "[1,[39,[[44,[[173,[]],[173,[]]]],false]]]",
    ] {
        let stop = Arc::new(Stop::default());
        let running = std::thread::spawn({
            let stop = stop.clone();
            move || answer(query, &stop)
        });
        stop.stop();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !running.is_finished() {
            assert!(Instant::now() < deadline, "{query} did not stop");
            std::thread::yield_now();
        }
        let stopped = running.join().unwrap().unwrap_err();
        assert_eq!(stopped.kind, ErrorKind::Interrupted, "{query}");
    }
}

#[test]
fn values_do_not_grow_without_bounds() {
    // A list in a list in a list, as deep as there are rows.
    let deep = failure("[1,[187,[[173,[100000]],[2,[]],[69,[[2,[1,2]],[2,[[10,[1]]]]]]]]]");
    assert_eq!(deep.kind, ErrorKind::ResourceLimit);
    // A string that doubles with each row.
    let long = failure("[1,[187,[[173,[100]],\"a\",[69,[[2,[1,2]],[24,[[10,[1]],[10,[1]]]]]]]]]");
    assert_eq!(long.kind, ErrorKind::ResourceLimit);
    // An array that does.
    let wide = failure("[1,[187,[[173,[100]],[2,[1]],[69,[[2,[1,2]],[24,[[10,[1]],[10,[1]]]]]]]]]");
    assert_eq!(wide.kind, ErrorKind::ResourceLimit);
    let many = failure("[1,[26,[[2,[1,2]],9007199254740992]]]");
    assert_eq!(many.kind, ErrorKind::ResourceLimit);
    let rows = failure("[1,[51,[[173,[1000000]],\"array\"]]]");
    assert_eq!(rows.kind, ErrorKind::ResourceLimit);
}

/// Counts how often a query asks whether it goes on.
#[derive(Default)]
struct Asked(AtomicUsize);

impl Pacer for Asked {
    fn goes_on(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[test]
fn a_query_asks_the_more_often_whether_it_goes_on_the_larger_its_values_are() {
    // Strings of four megabytes, one with a letter more.
    let text = "[187,[[173,[18]],\"0123456789abcdef\",[69,[[2,[1,2]],[24,[[10,[1]],[10,[1]]]]]]]]";
    for term in ["[17,[[10,[8]],[10,[9]]]]", "[97,[[10,[8]],\"x+y\"]]", "[24,[[10,[8]],[10,[9]]]]", "[141,[[10,[8]]]]"]
    {
        let rows = format!("[43,[[38,[[173,[20]],[69,[[2,[7]],{term}]]]]]]");
        let query = format!("[1,[64,[[69,[[2,[8,9]],{rows}]],{text},[24,[{text},\"x\"]]]]]");
        let Request::Start(query) = Request::read(&query).unwrap() else { panic!("a query") };
        let prepared = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into()).unwrap();
        let asked = Arc::new(Asked::default());
        prepared.run(Arc::new(MemorySource::new("test")), asked.clone()).map(drop).unwrap();
        assert!(asked.0.load(Ordering::Relaxed) >= 20, "{term}: {}", asked.0.load(Ordering::Relaxed));
    }
}
