//! Pipelines about partitions of which some have no leader.

use super::Cluster;
use crate::resp_client::{Client, Value, encode, words};
use std::io::Write;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a command is tried, and what is too long for a pipeline: less than two commands take that wait one after the other.
const PATIENCE: Duration = Duration::from_secs(10);
const TOO_LONG: Duration = Duration::from_secs(17);
/// What comes at once comes sooner.
const AT_ONCE: Duration = Duration::from_secs(5);

/// A cluster of two nodes, each of which leads some partitions of the table `t`, which have one replica each; the second node was
/// killed. With it come keys of partitions that are led, and of some that are not.
fn with_half_of_the_leaders() -> (Cluster, Vec<String>, Vec<String>) {
    let mut cluster = Cluster::start(2);
    cluster.cli(0, "table create t --engine memory --partitions 8 --replicas 1 --partitioner redis-slots").unwrap();
    cluster.wait_until_no_more_moves();
    let mut client = client(&cluster);
    client.run("CLUSTER REDIRECTS on");
    let is_led_here = |key: &String| !matches!(client.run(&format!("GET {key}")), Value::Error(_));
    let (led, leaderless): (Vec<_>, Vec<_>) = (0..200).map(|at| format!("{{k{at}}}")).partition(is_led_here);
    assert!(led.len() > 20 && leaderless.len() > 20, "{} of 200 are led by the first node", led.len());
    cluster.kill(1);
    (cluster, led, leaderless)
}

fn client(cluster: &Cluster) -> Client {
    let mut client = cluster.client(0);
    client.run("TABLE t");
    client
}

/// Sends commands, and returns the reply to each with the time that it took since the first one was sent.
fn answers(client: &mut Client, commands: &[String]) -> Vec<(Value, Duration)> {
    let bytes: Vec<u8> = commands.iter().flat_map(|command| encode(&words(command))).collect();
    let (mut sender, began) = (client.sender(), Instant::now());
    std::thread::scope(|scope| {
        // The client takes replies while it sends.
        scope.spawn(move || sender.write_all(&bytes).unwrap());
        commands.iter().map(|_| (client.read().unwrap(), began.elapsed())).collect()
    })
}

/// Checks the replies to a pipeline: those to commands on keys of partitions that are led are no errors, the others are, and all are
/// there in time.
fn check(commands: &[String], answers: &[(Value, Duration)], leaderless: &[String]) {
    for (command, (reply, took)) in commands.iter().zip(answers) {
        let is_given_up = command.split(' ').any(|word| leaderless.iter().any(|key| key == word));
        let is_error = matches!(reply, Value::Error(_));
        assert_eq!(is_error, is_given_up, "{command}: {reply}");
        assert!(*took < TOO_LONG, "{command}: {reply} after {took:?}");
    }
}

/// Each slice of a pipeline, and each transaction in it, once waited ten seconds for leaders, and no reply was sent before the last of
/// them was given up.
#[test]
fn pipelines_wait_once_for_leaders_and_send_what_is_answered() {
    let (cluster, led, leaderless) = with_half_of_the_leaders();
    let [led, leaderless] = [&led, &leaderless].map(Vec::as_slice);
    let key = |keys: &[String], at: usize| keys[at % keys.len()].clone();
    std::thread::scope(|scope| {
        let cluster = &cluster;
        // Writes, and transactions on what one partition has.
        scope.spawn(move || {
            let mut commands = vec!["PING".to_string(), format!("SET {} 1", led[0])];
            commands.extend(
                (0..2_000)
                    .map(|at| format!("SET {} {at}", if at % 3 == 0 { key(leaderless, at) } else { key(led, at) })),
            );
            let before = commands.len();
            let mut client = client(cluster);
            for at in 0..40 {
                let key = if at % 2 == 0 { key(leaderless, at) } else { key(led, at) };
                commands.extend(["MULTI".into(), format!("INCR n{key}"), "EXEC".into()]);
            }
            let answers = answers(&mut client, &commands);
            assert!(answers[0].1 < AT_ONCE && answers[1].1 < AT_ONCE, "{:?} {:?}", answers[0], answers[1]);
            assert!(answers[2].1 > PATIENCE / 2, "it is tried for a while: {:?}", answers[2]);
            check(&commands[..before], &answers[..before], leaderless);
            for (at, transaction) in answers[before..].chunks(3).enumerate() {
                let [_, (queued, _), (done, took)] = transaction else { unreachable!("three commands each") };
                assert_eq!(*queued, Value::Simple("QUEUED".into()));
                assert_eq!(matches!(done, Value::Error(_)), at % 2 == 0, "transaction {at}: {done}");
                assert!(*took < TOO_LONG, "transaction {at} took {took:?}");
            }
        });
        // Reads, commands over several partitions, and others that each wait for themselves.
        scope.spawn(move || {
            let mut commands = vec!["PING".to_string()];
            for at in 0..20 {
                let (led, other, not) = (key(led, at), key(led, at + 1), key(leaderless, at));
                commands.extend([
                    format!("GET {not}"),
                    format!("MGET {led} {not}"),
                    format!("MSET {led} 1 {other} 2"),
                    format!("MSET {led} 1 {not} 2"),
                    format!("OBJECT ENCODING {not}"),
                    format!("WATCH {not}"),
                    format!("COPY {led} {not} REPLACE"),
                    format!("EXISTS {led} {other}"),
                ]);
            }
            let answers = answers(&mut client(cluster), &commands);
            assert!(answers[0].1 < AT_ONCE, "{:?}", answers[0]);
            check(&commands, &answers, leaderless);
        });
        // More than is read from a socket at a time.
        scope.spawn(move || {
            let commands: Vec<_> = (0..40_000).map(|at| format!("SET {} {at}", key(leaderless, at))).collect();
            let mut client = client(cluster);
            check(&commands, &answers(&mut client, &commands), leaderless);
            // Whoever asks again after that is not refused for what was before.
            let command = [format!("SET {} 1", leaderless[0])];
            let took = answers(&mut client, &command)[0].1;
            assert!(took > PATIENCE / 2 && took < TOO_LONG, "{took:?}");
        });
    });
}

/// Each database that was made waited up to fifteen seconds for the catalog's leader, and up to ten for the leaders of all partitions of all
/// tables, and no reply was sent before.
#[test]
fn databases_are_made_within_the_patience_of_a_pipeline() {
    let settings = &["redis.databases=24"];
    let mut cluster = Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 3) }.started();
    cluster.cli(0, "table create t --engine memory --partitions 12 --replicas 1").unwrap();
    cluster.wait_until_no_more_moves();
    let mut client = cluster.client(0);
    let select = |databases: std::ops::Range<u32>| -> Vec<String> {
        std::iter::once("PING".into()).chain(databases.map(|number| format!("SELECT {number}"))).collect()
    };
    cluster.kill(2);
    // Some partitions of another table have no leader.
    let made = answers(&mut client, &select(1..3));
    assert!(made[0].1 < AT_ONCE, "{:?}", made[0]);
    for (reply, took) in &made[1..] {
        assert!(*reply == Value::Simple("OK".into()) && *took < TOO_LONG, "{reply} after {took:?}");
    }
    cluster.kill(1);
    // Nobody leads the catalog.
    let refused = answers(&mut client, &select(3..24));
    assert!(refused[0].1 < AT_ONCE, "{:?}", refused[0]);
    for (reply, took) in &refused[1..] {
        assert!(matches!(reply, Value::Error(_)) && *took < TOO_LONG, "{reply} after {took:?}");
    }
}
