//! Generated command sequences against redis-server and Tessera: replies and resulting state must be equal.

use crate::resp_client::{Client, Value, words};
use crate::server::{Node, RedisPeer};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};
use std::collections::HashMap;
use tempfile::TempDir;

type Command = Vec<Vec<u8>>;

/// Shapes of commands. Words in capitals that are single letters are drawn: K key, F field, V value, N integer, D
/// floating-point number, T seconds from now, A Unix time, G pattern, C count. `a|b` draws one of the words, `x?` may be
/// left out, `x*` stands up to three times.
const SHAPES: &[&str] = &[
    "SET K V",
    "SET K V",
    "SET K V NX|XX|GET|KEEPTTL?",
    "SET K V EX|PX T NX|XX|GET?",
    "SET K V EXAT|PXAT A GET?",
    "SET K V NX|XX|GET|KEEPTTL* EX|EXAT? N?",
    "GET K",
    "GET K",
    "GETSET K V",
    "GETDEL K",
    "GETEX K",
    "GETEX K EX|PX T",
    "GETEX K PERSIST",
    "GETEX K EXAT|PXAT A",
    "GETEX K EX|PERSIST* N?",
    "SETNX K V",
    "SETEX K T V",
    "PSETEX K T V",
    "SETEX K N V",
    "PSETEX K x|0|-1 V",
    "APPEND K V",
    "STRLEN K",
    "SETRANGE K C V",
    "SETRANGE K N V",
    "GETRANGE K N N",
    "SUBSTR K N N",
    "INCR K",
    "DECR K",
    "INCRBY K N",
    "DECRBY K N",
    "INCRBYFLOAT K D",
    "INCRBYFLOAT K D",
    "MGET K*",
    "MGET K K",
    "MSET K V K V",
    "MSET K V*",
    "MSETNX K V K V",
    "LCS K K",
    "LCS K K LEN|IDX",
    "LCS K K IDX MINMATCHLEN N WITHMATCHLEN?",
    "DEL K*",
    "DEL K",
    "UNLINK K K",
    "EXISTS K K K",
    "TOUCH K K",
    "EXPIRE|PEXPIRE K T NX|XX?",
    "EXPIREAT|PEXPIREAT K A NX|XX|GT|LT?",
    "EXPIRE K N NX|XX*",
    "EXPIREAT K N NX|XX|GT|LT*",
    "TTL K",
    "PTTL K",
    "EXPIRETIME K",
    "PEXPIRETIME K",
    "PERSIST K",
    "TYPE K",
    "RENAME K K",
    "RENAMENX K K",
    "COPY K K REPLACE?",
    "RANDOMKEY",
    "KEYS G",
    "SCAN 0 MATCH G COUNT 1000",
    "SCAN 0 COUNT 1000 TYPE string|hash|list",
    "DBSIZE",
    "OBJECT ENCODING K?",
    "ECHO V",
    "PING V?",
    "TIME",
    "HSET K F V",
    "HSET K F V F V",
    "HSET K F V*",
    "HMSET K F V F V",
    "HSETNX K F V",
    "HGET K F",
    "HGET K F",
    "HMGET K F*",
    "HMGET K F F F",
    "HDEL K F*",
    "HDEL K F",
    "HEXISTS K F",
    "HLEN K",
    "HSTRLEN K F",
    "HGETALL K",
    "HKEYS K",
    "HVALS K",
    "HINCRBY K F N",
    "HINCRBYFLOAT K F D",
    "HRANDFIELD K",
    "HRANDFIELD K C",
    "HRANDFIELD K N WITHVALUES?",
    "HSCAN K 0 COUNT 1000",
    "HSCAN K 0 MATCH G COUNT 1000",
    "HSCAN K 0|x|1x",
    "HSCAN K",
    "MULTI",
    "MULTI",
    "EXEC",
    "EXEC",
    "DISCARD",
    "WATCH K",
    "UNWATCH",
    "SELECT V",
    "NOSUCH K V",
    "GET",
    "HSET K",
    "COMMAND GETKEYS MSET K V K V",
    "COMMAND GETKEYS WATCH K K",
    "COMMAND GETKEYS OBJECT ENCODING K",
    "COMMAND GETKEYS MEMORY USAGE K",
];

fn drawn(letter: &str) -> Option<&'static [&'static str]> {
    Some(match letter {
        "K" => &["k1", "k2", "k3", "h1", "h2", "{tag}a"],
        "F" => &["f1", "f2", "f3", "", "10"],
        "V" => &["", "v", "10", "-3", "1.5", "hello world", "\0\u{ff}", "9223372036854775807", "ohmytext", "mynewtext"],
        "N" => &[
            "0",
            "1",
            "-1",
            "2",
            "-2",
            "5",
            "100",
            "-100",
            "9223372036854775807",
            "-9223372036854775808",
            "x",
            "1.5",
            "",
            "+1",
            "010",
        ],
        "D" => {
            &["0.1", "0.2", "-1.5", "3", "1e3", "5.0e-3", "10000000000", "123456789.123", "1e400", "x", "", "inf", "-0"]
        }
        "T" => &["100000", "200000", "300000"],
        "A" => &["4102444800", "4102444900000", "4102444850", "1"],
        "G" => &["*", "k*", "h?", "f[1-2]", "*1", "{*"],
        "C" => &["0", "1", "2", "5", "10"],
        _ => return None,
    })
}

