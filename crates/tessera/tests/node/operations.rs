//! What an operator meets: the CLI, messages and exit codes, restarts, damage.

use crate::disk::{DiskWithPower, SmallDisk};
use crate::resp_client::{Value, words};
use crate::server::{Node, free_port, http_get, set_ports, tessera, wait_for};
use crate::skipped::skip;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::io::Write;
use std::ops::Range;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

fn ok() -> Value {
    Value::Simple("OK".into())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

/// On ports of its own where `arguments` say nothing else.
fn start_and_fail(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = tessera();
    command.arg("start");
    set_ports(&mut command, free_port(), free_port());
    let Output { status, stderr, .. } = command.args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_table_lives_through_the_cli() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    assert!(node.cli("table create users --engine memory --durability hard --ttl 100").contains("number 1"));
    let mut client = node.client();
    assert_eq!(client.run("SELECT 1"), ok());
    assert_eq!(client.run("SET k v"), ok());
    assert_eq!(client.run("TTL k"), Value::Integer(100));
    node.cli("table alter users --ttl 0");
    assert_eq!(client.run("SET k2 v"), ok());
    assert_eq!(client.run("TTL k2"), Value::Integer(-1));
    node.cli("table rename users people");
    assert_eq!(client.run("TABLE"), bulk("people"));
    node.cli("table drop people");
    assert!(matches!(client.run("SET k v"), Value::Error(_)));
    assert!(matches!(client.run("GET k"), Value::Error(_)));
    assert!(node.cli("table list --dropped").contains("people"));
    node.cli("table recall 1 --name again");
    assert_eq!(client.run("TABLE again"), ok());
    assert_eq!(client.run("GET k"), bulk("v"));
    let admin = format!("http://127.0.0.1:{}", node.admin_port);
    let unsaid = tessera().args(["table", "truncate", "again", "--admin", &admin]).output().unwrap();
    assert!(!unsaid.status.success() && String::from_utf8_lossy(&unsaid.stderr).contains("--yes"), "{unsaid:?}");
    let said = node.cli("table truncate again --yes");
    assert_eq!(client.run("GET k"), Value::Null);
    // What it held has another number.
    let (_, number) = said.split_once("table recall ").unwrap();
    let number = number.split_once(' ').unwrap().0;
    assert!(node.cli("table list --dropped").contains(number));
    assert_eq!(client.run("SET k new"), ok());
    node.cli(&format!("table recall {number} --as before"));
    assert_eq!((client.run("TABLE before"), client.run("GET k")), (ok(), bulk("v")));
    assert_eq!((client.run("TABLE again"), client.run("GET k")), (ok(), bulk("new")));
    // A connection that has chosen no table is in table 0.
    assert_eq!((client.run("TABLE default"), client.run("SET k default")), (ok(), ok()));
    let said = node.cli("table truncate default --yes --json");
    let truncated: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(client.run("GET k"), Value::Null, "a connection stays with the name");
    node.cli(&format!("table recall {} --as kept", truncated["number"]));
    assert_eq!(client.run("GET k"), Value::Null, "and with the number");
    assert_eq!((client.run("TABLE kept"), client.run("GET k")), (ok(), bulk("default")));
    // The engine's own keys are no records.
    let records = |table: &str| {
        let shown = node.cli(&format!("table show {table} --json"));
        let statistics = serde_json::from_str::<serde_json::Value>(&shown).unwrap()["statistics"].clone();
        (statistics["records"].as_u64().unwrap(), statistics["records_are_estimated"].as_bool().unwrap())
    };
    assert_eq!((records("default"), records("kept")), ((0, false), (1, false)));
    let listed = node.cli("table list");
    let line = listed.lines().find(|line| line.contains(" default ")).unwrap();
    assert!(line.split_whitespace().any(|word| word == "0") && !line.contains('~'), "{listed}");
    let status = node.cli("status");
    assert!(status.contains("again") && status.contains("issues      none"), "{status}");
    assert!(status.contains("table default has one copy instead of 3, until more nodes join"), "{status}");
    assert!(node.cli("table show default --json").contains("\"engine\": \"rocksdb\""));
}

#[test]
fn databases_are_made_when_they_are_selected_if_the_configuration_says_so() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["redis.databases=16"]);
    node.cli("table create shop --engine memory --partitions 1");
    let (mut client, mut other) = (node.client(), node.client());
    // The table has number 1, which is that of a database now.
    assert_eq!((client.run("SELECT 1"), client.run("TABLE")), (ok(), bulk("db1")));
    assert_eq!(client.run("SET k one"), ok());
    assert_eq!((client.run("SELECT 15"), client.run("GET k")), (ok(), Value::Null));
    assert_eq!((other.run("SELECT 1"), other.run("GET k")), (ok(), bulk("one")));
    assert_eq!((client.run("SELECT 0"), client.run("TABLE")), (ok(), bulk("default")));
    let Value::Error(refusal) = client.run("SELECT 16") else { panic!("there is no database 16, and no table") };
    assert!(refusal.contains("DB index is out of range") && refusal.contains("tessera table create"), "{refusal}");
    assert!(node.cli("table show db1 --json").contains("\"partitions\": 4"));
    let shown = client.run("INFO keyspace").to_string();
    for (database, is_there) in [("db0:", true), ("db1:", true), ("db2:", false), ("db15:", true), ("name=shop", false)]
    {
        assert_eq!(shown.contains(database), is_there, "{database}: {shown}");
    }
    assert!(client.run("CONFIG GET databases").to_string().contains("16"));
    // At the same moment, from many clients.
    let selected: Vec<_> = (0..8)
        .map(|_| node.client())
        .map(|mut client| std::thread::spawn(move || (client.run("SELECT 7"), client.run("INCR n"))))
        .collect();
    let mut counted: Vec<_> = selected.into_iter().map(|client| client.join().unwrap()).collect();
    counted.sort_by_key(|(_, count)| count.to_string());
    assert_eq!(counted, (1..=8).map(|count| (ok(), Value::Integer(count))).collect::<Vec<_>>());
}

