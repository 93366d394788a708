//! Feeds against a model: whoever follows the messages of a feed has at each moment what the query without `changes` finds.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tessera_document::{Time, Timezone, Value};
use tessera_reql::{Answer, Cursor, Lazy, MemorySource, Request, Source, Stop};

struct World(Arc<MemorySource>);

impl World {
    fn new() -> Self {
        let source = Arc::new(MemorySource::new("server"));
        source.create_database("test").unwrap();
        let world = Self(source);
        world.value("[60,[\"t\"]]");
        world.value("[75,[[15,[\"t\"]],\"n\"]]");
        world
    }

    fn answer(&self, term: &str) -> Answer {
        let Request::Start(query) = Request::read(&format!("[1,{term}]")).unwrap() else { panic!("no query") };
        let now = Time::new(0.0, Timezone::UTC).unwrap();
        let source: Arc<dyn Source> = self.0.clone();
        query.prepare(now.into()).unwrap().run(source, Arc::new(Stop::default())).unwrap()
    }

    fn value(&self, term: &str) -> Value {
        let Answer::Value(value) = self.answer(term) else { panic!("no value: {term}") };
        value
    }

    fn cursor(&self, term: &str) -> Box<Cursor> {
        let Answer::Cursor(cursor) = self.answer(term) else { panic!("no stream: {term}") };
        cursor
    }

    fn rows(&self, term: &str) -> Vec<Value> {
        all(&mut self.cursor(term))
    }
}

/// The rows that are there.
fn all(cursor: &mut Cursor) -> Vec<Value> {
    let mut rows = Vec::new();
    loop {
        let batch = cursor.next(100).unwrap();
        if batch.is_empty() {
            return rows;
        }
        rows.extend(batch.into_iter().map(|row| Lazy::into_value(row).unwrap()));
    }
}

fn field(message: &Value, name: &str) -> Value {
    message.get_field(name).unwrap_or(Value::Null)
}

/// What the messages of a feed of documents come to, by key.
#[derive(Default)]
struct Known(BTreeMap<Value, Value>);

impl Known {
    fn note(&mut self, message: &Value) {
        let (old, new) = (field(message, "old_val"), field(message, "new_val"));
        if !matches!(old, Value::Null) {
            assert_eq!(self.0.remove(&field(&old, "id")), Some(old), "{message:?}");
        }
        if !matches!(new, Value::Null) {
            assert_eq!(self.0.insert(field(&new, "id"), new), None, "{message:?}");
        }
    }
}

const SELECTIONS: [&str; 5] = [
    "[15,[\"t\"]]",
    "[39,[[15,[\"t\"]],[69,[[2,[1]],[19,[[170,[[10,[1]],\"n\"]],20]]]]]]",
    "[182,[[15,[\"t\"]],10,30],{\"index\":\"n\"}]",
    "[182,[[15,[\"t\"]],20,120]]",
    "[78,[[15,[\"t\"]],5,6,7]]",
];

const FIRST_ROWS: [&str; 4] = [
    "[71,[[41,[[15,[\"t\"]]],{\"index\":\"n\"}],3]]",
    "[71,[[41,[[15,[\"t\"]]],{\"index\":[74,[\"n\"]]}],40]]",
    "[71,[[41,[[182,[[15,[\"t\"]],10,30],{\"index\":\"n\"}]],{\"index\":\"n\"}],5]]",
    "[71,[[39,[[41,[[15,[\"t\"]]],{\"index\":\"id\"}],[69,[[2,[1]],[19,[[170,[[10,[1]],\"n\"]],20]]]]]],4]]",
];

fn write(random: &mut StdRng) -> String {
    let (id, n) = (random.random_range(0..150), random.random_range(0..50));
    match random.random_range(0..3) {
        0 => format!("[54,[[16,[[15,[\"t\"]],{id}]]]]"),
        _ => format!("[56,[[15,[\"t\"]],{{\"id\":{id},\"n\":{n}}}],{{\"conflict\":\"replace\"}}]"),
    }
}