fn word(word: &'static str) -> BoxedStrategy<Vec<Vec<u8>>> {
    if let Some(inner) = word.strip_suffix('?') {
        return prop_oneof![Just(Vec::new()), self::word(inner)].boxed();
    }
    if let Some(inner) = word.strip_suffix('*') {
        return prop::collection::vec(self::word(inner), 0..4).prop_map(|words| words.concat()).boxed();
    }
    if let Some(values) = drawn(word) {
        return prop::sample::select(values).prop_map(|value| vec![value.as_bytes().to_vec()]).boxed();
    }
    let choices: Vec<&'static str> = word.split('|').collect();
    prop::sample::select(choices).prop_map(|choice| vec![choice.as_bytes().to_vec()]).boxed()
}

fn command() -> BoxedStrategy<Command> {
    let shapes: Vec<BoxedStrategy<Command>> = SHAPES
        .iter()
        .map(|shape| shape.split(' ').map(word).collect::<Vec<_>>().prop_map(|words| words.concat()).boxed())
        .collect();
    prop::strategy::Union::new(shapes).boxed()
}

/// Where the keys of a table are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    OnePartition,
    Partitions,
    /// A page of SCAN ends where the partitions of a node do.
    Nodes,
}

/// What `differences.txt` says.
struct Rules {
    /// How replies of a command are compared.
    compare: HashMap<String, String>,
    /// Commands that are not carried out in a transaction.
    outside: Vec<String>,
}

impl Rules {
    fn read() -> Self {
        let mut rules = Self { compare: HashMap::new(), outside: Vec::new() };
        for line in include_str!("differences.txt").lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let mut columns = line.split('|').map(str::trim);
            let (command, rule) = (columns.next().unwrap(), columns.next().unwrap());
            match rule {
                "outside" => rules.outside.push(command.into()),
                "unordered" | "pairs" | "page" | "near" | "shape" => {
                    _ = rules.compare.insert(command.into(), rule.into())
                }
                rule => panic!("differences.txt has an unknown rule {rule}"),
            }
        }
        rules
    }

    /// The commands without those that a transaction does not carry out, or a table whose keys are spread like this.
    fn keep_outside(&self, commands: Vec<Command>, keys: Spread) -> Vec<Command> {
        let mut is_open = false;
        let keep = |command: &Command| {
            let name = String::from_utf8_lossy(&command[0]).to_lowercase();
            match &name[..] {
                "multi" => is_open = true,
                "exec" | "discard" => is_open = false,
                _ => {}
            }
            let is_refused = keys == Spread::Nodes && name == "scan";
            !(is_refused || is_open && self.outside.contains(&name))
        };
        let mut commands = commands;
        commands.retain(keep);
        commands
    }
}

fn sorted(value: &Value, pairs: bool) -> Value {
    match value {
        Value::Array(items) if pairs => {
            let mut chunks: Vec<_> = items.chunks(2).map(<[Value]>::to_vec).collect();
            chunks.sort();
            Value::Array(chunks.concat())
        }
        Value::Array(items) | Value::Set(items) => {
            let mut items = items.clone();
            items.sort();
            Value::Array(items)
        }
        Value::Map(entries) => {
            let mut entries = entries.clone();
            entries.sort();
            Value::Map(entries)
        }
        other => other.clone(),
    }
}

fn are_equal(rule: Option<&str>, one: &Value, other: &Value) -> bool {
    match (rule, one, other) {
        (_, Value::Error(_), _) | (_, _, Value::Error(_)) | (None, ..) => one == other,
        (Some("unordered"), ..) => sorted(one, false) == sorted(other, false),
        (Some("pairs"), ..) => sorted(one, true) == sorted(other, true),
        (Some("page"), Value::Array(a), Value::Array(b)) if a.len() == 2 && b.len() == 2 => {
            a[0] == b[0] && sorted(&a[1], false) == sorted(&b[1], false)
        }
        (Some("near"), Value::Integer(a), Value::Integer(b)) => a.abs_diff(*b) <= 5_000 && (*a < 0) == (*b < 0),
        (Some("shape"), ..) => std::mem::discriminant(one) == std::mem::discriminant(other),
        // Neither an error nor what the rule is about, such as QUEUED.
        (Some(_), ..) => one == other,
    }
}