/// `drop 'cache?'`, as a shell leaves it where no file matches, once dropped `cache`.
#[test]
fn a_name_with_characters_of_urls_is_no_other_tables() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create cache --engine memory");
    let admin = format!("http://127.0.0.1:{}", node.admin_port);
    for name in ["cache?", "cache#x", "c%61che", "cache/"] {
        for command in
            [&["drop", name][..], &["show", name], &["alter", name, "--ttl", "1"], &["rename", name, "other"]]
        {
            let tried = tessera().arg("table").args(command).args(["--admin", &admin]).output().unwrap();
            let said = String::from_utf8_lossy(&tried.stderr);
            assert!(!tried.status.success() && said.contains(name), "{command:?}: {said}");
        }
    }
    assert!(node.cli("table list").contains("cache"));
}

/// It once said "not done", and the settings had been changed.
#[test]
fn an_alteration_that_is_refused_in_part_says_which() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create t --engine memory --partitions 4");
    let admin = format!("http://127.0.0.1:{}", node.admin_port);
    let alter = |options: &[&str]| {
        let tried = tessera().args(["table", "alter", "t", "--admin", &admin]).args(options).output().unwrap();
        assert!(!tried.status.success());
        String::from_utf8_lossy(&tried.stderr).to_string()
    };
    let refused = alter(&["--usage-scenario", "prefer_write"]);
    assert!(refused.contains("`usage_scenario` is for tables of the RocksDB engine"), "{refused}");
    let shown = || node.cli("table show t --json");
    let before = shown();
    let refused = alter(&["--ttl", "77", "--replicas", "99"]);
    assert!(!refused.contains("was changed"), "{refused}");
    assert_eq!(before.contains("77"), shown().contains("77"), "nothing was changed");
    let refused = alter(&["--ttl", "77", "--replicas", "2", "--partitions", "5"]);
    assert!(refused.contains("the number of replicas was changed, and the rest was not: "), "{refused}");
    assert!(!shown().contains("\"default_ttl_seconds\": 77"));
}

