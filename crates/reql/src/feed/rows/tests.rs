use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::change_log::{ChangeLog, Reached, StampedPage, Unread};
use crate::env::Stop;
use crate::memory::MemorySource;
use crate::query::{Answer, Request};
use crate::scan::{KeyRange, Order, ReadMode, Scan};
use crate::selection::Table;
use crate::source::Source;
use crate::stream::FirstRows;
use crate::value::ValueExt as _;
use tessera_document::Document;

/// What a log of a table in memory does not do by itself.
#[derive(Default)]
struct Script {
    /// Documents cannot be read just now.
    cannot_read: AtomicBool,
    /// Told before what the table tells.
    events: Mutex<VecDeque<Vec<LogEvent>>>,
}

struct Scripted {
    script: Arc<Script>,
    log: Box<dyn ChangeLog>,
}

impl ChangeLog for Scripted {
    fn begin(&self) -> Vec<Reached> {
        self.log.begin()
    }

    fn scheme(&self) -> u32 {
        self.log.scheme()
    }

    fn next(&mut self, limit: usize) -> Result<Vec<LogEvent>> {
        match self.script.events.lock().unwrap().pop_front() {
            Some(events) => Ok(events),
            None => self.log.next(limit),
        }
    }

    fn pages(&self, wanted: Vec<(u32, Scan)>) -> Result<Vec<StampedPage>, Unread> {
        match self.script.cannot_read.load(Ordering::Relaxed) {
            true => Err(Unread::Later(Error::failed("not now"))),
            false => self.log.pages(wanted),
        }
    }
}

struct World {
    source: Arc<MemorySource>,
    env: Env,
    script: Arc<Script>,
}

impl World {
    fn new() -> Self {
        let source = Arc::new(MemorySource::new("server"));
        source.create_database("test").unwrap();
        let env = Env::new(source.clone(), Arc::new(Stop::default()), Value::Null);
        let world = Self { source, env, script: Arc::default() };
        world.run("[60,[\"t\"]]");
        world
    }

    fn run(&self, term: &str) -> Value {
        let Ok(Request::Start(query)) = Request::read(&format!("[1,{term}]")) else { panic!("{term}") };
        let source: Arc<dyn Source> = self.source.clone();
        match query.prepare(Value::Null).unwrap().run(source, Arc::new(Stop::default())).unwrap() {
            Answer::Value(value) => value,
            Answer::Cursor(_) => panic!("a stream: {term}"),
        }
    }

    fn put(&self, ids: std::ops::Range<u32>) {
        ids.for_each(|id| drop(self.run(&format!("[56,[[15,[\"t\"]],{{\"id\":{id}}}]]"))));
    }

    fn delete(&self, ids: std::ops::Range<u32>) {
        ids.for_each(|id| drop(self.run(&format!("[54,[[16,[[15,[\"t\"]],{id}]]]]"))));
    }

    /// A feed of a whole table, or of its first rows by the primary key.
    fn feed(&self, first: Option<usize>, squash: Option<Duration>) -> FeedRows {
        let database = self.source.database("test").unwrap().unwrap();
        let info = self.source.table(&database, "t").unwrap().unwrap();
        let scan = Scan {
            index: None,
            range: KeyRange::ALL,
            cells: None,
            order: Order::Ascending,
            after: None,
            limit: 0,
            reads: ReadMode::Single,
        };
        let subject = Subject {
            table: Arc::new(Table { info, frame: FrameId::ROOT, reads: ReadMode::Single }),
            scans: vec![(scan, 1)],
            operations: Vec::new(),
            is_point: false,
            first: first.map(|count| FirstRows { count, filters: Vec::new() }),
        };
        let options = FeedOptions {
            squash,
            queue_size: 1_000,
            include_initial: false,
            include_states: false,
            include_types: false,
            include_offsets: false,
            include_resume_token: false,
            resume: None,
        };
        let mut feed = FeedRows::open(&self.env, vec![subject], options, FrameId::ROOT).unwrap();
        let tail = feed.tails.pop().unwrap();
        let log = Box::new(Scripted { script: self.script.clone(), log: tail.log });
        feed.tails.push(Tail { log, ..tail });
        feed
    }

