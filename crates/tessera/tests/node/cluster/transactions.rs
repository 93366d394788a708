//! Commands on keys of several partitions.

use super::{Cluster, WHOLE};
use crate::resp_client::{Client, Value, words};
use crate::server::wait_for_more;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tessera_types::{Partitioner, RecordKey};

/// How long clients get in each other's way.
const LOAD: Duration = Duration::from_secs(2);

fn cluster() -> Cluster {
    let cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 12 --replicas 2").unwrap();
    cluster.wait_until_whole();
    cluster
}

fn client(cluster: &Cluster, at: usize) -> Client {
    let mut client = cluster.client(at);
    client.run("TABLE t");
    client
}

/// Keys were once listed and counted that a transaction had deleted, or not those that it had written, until its participants had
/// applied it.
#[test]
fn commands_on_whole_tables_see_transactions_that_were_acknowledged() {
    let cluster = cluster();
    let mut clients: Vec<Client> = (0..3).map(|at| client(&cluster, at)).collect();
    let keys: Vec<String> = (0..6).map(|number| format!("key{number}")).collect();
    let pairs: String = keys.iter().map(|key| format!(" {key} value")).collect();
    let list = keys.join(" ");
    for round in 0..100 {
        let (writer, reader) = (round % 3, (round + 1) % 3);
        assert_eq!(clients[writer].run(&format!("MSET{pairs}")), Value::Simple("OK".into()));
        let Value::Array(found) = clients[reader].run("KEYS key*") else { panic!("KEYS gives a list") };
        assert_eq!(found.len(), keys.len(), "in round {round}, KEYS found {found:?} after MSET");
        assert_eq!(clients[reader].run("DBSIZE"), Value::Integer(6), "in round {round}, after MSET");
        assert_eq!(clients[writer].run(&format!("DEL {list}")), Value::Integer(6));
        assert_eq!(clients[reader].run("KEYS key*"), Value::Array(Vec::new()), "in round {round}, after DEL");
        assert_eq!(clients[reader].run("RANDOMKEY"), Value::Null, "in round {round}, after DEL");
    }
}

/// Clients once heard after up to 22 seconds that a queue is full, or that the partition starts.
#[test]
fn a_transaction_with_a_partition_that_nobody_leads_says_so_in_time_and_takes_effect_nowhere() {
    let mut cluster = Cluster::start(3);
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 12 --replicas 1").unwrap();
    cluster.wait_until_whole();
    let keys: Vec<String> = (0..60).map(|number| format!("key{number}")).collect();
    cluster.kill(2);
    let mset = |cluster: &Cluster, at, keys: &mut dyn Iterator<Item = &String>| {
        let began = Instant::now();
        let pairs: String = keys.map(|key| format!(" {key} value")).collect();
        (client(cluster, at).run(&format!("MSET{pairs}")), began.elapsed())
    };
    std::thread::scope(|scope| {
        // The first key's partition decides: some node leads it in one of the two orders, or none in both.
        let clients = [
            scope.spawn(|| mset(&cluster, 0, &mut keys.iter())),
            scope.spawn(|| mset(&cluster, 1, &mut keys.iter().rev())),
        ];
        for client in clients {
            let (reply, time) = client.join().unwrap();
            let Value::Error(error) = &reply else { panic!("{reply}") };
            assert!(error.contains("no leader yet") && error.contains("nothing was done"), "{error}");
            assert!(time < Duration::from_secs(15), "{time:?}");
        }
    });
    let counted = |at| cluster.metric(at, "tessera_transactions_total{outcome=\"not done\"}");
    assert_eq!((counted(0), counted(1)), (Some(1.0), Some(1.0)));
    cluster.start_node(2);
    cluster.wait_until_whole();
    let found = client(&cluster, 0).run(&format!("EXISTS {}", keys.join(" ")));
    assert_eq!(found, Value::Integer(0));
}