/// The purge once took the files from under writes on their way, and with them every other table's.
#[test]
fn a_table_that_is_purged_while_it_is_written_harms_no_other() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["tables.drop_retention_seconds=0", "workers=1"]);
    let mut keeper = node.client();
    for round in 1..=2 {
        node.cli("table create brief --engine rocksdb --partitions 1 --durability soft");
        let writers: Vec<_> = (0..4).map(|_| node.client()).collect();
        let writers = writers.into_iter().map(|mut writer| {
            std::thread::spawn(move || {
                writer.run(&format!("SELECT {round}"));
                while writer.run("SET k v") == ok() {}
            })
        });
        let writers: Vec<_> = writers.collect();
        assert_eq!(keeper.run("SET before v"), ok());
        node.cli("table drop brief");
        wait_for("the table is purged", Duration::from_secs(30), || {
            assert_eq!(keeper.run("SET meanwhile v"), ok());
            (!node.cli("table list --dropped").contains("brief")).then_some(())
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(keeper.run("SET after v"), ok());
    }
}

/// What a purged table took once came back only when no connection had chosen it any more.
#[test]
fn a_table_that_an_idle_connection_has_chosen_gives_back_its_disk_and_memory_when_it_is_purged() {
    const BYTES: u64 = 30_000_000;
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &["rocksdb.write_buffer_bytes=4194304", "log.limit_bytes=8388608"]);
    let on_disk = || {
        let files = std::fs::read_dir(data.path().join("rocksdb")).unwrap().filter_map(Result::ok);
        files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum::<u64>()
    };
    let in_memory = || {
        let status: serde_json::Value = serde_json::from_str(&node.cli("status --json")).unwrap();
        status["memory_used_bytes"].as_u64().unwrap()
    };
    let used: [(&str, &dyn Fn() -> u64); 2] = [("rocksdb", &on_disk), ("memory", &in_memory)];
    for (engine, used) in used {
        node.cli(&format!("table create {engine} --engine {engine} --partitions 2"));
        let mut idle = node.client();
        assert_eq!(idle.run(&format!("TABLE {engine}")), ok());
        for number in 0..BYTES / 100_000 {
            let value: Vec<u8> = (0..100_000).map(|_| rand::random()).collect();
            assert_eq!(idle.call(&[b"SET".to_vec(), format!("k{number}").into_bytes(), value]).unwrap(), ok());
        }
        wait_for("the records take space", Duration::from_secs(30), || (used() > BYTES / 2).then_some(()));
        node.cli(&format!("table truncate {engine} --purge --yes"));
        wait_for("the space is free", Duration::from_secs(60), || (used() < BYTES / 4).then_some(()));
        assert_eq!((idle.run("GET k1"), idle.run("SET k1 v")), (Value::Null, ok()), "{engine}");
    }
}

/// Once it was RocksDB's estimate for what has many records, which counts what was overwritten.
#[test]
fn the_size_of_a_large_table_is_estimated_well() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    let mut client = node.client();
    for (partitions, keys) in [(4, 60_000), (8, 2_000), (16, 90_000)] {
        node.cli(&format!("table create t{partitions} --engine rocksdb --durability soft --partitions {partitions}"));
        client.run(&format!("TABLE t{partitions}"));
        let all: Vec<_> = (0..keys).map(|key| words(&format!("SET k{key} v"))).collect();
        for _ in 0..3 {
            all.chunks(1_000)
                .for_each(|some| assert!(client.pipeline(some).unwrap().iter().all(|reply| *reply == ok())));
        }
        let Value::Integer(size) = client.run("DBSIZE") else { panic!("a number is answered") };
        let most = if keys < 10_000 { 0 } else { keys / 25 };
        assert!((size - keys).abs() <= most, "{size} of {keys} in {partitions} partitions");
    }
}

#[test]
fn a_clean_shutdown_keeps_everything_and_exits_with_zero() {
    let data = TempDir::new().unwrap();
    let mut node = Node::start(data.path(), &["log.staging_directory=/dev/shm"]);
    node.cli("table create m --engine memory --durability soft");
    let mut client = node.client();
    let staging = std::fs::read_to_string(data.path().join("log/staging")).unwrap();
    assert!(staging.starts_with("/dev/shm/tessera-") && std::fs::exists(&staging).unwrap(), "{staging}");
    for table in 0..2 {
        client.run(&format!("SELECT {table}"));
        for number in 0..500 {
            client.run(&format!("SET k{number} {number}"));
        }
    }
    assert_eq!(node.process.terminate(), Some(0));
    assert!(!std::fs::exists(&staging).unwrap());
    let node = Node::start(data.path(), &[]);
    let mut client = node.client();
    for table in 0..2 {
        client.run(&format!("SELECT {table}"));
        for number in 0..500 {
            assert_eq!(client.run(&format!("GET k{number}")), bulk(&number.to_string()));
        }
    }
}