    fn tell(&self, events: Vec<LogEvent>) {
        self.script.events.lock().unwrap().push_back(events);
    }

    /// The identifiers of what rows were and are, as far as messages have come.
    fn told(&self, feed: &mut FeedRows) -> Vec<[Option<i64>; 2]> {
        let mut told = Vec::new();
        loop {
            match feed.next(&self.env, 1_000) {
                Ok(messages) => told.extend(messages.into_iter().map(|message| ids(&message.to_value().unwrap()))),
                Err(_) => {
                    assert!(self.env.take_wait().is_some());
                    return told;
                }
            }
        }
    }
}

fn ids(message: &Value) -> [Option<i64>; 2] {
    ["old_val", "new_val"].map(|name| {
        let row = message.get_field(name).filter(|row| !row.is_null())?;
        let Some(Value::Number(id)) = row.get_field("id") else { panic!("{message:?}") };
        Some(id.get() as i64)
    })
}

fn change(part: u32, at: u64, id: i32) -> LogEvent {
    let row = value::object([("id", Value::from(id))]).unwrap();
    let key = crate::key::primary_key(&Value::from(id)).unwrap();
    LogEvent::Change(DocumentChange { part, at, key, old: None, new: Some(Document::encode(&row)) })
}

#[test]
fn first_rows_that_cannot_be_read_are_told_when_they_can_be() {
    let world = World::new();
    world.put(0..100);
    let mut feed = world.feed(Some(5), None);
    world.script.cannot_read.store(true, Ordering::Relaxed);
    world.delete(0..60);
    // As many as were kept behind those that are shown.
    let mut told = world.told(&mut feed);
    assert_eq!((told.len(), told[0]), (LEAST_KEPT, [Some(0), Some(5)]));
    let retry = feed.look_again().unwrap();
    assert!(retry > Duration::ZERO && retry <= Duration::from_secs(1));
    // What is written meanwhile counts, and a split has it read at once.
    feed.tails[0].retry = Some(Instant::now() + Duration::from_secs(3_600));
    world.script.cannot_read.store(false, Ordering::Relaxed);
    world.delete(61..62);
    assert!(world.told(&mut feed).is_empty(), "it is not yet tried again");
    feed.tails[0].split(0, &[0]).unwrap();
    told.extend(world.told(&mut feed));
    let mut shown: Vec<i64> = (0..5).collect();
    for [old, new] in told {
        shown.retain(|id| Some(*id) != old);
        shown.extend(new);
    }
    shown.sort_unstable();
    assert_eq!((shown, feed.look_again()), (vec![60, 62, 63, 64, 65], None));
}

/// Rows that such a feed keeps behind those that are shown.
const LEAST_KEPT: usize = 32;

#[test]
fn changes_that_wait_for_later_ones_are_told_before_a_split() {
    let world = World::new();
    let mut feed = world.feed(None, Some(Duration::MAX));
    world.tell(vec![change(0, 1, 1), change(0, 2, 2)]);
    assert!(world.told(&mut feed).is_empty());
    world.tell(vec![LogEvent::Split { of: 0, into: vec![0, 1] }]);
    assert_eq!(world.told(&mut feed), [[None, Some(1)], [None, Some(2)]]);
    assert_eq!(feed.tails[0].reached.keys().collect::<Vec<_>>(), [&0, &1]);
    world.tell(vec![change(1, 3, 3)]);
    assert!(world.told(&mut feed).is_empty());
}

#[test]
fn a_split_within_the_messages_of_a_change_ends_the_feed() {
    let world = World::new();
    let mut feed = world.feed(None, None);
    feed.tails[0].known.insert(0, 1);
    world.tell(vec![change(0, 1, 1)]);
    world.tell(vec![LogEvent::Split { of: 0, into: vec![0, 1] }]);
    assert!(world.told(&mut feed).is_empty(), "the client knows it");
    feed.tails[0].known.insert(1, 1);
    world.tell(vec![LogEvent::Split { of: 1, into: vec![1, 2] }, change(2, 2, 2)]);
    let error = feed.next(&world.env, 10).unwrap_err();
    assert!(world.env.take_wait().is_none() && error.message().starts_with("The table was split after the message"));
}
