//! Nodes killed, stopped for a while and drained, their power and links cut, links made slow, clocks set, tables split, while
//! clients go on.
//!
//! Clients do [many kinds of things](work) through whatever node they like. What they saw must have an order
//! ([`checks`](super::checks)), for tables on both engines, with a witness and without, with hard durability, or soft where only
//! processes end, and the read modes that promise it. Where power is cut, a soft table may lose its newest writes; it has to
//! serve again all the same, with what was written long before.
//!
//! `TESSERA_CHAOS_SECONDS` and `TESSERA_SEED` choose length and sequence; `make chaos` runs longer. A run that fails says how to
//! repeat it, and keeps what its nodes wrote.

mod comings;
mod document_accounts;
mod document_batches;
mod document_indexes;
mod document_names;
mod documents;
mod emptied;
mod emptier;
mod faults;
mod load;
mod replicas;
mod tables;
mod waits;
mod work;

use super::Cluster;
use super::checks::emptyings;
use super::clock::Clocks;
use super::net::Net;
use super::stop_at_end::StopAtEnd;
use crate::disk::DiskWithPower;
use crate::reql;
use crate::resp_client::{Value, encode};
use crate::server::{free_port, wait_for};
use crate::skipped::skip;
use comings::Comings;
use documents::Documents;
use emptied::{Emptied, OF_EMPTIED};
use emptier::Emptier;
use faults::{Faults, MOST_PARTITIONS, Nemesis};
pub(super) use faults::{NamedReplica, replicas_on};
use load::{Load, Session};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tables::{CACHES, COLD, LAXER, MEMBERS, OTHERS, Promise, SEVEN, TABLES, TRANSACTIONS, Table, Trust};
use tempfile::TempDir;
use work::Work;

/// Records that nobody changes, so that copying a table takes a while.
const STILL: usize = 10_000;
const STILL_BYTES: usize = 1_000;
/// So many keys of a name with a number behind it reach every one of four partitions.
const STILL_SYNCED: usize = 64;
/// Replicas are compared by some of them.
const STILL_STEP: usize = 7;

/// Caches that hold next to nothing, and memtables that are flushed soon.
const COLD_SETTINGS: &[&str] = &[
    "rocksdb.block_cache_bytes=65536",
    "rocksdb.block_cache_shard_bits=0",
    "rocksdb.record_cache_bytes=0",
    "rocksdb.write_buffer_bytes=262144",
    "rocksdb.read_threads=4",
];

/// How long all are watched when nothing happens any more.
const CALM: Duration = Duration::from_secs(1);

/// In so many seconds, coordinators end in the middle of transactions. (The processes that are there in the end count what they have recovered.)
const LONG: u64 = 30;

/// Most nodes where nodes come and go, and most places where they run: one more may die in the join.
const MOST_NODES: usize = 7;
const MOST_PLACES: usize = MOST_NODES + 1;

