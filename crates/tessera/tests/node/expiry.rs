//! Keys that end while a write that concerns them is on its way to the disk.

use crate::disk::DiskWithPower;
use crate::resp_client::{Value, encode, words};
use crate::server::{Node, wait_for};
use crate::skipped::skip;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long the key lives in the first try, and longer by that in each further one.
const LIFE: Duration = Duration::from_millis(1_000);
const PATIENCE: Duration = Duration::from_secs(30);
/// How often the machine may be too slow for the write to find its key.
const TRIES: u32 = 10;

/// PERSIST found the key, and then waited for the disk while the key's former end passed. Who read the key meanwhile was told that there is
/// none, and afterwards it was there again.
#[test]
fn a_key_is_not_gone_while_a_write_that_lets_it_live_on_waits_for_the_disk() {
    let directory = TempDir::new().unwrap();
    let Some(disk) = DiskWithPower::mount(directory.path(), 1 << 30) else {
        return skip("mounting a file system needs root");
    };
    let node = Node::start(&disk.path().join("data"), &[]);
    node.cli("table create m --engine memory --durability hard --partitions 1");
    let client = || {
        let mut client = node.client();
        client.run("TABLE m");
        client
    };
    let mut writer = client();
    for attempt in 1..=TRIES {
        let (began, life) = (Instant::now(), LIFE * attempt);
        assert_eq!(writer.run(&format!("SET key value PX {}", life.as_millis())), Value::Simple("OK".into()));
        let frozen = disk.freeze();
        writer.send(&encode(&words("PERSIST key"))).unwrap();
        let is_over = AtomicBool::new(false);
        let (persisted, seen) = std::thread::scope(|scope| {
            let readers: Vec<_> = ["GET key", "MGET key other", "STRLEN key", "EXISTS key"]
                .map(|command| {
                    let (is_over, mut reader) = (&is_over, client());
                    scope.spawn(move || {
                        let mut seen = Vec::new();
                        while !is_over.load(Ordering::Relaxed) {
                            seen.push(reader.run(command));
                        }
                        seen
                    })
                })
                .into();
            wait_for("the key's end has passed", PATIENCE, || (began.elapsed() > life + life / 2).then_some(()));
            drop(frozen);
            let persisted = writer.read().unwrap();
            is_over.store(true, Ordering::Relaxed);
            (persisted, readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<_>>())
        });
        // If the machine was so slow that the key had ended before, nobody is promised anything.
        if persisted == Value::Integer(1) {
            let gone = [Value::Null, Value::Integer(0), Value::Array(vec![Value::Null, Value::Null])];
            let found: Vec<_> = seen.iter().filter(|value| gone.contains(value)).collect();
            assert!(found.is_empty(), "{} of {} reads did not see the key: {:?}", found.len(), seen.len(), found[0]);
            return;
        }
    }
    panic!("PERSIST never found the key in {TRIES} tries");
}
