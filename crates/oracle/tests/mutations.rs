//! Recorded queries, cut up and put together anew: whatever comes of it must be answered or refused, without a panic.
//!
//! `TESSERA_SEED` draws other queries, `MUTATIONS` another number of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use tessera_document::{Time, Timezone};
use tessera_reql::{Answer, Json, MemorySource, Pacer, Request, Source as _, write_answer, write_row};

/// A query ends after so many looks, so that loops without end are no matter.
struct Countdown(AtomicU32);

impl Pacer for Countdown {
    fn goes_on(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) < 40
    }
}

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// Queries of an area, as JSON.
fn queries(area: &str) -> Vec<Json> {
    tessera_oracle::lines(area).iter().filter_map(|line| line.get("q").cloned()).collect()
}

/// A part of a query, the whole included.
fn pick(json: &Json, random: &mut StdRng) -> Json {
    let inner = match json {
        Json::Array(items) => items.choose(random),
        Json::Object(fields) => fields.choose(random).map(|(_, value)| value),
        _ => None,
    };
    match inner {
        Some(inner) if random.random_bool(0.7) => pick(inner, random),
        _ => json.clone(),
    }
}

/// Puts `graft` somewhere into the query.
fn splice(json: &mut Json, graft: Json, random: &mut StdRng) {
    let inner = match json {
        Json::Array(items) if !items.is_empty() => {
            let at = random.random_range(0..items.len());
            Some(&mut items[at])
        }
        Json::Object(fields) if !fields.is_empty() => {
            let at = random.random_range(0..fields.len());
            Some(&mut fields[at].1)
        }
        _ => None,
    };
    match inner {
        Some(inner) if random.random_bool(0.8) => splice(inner, graft, random),
        _ => *json = graft,
    }
}

fn write(json: &Json, out: &mut Vec<u8>) {
    match json {
        Json::Null => out.extend_from_slice(b"null"),
        Json::Bool(value) => out.extend_from_slice(value.to_string().as_bytes()),
        Json::Number(number) => tessera_document::Number::new(*number).unwrap().write_json(out),
        Json::String(text) => tessera_document::write_json_string(text, out),
        Json::Array(items) => {
            out.push(b'[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                write(item, out);
            }
            out.push(b']');
        }
        Json::Object(fields) => {
            out.push(b'{');
            for (at, (name, item)) in fields.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                tessera_document::write_json_string(name, out);
                out.push(b':');
                write(item, out);
            }
            out.push(b'}');
        }
    }
}

fn run(text: &str, source: &Arc<MemorySource>) {
    let Ok(Request::Start(query)) = Request::read(text) else { return };
    let Ok(prepared) = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into()) else { return };
    let mut out = Vec::new();
    match prepared.run(source.clone(), Arc::new(Countdown(AtomicU32::new(0)))) {
        Ok(Answer::Value(value)) => drop(write_answer(&value, &mut out)),
        Ok(Answer::Cursor(mut cursor)) => {
            for row in cursor.next(100).unwrap_or_default() {
                drop(write_row(&row, &mut out));
            }
        }
        Err(_) => {}
    }
}

#[test]
fn mutated_queries_do_no_harm() {
    let seed = variable("TESSERA_SEED", 1);
    let mut random = StdRng::seed_from_u64(seed);
    let mut all = Vec::new();
    for area in
        ["writes", "reads", "aggregation", "arrays", "control", "objects", "strings", "times", "joins", "indexes"]
    {
        all.extend(queries(area));
    }
    let source = Arc::new(MemorySource::new("test"));
    source.create_database("test").unwrap();
    run("[1,[60,[\"t\"]]]", &source);
    run("[1,[56,[[15,[\"t\"]],[2,[{\"id\":1,\"a\":1,\"tags\":[2,[1,2]]},{\"id\":2,\"a\":null}]]]]]", &source);
    for _ in 0..variable("MUTATIONS", 20_000) {
        let mut query = all.choose(&mut random).unwrap().clone();
        for _ in 0..random.random_range(0..3) {
            let other = all.choose(&mut random).unwrap();
            let graft = pick(other, &mut random);
            splice(&mut query, graft, &mut random);
        }
        let mut text = Vec::new();
        write(&query, &mut text);
        let text = String::from_utf8(text).unwrap();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&text, &source)));
        assert!(outcome.is_ok(), "seed {seed}: {text}");
    }
}