/// Transactions, and even reads, once locked keys whose partitions were well until the leader of another partition came back.
#[test]
fn keys_are_not_held_up_by_commands_that_also_concern_a_partition_without_a_leader() {
    const PARTITIONS: u32 = 12;
    /// Keys were held for as long as the commands waited.
    const LIMIT: Duration = Duration::from_secs(5);
    /// Somewhat less than the commands wait that can do nothing.
    const WAITED: Duration = Duration::from_secs(9);
    let mut cluster = Cluster::start(3);
    cluster
        .cli(0, &format!("table create t --engine memory --durability hard --partitions {PARTITIONS} --replicas 1"))
        .unwrap();
    cluster.wait_until_whole();
    let placement = cluster.cli(0, "table placement t --json").unwrap();
    let placement: Vec<serde_json::Value> = serde_json::from_str(&placement).unwrap();
    let is_lost = |key: &String| {
        let partition = Partitioner::default().partition_of(&RecordKey::new(key.as_bytes(), b""), PARTITIONS);
        placement[partition as usize]["leader"] == 3
    };
    let (lost, well): (Vec<_>, Vec<_>) = (0..60).map(|number| format!("key{number}")).partition(is_lost);
    let (lost, well) = (&lost[0], &well[..4]);
    cluster.kill(2);
    cluster.wait_for("the others notice that it is gone", WHOLE, || {
        (0..2).all(|at| {
            let status = cluster.status(at).unwrap_or_default();
            let nodes = status["cluster"]["nodes"].as_array().cloned().unwrap_or_default();
            nodes.iter().any(|node| node["id"] == 3 && node["silent_seconds"].as_f64() > Some(2.0))
        })
    });
    let [a, b, c, d] = well else { unreachable!("four keys") };
    // The first key's partition decides.
    let commands = [
        format!("MGET {lost} {a}"),
        format!("MGET {b} {lost} {a}"),
        format!("MSET {lost} half {c} half"),
        format!("MSET {d} half {lost} half {c} half"),
        format!("DEL {lost} {d}"),
    ];
    std::thread::scope(|scope| {
        let users: Vec<_> = (0..2)
            .map(|at| {
                let cluster = &cluster;
                scope.spawn(move || {
                    let (mut client, waiting) = (client(cluster, at), Instant::now());
                    while waiting.elapsed() < WAITED {
                        for key in well {
                            for command in [format!("SET {key} whole"), format!("GET {key}")] {
                                let began = Instant::now();
                                let reply = client.run(&command);
                                assert!(!matches!(reply, Value::Error(_) | Value::Null), "{command}: {reply}");
                                assert!(began.elapsed() < LIMIT, "{command}: {:?}", began.elapsed());
                            }
                        }
                    }
                })
            })
            .collect();
        let waiting: Vec<_> = commands
            .iter()
            .zip([0, 1].into_iter().cycle())
            .map(|(command, at)| {
                let cluster = &cluster;
                scope.spawn(move || (command, client(cluster, at).run(command)))
            })
            .collect();
        for (command, reply) in waiting.into_iter().map(|waiting| waiting.join().unwrap()) {
            let Value::Error(error) = &reply else { panic!("{command}: {reply}") };
            assert!(error.contains("no leader yet") && error.contains("nothing was done"), "{command}: {error}");
        }
        users.into_iter().for_each(|user| user.join().unwrap());
    });
    let found = client(&cluster, 1).run(&format!("MGET {a} {b} {c} {d}"));
    assert_eq!(found, Value::Array(vec![Value::Bulk(b"whole".to_vec()); 4]));
}

