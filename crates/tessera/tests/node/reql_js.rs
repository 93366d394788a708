//! `r.js`: programs that clients bring along, in processes that the node starts and kills.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, create, insert, metric, table};
use crate::reql_users::log_in;
use crate::server::{Node, free_port, wait_for};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

fn js(program: &str) -> Value {
    json!([11, [program]])
}

/// A program that may run for so many seconds.
fn timed(program: &str, seconds: f64) -> Value {
    json!([11, [program], {"timeout": seconds}])
}

fn error(answer: &Value) -> &str {
    answer["r"][0].as_str().unwrap_or_else(|| panic!("no error: {answer}"))
}

fn start(settings: &[&str]) -> ((Node, TempDir), Client, u16) {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let reql = format!("reql.port={port}");
    let node = Node::start(data.path(), &[&[&*reql], settings].concat());
    ((node, data), Client::to(port), port)
}

/// Processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{parent}/task")).unwrap().flatten();
    let lists = threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
    lists.flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect()
}

/// What a process has open.
fn open_files(process: u32) -> Vec<String> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    files.filter_map(|file| Some(fs::read_link(file.path()).ok()?.display().to_string())).collect()
}

/// Whether a process has files and memory: one that has ended may be waited for by its parent, and by threads that end after the first.
fn is_running(process: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    let states = threads.flatten().map(|thread| fs::read_to_string(thread.path().join("stat")).unwrap_or_default());
    states
        .into_iter()
        .any(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z')))
}

#[test]
fn functions_are_taken_wherever_functions_are() {
    let (_node, mut client, _) = start(&[]);
    client.ask(&create("t"));
    let rows: Vec<_> = (0..20).map(|number| json!({"id": number, "x": number % 5})).collect();
    client.ask(&insert("t", &rows));
    let one = json!([16, [table("t"), 3]]);
    let large = json!([39, [table("t"), js("(function(row) { return row.x > 3; })")]]);
    assert_eq!(client.ask(&json!([43, [large]])), 4);
    assert_eq!(client.ask(&json!([64, [js("(a, b) => a.x + b"), one, 10]])), 13);
    assert_eq!(client.ask(&json!([37, [json!([38, [table("t"), js("row => row.x")]]), js("(a, b) => a + b")]])), 40);
    assert_eq!(client.ask(&json!([38, [[2, [1]], [69, [[2, [1]], [64, [js("x => x + 1"), [10, [1]]]]]]]])), json!([2]));
    // What a program gives may differ each time, so it must not be tried again somewhere else.
    let refused = client.ask(&json!([53, [&one, js("row => ({y: row.x + 1})")]]));
    let unproven = "Could not prove argument deterministic.  Maybe you want to use the non_atomic flag?";
    assert_eq!(error(&refused), unproven);
    // A hook was once refused as a fault of the server.
    let refused = client.ask(&json!([189, [table("t"), js("(context, old, new_) => new_")]]));
    assert_eq!(refused["e"], 3_000_000, "{refused}");
    assert_eq!(error(&refused), "Write hook functions must expect 3 arguments.");
    let options = json!({"non_atomic": true});
    assert_eq!(client.ask(&json!([53, [&one, js("row => ({y: row.x + 1})")], options]))["replaced"], 1);
    assert_eq!(client.ask(&json!([55, [table("t"), js("row => (row.z = row.id % 2, row)")], options]))["replaced"], 20);
    assert_eq!(client.ask(&one), json!({"id": 3, "x": 3, "y": 4, "z": 1}));
    let large = client.ask(&json!([11, ["new Array(20).fill(0)"]]));
    assert_eq!(large.as_array().map(Vec::len), Some(20));
    client.send(900, &json!([1, js("new Array(20).fill(0)"), {"array_limit": 10}]).to_string());
    assert!(error(&client.receive().1).starts_with("Array over size limit `10`."));
}

#[test]
fn a_function_is_called_for_many_rows_in_one_process() {
    let ((node, _data), mut client, _) = start(&[]);
    client.ask(&create("t"));
    for block in 0..10 {
        let rows: Vec<_> = (0..1000).map(|row| json!({"id": 1000 * block + row, "x": row})).collect();
        assert_eq!(client.ask(&insert("t", &rows))["inserted"], 1000);
    }
    let began = std::time::Instant::now();
    let odd = json!([39, [table("t"), js("row => row.x % 2 == 1")]]);
    assert_eq!(client.ask(&json!([43, [odd]])), 5000);
    let doubled = json!([38, [table("t"), js("row => 2 * row.id")]]);
    assert_eq!(client.ask(&json!([145, [doubled]])), 99_990_000);
    println!("20,000 calls took {:?}", began.elapsed());
    assert_eq!(children(node.process.id()).len(), 1);
    assert!(metric(&node, "tessera_reql_javascript_calls_total{}") >= 20_000.0);
    assert_eq!(metric(&node, "tessera_reql_javascript_workers{}"), 1.0);
    assert_eq!(metric(&node, "tessera_reql_javascript_killed_total{}"), 0.0);
}

/// A plan with a function of JavaScript stays at the node that was asked: there it is evaluated for the documents of all nodes.
#[test]
fn the_node_that_was_asked_evaluates_for_all() {
    let cluster = Cluster::start_with_reql(3);
    let mut client = Client::to(cluster.reql_ports()[0]);
    client.ask(&json!([60, ["t"], {"shards": 6, "replicas": 3}]));
    let rows: Vec<_> = (0..300).map(|number| json!({"id": number, "x": number % 3})).collect();
    assert_eq!(client.ask(&insert("t", &rows))["inserted"], 300);
    let some = json!([39, [table("t"), js("row => row.x == 1")]]);
    assert_eq!(client.ask(&json!([43, [some]])), 100);
    assert_eq!(client.ask(&json!([145, [json!([38, [table("t"), js("row => row.id")]])]])), 44_850);
    let counts: Vec<_> = (0..3).map(|node| children(cluster.node(node).process.id()).len()).collect();
    assert_eq!(counts, [1, 0, 0]);
}

#[test]
fn what_does_not_end_is_ended_and_others_go_on() {
    let ((node, _data), mut client, port) = start(&[]);
    for program in ["while(true){}", "/^(a+)+$/.test('a'.repeat(40) + 'b')", "(function(x) { while (true) {} })"] {
        let query = json!([64, [timed(program, 0.5), 1]]);
        let text = format!("JavaScript query `{program}` timed out after 0.500 seconds.");
        assert_eq!(error(&client.ask(&query)), text);
    }
    assert_eq!(client.ask(&js("1 + 1")), 2);
    assert_eq!(metric(&node, "tessera_reql_javascript_killed_total{}"), 3.0);
    // A client that stops its query, one that goes, and somebody who deletes the job.
    let calls = || metric(&node, "tessera_reql_javascript_calls_total{}");
    let killed = |count: f64| {
        wait_for("the worker is killed", PATIENCE, || {
            (metric(&node, "tessera_reql_javascript_killed_total{}") == count).then_some(())
        });
    };
    let run = || {
        let before = calls();
        let query = Client::to(port).run_in_background(&timed("while(true){}", 600.0));
        wait_for("the program", PATIENCE, || (calls() > before).then_some(()));
        query
    };
    run().stop();
    killed(4.0);
    drop(run());
    killed(5.0);
    let (mut other, before) = (Client::to(port), calls());
    other.send(1001, &json!([1, timed("while(true){}", 600.0)]).to_string());
    wait_for("the program", PATIENCE, || (calls() > before).then_some(()));
    // The pattern does not match the query that has it.
    let text = json!([170, [[170, [[10, [1]], "info"]], "query"]]);
    let jobs = json!([39, [[15, [[14, ["rethinkdb"]], "jobs"]], [69, [[2, [1]], [97, [text, "6[0]0"]]]]]]);
    assert_eq!(client.ask(&json!([54, [jobs]]))["deleted"], 1);
    assert_eq!(error(&other.receive().1), "Query terminated by the `rethinkdb.jobs` table.");
    killed(6.0);
    assert_eq!(client.ask(&js("1 + 1")), 2);
}

#[test]
fn memory_that_programs_take_is_theirs() {
    let ((node, _data), mut client, _) = start(&["reql.javascript_workers=1"]);
    for program in [
        "let a = [1]; while (true) a = a.concat(a)",
        "'a'.repeat(1 << 29)",
        "let a = []; while (true) a.push('x'.repeat(1 << 20) + a.length)",
        "['a'.repeat(40 << 20), 'a'.repeat(40 << 20)]",
    ] {
        let failed = client.ask(&timed(program, 60.0));
        assert_eq!(failed["t"], 18, "{program}: {failed}");
        assert!(!error(&failed).contains("timed out"), "{program}: {failed}");
        assert_eq!(client.ask(&js("1 + 1")), 2, "after {program}");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", node.process.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap().trim().trim_end_matches(" kB");
    assert!(peak.parse::<u64>().unwrap() < 600 << 10, "{peak} kB");
}

#[test]
fn a_worker_can_only_compute() {
    let ((mut node, _data), mut client, _) = start(&[]);
    let seen = "Object.getOwnPropertyNames(globalThis).filter(name => /^(require|process|std|os|import|fetch|load|print|console|Worker)$/.test(name))";
    assert_eq!(client.ask(&js(seen)), json!([]));
    let workers = children(node.process.id());
    let [worker] = workers[..] else { panic!("{workers:?}") };
    let (own, open) = (open_files(node.process.id()), open_files(worker));
    let apart: BTreeSet<_> = open.iter().filter(|file| *file != "/dev/null").collect();
    assert!(apart.len() == 1 && apart.iter().all(|file| file.starts_with("socket:[")), "{open:?}");
    assert!(!apart.iter().any(|file| own.contains(file)), "{open:?} and {own:?}");
    assert_eq!(fs::read(format!("/proc/{worker}/environ")).unwrap(), b"");
    let place = fs::read_link(format!("/proc/{worker}/cwd")).unwrap();
    assert!(place.display().to_string().ends_with("(deleted)"), "{}", place.display());
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    let limits = fs::read_to_string(format!("/proc/{worker}/limits")).unwrap();
    let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_string();
    for name in ["Max open files", "Max file size", "Max processes", "Max core file size"] {
        assert_eq!(limit(name)[name.len()..].split_whitespace().next(), Some("0"), "{limits}");
    }
    assert!(!limit("Max address space").contains("unlimited") && !limit("Max cpu time").contains("unlimited"));

    // One that dies fails no later query.
    assert!(Command::new("kill").args(["-9", &worker.to_string()]).status().unwrap().success());
    wait_for("the worker ends", PATIENCE, || (!is_running(worker)).then_some(()));
    assert_eq!(client.ask(&js("1 + 1")), 2);
    // Workers end with the node, also when they compute and nobody can tell them.
    let idle = children(node.process.id());
    client.send(1001, &json!([1, timed("while(true){}", 600.0)]).to_string());
    wait_for("the program", PATIENCE, || (metric(&node, "tessera_reql_javascript_calls_total{}") >= 3.0).then_some(()));
    let busy = children(node.process.id());
    node.process.kill();
    for worker in idle.into_iter().chain(busy) {
        wait_for("the worker ends", PATIENCE, || (!is_running(worker)).then_some(()));
    }
}

#[test]
fn many_queries_run_at_once() {
    let ((node, _data), mut client, port) = start(&["reql.javascript_workers=2", "reql.query_threads=16"]);
    client.ask(&create("t"));
    client.ask(&insert("t", &(0..50).map(|number| json!({"id": number})).collect::<Vec<_>>()));
    let threads: Vec<_> = (0..100)
        .map(|number: i64| {
            std::thread::spawn(move || {
                let sum = json!([145, [json!([38, [table("t"), timed(&format!("row => row.id + {number}"), 60.0)]])]]);
                assert_eq!(Client::to(port).ask(&sum), 1225 + 50 * number);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(children(node.process.id()).len() <= 2);
    // Whoever finds all workers busy for longer than a program may take is told.
    let mut busy: Vec<_> = (0..2).map(|_| Client::to(port).run_in_background(&timed("while(true){}", 600.0))).collect();
    wait_for("both programs", PATIENCE, || {
        let refused = client.ask(&timed("1", 0.2));
        // As long as a worker is free, a machine that is slow may not have this done in time.
        let is_late = refused != 1 && error(&refused).contains("timed out");
        (refused != 1 && !is_late)
            .then(|| assert!(error(&refused).contains("this server runs as many as it may"), "{refused}"))
    });
    assert_eq!(client.ask(&json!([43, [table("t")]])), 50);
    busy.iter_mut().for_each(crate::reql::Background::stop);
    assert_eq!(client.ask(&js("1")), 1);
}

/// A query that had to wait for its turn once kept its place before the workers meanwhile, or its worker, and those that had turns waited
/// behind it until their time was over.
#[test]
fn queries_that_wait_for_their_turns_keep_no_worker_from_others() {
    let ((node, _data), mut client, port) = start(&["reql.javascript_workers=1", "reql.query_threads=1"]);
    let program = "row => { for (const end = Date.now() + 4; Date.now() < end;); return row }";
    let threads: Vec<_> = (0..12)
        .map(|_| {
            let sum = json!([145, [[38, [[173, [40]], timed(program, 20.0)]]]]);
            std::thread::spawn(move || Client::to(port).ask(&sum))
        })
        .collect();
    assert_eq!(client.ask(&json!([24, [1, 1]])), 2);
    threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), 780));
    assert_eq!(metric(&node, "tessera_reql_javascript_killed_total{}"), 0.0);
}

#[test]
fn javascript_can_be_turned_off() {
    let ((node, _data), mut client, _) = start(&["reql.javascript_workers=0"]);
    assert_eq!(error(&client.ask(&js("1"))), "JavaScript is turned off on this server.");
    assert_eq!(metric(&node, "tessera_reql_javascript_workers{}"), 0.0);
}

/// As in RethinkDB: a program sees what the query gives to it, and can do nothing else.
#[test]
fn javascript_needs_no_right() {
    let ((_node, _data), mut client, port) = start(&[]);
    let user = json!([56, [[15, [[14, ["rethinkdb"]], "users"]], {"id": "ann", "password": "secret"}]]);
    assert_eq!(client.ask(&user)["inserted"], 1);
    assert_eq!(log_in(port, "ann", "secret").ok().unwrap().ask(&js("1 + 1")), 2);
}