#[test]
fn what_cannot_start_says_why_and_exits_with_its_code() {
    let data = TempDir::new().unwrap();
    let path = data.path().to_str().unwrap();
    let node = Node::start(data.path(), &[]);
    let (code, message) = start_and_fail(&["--data-dir", path]);
    assert!(code == Some(5) && message.contains("in use by another process"), "{code:?} {message}");
    let taken = format!("redis.port={}", node.redis_port);
    let (code, message) = start_and_fail(&["--data-dir", path, "--set", &taken]);
    assert!(code == Some(4) && message.contains("--port-offset"), "{code:?} {message}");
    let (code, message) = start_and_fail(&["--set", "redis.prot=1"]);
    assert!(code == Some(3) && message.contains("prot"), "{code:?} {message}");
    let (code, message) = start_and_fail(&["--set", "redis.bind=0.0.0.0"]);
    assert!(code == Some(3) && message.contains("--insecure"), "{code:?} {message}");
    let (code, message) = start_and_fail(&["--insecure", "--set", "cluster.bind=0.0.0.0"]);
    assert!(code == Some(3) && message.contains("cluster.secret_file"), "{code:?} {message}");
    drop(node);
    std::fs::write(data.path().join("VERSION"), "99\n").unwrap();
    let (code, message) = start_and_fail(&["--data-dir", path]);
    assert!(code == Some(5) && message.contains("99"), "{code:?} {message}");
}

#[test]
fn a_flipped_bit_in_the_log_is_refused_with_a_way_out() {
    let data = TempDir::new().unwrap();
    let mut node = Node::start(data.path(), &[]);
    node.client().run("SET key thisvaluewillbedamaged");
    assert_eq!(node.process.terminate(), Some(0));
    let log = std::fs::read_dir(data.path().join("log")).unwrap().map(|file| file.unwrap().path());
    let damaged = log.into_iter().find(|path| {
        let mut bytes = std::fs::read(path).unwrap();
        let at = bytes.windows(22).position(|window| window == b"thisvaluewillbedamaged");
        at.inspect(|at| {
            bytes[*at] ^= 1;
            std::fs::write(path, &bytes).unwrap();
        })
        .is_some()
    });
    assert!(damaged.is_some(), "the value is in the log");
    let (code, message) = start_and_fail(&["--data-dir", data.path().to_str().unwrap()]);
    assert!(code == Some(5) && message.contains("damaged") && message.contains("move this"), "{code:?} {message}");
}

#[test]
fn a_flipped_bit_in_an_sst_file_is_detected() {
    let data = TempDir::new().unwrap();
    let mut node = Node::start(data.path(), &[]);
    let mut client = node.client();
    // Values that do not compress, so that the file has many blocks.
    let mut random = StdRng::seed_from_u64(1);
    for number in 0..500 {
        let value: Vec<u8> = (0..300).map(|_| random.random()).collect();
        client.call(&[b"SET".to_vec(), format!("key{number}").into(), value]).unwrap();
    }
    node.cli("table compact default");
    assert_eq!(node.process.terminate(), Some(0));
    let files = std::fs::read_dir(data.path().join("rocksdb")).unwrap().map(|file| file.unwrap().path());
    let largest = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "sst"))
        .max_by_key(|path| path.metadata().unwrap().len());
    let path = largest.expect("compaction wrote a file");
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2; // far from the first block, which is read at the start, and from the index
    bytes[middle] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let node = Node::start(data.path(), &[]);
    let mut client = node.client();
    let replies: Vec<Value> = (0..500).map(|number| client.run(&format!("GET key{number}"))).collect();
    let errors = replies.iter().filter(|reply| matches!(reply, Value::Error(text) if text.contains("damaged"))).count();
    assert!(errors > 0, "no read found the damage");
    assert!(replies.iter().all(|reply| *reply != Value::Null), "damage must not look like absence");
}

