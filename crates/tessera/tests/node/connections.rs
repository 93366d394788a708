//! Clients that behave badly, and many of them.

use crate::resp_client::{Client, Value, encode, words};
use crate::server::{Node, wait_for};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::net::TcpStream;
use std::time::Duration;
use tempfile::TempDir;

fn descriptors(node: &Node) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", node.process.id())).unwrap().count()
}

pub fn resident_bytes(node: &Node) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{}/statm", node.process.id())).unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

const MIB: usize = 1 << 20;

pub fn raise_file_limit() {
    // The test holds as many connections as the node.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// A node once took a file of its log that it could not open for a disk that fails, and wrote nothing any more until it was started again.
#[test]
fn clients_leave_file_descriptors_to_the_node() {
    raise_file_limit();
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["log.segment_bytes=1048576"]);
    let mut client = node.client();
    let process = Pid::from_raw(i32::try_from(node.process.id()).unwrap());
    let few = Rlimit { current: Some(400), maximum: Some(400) };
    prlimit(process, Resource::Nofile, few).unwrap();
    let redis = node.redis_port;
    let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(("127.0.0.1", redis)).unwrap()).collect();
    wait_for("clients have what they may have", Duration::from_secs(30), || (descriptors(&node) >= 345).then_some(()));
    let value = "x".repeat(100_000);
    for number in 0..100 {
        assert_eq!(client.run(&format!("SET key{number} {value}")), Value::Simple("OK".into()));
    }
    assert!(descriptors(&node) < 400);
    drop(idle);
    wait_for("there is room again", Duration::from_secs(30), || {
        let mut client = Client::connect(redis).ok()?;
        client.call(&words("GET key99")).ok().filter(|got| *got == Value::Bulk(value.clone().into_bytes())).map(|_| ())
    });
}

#[test]
fn connections_come_and_go_and_leave_nothing() {
    raise_file_limit();
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let use_some = |count: usize| {
        for _ in 0..count / 100 {
            let mut clients: Vec<Client> = (0..100).map(|_| node.client()).collect();
            clients.iter_mut().for_each(|client| _ = client.run("SET k v"));
        }
    };
    use_some(1_000);
    let settled = || {
        wait_for("connections are closed", Duration::from_secs(30), || {
            let Value::Bulk(list) = node.client().run("CLIENT LIST") else { panic!("a list") };
            (list.iter().filter(|byte| **byte == b'\n').count() == 1).then_some(())
        });
    };
    settled();
    let (files, memory) = (descriptors(&node), resident_bytes(&node));
    use_some(10_000);
    settled();
    // The engines may have opened a file of their own meanwhile; connections would count by the thousand.
    assert!(descriptors(&node) <= files + 20, "{files} descriptors became {}", descriptors(&node));
    assert!(resident_bytes(&node) < memory + 16 * MIB, "{memory} bytes became {}", resident_bytes(&node));
}

#[test]
fn five_thousand_idle_connections_cost_little() {
    raise_file_limit();
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.client().run("SET k v");
    let memory = resident_bytes(&node);
    let mut clients: Vec<Client> = (0..5_000).map(|_| node.client()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(client.run("GET k"), Value::Bulk(b"v".to_vec())));
    let each = (resident_bytes(&node).saturating_sub(memory)) / clients.len();
    assert!(each < 8 << 10, "{each} bytes per idle connection");
    assert_eq!(node.client().run("PING"), Value::Simple("PONG".into()));
}

#[test]
fn a_client_that_does_not_read_is_dropped_and_others_go_on() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["redis.write_timeout_ms=1000"]);
    // In memory, so that no cache fills up and hides what replies take.
    node.cli("table create m --engine memory");
    let mut client = node.client();
    client.run("TABLE m");
    assert_eq!(
        client.call(&[b"SET".to_vec(), b"big".to_vec(), vec![b'x'; 4 * MIB]]).unwrap(),
        Value::Simple("OK".into())
    );
    let memory = resident_bytes(&node);
    let mut deaf = node.client();
    deaf.run("TABLE m");
    let gets: Vec<u8> = (0..2_000).flat_map(|_| encode(&[b"GET".to_vec(), b"big".to_vec()])).collect();
    let _ = deaf.send(&gets); // 8 GB of replies
    wait_for("the deaf client is dropped", Duration::from_secs(30), || {
        assert_eq!(client.run("STRLEN big"), Value::Integer(4 << 20));
        assert!(resident_bytes(&node) < memory + 64 * MIB, "replies pile up");
        let Value::Bulk(list) = client.run("CLIENT LIST") else { panic!("a list") };
        (list.iter().filter(|byte| **byte == b'\n').count() == 1).then_some(())
    });
}