/// What a coordinator that was killed had prepared was once left alone for 0.7 to 3 seconds, although it was known by then that the node had been
/// started again, and goes on with nothing.
#[test]
fn what_a_killed_coordinator_has_locked_is_free_soon_after_it_has_started_again() {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 6;
    /// Longer than a write takes, and shorter than a node takes to start.
    const HELD: Duration = Duration::from_millis(40);
    const LIMIT: Duration = Duration::from_millis(550);
    /// Where the node takes long to start, nobody can know before that it goes on with nothing: so long after it serves again.
    const SOON: Duration = Duration::from_millis(300);
    let mut cluster = Cluster::start(3);
    // It coordinates, and has no replicas.
    cluster.cli(0, "node drain 3").unwrap();
    cluster.cli(0, "table create t --engine memory --durability hard --partitions 12 --replicas 2").unwrap();
    let is_done = |at: usize| client(&cluster, at).run("MSET a 1 b 2 c 3 d 4") == Value::Simple("OK".into());
    cluster.wait_for("all nodes serve", WHOLE, || (0..3).all(is_done));
    assert!(cluster.replicas_of(0, "t").iter().all(|wanted| !wanted.to_string().contains("\"3.")));
    let keys = |writer: usize| (0..8).map(move |key| format!("w{writer}k{key}"));
    let waits: Vec<(Duration, Duration)> = (0..ROUNDS)
        .map(|_| {
            let done = AtomicU64::new(0);
            std::thread::scope(|scope| {
                for writer in 0..WRITERS {
                    let (mut client, done) = (client(&cluster, 2), &done);
                    let pairs: String = keys(writer).map(|key| format!(" {key} value")).collect();
                    scope.spawn(move || {
                        while let Ok(reply) = client.call(&words(&format!("MSET{pairs}"))) {
                            assert_eq!(reply, Value::Simple("OK".into()));
                            done.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                let mut others: Vec<Client> = (0..WRITERS).map(|writer| client(&cluster, writer % 2)).collect();
                wait_for_more(&done, 20, WHOLE);
                cluster.kill(2);
                let killed = Instant::now();
                let free: Vec<_> = others
                    .drain(..)
                    .enumerate()
                    .map(|(writer, mut other)| {
                        scope.spawn(move || {
                            for key in keys(writer) {
                                assert_eq!(other.run(&format!("SET {key} other")), Value::Simple("OK".into()), "{key}");
                            }
                            killed.elapsed()
                        })
                    })
                    .collect();
                cluster.start_node(2);
                cluster.wait_for("it serves again", WHOLE, || {
                    cluster.node(2).is_serving() && client(&cluster, 2).run("SET a 1") == Value::Simple("OK".into())
                });
                let back = killed.elapsed();
                let longest = free.into_iter().map(|free| free.join().unwrap()).max().expect("there are writers");
                (longest, back)
            })
        })
        .collect();
    // Other things may hold a machine up, but not each time.
    assert!(waits.iter().any(|(held, _)| *held > HELD), "no transaction was under way: {waits:?}");
    let is_soon = |(held, back): &(Duration, Duration)| *held > HELD && *held < LIMIT.max(*back + SOON);
    assert!(waits.iter().any(is_soon), "keys were held, and the node was back, after {waits:?}");
}

/// The key that was to be renamed was once read before the other one, so that both seemed to be there.
#[test]
fn renamenx_sees_both_keys_at_one_instant() {
    let cluster = cluster();
    let is_over = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let renamers: Vec<_> = (0..3)
            .map(|at| {
                let (mut client, is_over) = (client(&cluster, at), &is_over);
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    while !is_over.load(Ordering::Relaxed) {
                        answers.push(client.run("RENAMENX one other"));
                    }
                    answers
                })
            })
            .collect();
        let (mut client, began) = (client(&cluster, 0), Instant::now());
        // At no time are both keys there.
        while began.elapsed() < LOAD {
            for command in ["SET one value", "RENAME one other", "DEL other"] {
                client.run(command);
            }
        }
        is_over.store(true, Ordering::Relaxed);
        renamers.into_iter().flat_map(|renamer| renamer.join().unwrap()).collect::<Vec<_>>()
    });
    let wrong = answers.iter().filter(|answer| **answer == Value::Integer(0)).count();
    assert_eq!(wrong, 0, "of {} times, RENAMENX found both keys", answers.len());
    assert!(answers.contains(&Value::Integer(1)), "a key was renamed");
}