/// Between the failure of a disk and the end of its node, clients are told what failed. The code is one that their libraries know.
#[test]
fn a_disk_that_cannot_be_read_is_told_as_such() {
    let directory = TempDir::new().unwrap();
    let Some(disk) = DiskWithPower::mount(directory.path(), 1 << 30) else {
        return skip("mounting a file system needs root and loop devices");
    };
    let settings = ["rocksdb.record_cache_bytes=65536", "rocksdb.block_cache_bytes=1048576"];
    let node = Node::start(&disk.path().join("data"), &settings);
    let mut client = node.client();
    let mut random = StdRng::seed_from_u64(2);
    for number in 0..1_000 {
        let value: Vec<u8> = (0..4_000).map(|_| random.random()).collect();
        client.call(&[b"SET".to_vec(), format!("key{number}").into(), value]).unwrap();
    }
    node.cli("table compact default");
    disk.cut_power();
    let replies: Vec<Value> = (0..1_000).map(|number| client.run(&format!("GET key{number}"))).collect();
    let is_told = |reply: &&Value| matches!(reply, Value::Error(text) if text.starts_with("MISCONF") && text.contains("cannot be read"));
    assert!(replies.iter().filter(is_told).count() > 0, "no read met the disk");
    for (number, reply) in replies.iter().enumerate() {
        let is_sound = matches!(reply, Value::Bulk(value) if value.len() == 4_000);
        assert!(is_sound || is_told(&reply), "key{number}: {reply}");
    }
    drop(node);
}

fn hash_password(password: &str) -> String {
    let mut command = tessera();
    let mut child = command.arg("hash-password").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{password}").unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim_end().into()
}

#[test]
fn users_passwords_and_permissions() {
    let data = TempDir::new().unwrap();
    let config = data.path().join("tessera.toml");
    // sha256 of "secret"
    let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
    let slow_hash = hash_password("secret");
    let text = format!(
        "[redis]\ndatabases = 4\n[[redis.users]]\nname = \"default\"\npassword_hash = \"{slow_hash}\"\naccess = [\"read\", \"write\", \"admin\"]\n\
         [[redis.users]]\nname = \"reader\"\npassword_sha256 = \"{hash}\"\naccess = [\"read\"]\ntables = [\"default\"]\n\
         [admin]\ntoken_sha256 = \"{hash}\"\n"
    );
    std::fs::write(&config, text).unwrap();
    let (redis_port, admin_port) = (free_port(), free_port());
    let mut command = tessera();
    command.args(["start", "--config"]).arg(config);
    let _node = Node::spawn_with(command, &data.path().join("data"), redis_port, admin_port, &[]);
    let connect = || crate::resp_client::Client::connect(redis_port).ok();
    let mut client = crate::server::wait_for("the node accepts", std::time::Duration::from_secs(30), connect);
    assert_eq!(client.run("GET k"), Value::Error("NOAUTH Authentication required.".into()));
    assert!(matches!(client.run("AUTH wrong"), Value::Error(text) if text.starts_with("WRONGPASS")));
    assert_eq!(client.run("AUTH secret"), ok());
    crate::server::wait_for("the table serves", std::time::Duration::from_secs(30), || {
        (client.run("SET k v") == ok()).then_some(())
    });
    let mut reader = connect().unwrap();
    assert!(matches!(reader.run("HELLO 3 AUTH reader secret"), Value::Map(_)));
    assert_eq!(reader.run("GET k"), bulk("v"));
    assert!(matches!(reader.run("SET k w"), Value::Error(text) if text.starts_with("NOPERM")));
    assert!(matches!(reader.run("CONFIG GET *"), Value::Error(text) if text.starts_with("NOPERM")));
    // Whoever may not make tables makes no database.
    let refused = reader.run("SELECT 2");
    assert!(matches!(&refused, Value::Error(text) if text.starts_with("NOPERM database 2 is not there")), "{refused}");
    assert_eq!((client.run("SELECT 2"), client.run("TABLE")), (ok(), bulk("db2")));
    assert!(matches!(reader.run("SELECT 2"), Value::Error(text) if text.starts_with("NOPERM this user may not use")));
    // Tables that a user may not read were shown once.
    let mut other = connect().unwrap();
    assert_eq!(other.run("AUTH reader secret"), ok());
    let [shown, all] = [&mut other, &mut client].map(|client| client.run("INFO keyspace").to_string());
    assert!(shown.contains("db0:") && !shown.contains("db2") && all.contains("db2:"), "{shown} of {all}");
    let status = |token: &[&str]| {
        let admin = format!("http://127.0.0.1:{admin_port}");
        let output = tessera().args(["status", "--admin", &admin]).args(token).output().unwrap();
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(status(&["--token", "secret"]), Ok(()));
    // What the node says is about headers, which nobody gives a command.
    for (login, said) in [
        (&[][..], "give --token (TESSERA_ADMIN_TOKEN), or --user"),
        (&["--token", "guess"], "does not know this token"),
        (&["--user", "ann", "--password", "guess"], "no user of this name with this password"),
    ] {
        let error = status(login).unwrap_err();
        assert!(error.contains(said), "{login:?}: {error}");
    }
}

#[test]
fn metrics_and_health_are_served() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.client().run("SET k v");
    let get = |path: &str| http_get(node.admin_port, path).unwrap();
    assert!(get("/healthz").starts_with("HTTP/1.1 200"));
    assert!(get("/readyz").starts_with("HTTP/1.1 200"));
    let metrics = get("/metrics");
    assert!(metrics.contains("tessera_table_writes_total{table=\"default\",engine=\"rocksdb\"} 1"), "{metrics}");
    // Readers that know only the older format of Prometheus declare counters by the whole name.
    assert!(metrics.contains("# TYPE tessera_table_writes_total counter"), "{metrics}");
    assert!(metrics.contains("\r\ncontent-type: text/plain; version=0.0.4"), "{metrics}");
    assert!(
        metrics.contains("\nprocess_resident_memory_bytes{} ") && metrics.contains("\ntessera_build_info{version="),
        "{metrics}"
    );
    assert!(get("/v1/tables/nosuch").starts_with("HTTP/1.1 404"));
}