/// Compares replies, looking into EXEC's with the rules of the commands that it ran.
fn check(rules: &Rules, commands: &[Command], peer: &[Value], ours: &[Value]) -> Result<(), TestCaseError> {
    let mut queued: Vec<&Command> = Vec::new();
    let mut is_open = false;
    let name = |command: &Command| String::from_utf8_lossy(&command[0]).to_lowercase();
    for (at, command) in commands.iter().enumerate() {
        let rule = rules.compare.get(&name(command)).map(String::as_str);
        let equal = match (&name(command)[..], &peer[at], &ours[at]) {
            ("exec", Value::Array(a), Value::Array(b)) if a.len() == b.len() && a.len() == queued.len() => {
                let rule = |command: &Command| rules.compare.get(&name(command)).map(String::as_str);
                queued.iter().zip(a.iter().zip(b)).all(|(command, (a, b))| are_equal(rule(command), a, b))
            }
            _ => are_equal(rule, &peer[at], &ours[at]),
        };
        let shown: Vec<String> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
        prop_assert!(equal, "{}: redis {}, tessera {}", shown.join(" "), peer[at], ours[at]);
        match &name(command)[..] {
            "multi" => is_open = true,
            "exec" | "discard" => {
                is_open = false;
                queued.clear();
            }
            _ if is_open && peer[at] == Value::Simple("QUEUED".into()) => queued.push(command),
            _ => {}
        }
    }
    Ok(())
}

/// What every key holds, and when it ends.
fn state(client: &mut Client) -> Vec<(Value, Value, Value, Value)> {
    let Value::Array(keys) = sorted(&client.run("KEYS *"), false) else { panic!("KEYS gives a list") };
    let mut state = Vec::new();
    for key in keys {
        let Value::Bulk(name) = &key else { panic!("a key is a string") };
        let mut ask = |command: &str| client.call(&[command.as_bytes().to_vec(), name.clone()]).unwrap();
        let kind = ask("TYPE");
        let value = if kind == Value::Simple("hash".into()) { sorted(&ask("HGETALL"), true) } else { ask("GET") };
        let end = ask("PEXPIRETIME");
        state.push((key, kind, value, end));
    }
    state
}

fn compare(cases: u32, engine: &str, table: &str, partitions: u32, protocol: &str) {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli(&format!("table create t --engine {engine} {table} --partitions {partitions}"));
    let keys = if partitions == 1 { Spread::OnePartition } else { Spread::Partitions };
    compare_through(cases, node.client(), protocol, keys);
}

/// Compares with redis-server what a connection answers that may use the table `t`.
pub fn compare_through(cases: u32, mut client: Client, protocol: &str, keys: Spread) {
    let rules = Rules::read();
    let peer = RedisPeer::start();
    assert_eq!(client.run("TABLE t"), Value::Simple("OK".into()));
    let mut clients = [Client::connect(peer.port).unwrap(), client];
    for client in &mut clients {
        client.run(&format!("HELLO {protocol}"));
    }
    let clients = std::cell::RefCell::new(clients);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    // The same sequences every time, unless asked for others.
    let seed: u64 = std::env::var("TESSERA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let bytes: Vec<u8> = seed.to_le_bytes().repeat(4);
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let outcome = runner.run(&prop::collection::vec(command(), 1..25), |commands| {
        let mut clients = clients.borrow_mut();
        for client in clients.iter_mut() {
            client.pipeline(&[words("DISCARD"), words("UNWATCH"), words("FLUSHDB")]).unwrap();
        }
        // SELECT would leave the table.
        let mut commands = rules.keep_outside(commands, keys);
        commands.retain(|command| command[0] != b"SELECT");
        let peer = clients[0].pipeline(&commands).unwrap();
        let ours = clients[1].pipeline(&commands).unwrap();
        check(&rules, &commands, &peer, &ours)?;
        for client in clients.iter_mut() {
            client.run("DISCARD");
        }
        let (peer, ours) = (state(&mut clients[0]), state(&mut clients[1]));
        prop_assert_eq!(peer.len(), ours.len(), "keys");
        for (peer, ours) in peer.iter().zip(&ours) {
            prop_assert_eq!((&peer.0, &peer.1, &peer.2), (&ours.0, &ours.1, &ours.2));
            prop_assert!(are_equal(Some("near"), &peer.3, &ours.3), "{} ends at {} and {}", peer.0, peer.3, ours.3);
        }
        Ok(())
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, commands)) => {
            let lines: Vec<String> = commands
                .iter()
                .map(|command| {
                    command.iter().map(|word| format!("\"{}\"", word.escape_ascii())).collect::<Vec<_>>().join(" ")
                })
                .collect();
            panic!("{reason}\n{}", lines.join("\n"));
        }
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn memory_tables_answer_as_redis_in_resp2() {
    compare(2_000, "memory", "--durability none", 1, "2");
}

#[test]
fn memory_tables_answer_as_redis_in_resp3() {
    compare(1_000, "memory", "--durability none", 1, "3");
}

#[test]
fn rocksdb_tables_answer_as_redis() {
    compare(1_000, "rocksdb", "--durability soft", 1, "3");
}

/// Keys of the commands are in different partitions, those of transactions too.
#[test]
fn tables_of_several_partitions_answer_as_redis() {
    compare(1_500, "memory", "--durability none", 16, "2");
    compare(750, "rocksdb", "--durability soft", 16, "3");
}