/// Twenty clients that asked for replies of many megabytes and did not read them once took all the memory of a machine, and so did
/// ones that began commands of a million empty arguments.
#[test]
fn clients_that_hold_the_most_are_closed_before_all_hold_too_much() {
    const LIMIT: usize = 64 * MIB;
    const ATTACKERS: usize = 20;
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[&format!("clients.memory_limit_bytes={LIMIT}")]);
    node.cli("table create m --engine memory");
    let mut client = node.client();
    client.run("TABLE m");
    assert_eq!(client.call(&[b"SET".to_vec(), b"big".to_vec(), vec![b'x'; MIB]]).unwrap(), Value::Simple("OK".into()));
    let gets = encode(&[vec![b"MGET".to_vec()], vec![b"big".to_vec(); 16]].concat());
    let begun = [&b"*1000000\r\n"[..], &b"$0\r\n\r\n".repeat(300_000)].concat();
    let memory = resident_bytes(&node);
    let evicted = |client: &mut Client| {
        let Value::Bulk(info) = client.run("INFO stats") else { panic!("text") };
        let info = String::from_utf8(info).unwrap();
        let count = info.lines().find_map(|line| line.strip_prefix("evicted_clients:")).unwrap().trim().to_string();
        count.parse::<usize>().unwrap()
    };
    let mut before = 0;
    for attack in [gets, begun] {
        let mut attackers: Vec<Client> = (0..ATTACKERS).map(|_| node.client()).collect();
        for attacker in &mut attackers {
            attacker.run("TABLE m");
        }
        attackers.iter_mut().for_each(|attacker| _ = attacker.send(&attack));
        wait_for("clients are closed", Duration::from_secs(30), || {
            assert_eq!(client.run("STRLEN big"), Value::Integer(1 << 20), "others go on");
            // One reply or command for each thread comes on top of it.
            assert!(resident_bytes(&node) < memory + 4 * LIMIT, "{} MiB", resident_bytes(&node) / MIB);
            (evicted(&mut client) > before).then_some(())
        });
        before = evicted(&mut client);
        drop(attackers);
    }
    assert_eq!(client.run("CONFIG SET maxmemory-clients 1000000"), Value::Simple("OK".into()));
    let mut large = node.client();
    large.run("TABLE m");
    large.send(&encode(&[b"MGET".to_vec(), b"big".to_vec(), b"big".to_vec()])).unwrap();
    assert!(large.read().is_err(), "it alone holds too much");
}

#[test]
fn absurd_lengths_are_refused_when_announced() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let memory = resident_bytes(&node);
    for attack in ["*1\r\n$1073741824\r\n", "*2\r\n$3\r\nGET\r\n$99999999999\r\n", "*1073741824\r\n", "*1\r\n$-5\r\n"] {
        let mut client = node.client();
        client.send(attack.as_bytes()).unwrap();
        match client.read().unwrap() {
            Value::Error(text) => assert!(text.starts_with("ERR Protocol error"), "{text}"),
            other => panic!("{other}"),
        }
        assert!(client.read().is_err(), "the connection is closed");
    }
    assert!(resident_bytes(&node) < memory + 8 * MIB);
    assert_eq!(node.client().run("PING"), Value::Simple("PONG".into()));
}

#[test]
fn too_many_connections_are_told_so() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["redis.max_clients=10"]);
    let mut clients: Vec<Client> = (0..10).map(|_| node.client()).collect();
    clients.iter_mut().for_each(|client| _ = client.run("PING"));
    let mut refused = node.client();
    assert_eq!(refused.read().unwrap(), Value::Error("ERR max number of clients reached".into()));
}