/// What a log has in shared memory once stayed there for good when the node was told to stop while it started.
#[test]
fn a_node_that_is_told_to_stop_while_it_starts_leaves_nothing_in_shared_memory() {
    let data = TempDir::new().unwrap();
    // In tests that is the data directory.
    let staged = || {
        let names = std::fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("tessera-")).count()
    };
    for _ in 0..3 {
        let mut node = Node::spawn(data.path(), free_port(), free_port(), &[]);
        let limit = std::time::Duration::from_secs(30);
        crate::server::wait_for("the log has its file in shared memory", limit, || (staged() == 1).then_some(()));
        let process = Pid::from_raw(i32::try_from(node.process.id()).unwrap()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        crate::server::wait_for("the node ends", limit, || node.process.has_ended().then_some(()));
        assert_eq!(staged(), 0);
    }
}

/// They belong to the RocksDB instance, and were once set for each table in turn, to zero for one in memory.
#[test]
fn a_memory_table_does_not_hide_what_rocksdb_counts() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create sessions --engine memory");
    let mut client = node.client();
    client.run("SET k v");
    for _ in 0..10 {
        client.run("GET k");
    }
    let metrics = http_get(node.admin_port, "/metrics").unwrap();
    let value = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    assert!(value("tessera_record_cache_hits_total{}") > Some(0.0), "{metrics}");
    assert!(value("tessera_record_cache_bytes{}") > Some(0.0), "{metrics}");
}

/// The refusal once was written to the catalog's log, where it could not be applied: nothing could be changed any more, and no node
/// started again.
#[test]
fn whoever_would_replace_a_replica_that_there_is_not_breaks_nothing() {
    let data = TempDir::new().unwrap();
    let mut node = Node::start(data.path(), &[]);
    let refusal = node.try_cli("table replace-replica default --partition 0 --replica 2.41", "").unwrap_err();
    assert!(refusal.contains("replica 2.41 cannot be replaced now"), "{refusal}");
    node.cli("table create before --engine memory --partitions 1");
    node.process.kill();
    let node = Node::start(data.path(), &[]);
    node.cli("table create after --engine memory --partitions 1");
    assert!(node.cli("table list").contains("before"));
}

