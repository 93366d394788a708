//! Hashes of hundreds of thousands of fields: what deletes them costs no leader its place, and what would is refused.

use super::Cluster;
use crate::resp_client::{Client, Value};
use std::time::{Duration, Instant};

const FIELDS: usize = 300_000;
/// Fields of one command; the default of `limits.write_records`.
const AT_ONCE: usize = 50_000;

fn fields(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    let pairs = numbers.flat_map(|number| [format!("field-{number:07}"), format!("value-{number}")]);
    [b"HSET".to_vec(), b"hash".to_vec()].into_iter().chain(pairs.map(String::into_bytes)).collect()
}

fn client(cluster: &Cluster, at: usize, table: &str) -> Client {
    let mut client = Client::connect(cluster.ports[at].0).unwrap();
    assert_eq!(client.run(&format!("TABLE {table}")), Value::Simple("OK".into()));
    client
}

fn fill(client: &mut Client) {
    for from in (0..FIELDS).step_by(AT_ONCE) {
        assert_eq!(client.call(&fields(from..from + AT_ONCE)).unwrap(), Value::Integer(AT_ONCE as i64));
    }
}

/// The deletion of such a hash once wrote one deletion for each field, for seconds, in which other replicas held an election. Then
/// the next leader began anew: the hash could never be deleted.
#[test]
fn large_hashes_are_deleted_and_what_would_rewrite_them_is_refused() {
    let cluster = Cluster::start(3);
    for engine in ["memory", "rocksdb"] {
        cluster.cli(0, &format!("table create {engine} --engine {engine} --partitions 1 --replicas 3")).unwrap();
    }
    cluster.wait_until_whole();
    for table in ["memory", "rocksdb"] {
        // Through a node that leads or one that sends on, whichever they are.
        let (mut one, mut other) = (client(&cluster, 0, table), client(&cluster, 1, table));
        let Value::Error(refused) = one.call(&fields(0..AT_ONCE + 1)).unwrap() else {
            panic!("{table}: it writes more than is allowed");
        };
        assert!(refused.contains("limits.write_records") && refused.contains("50000"), "{refused}");
        assert_eq!(one.run("EXISTS hash"), Value::Integer(0), "nothing of it was done");

        fill(&mut one);
        for refused in ["EXPIRE hash 1000", "RENAME hash {hash}2", "COPY hash {hash}2"] {
            let answer = one.run(refused);
            let is_refused = matches!(&answer, Value::Error(error) if error.contains("limits.write_records"));
            assert!(is_refused, "{table}: {refused}: {answer:?}");
        }
        assert_eq!(other.run("HLEN hash"), Value::Integer(FIELDS as i64));
        assert_eq!(other.run("TTL hash"), Value::Integer(-1));

        let began = Instant::now();
        assert_eq!(other.run("DEL hash"), Value::Integer(1), "{table}");
        assert!(began.elapsed() < Duration::from_secs(5), "{table}: it took {:?}", began.elapsed());
        assert_eq!(one.run("HGET hash field-0000001"), Value::Null);
        assert_eq!(one.run("HSET hash field-0000001 anew"), Value::Integer(1));
        assert_eq!(other.run("HGETALL hash"), one.run("HGETALL hash"));
        assert_eq!(other.run("HLEN hash"), Value::Integer(1));

        assert_eq!(one.run("DEL hash"), Value::Integer(1));
        fill(&mut one);
        let commands = ["SET hash string", "GET hash", "DEL hash", "HSET hash a 1", "HLEN hash"];
        let commands: Vec<_> = commands.iter().map(|command| crate::resp_client::words(command)).collect();
        let ok = Value::Simple("OK".into());
        let expected =
            vec![ok, Value::Bulk(b"string".to_vec()), Value::Integer(1), Value::Integer(1), Value::Integer(1)];
        assert_eq!(one.pipeline(&commands).unwrap(), expected, "{table}");
        cluster.wait_for("all replicas are equal", super::WHOLE, || cluster.compare(0, table).0 == 0);
    }
}