#[test]
fn limits_are_answered_by_name() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["limits.value_bytes=1000", "memory.limit_bytes=1000000"]);
    node.cli("table create m --engine memory");
    let mut client = node.client();
    let error = |value: Value| match value {
        Value::Error(text) => text,
        other => panic!("{other}"),
    };
    client.run("TABLE m");
    let long_key = client.call(&[b"SET".to_vec(), vec![b'k'; 900], vec![b'v'; 900]]).unwrap();
    assert_eq!(long_key, Value::Simple("OK".into()));
    assert!(
        error(client.call(&[b"APPEND".to_vec(), vec![b'k'; 900], vec![b'v'; 900]]).unwrap())
            .contains("maximum allowed size")
    );
    let mut full = None;
    for number in 0..2_000 {
        match client.call(&[b"SET".to_vec(), format!("k{number}").into(), vec![b'v'; 900]]).unwrap() {
            Value::Error(text) => {
                full = Some(text);
                break;
            }
            _ => continue,
        }
    }
    let full = full.expect("memory is used up at some time");
    assert!(full.starts_with("OOM") && full.contains("memory.limit_bytes"), "{full}");
    assert_eq!(client.run("DEL k1"), Value::Integer(1), "deletions go on");
    node.cli("table alter m --when-full evict");
    assert_eq!(client.call(&[b"SET".to_vec(), b"new".to_vec(), vec![b'v'; 900]]).unwrap(), Value::Simple("OK".into()));
}

#[test]
fn keys_in_different_partitions() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create slots --engine memory --partitions 64 --partitioner redis-slots");
    let mut client = node.client();
    client.run("TABLE slots");
    let pairs: String = (0..100).map(|number| format!(" k{number} {number}")).collect();
    assert_eq!(client.run(&format!("MSET{pairs}")), Value::Simple("OK".into()));
    let keys: String = (0..100).map(|number| format!(" k{number}")).collect();
    let Value::Array(values) = client.run(&format!("MGET{keys}")) else { panic!("a list") };
    assert!(values.iter().enumerate().all(|(number, value)| *value == Value::Bulk(number.to_string().into())));
    assert_eq!(client.run(&format!("EXISTS{keys} nosuch")), Value::Integer(100));
    assert_eq!(client.run("RENAME k1 k2"), Value::Simple("OK".into()));
    assert_eq!(client.run("GET k2"), Value::Bulk(b"1".to_vec()));
    assert_eq!(client.run("MSETNX k1 1 k2 2"), Value::Integer(0));
    assert_eq!(client.run("MSETNX k1 1 nosuch 2"), Value::Integer(1));
    assert_eq!(client.run("DEL nosuch"), Value::Integer(1));
    assert_eq!(client.run("MSET {t}a 1 {t}b 2"), Value::Simple("OK".into()));
    assert_eq!(client.run("RENAME {t}a {t}c"), Value::Simple("OK".into()));
    client.run("MULTI");
    client.run("INCR {t}b");
    client.run("INCR k1");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Integer(3), Value::Integer(2)]));
    // Their results depend on keys of both partitions.
    client.run("MULTI");
    client.run("RENAME k1 k2");
    client.run("COPY k2 k1");
    assert_eq!(client.run("EXEC"), Value::Array(vec![Value::Simple("OK".into()), Value::Integer(1)]));
    let (mut cursor, mut seen) = ("0".to_string(), std::collections::BTreeSet::new());
    loop {
        let Value::Array(page) = client.run(&format!("SCAN {cursor} COUNT 7")) else { panic!("a page") };
        let [Value::Bulk(next), Value::Array(keys)] = &page[..] else { panic!("cursor and keys") };
        seen.extend(keys.iter().cloned());
        cursor = String::from_utf8(next.clone()).unwrap();
        if cursor == "0" {
            break;
        }
    }
    assert_eq!(seen.len(), 102);
    assert_eq!(client.run(&format!("DEL{keys}")), Value::Integer(100));
}

#[test]
fn watched_keys_fail_a_transaction() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let (mut one, mut other) = (node.client(), node.client());
    for (write, fails) in [("SET k 2", true), ("SET unrelated 2", false), ("HSET k2 f v", false), ("DEL k", true)] {
        one.run("SET k 1");
        one.run("WATCH k");
        other.run(write);
        one.run("MULTI");
        one.run("SET k mine");
        assert_eq!(one.run("EXEC") == Value::Null, fails, "{write}");
    }
    one.run("SET k 1 PX 30");
    one.run("WATCH k");
    wait_for("the key expires", Duration::from_secs(10), || (other.run("EXISTS k") == Value::Integer(0)).then_some(()));
    one.run("MULTI");
    one.run("PING");
    assert_eq!(one.run("EXEC"), Value::Null, "an expired key counts as touched");
}