/// Columns that came later were missing there.
#[test]
fn the_readme_shows_what_status_prints() {
    let data = TempDir::new().unwrap();
    let printed = Node::start(data.path(), &[]).cli("status");
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let shown = readme.split_once("tessera status\n").unwrap().1.split_once("```").unwrap().0;
    let parts = |text: &str| text.split("\n\n").map(String::from).collect::<Vec<_>>();
    let (shown, printed) = (parts(shown), parts(&printed));
    let label = |line: &str| line.split(' ').next().unwrap().to_string();
    let labels: Vec<_> = printed[0].lines().map(label).filter(|label| label != "note" && label != "door").collect();
    assert_eq!(shown[0].lines().map(label).collect::<Vec<_>>(), labels);
    for (shown, printed) in shown[1..].iter().zip(&printed[1..]) {
        assert_eq!(shown.lines().next(), printed.lines().next(), "the head of a table");
    }
    assert_eq!(shown.len(), printed.len());
}

/// Once it was RocksDB's estimate, which counted records of the engine's own and deleted ones.
#[test]
fn dbsize_counts_the_keys_of_a_small_table_exactly() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create rocks --engine rocksdb --partitions 4");
    let mut client = node.client();
    for table in ["default", "rocks"] {
        client.run(&format!("TABLE {table}"));
        assert_eq!(client.run("DBSIZE"), Value::Integer(0), "{table}");
        for number in 0..50 {
            client.run(&format!("SET key{number} 1"));
            client.run(&format!("SET key{number} 2"));
        }
        client.run("HSET hash a 1 b 2 c 3");
        assert_eq!(client.run("DBSIZE"), Value::Integer(51), "{table}");
        client.run("DEL key1 key2 hash");
        assert_eq!(client.run("DBSIZE"), Value::Integer(48), "{table}");
        client.run("FLUSHDB");
        assert_eq!(client.run("DBSIZE"), Value::Integer(0), "{table}");
    }
    client.run("TABLE rocks");
    let sets: Vec<_> = (0..50_000).map(|number| crate::resp_client::words(&format!("SET key{number} 1"))).collect();
    for sets in sets.chunks(1_000) {
        client.pipeline(sets).unwrap();
    }
    let Value::Integer(estimate) = client.run("DBSIZE") else { panic!("no count") };
    assert!((40_000..=200_000).contains(&estimate), "{estimate} keys of four large partitions");
}