/// How long a clock may take to be seen.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_nodes() {
    Run::new("nodes").chaos(Cluster::planned(TempDir::new().unwrap(), 3));
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_links() {
    let Some(net) = Net::new(4) else {
        return skip("network namespaces need root and iproute2");
    };
    net.enter();
    Run::new("links").chaos(Cluster { net: Some(net), ..Cluster::planned(TempDir::new().unwrap(), 4) });
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_clocks() {
    let Some(clocks) = Clocks::new() else {
        return skip("clocks are set by libfaketime, which is not installed");
    };
    Run::new("clocks").chaos(Cluster { clocks: Some(clocks), ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_power() {
    let data = TempDir::new().unwrap();
    let Some(disks) = DiskWithPower::mount_all(data.path(), 3) else {
        return skip("mounting file systems needs root and loop devices");
    };
    let mut run = Run::new("power");
    run.tables.push(LAXER);
    run.chaos(Cluster { disks, ..Cluster::planned(data, 3) });
}

/// Tables that promise less, with a record cache of a few records, while processes end one at a time.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_other_tables() {
    let mut run = Run::new("other_tables");
    run.tables = OTHERS.to_vec();
    run.is_gentle = true;
    let settings: &[&str] = &["rocksdb.record_cache_bytes=65536"];
    run.chaos(Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

/// A table that evicts, with too little memory for it.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_caches() {
    let mut run = Run::new("caches");
    run.tables = CACHES.to_vec();
    let settings: &[&str] = &["memory.limit_bytes=33554432"];
    run.chaos(Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

/// Tables on disk whose caches hold next to nothing, so that most reads, and most commands that read, wait for the disk.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_cold_tables() {
    let mut run = Run::new("cold_tables");
    run.tables = COLD.to_vec();
    run.least_disk_reads = STILL as f64 / 2.0;
    run.chaos(Cluster { settings: COLD_SETTINGS, ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

/// A table of documents with an index.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_documents() {
    let reql_ports = (0..3).map(|_| free_port()).collect();
    let mut run = Run::new("documents");
    run.tables = vec![documents::TABLE];
    run.chaos_of_documents(Cluster { reql_ports, ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

/// Transactions over two tables that are truncated, dropped and recalled.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_emptied_tables() {
    let reql_ports = (0..3).map(|_| free_port()).collect();
    let run = Run::new("emptied_tables");
    run.chaos_of_emptied_tables(Cluster { reql_ports, ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_links_under_emptied_tables() {
    let Some(net) = Net::new(4) else {
        return skip("network namespaces need root and iproute2");
    };
    net.enter();
    let reql_ports = (0..4).map(|_| free_port()).collect();
    let run = Run::new("links_under_emptied_tables");
    let cluster = Cluster { reql_ports, net: Some(net), ..Cluster::planned(TempDir::new().unwrap(), 4) };
    run.chaos_of_emptied_tables(cluster);
}

/// Transactions over several partitions.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_transactions() {
    let mut run = Run::of_transactions("transactions");
    run.leaves_work = true;
    run.chaos(Cluster::planned(TempDir::new().unwrap(), 3));
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_links_under_transactions() {
    let Some(net) = Net::new(4) else {
        return skip("network namespaces need root and iproute2");
    };
    net.enter();
    let run = Run::of_transactions("transactions_links");
    run.chaos(Cluster { net: Some(net), ..Cluster::planned(TempDir::new().unwrap(), 4) });
}

#[test]
fn what_clients_see_has_an_order_whatever_happens_to_clocks_under_transactions() {
    let Some(clocks) = Clocks::new() else {
        return skip("clocks are set by libfaketime, which is not installed");
    };
    let run = Run::of_transactions("transactions_clocks");
    run.chaos(Cluster { clocks: Some(clocks), ..Cluster::planned(TempDir::new().unwrap(), 3) });
}

/// Without a `soft` table: a power cut may take a part of a transaction from it.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_power_under_transactions() {
    let data = TempDir::new().unwrap();
    let Some(disks) = DiskWithPower::mount_all(data.path(), 3) else {
        return skip("mounting file systems needs root and loop devices");
    };
    let mut run = Run::of_transactions("transactions_power");
    run.tables.retain(|table| table.options.contains("--durability hard"));
    run.chaos(Cluster { disks, ..Cluster::planned(data, 3) });
}

/// Five nodes, all of which vote on the catalog, and up to two more.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_members() {
    let run = Run::of_members("members");
    let settings: &[&str] = &["cluster.replace_after_seconds=8"];
    run.chaos(Cluster { settings, ..Cluster::planned(TempDir::new().unwrap(), 5) });
}

/// The same, while nodes and links are cut off and made slow.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_links_between_members() {
    let Some(net) = Net::new(MOST_PLACES) else {
        return skip("network namespaces need root and iproute2");
    };
    net.enter();
    let run = Run::of_members("links_between_members");
    let settings: &[&str] = &["cluster.replace_after_seconds=8"];
    run.chaos(Cluster { settings, net: Some(net), ..Cluster::planned(TempDir::new().unwrap(), 5) });
}

/// The same, while power is cut.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_power_of_members() {
    let data = TempDir::new().unwrap();
    let Some(disks) = DiskWithPower::mount_all(data.path(), MOST_PLACES) else {
        return skip("mounting file systems needs root and loop devices");
    };
    let run = Run::of_members("power_of_members");
    let settings: &[&str] = &["cluster.replace_after_seconds=8"];
    run.chaos(Cluster { settings, disks, ..Cluster::planned(data, 5) });
}

/// Groups of seven, of which three may be lost; five of the nodes vote on the catalog.
#[test]
fn what_clients_see_has_an_order_whatever_happens_to_seven_replicas() {
    let mut run = Run::new("seven_replicas");
    run.tables = SEVEN.to_vec();
    run.chaos(Cluster::planned(TempDir::new().unwrap(), 7));
}

/// One test, with its length and its seed.
struct Run {
    name: &'static str,
    seconds: u64,
    seed: u64,
    logs: PathBuf,
    tables: Vec<Table>,
    /// What is done in each of them.
    works: fn(Table, Trust) -> Vec<Box<dyn Work>>,
    is_gentle: bool,
    /// Whether there are times between faults at which all nodes are well, which are kept.
    rests: bool,
    comings: Option<Comings>,
    /// How many reads must have waited for the disk in the processes that are there in the end.
    least_disk_reads: f64,
    /// Whether coordinators that end leave transactions which others must bring to an end.
    leaves_work: bool,
}

impl Run {
    fn new(name: &'static str) -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let seconds = number("TESSERA_CHAOS_SECONDS").unwrap_or(15);
        let seed = number("TESSERA_SEED").unwrap_or(1);
        let logs = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{name}-{seed}"));
        let _ = std::fs::remove_dir_all(&logs);
        std::fs::create_dir_all(&logs).unwrap();
        Self {
            name,
            seconds,
            seed,
            logs,
            tables: TABLES.to_vec(),
            works: work::all_of,
            is_gentle: false,
            rests: false,
            comings: None,
            least_disk_reads: 0.0,
            leaves_work: false,
        }
    }

    /// One whose clients make transactions over partitions.
    fn of_transactions(name: &'static str) -> Self {
        let mut run = Self::new(name);
        run.tables = TRANSACTIONS.to_vec();
        run.works = work::transactions;
        // Nobody may wait for long while nodes are well.
        run.rests = true;
        run
    }

    /// One of a cluster of five nodes at least whose nodes come and go.
    fn of_members(name: &'static str) -> Self {
        let mut run = Self::new(name);
        run.tables = MEMBERS.to_vec();
        run.comings = Some(Comings::new(5, MOST_NODES, MEMBERS));
        run
    }

    /// Starts a cluster, and disturbs it while clients go on.
    fn chaos(mut self, mut cluster: Cluster) {
        cluster.logs = Some(self.logs.clone());
        let mut cluster = cluster.started();
        if !cluster.disks.is_empty() {
            let soft = self.tables.iter_mut().filter(|table| table.is_soft());
            soft.for_each(|table| table.promise = Promise::Service);
        }
        let mut random = StdRng::seed_from_u64(self.seed);
        self.create_tables(&cluster);
        let load = Arc::new(self.load(&cluster, &mut random));
        let clients: Vec<_> = (0..6)
            .map(|_| {
                let (load, seed) = (load.clone(), random.random());
                std::thread::spawn(move || load.client(seed))
            })
            .collect();
        let mut nemesis = Nemesis {
            faults: Faults::default(),
            tables: self.tables.clone(),
            most_partitions: MOST_PARTITIONS,
            is_gentle: self.is_gentle,
            trust: self.trust(&cluster),
            comings: self.comings.take(),
        };
        while load.elapsed() < Duration::from_secs(self.seconds) {
            nemesis.disturb(&mut cluster, &mut random);
            *load.addresses.lock().unwrap() = addresses(&cluster);
            if self.rests {
                waits::rest(&cluster, &load.well, || load.now(), &mut random);
            }
        }
        if let Some(comings) = &mut nemesis.comings {
            comings.finish(&mut cluster);
        }
        let healed = Instant::now();
        if cluster.clocks.is_some() {
            cluster.set_clocks(0);
        }
        cluster.wait_until_whole();
        let whole_after = healed.elapsed();
        // From now on it stays so.
        load.well.begin(load.now());
        load.stop.store(true, Ordering::Relaxed);
        clients.into_iter().for_each(|client| client.join().unwrap());
        self.finish(&cluster, &load);
        self.be_calm(&cluster, &load);
        self.check(&load);
        self.compare(&cluster, &load);
        wait_for("no transaction is left unfinished", PATIENCE, || {
            (metric_of_all(&cluster, "tessera_transactions_open") == 0.0).then_some(())
        });
        let recovered = metric_of_all(&cluster, "tessera_transactions_recovered_total");
        if self.leaves_work && self.seconds >= LONG {
            assert!(recovered > 0.0, "no transaction was brought to its end by others than its coordinator");
        }
        if self.least_disk_reads > 0.0 {
            let disk_reads = metric_of_all(&cluster, "tessera_disk_reads_total");
            assert!(disk_reads >= self.least_disk_reads, "{disk_reads} reads waited for the disk");
        }
        if cluster.clocks.is_some() && self.trust(&cluster) == Trust::MostClocks {
            see_clocks(&cluster);
        }
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (done, unknown, refused) = (count(&load.done), count(&load.unknown), count(&load.refused));
        eprintln!(
            "{}, seed {}, {} s: {:?}, {:?}, whole after {whole_after:.1?}; {done} operations, {unknown} unknown, {refused} refused {:?}, {recovered} intents and commits recovered",
            self.name,
            self.seed,
            self.seconds,
            nemesis.faults,
            nemesis.comings.map(|comings| comings.counts),
            load.refusals.lock().unwrap()
        );
        assert!(done > 100 * self.seconds, "{done} operations in {} seconds", self.seconds);
    }

    /// The same for clients that speak ReQL.
    fn chaos_of_documents(&mut self, mut cluster: Cluster) {
        cluster.logs = Some(self.logs.clone());
        let mut cluster = cluster.started();
        let (name, options) = (documents::NAME, documents::TABLE.options);
        cluster.cli(0, &format!("table create {name} {options} --partitions 4")).unwrap();
        cluster.wait_until_whole();
        let mut random = StdRng::seed_from_u64(self.seed);
        let load = Documents::new(&cluster);
        let mut nemesis = Nemesis {
            faults: Faults::default(),
            tables: self.tables.clone(),
            most_partitions: MOST_PARTITIONS,
            is_gentle: false,
            trust: Trust::MostClocks,
            comings: None,
        };
        let ports = cluster.reql_ports();
        std::thread::scope(|scope| {
            for _ in 0..6 {
                let (load, ports, seed) = (&load, &ports, random.random());
                scope.spawn(move || load.client(ports, seed));
            }
            // Clients end with the run, however that ends.
            let _stop = StopAtEnd(&load.stop);
            while load.elapsed() < Duration::from_secs(self.seconds) {
                nemesis.disturb(&mut cluster, &mut random);
            }
            cluster.wait_until_whole();
        });
        load.finish(&cluster);
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (done, unknown, refused) = (count(&load.done), count(&load.unknown), count(&load.refused));
        eprintln!(
            "{}, seed {}, {} s: {:?}; {done} queries, {unknown} unknown, {refused} refused",
            self.name, self.seed, self.seconds, nemesis.faults
        );
        assert!(done > 30 * self.seconds, "{done} queries in {} seconds", self.seconds);
    }

    /// The same for tables that are emptied meanwhile.
    fn chaos_of_emptied_tables(&self, mut cluster: Cluster) {
        cluster.logs = Some(self.logs.clone());
        let mut cluster = cluster.started();
        for (name, table) in emptied::NAMES.iter().zip(OF_EMPTIED) {
            cluster.cli(0, &format!("table create {name} {} --partitions 4", table.options)).unwrap();
        }
        cluster.wait_until_whole();
        let mut random = StdRng::seed_from_u64(self.seed);
        let load = Emptied::new();
        let mut nemesis = Nemesis {
            faults: Faults::default(),
            tables: OF_EMPTIED.to_vec(),
            // All that is truncated is kept.
            most_partitions: 8,
            is_gentle: false,
            trust: Trust::MostClocks,
            comings: None,
        };
        let addresses: Vec<_> =
            cluster.reql_ports().into_iter().enumerate().map(|(at, port)| (cluster.host(at), port)).collect();
        let emptiers: Vec<_> = std::thread::scope(|scope| {
            for _ in 0..6 {
                let (load, addresses, seed) = (&load, &addresses, random.random());
                scope.spawn(move || load.client(addresses, seed));
            }
            // Clients end with the run, however that ends.
            let _stop = StopAtEnd(&load.stop);
            let emptiers: Vec<_> = (0..OF_EMPTIED.len())
                .map(|at| {
                    let emptier = Emptier::new(&load, &cluster, at, random.random());
                    scope.spawn(|| emptier.run())
                })
                .collect();
            while load.elapsed() < Duration::from_secs(self.seconds) {
                nemesis.disturb(&mut cluster, &mut random);
                waits::rest(&cluster, &load.well, || load.now(), &mut random);
            }
            load.is_calm.store(true, Ordering::Relaxed);
            let emptiers = emptiers.into_iter().map(|emptier| emptier.join().unwrap()).collect();
            cluster.wait_until_whole();
            // From now on it stays so.
            load.well.begin(load.now());
            std::thread::park_timeout(CALM);
            emptiers
        });
        let drops: u32 = emptiers.iter().map(|emptier| emptier.drops).sum();
        let first = cluster.running()[0];
        let mut client = reql::Client::try_to_host(&addresses[first].0, addresses[first].1).expect("it runs");
        let mut tables = emptiers.into_iter().map(|emptier| emptier.finish(&cluster, &mut client));
        let tables = [(); emptyings::TABLES].map(|()| tables.next().expect("each table has an emptier"));
        let (receipts, looks) = (load.receipts.lock().unwrap(), load.looks.lock().unwrap());
        let mut wrong = load.contradictions.lock().unwrap().clone();
        wrong.extend(emptyings::check(&tables, &receipts, &looks).err());
        wrong.extend(load.waits.check(emptied::LONGEST_WAIT).err());
        wrong.truncate(20);
        assert!(wrong.is_empty(), "contradictions:\n{}", wrong.join("\n"));
        OF_EMPTIED.iter().for_each(|table| replicas::compare_all(&cluster, *table));
        wait_for("no transaction is left unfinished", PATIENCE, || {
            (metric_of_all(&cluster, "tessera_transactions_open") == 0.0).then_some(())
        });
        let count = |number: &AtomicU64| number.load(Ordering::Relaxed);
        let (done, unknown, refused) = (count(&load.done), count(&load.unknown), count(&load.refused));
        let recovered = metric_of_all(&cluster, "tessera_transactions_recovered_total");
        let lives =
            tables.each_ref().map(|table| table.lives.iter().map(|life| life.receipts.len()).collect::<Vec<_>>());
        eprintln!(
            "{}, seed {}, {} s: {:?}, {drops} drops, receipts by the lives of tables {lives:?}; {}; {done} operations, {unknown} unknown, \
             {refused} refused {:?}, {recovered} intents and commits recovered",
            self.name,
            self.seed,
            self.seconds,
            nemesis.faults,
            load.waits,
            load.refusals.lock().unwrap()
        );
        assert!(done > 20 * self.seconds, "{done} operations in {} seconds", self.seconds);
        let emptied = tables.iter().map(|table| table.emptyings.len() as u64).sum::<u64>();
        assert!(emptied >= self.seconds / 15, "tables were emptied {emptied} times");
    }

    /// Where clocks are set, every other seed has all of them wrong.
    fn trust(&self, cluster: &Cluster) -> Trust {
        if cluster.clocks.is_some() && self.seed.is_multiple_of(2) { Trust::NoClock } else { Trust::MostClocks }
    }

    fn create_tables(&self, cluster: &Cluster) {
        for Table { name, options, .. } in &self.tables {
            cluster.cli(0, &format!("table create {name} {options} --partitions 4")).unwrap();
        }
        cluster.wait_until_whole();
        for Table { name, options, .. } in self.tables.iter().filter(|table| table.promise != Promise::Cache) {
            let mut client = cluster.client(0);
            client.run(&format!("TABLE {name}"));
            client.run("ACKS majority");
            let value = vec![b'v'; STILL_BYTES];
            let set = |key: usize| encode(&[b"SET".to_vec(), format!("still{key}").into_bytes(), value.clone()]);
            for keys in (0..STILL).collect::<Vec<_>>().chunks(500) {
                client.send(&keys.iter().flat_map(|key| set(*key)).collect::<Vec<u8>>()).unwrap();
                keys.iter().for_each(|_| assert_eq!(client.read().unwrap(), Value::Simple("OK".into())));
            }
            // A `hard` write has what was written before it in its partition fsynced too. Without it, power that is cut right
            // after this load would take the end of it from a `soft` table, which promises no more.
            if !options.contains("--durability none") {
                client.run("DURABILITY hard");
                for key in 0..STILL_SYNCED {
                    assert_eq!(client.run(&format!("SET synced{key} value")), Value::Simple("OK".into()));
                }
            }
        }
    }

    fn load(&self, cluster: &Cluster, random: &mut StdRng) -> Load {
        // With every third seed there is nothing but transactions in each kind of run.
        let works_of = if self.seed.is_multiple_of(3) { work::transactions } else { self.works };
        let mut works = Vec::new();
        for table in &self.tables {
            works.extend(works_of(*table, self.trust(cluster)).into_iter().map(|work| (*table, work)));
        }
        Load::new(addresses(cluster), works, random)
    }

    /// What is there in the end counts too.
    fn finish(&self, cluster: &Cluster, load: &Load) {
        let first = cluster.running()[0];
        let address = (cluster.host(first), cluster.ports[first].0);
        for (table, work) in &load.works {
            let mut session = Session::open(load, &address, *table, "single", self.seed).expect("the cluster is whole");
            work.finish(&mut session);
            assert!(!session.is_broken, "{}: a connection broke after all faults", table.name);
        }
        for Table { name, .. } in self.tables.iter().filter(|table| table.promise != Promise::Cache) {
            let mut client = cluster.client(first);
            client.run(&format!("TABLE {name}"));
            for keys in (0..STILL).collect::<Vec<_>>().chunks(500) {
                let exists = keys.iter().fold("EXISTS".to_string(), |line, key| format!("{line} still{key}"));
                let count = Value::Integer(i64::try_from(keys.len()).unwrap());
                assert_eq!(client.run(&exists), count, "{name}: records that nobody changed");
            }
        }
    }

    /// While nothing happens to nodes, what is acknowledged by a leader alone is read there too.
    fn be_calm(&self, cluster: &Cluster, load: &Load) {
        for table in self.tables.iter().filter(|table| table.promise == Promise::UntilRead) {
            let registers = work::Registers::in_calm();
            std::thread::scope(|scope| {
                for (at, address) in addresses(cluster).into_iter().enumerate() {
                    let registers = &registers;
                    scope.spawn(move || {
                        let seed = self.seed + at as u64;
                        let mut session = Session::open(load, &address, *table, "single", seed).expect("it serves");
                        let began = Instant::now();
                        while began.elapsed() < CALM {
                            registers.step(&mut session);
                        }
                    });
                }
            });
            registers.check().unwrap_or_else(|error| panic!("{} in calm: {error}", table.name));
        }
    }

    /// All replicas hold the same, also of tables that may have lost something.
    fn compare(&self, cluster: &Cluster, load: &Load) {
        for table in &self.tables {
            let works = load.works.iter().filter(|(of, _)| of.name == table.name);
            let mut keys: Vec<String> = works.flat_map(|(_, work)| work.keys()).collect();
            keys.extend((0..STILL).step_by(STILL_STEP).map(|key| format!("still{key}")));
            let outcome = replicas::compare(cluster, load, *table, keys);
            outcome.unwrap_or_else(|error| panic!("{}: {error}", table.name));
            if table.promise != Promise::Cache {
                replicas::compare_all(cluster, *table);
            }
        }
    }

    fn check(&self, load: &Load) {
        let mut wrong: Vec<String> = Vec::new();
        for (table, work) in load.works.iter().filter(|(table, _)| table.promise != Promise::Service) {
            wrong.extend(work.check().err().map(|error| format!("{}: {error}", table.name)));
        }
        let judged =
            |name: &str| self.tables.iter().any(|table| table.name == name && table.promise != Promise::Service);
        let contradictions = load.contradictions.lock().unwrap();
        let told = contradictions.iter().filter(|(table, _)| judged(table));
        wrong.extend(told.map(|(table, text)| format!("{table}: {text}")));
        wrong.truncate(20);
        assert!(wrong.is_empty(), "contradictions:\n{}", wrong.join("\n"));
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.logs);
            return;
        }
        let Self { name, seconds, seed, logs, .. } = self;
        eprintln!(
            "failed with seed {seed}. What the nodes wrote is in {}. To repeat it:\n  TESSERA_CHAOS_SECONDS={seconds} \
             TESSERA_SEED={seed} cargo test --locked --release -p tessera --test node whatever_happens_to_{name} -- --nocapture",
            logs.display()
        );
    }
}

/// Where clients find nodes.
fn addresses(cluster: &Cluster) -> Vec<(String, u16)> {
    cluster.running().into_iter().map(|at| (cluster.host(at), cluster.ports[at].0)).collect()
}

/// The sum of a metric over the nodes that run.
fn metric_of_all(cluster: &Cluster, name: &str) -> f64 {
    let of_node = |at| wait_for("the node tells its metrics", PATIENCE, || cluster.metric(at, name));
    cluster.running().into_iter().map(of_node).sum()
}

/// Makes sure that nodes have seen the clocks that they were given.
fn see_clocks(cluster: &Cluster) {
    cluster.set_clocks(0);
    std::thread::park_timeout(faults::TOLD);
    let mut client = cluster.client(0);
    client.run("SET short-lived value EX 1800");
    cluster.set_clocks(3_600);
    wait_for("what expires in half an hour is gone in an hour", PATIENCE, || {
        (client.run("GET short-lived") == Value::Null).then_some(())
    });
}
