//! What transactions over partitions do where one node's disk is full, and no other node can lead what that one leads.

use super::stop_at_end::StopAtEnd;
use super::{Cluster, WHOLE};
use crate::disk::SmallDisk;
use crate::resp_client::{Client, Value};
use crate::server::wait_for;
use crate::skipped::skip;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tessera_types::{Partitioner, RecordKey};

const PARTITIONS: u32 = 12;
/// How long a command may take on which nothing but the full disk has an effect. What waits for a key that is held does so for ten seconds.
const LIMIT: Duration = Duration::from_secs(8);
const KEYS: usize = 8;

/// Two nodes, of which the second has a small disk, with a table whose partitions have one replica each.
struct FullDisk {
    cluster: Cluster,
    disk: SmallDisk,
    /// Keys that the second node leads, and that the first one does.
    full: Vec<String>,
    well: Vec<String>,
}

impl FullDisk {
    fn start() -> Option<Self> {
        let data = TempDir::new().unwrap();
        let disk = SmallDisk::mount(data.path().join("1"), 96 << 20)?;
        let cluster = Cluster::start_at(data, None, 2);
        let create = format!("table create t --engine memory --durability hard --partitions {PARTITIONS} --replicas 1");
        cluster.cli(0, &create).unwrap();
        cluster.wait_until_no_more_moves();
        let placement = cluster.cli(0, "table placement t --json").unwrap();
        let placement: Vec<serde_json::Value> = serde_json::from_str(&placement).unwrap();
        let is_full = |key: &String| {
            let partition = Partitioner::default().partition_of(&RecordKey::new(key.as_bytes(), b""), PARTITIONS);
            placement[partition as usize]["leader"] == 2
        };
        let (mut full, mut well): (Vec<_>, Vec<_>) = (0..200).map(|number| format!("key{number}")).partition(is_full);
        assert!(full.len() >= KEYS && well.len() >= KEYS, "{} of 200 are on the small disk", full.len());
        full.truncate(KEYS);
        well.truncate(KEYS);
        Some(Self { cluster, disk, full, well })
    }

    fn client(&self, at: usize) -> Client {
        let mut client = self.cluster.client(at);
        client.run("TABLE t");
        client
    }

    /// Fills the disk up, until a write of the log is refused.
    fn fill(&self) {
        let mut ballast = File::create(self.disk.path().join("ballast")).unwrap();
        while ballast.write_all(&[0; 1 << 16]).is_ok() {}
        let mut client = self.client(1);
        wait_for("the disk is full", WHOLE, || {
            match client.call(&[b"SET".to_vec(), self.full[0].clone().into(), vec![b'v'; 100_000]]).unwrap() {
                Value::Error(error) => {
                    assert!(error.starts_with("MISCONF"), "nothing is in doubt, and {error}");
                    Some(())
                }
                _ => None,
            }
        });
    }

    fn empty(&self) {
        std::fs::remove_file(self.disk.path().join("ballast")).unwrap();
    }
}

/// Runs a command that is to be answered at once.
fn run(client: &mut Client, command: &str) -> Value {
    let began = Instant::now();
    let reply = client.run(command);
    assert!(began.elapsed() < LIMIT, "{command}: {reply} after {:?}", began.elapsed());
    reply
}

fn assert_refused(client: &mut Client, command: &str) {
    let Value::Error(error) = run(client, command) else { panic!("{command} was not refused") };
    assert!(error.starts_with("MISCONF") && error.contains("disk is full"), "{command}: {error}");
}

/// A transaction that the full node was to decide once held keys of the other node for as long as the disk was full, and reads of keys
/// that it had there were refused.
#[test]
fn a_full_disk_holds_no_keys_of_transactions() {
    let Some(setup) = FullDisk::start() else {
        return skip("mounting a small file system needs root");
    };
    let is_over = AtomicBool::new(false);
    let done: [AtomicU64; KEYS] = std::array::from_fn(|_| AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = StopAtEnd(&is_over);
        // The first key's partition decides. Some of these are under way when the disk fills up.
        let users: Vec<_> = (0..KEYS)
            .map(|number| {
                let (setup, is_over, done) = (&setup, &is_over, &done[number]);
                scope.spawn(move || {
                    let mut client = setup.client(number % 2);
                    let (full, well) = (&setup.full[number], &setup.well[number]);
                    let commands = [format!("MSET {full} 1 {well} 1"), format!("MSET {well} 2 {full} 2")];
                    while !is_over.load(Ordering::Relaxed) {
                        for command in &commands {
                            match client.run(command) {
                                Value::Error(error) => assert!(error.starts_with("MISCONF"), "{command}: {error}"),
                                _ => _ = done.fetch_add(1, Ordering::Relaxed),
                            }
                        }
                    }
                })
            })
            .collect();
        wait_for("every user has written", WHOLE, || {
            done.iter().all(|done| done.load(Ordering::Relaxed) > 0).then_some(())
        });
        setup.fill();
        is_over.store(true, Ordering::Relaxed);
        users.into_iter().for_each(|user| user.join().unwrap());
    });
    let FullDisk { full, well, cluster, .. } = &setup;
    for at in 0..2 {
        let client = &mut setup.client(at);
        for key in full.iter().chain(well) {
            assert!(matches!(run(client, &format!("GET {key}")), Value::Bulk(_)), "reads go on");
        }
        for (full, well) in full.iter().zip(well) {
            assert_eq!(run(client, &format!("SET {well} whole")), Value::Simple("OK".into()));
            assert_refused(client, &format!("SET {full} half"));
            assert_refused(client, &format!("MSET {full} half {well} half"));
            assert_refused(client, &format!("MSET {well} half {full} half"));
            assert_refused(client, &format!("DEL {full} {well}"));
            assert_eq!(run(client, &format!("GET {well}")), Value::Bulk(b"whole".to_vec()));
            let Value::Array(values) = run(client, &format!("MGET {full} {well}")) else { panic!("reads go on") };
            assert_eq!(values[1], Value::Bulk(b"whole".to_vec()));
        }
        assert_eq!(run(client, &format!("MSET {} 3 {} 3", well[0], well[1])), Value::Simple("OK".into()));
    }
    cluster.wait_for("nothing is left over", WHOLE, || {
        (0..2).all(|at| cluster.metric(at, "tessera_transactions_open") == Some(0.0))
    });
    setup.empty();
    let client = &mut setup.client(0);
    let both = format!("MSET {} 4 {} 4", full[0], well[0]);
    wait_for("writes go on", WHOLE, || (client.run(&both) == Value::Simple("OK".into())).then_some(()));
}
