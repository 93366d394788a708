//! Geometry in queries: hostile shapes are bounded, and searches by an index find what filters find.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tessera_document::{Time, Timezone, Value};
use tessera_reql::{Answer, ErrorKind, Failure, MemorySource, Request, Source, Stop};

fn run(text: &str, source: &Arc<dyn Source>, stop: &Arc<Stop>) -> Result<Vec<Value>, Failure> {
    let Request::Start(query) = Request::read(text)? else { panic!("not a query: {text}") };
    let prepared = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into())?;
    match prepared.run(source.clone(), stop.clone())? {
        Answer::Value(value) => Ok(value.as_array().map_or_else(|| vec![value.clone()], |items| items.to_vec())),
        Answer::Cursor(mut cursor) => {
            let mut rows = Vec::new();
            loop {
                let batch = cursor.next(1000)?;
                if batch.is_empty() {
                    return Ok(rows);
                }
                rows.extend(batch.iter().map(|row| row.to_value().unwrap()));
            }
        }
    }
}

fn source() -> Arc<dyn Source> {
    let source = MemorySource::new("test");
    source.create_database("test").unwrap();
    Arc::new(source)
}

fn answer(text: &str) -> Result<Vec<Value>, Failure> {
    run(text, &source(), &Arc::new(Stop::default()))
}

/// A polygon of `count` corners, where a term says where the corner of a number is.
fn polygon(count: u32, corner: &str) -> String {
    format!("[161,[[154,[[51,[[38,[[173,[{count}]],[69,[[2,[1]],{corner}]]]],\"array\"]]]]]]")
}

#[test]
fn a_shape_that_takes_long_is_interrupted() {
    // Corners go up and down so that each edge passes beside all others, and boxes around edges do not help.
    let corner = "[2,[[27,[[10,[1]],1000]],[65,[[17,[[28,[[10,[1]],2]],0]],80,-80]]]]";
    let query = format!("[1,{}]", polygon(90_000, corner));
    let stop = Arc::new(Stop::default());
    let stopper = stop.clone();
    let began = Instant::now();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(500));
        stopper.stop();
    });
    let failure = run(&query, &source(), &stop).unwrap_err();
    thread.join().unwrap();
    // If it was faster, it has found that the shape crosses itself.
    let is_bounded = failure.kind == ErrorKind::Interrupted || failure.message.contains("LinearRing");
    assert!(is_bounded, "{failure:?}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn shapes_with_too_many_corners_are_refused_before_they_are_made() {
    for query in [
        "[1,[165,[[2,[0,0]],1000],{\"num_vertices\":4000000000}]]".to_string(),
        format!("[1,{}]", polygon(200_000, "[2,[0,[27,[[10,[1]],100000]]]]")),
    ] {
        let began = Instant::now();
        let failure = answer(&query).unwrap_err();
        assert_eq!(failure.kind, ErrorKind::ResourceLimit, "{failure:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
}

#[test]
fn shapes_that_are_none_are_refused() {
    for (term, message) in [
        ("[159,[0,[27,[0,0]]]]", "Cannot divide by zero."),
        ("[159,[1e300,0]]", "Longitude must be between -180 and 180.  Got 1.0000000000000000525e+300."),
        ("[160,[[2,[0,0]],[2,[0,0]]]]", "Invalid LineString.  Are there antipodal or duplicate vertices?"),
        (
            "[160,[[2,[0,90]],[2,[0,-90]],[2,[0,-90]]]]",
            "Invalid LineString.  Are there antipodal or duplicate vertices?",
        ),
        ("[161,[[2,[0,0]],[2,[4,4]],[2,[0,4]],[2,[4,0]]]]", "Invalid LinearRing."),
        ("[165,[[2,[0,0]],1e7]]", "Radius must be smaller than a quarter of the circumference"),
    ] {
        let failure = answer(&format!("[1,{term}]")).unwrap_err();
        assert!(failure.message.starts_with(message), "{term}: {failure:?}");
    }
}

fn shape(random: &mut SmallRng) -> String {
    let (longitude, latitude) = (random.random_range(-180.0..180.0), random.random_range(-90.0..90.0));
    let radius = 10f64.powf(random.random_range(1.0..6.8));
    match random.random_range(0..4) {
        0 => format!("[159,[{longitude},{latitude}]]"),
        1 => {
            let (to_longitude, to_latitude) = (random.random_range(-180.0..180.0), random.random_range(-90.0..90.0));
            format!("[160,[[2,[{longitude},{latitude}]],[2,[{to_longitude},{to_latitude}]]]]")
        }
        2 => format!("[165,[[2,[{longitude},{latitude}]],{radius}]]"),
        _ => {
            let circle = |radius: f64| format!("[165,[[2,[{longitude},{latitude}]],{radius}],{{\"num_vertices\":6}}]");
            format!("[171,[{},{}]]", circle(radius), circle(radius / 2.0))
        }
    }
}

#[test]
fn an_index_finds_what_a_filter_finds() {
    let mut random = SmallRng::seed_from_u64(1);
    let source = source();
    let ask = |term: &str| run(&format!("[1,{term}]"), &source, &Arc::new(Stop::default())).unwrap();
    ask("[60,[\"t\"]]");
    ask("[75,[[15,[\"t\"]],\"g\"],{\"geo\":true}]");
    let documents: Vec<String> = (0..400).map(|id| format!("{{\"id\":{id},\"g\":{}}}", shape(&mut random))).collect();
    ask(&format!("[56,[[15,[\"t\"]],[2,[{}]]]]", documents.join(",")));
    let mut found = 0;
    for _ in 0..150 {
        let shape = shape(&mut random);
        let ids = |rows: &str| {
            let mut ids = ask(&format!("[170,[{rows},\"id\"]]"));
            ids.sort();
            ids
        };
        let by_index = ids(&format!("[166,[[15,[\"t\"]],{shape}],{{\"index\":\"g\"}}]"));
        let by_filter = ids(&format!("[39,[[15,[\"t\"]],[69,[[2,[1]],[163,[[170,[[10,[1]],\"g\"]],{shape}]]]]]]"));
        assert_eq!(by_index, by_filter, "{shape}");
        found += by_index.len();
    }
    assert!(found > 500, "the searches found {found} documents");
}