#[test]
fn who_follows_a_feed_has_what_the_query_finds() {
    let seed = std::env::var("TESSERA_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    println!("TESSERA_SEED={seed}");
    let (world, mut random) = (World::new(), StdRng::seed_from_u64(seed));
    for _ in 0..300 {
        world.value(&write(&mut random));
    }
    let feed = |of: &&str| world.cursor(&format!("[152,[{of}],{{\"include_initial\":true}}]"));
    let queries: Vec<&str> = SELECTIONS.into_iter().chain(FIRST_ROWS).collect();
    let mut feeds: Vec<_> = queries.iter().map(|of| (of, feed(of), Known::default())).collect();
    for _ in 0..300 {
        for _ in 0..random.random_range(1..8) {
            // Now and then many go, so that rows behind those that are kept come into sight.
            match random.random_range(0..60) {
                0 => drop(world.value("[54,[[182,[[15,[\"t\"]],0,25],{\"index\":\"n\"}]]]")),
                1 => (0..100).for_each(|_| drop(world.value(&write(&mut random)))),
                _ => drop(world.value(&write(&mut random))),
            }
        }
        for (of, feed, known) in &mut feeds {
            all(feed).iter().for_each(|message| known.note(message));
            let mut found = world.rows(of);
            found.sort();
            let mut told: Vec<Value> = known.0.values().cloned().collect();
            told.sort();
            assert_eq!(told, found, "{of}");
        }
    }
}

/// A table with a multi index `tags`.
fn tagged() -> World {
    let world = World::new();
    world.value("[75,[[15,[\"t\"]],\"tags\"],{\"multi\":true}]");
    world
}

const FIRST_TAGS: &str = "[71,[[41,[[15,[\"t\"]]],{\"index\":\"tags\"}],10]]";

fn put(world: &World, id: usize, tags: &[usize]) {
    let tags = tags.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    world.value(&format!("[56,[[15,[\"t\"]],{{\"id\":{id},\"tags\":[2,[{tags}]]}}],{{\"conflict\":\"replace\"}}]"));
}

/// The rows of a feed with repeated ones, after its messages.
fn follow(rows: &mut Vec<Value>, messages: &[Value]) {
    for message in messages {
        let (old, new) = (field(message, "old_val"), field(message, "new_val"));
        if !matches!(old, Value::Null) {
            let at = rows.iter().position(|row| *row == old);
            rows.remove(at.unwrap_or_else(|| panic!("{message:?} tells the removal of what is not there: {rows:?}")));
        }
        if !matches!(new, Value::Null) {
            rows.push(new);
        }
    }
    rows.sort();
}

#[test]
fn a_document_that_is_shown_for_several_keys_is_removed_when_it_is() {
    let world = tagged();
    put(&world, 1, &[10, 20]);
    put(&world, 2, &[30, 40]);
    let mut feed = world.cursor(&format!("[152,[{FIRST_TAGS}]]"));
    put(&world, 3, &[5]);
    let told = all(&mut feed);
    let [one] = &told[..] else { panic!("{told:?}") };
    assert_eq!((field(&field(one, "new_val"), "id"), field(one, "old_val")), (Value::from(3), Value::Null));
    // Its rows are still its rows where they are under other keys.
    put(&world, 1, &[11, 50]);
    let told = all(&mut feed);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|message| field(&field(message, "old_val"), "id") == Value::from(1)), "{told:?}");
    put(&world, 2, &[30]);
    let told = all(&mut feed);
    assert!(told.iter().any(|message| field(message, "new_val") == Value::Null), "{told:?}");
    assert_eq!(told.len(), 2, "one of its rows has changed, and one is gone: {told:?}");
}

#[test]
fn the_first_rows_of_a_multi_index_are_those_of_the_query_also_behind_what_was_read_first() {
    for order in ["\"tags\"", "[74,[\"tags\"]]"] {
        let world = tagged();
        (0..100).for_each(|id| put(&world, id, &[id, 1_000 + id, 500 - id]));
        let first = format!("[71,[[41,[[15,[\"t\"]]],{{\"index\":{order}}}],10]]");
        let mut feed = world.cursor(&format!("[152,[{first}],{{\"include_initial\":true}}]"));
        let mut rows = Vec::new();
        for id in 0..100 {
            follow(&mut rows, &all(&mut feed));
            let mut found = world.rows(&first);
            found.sort();
            assert_eq!(rows, found, "before {id} is deleted");
            world.value(&format!("[54,[[16,[[15,[\"t\"]],{id}]]]]"));
        }
        follow(&mut rows, &all(&mut feed));
        assert!(rows.is_empty());
    }
}

#[test]
fn no_more_rows_are_kept_than_an_array_may_have() {
    let world = World::new();
    let term = |limit: &str| format!("[152,[[71,[[41,[[15,[\"t\"]]],{{\"index\":\"n\"}}],{limit}]]]]");
    drop(world.cursor(&term("100000")));
    let Request::Start(query) = Request::read(&format!("[1,{}]", term("1e9"))).unwrap() else { panic!("no query") };
    let source: Arc<dyn Source> = world.0.clone();
    let now = Time::new(0.0, Timezone::UTC).unwrap();
    let failure = query.prepare(now.into()).unwrap().run(source, Arc::new(Stop::default())).err().unwrap();
    assert!(failure.message.starts_with("Array over size limit `100000`."), "{}", failure.message);
}