/// A process that is stopped (SIGSTOP) still has its connections accepted by the system. Commands once waited for it without end.
#[test]
fn the_cli_gives_up_on_a_node_that_stands_still() {
    let stands_still = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let admin = format!("http://{}", stands_still.local_addr().unwrap());
    let error = |arguments: &[&str]| {
        let output = tessera().args(arguments).args(["--admin", &admin, "--timeout", "1"]).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let asked = error(&["status"]);
    assert!(asked.contains("did not answer in time") && asked.contains("--timeout"), "{asked}");
    assert!(!asked.contains("may or may not"), "nothing was to be changed: {asked}");
    let told = error(&["table", "create", "name"]);
    assert!(told.contains("it may or may not have done what was asked"), "{told}");
}

/// Sets keys until one is refused since the disk is full. Returns its number, and the refusal.
fn set_until_refused(set: &mut impl FnMut(usize) -> Value, numbers: Range<usize>) -> (usize, String) {
    for number in numbers {
        match set(number) {
            Value::Error(text) if text.starts_with("MISCONF") => return (number, text),
            // Written when the disk filled up: it may or may not be there later.
            Value::Error(text) => assert!(text.contains("outcome unknown"), "{text}"),
            _ => {}
        }
    }
    panic!("the disk never filled up");
}

#[test]
fn a_full_disk_refuses_writes_and_recovers_by_itself() {
    const MIB: usize = 1 << 20;
    let directory = TempDir::new().unwrap();
    let Some(disk) = SmallDisk::mount(directory.path().join("disk"), 96 * MIB) else {
        return skip("mounting a small file system needs root");
    };
    let data = disk.path().join("data");
    let node = Node::start(&data, &[]);
    node.cli("table create m --engine memory --durability hard --partitions 4");
    let mut client = node.client();
    client.run("TABLE m");
    let mut set =
        |number: usize| client.call(&[b"SET".to_vec(), format!("k{number}").into(), vec![b'v'; 100_000]]).unwrap();
    assert_eq!(set(0), ok());
    let ballast = disk.path().join("ballast");
    let free = 96 * MIB - 30 * MIB;
    std::fs::write(&ballast, vec![0; free]).unwrap();
    let (stored, refusal) = set_until_refused(&mut set, 1..10_000);
    assert!(refusal.contains("disk is full") && refusal.contains("free space"), "{refusal}");
    let mut reader = node.client();
    reader.run("TABLE m");
    assert_eq!(reader.run("STRLEN k0"), Value::Integer(100_000), "reads go on");
    let status = node.cli("status");
    assert!(status.contains("disk is full; free space"), "{status}");
    std::fs::remove_file(&ballast).unwrap();
    let limit = std::time::Duration::from_secs(30);
    crate::server::wait_for("writes go on", limit, || (set(stored) == ok()).then_some(()));
}

/// The signal that comes with it once ended the node without a word.
#[test]
fn a_file_that_may_not_become_larger_counts_as_a_full_disk() {
    let data = TempDir::new().unwrap();
    let node = Node::start(data.path(), &[]);
    node.cli("table create m --engine memory --durability hard --partitions 4");
    let mut client = node.client();
    client.run("TABLE m");
    let process = Pid::from_raw(i32::try_from(node.process.id()).unwrap());
    let inherited = getrlimit(Resource::Fsize);
    let limit = |current| prlimit(process, Resource::Fsize, Rlimit { current, ..inherited }).unwrap();
    limit(Some(1 << 20));
    let mut set =
        |number: usize| client.call(&[b"SET".to_vec(), format!("k{number}").into(), vec![b'v'; 100_000]]).unwrap();
    let (number, refusal) = set_until_refused(&mut set, 0..1_000);
    assert!(refusal.contains("disk is full"), "{refusal}");
    limit(inherited.maximum);
    wait_for("writes go on", Duration::from_secs(30), || (set(number) == ok()).then_some(()));
}

/// RocksDB makes writers wait when it may not write to the disk as fast as they come. It once stopped the worker's loop.
#[test]
fn a_table_whose_engine_stalls_writes_holds_up_no_other_one() {
    let data = TempDir::new().unwrap();
    let settings = [
        "workers=1",
        "rocksdb.rate_limit_bytes_per_second=262144",
        "rocksdb.write_buffer_bytes=1048576",
        "rocksdb.max_write_buffers=2",
    ];
    let mut node = Node::start(data.path(), &settings);
    node.cli("table create disk --engine rocksdb --durability soft --partitions 2");
    node.cli("table create memory --engine memory --durability soft --partitions 2");
    let (written, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (mut client, written, is_over) = (node.client(), written.clone(), is_over.clone());
        std::thread::spawn(move || {
            client.run("TABLE disk");
            let value: Vec<u8> = (0..100_000).map(|_| rand::random()).collect();
            while !is_over.load(Ordering::Acquire) {
                let key = format!("k{}", written.load(Ordering::Acquire)).into_bytes();
                assert_eq!(client.call(&[b"SET".to_vec(), key, value.clone()]).unwrap(), ok());
                written.fetch_add(1, Ordering::Release);
            }
        })
    };
    let mut client = node.client();
    client.run("TABLE memory");
    wait_for("many writes go by while one waits", Duration::from_secs(60), || {
        let before = written.load(Ordering::Acquire);
        for number in 0..100 {
            assert_eq!(client.run(&format!("SET k {number}")), ok());
        }
        (written.load(Ordering::Acquire) == before && before > 0).then_some(())
    });
    is_over.store(true, Ordering::Release);
    writer.join().unwrap();
    client.run("TABLE disk");
    let written = written.load(Ordering::Acquire);
    let has_all = |client: &mut crate::resp_client::Client| {
        assert!((0..written).all(|number| client.run(&format!("STRLEN k{number}")) == Value::Integer(100_000)));
    };
    has_all(&mut client);
    node.process.kill();
    let node = Node::start(data.path(), &[]);
    let mut client = node.client();
    client.run("TABLE disk");
    has_all(&mut client);
}