/// Names that begin alike, as most do, do not make HSCAN answer all at once; and fields that come meanwhile do not hide others.
#[test]
fn hscan_goes_page_by_page() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let mut client = node.client();
    for first in (0..3_000).step_by(100) {
        let pairs: String = (first..first + 100).map(|number| format!(" device:{} v", 1_000_000 + number)).collect();
        client.run(&format!("HSET h{pairs}"));
    }
    assert_eq!(client.run("HLEN h"), Value::Integer(3_000));
    let (mut cursor, mut seen, mut largest) = ("0".to_string(), std::collections::BTreeSet::new(), 0);
    for pages in 0.. {
        let Value::Array(page) = client.run(&format!("HSCAN h {cursor} COUNT 50 NOVALUES")) else { panic!("a page") };
        let [Value::Bulk(next), Value::Array(fields)] = &page[..] else { panic!("cursor and fields") };
        largest = largest.max(fields.len());
        seen.extend(fields.iter().cloned());
        cursor = String::from_utf8(next.clone()).unwrap();
        match pages {
            _ if cursor == "0" => break,
            10 => _ = client.run("HSET h device:2 v"),
            30 => _ = client.run("HDEL h device:2"),
            _ => {}
        }
    }
    seen.remove(&Value::Bulk(b"device:2".to_vec()));
    assert_eq!(seen.len(), 3_000);
    assert!(largest <= 100, "{largest} fields in a page");
    assert_eq!(client.run("HSCAN nosuch 77"), Value::Array(vec![Value::Bulk(b"0".to_vec()), Value::Array(Vec::new())]));
}

#[test]
fn fields_of_a_hash_expire_on_their_own() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let mut client = node.client();
    let integers = |numbers: &[i64]| Value::Array(numbers.iter().map(|number| Value::Integer(*number)).collect());
    client.run("HSET h a 1 b 2 c 3");
    assert_eq!(client.run("HEXPIRE h 100 FIELDS 2 a nosuch"), integers(&[1, -2]));
    assert_eq!(client.run("HTTL h FIELDS 3 a b nosuch"), integers(&[100, -1, -2]));
    assert_eq!(client.run("HPEXPIRE h 30 FIELDS 1 b"), integers(&[1]));
    wait_for("the field expires", Duration::from_secs(10), || {
        (client.run("HLEN h") == Value::Integer(2)).then_some(())
    });
    assert_eq!(client.run("HPERSIST h FIELDS 2 a c"), integers(&[1, -1]));
    assert_eq!(client.run("HEXPIREAT h 1 FIELDS 1 a"), integers(&[2]));
    assert_eq!(client.run("HSETEX h EX 50 FIELDS 1 d 4"), Value::Integer(1));
    assert_eq!(client.run("HSETEX h FNX FIELDS 1 d 5"), Value::Integer(0));
    assert_eq!(client.run("HGETEX h PERSIST FIELDS 1 d"), Value::Array(vec![Value::Bulk(b"4".to_vec())]));
    assert_eq!(client.run("HTTL h FIELDS 1 d"), integers(&[-1]));
    assert_eq!(
        client.run("HGETDEL h FIELDS 2 c d"),
        Value::Array(vec![Value::Bulk(b"3".to_vec()), Value::Bulk(b"4".to_vec())])
    );
    assert_eq!(client.run("EXISTS h"), Value::Integer(0));
    assert!(matches!(client.run("HEXPIRE h 1 FIELDS 2 a"), Value::Error(_)));
}

/// The connection was once closed while the rest of the value was on its way, so that the client got a reset instead of the reason.
#[test]
fn a_client_that_sends_too_much_reads_why_it_is_refused() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    for bytes in [16 * MIB + 1, 100 * MIB] {
        let mut client = node.client();
        let commands = [
            vec![b"SET".to_vec(), b"before".to_vec(), b"v".to_vec()],
            vec![b"SET".to_vec(), b"k".to_vec(), vec![b'v'; bytes]],
        ];
        let replies = client.pipeline(&commands).unwrap();
        assert_eq!(replies[0], Value::Simple("OK".into()));
        let Value::Error(reason) = &replies[1] else { panic!("{}", replies[1]) };
        assert!(
            reason.contains(&format!("a bulk string of {bytes} bytes is longer than the limit of {}", 16 * MIB)),
            "{reason}"
        );
        let end = client.read().unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::UnexpectedEof);
    }
}
