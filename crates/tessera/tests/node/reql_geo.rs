//! Geospatial indexes through the ReQL port: they find what a filter over all documents finds.

use crate::cluster::Cluster;
use crate::reql::{Client, PATIENCE, insert, table};
use crate::server::{Node, free_port, wait_for};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn row(field: &str) -> Value {
    json!([170, [[10, [1]], field]])
}

fn function(body: &Value) -> Value {
    json!([69, [[2, [1]], body]])
}

fn place(random: &mut SmallRng) -> (f64, f64) {
    // Most of it is near to 180° and the north pole, where a plane would be wrong.
    match random.random_range(0..3) {
        0 => (random.random_range(-180.0..180.0), random.random_range(-90.0..90.0)),
        1 => {
            let longitude: f64 = random.random_range(170.0..190.0);
            (if longitude > 180.0 { longitude - 360.0 } else { longitude }, random.random_range(-10.0..10.0))
        }
        _ => (random.random_range(-180.0..180.0), random.random_range(80.0..90.0)),
    }
}

fn pair((longitude, latitude): (f64, f64)) -> Value {
    json!([2, [longitude, latitude]])
}

/// A term that makes a shape.
fn shape(random: &mut SmallRng) -> Value {
    let (longitude, latitude) = place(random);
    let radius = 10f64.powf(random.random_range(1.0..6.2));
    match random.random_range(0..5) {
        0 | 1 => json!([159, [longitude, latitude]]),
        2 => json!([160, [pair((longitude, latitude)), pair(place(random))]]),
        3 => json!([165, [pair((longitude, latitude)), radius]]),
        _ => {
            let circle = |radius: f64| json!([165, [pair((longitude, latitude)), radius], {"num_vertices": 7}]);
            json!([171, [circle(radius), circle(radius / 2.0)]])
        }
    }
}

fn document(id: i64, random: &mut SmallRng) -> Value {
    let shapes: Vec<Value> = (0..random.random_range(0..4)).map(|_| shape(random)).collect();
    match random.random_range(0..10) {
        0 => json!({"id": id, "gs": [2, shapes]}),
        1 => json!({"id": id, "g": shape(random)}),
        _ => json!({"id": id, "g": shape(random), "gs": [2, shapes]}),
    }
}

fn sorted(rows: &Value) -> Vec<i64> {
    let rows = rows.as_array().unwrap_or_else(|| panic!("no rows: {rows}"));
    let mut ids: Vec<i64> = rows.iter().map(|id| id.as_i64().unwrap()).collect();
    ids.sort_unstable();
    ids
}

fn ids(of: &Value) -> Value {
    json!([170, [of, "id"]])
}

fn intersecting(index: &str, shape: &Value) -> Value {
    json!([166, [table("t"), shape], {"index": index}])
}

fn create_indexes(client: &mut Client) {
    for (name, options) in [("g", json!({"geo": true})), ("gs", json!({"geo": true, "multi": true}))] {
        assert_eq!(client.ask(&json!([75, [table("t"), name], options]))["created"], 1, "{name}");
    }
}

/// Compares searches with filters that read all documents.
fn check(client: &mut Client, random: &mut SmallRng, searches: usize) {
    for _ in 0..searches {
        let shape = shape(random);
        let filter = json!([39, [table("t"), function(&json!([163, [row("g"), shape]]))]]);
        let (found, wanted) = (client.ask(&ids(&intersecting("g", &shape))), client.ask(&ids(&filter)));
        assert_eq!(sorted(&found), sorted(&wanted), "{shape}");
        // A document comes once for each of its shapes.
        let shapes = json!([163, [[92, [row("gs"), [2, []]]], shape]]);
        let copies = json!([40, [table("t"), function(&json!([38, [shapes, [69, [[2, [2]], row("id")]]]]))]]);
        let (found, wanted) = (client.ask(&ids(&intersecting("gs", &shape))), client.ask(&copies));
        assert_eq!(sorted(&found), sorted(&wanted), "{shape} among many");
        let (longitude, latitude) = place(random);
        let center = json!([159, [longitude, latitude]]);
        let options = json!({"index": "g", "max_results": 7, "max_dist": 2000, "unit": "km"});
        let nearest = client.ask(&json!([168, [table("t"), center], options]));
        let nearest = nearest.as_array().unwrap_or_else(|| panic!("none near: {nearest}"));
        let distance = json!([162, [center, row("g")], {"unit": "km"}]);
        let all = json!([38, [[32, [table("t"), "g"]], function(&json!({"id": row("id"), "dist": distance}))]]);
        let all = json!([71, [[41, [all, "dist", "id"]], 7]]);
        let all = client.ask(&json!([39, [all, function(&json!([20, [row("dist"), 2000]]))]]));
        let pairs = |rows: &[Value], id: fn(&Value) -> &Value| {
            rows.iter().map(|row| (id(row).as_i64().unwrap(), row["dist"].as_f64().unwrap())).collect::<Vec<_>>()
        };
        assert_eq!(pairs(nearest, |row| &row["doc"]["id"]), pairs(all.as_array().unwrap(), |row| &row["id"]));
    }
}

fn change(client: &mut Client, random: &mut SmallRng, ids: i64) {
    let id = random.random_range(0..ids);
    let one = json!([16, [table("t"), id]]);
    let term = match random.random_range(0..3) {
        0 => json!([56, [table("t"), document(id, random)], {"conflict": "replace"}]),
        1 => json!([53, [one, {"g": shape(random)}], {"non_atomic": true}]),
        _ => json!([54, [one]]),
    };
    let answer = client.ask(&term);
    assert_eq!(answer["errors"], 0, "{term} {answer}");
}

#[test]
fn a_geospatial_index_finds_what_a_filter_finds() {
    let (data, port) = (tempfile::tempdir().unwrap(), free_port());
    let setting = format!("reql.port={port}");
    let mut node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    assert_eq!(client.ask(&json!([60, ["t"], {"shards": 8}]))["tables_created"], 1);
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    for part in 0..4 {
        let documents: Vec<Value> = (0..200).map(|id| document(200 * part + id, &mut random)).collect();
        assert_eq!(client.ask(&insert("t", &documents))["inserted"], 200);
    }
    // One is built over documents, the other one kept by writes.
    create_indexes(&mut client);
    let ready = client.ask(&json!([140, [table("t")]]));
    assert!(ready.as_array().unwrap().iter().all(|index| index["ready"] == true && index["geo"] == true), "{ready}");
    check(&mut client, &mut random, 40);
    for _ in 0..200 {
        change(&mut client, &mut random, 800);
    }
    check(&mut client, &mut random, 20);
    // What is no search by geometry is refused, and so is a search by another index.
    assert_eq!(client.ask(&json!([75, [table("t"), "id2", function(&row("id"))]]))["created"], 1);
    client.ask(&json!([140, [table("t")]]));
    let refused = [
        (json!([182, [table("t"), 0, 5], {"index": "g"}]), "Only get_nearest and get_intersecting can use"),
        (json!([41, [table("t")], {"index": "g"}]), "Only get_nearest and get_intersecting can use"),
        (json!([78, [table("t"), 1], {"index": "g"}]), "Only get_nearest and get_intersecting can use"),
        (json!([43, [[182, [table("t"), 0, 5], {"index": "g"}]]]), "Only get_nearest and get_intersecting can use"),
        (intersecting("id2", &json!([159, [0, 0]])), "Index `id2` is not a geospatial index."),
        (intersecting("none", &json!([159, [0, 0]])), "Index `none` was not found"),
    ];
    for (term, message) in refused {
        let answer = client.ask(&term);
        assert!(answer["r"][0].to_string().contains(message), "{term} {answer}");
    }
    // What index_status tells makes the same index again, as tools that restore backups do.
    let status = client.ask(&json!([139, [table("t"), "gs"]]));
    assert_eq!(client.ask(&json!([75, [table("t"), "again", status[0]["function"]]]))["created"], 1);
    let again = client.ask(&json!([140, [table("t"), "again"]]));
    assert_eq!((&again[0]["geo"], &again[0]["multi"]), (&json!(true), &json!(true)));
    let all = json!([165, [[2, [0, 90]], 3_000_000]]);
    let found = ["gs", "again"].map(|index| sorted(&client.ask(&ids(&intersecting(index, &all)))));
    assert_eq!(found[0], found[1]);
    // Documents that are found can be written.
    let count = client.ask(&json!([43, [intersecting("g", &all)]]));
    assert!(count.as_i64().unwrap() > 50, "{count}");
    assert_eq!(client.ask(&json!([53, [intersecting("g", &all), {"seen": true}]]))["replaced"], count);
    // All of it is there after a restart, and a split takes the indexes along.
    node.process.terminate();
    drop(node);
    node = Node::start(data.path(), &[&setting]);
    let mut client = Client::to(port);
    check(&mut client, &mut random, 5);
    node.cli("table alter test.t --partitions 16");
    wait_for("the split", PATIENCE, || {
        let answer = client.ask(&json!([43, [intersecting("g", &all)]]));
        let state = client.ask(&json!([174, [table("t")]]));
        (answer == count && state["shards"].as_array()?.len() == 16).then_some(())
    });
    check(&mut client, &mut random, 10);
}

/// A node goes while the indexes are built and documents change; another one is asked.
#[test]
fn a_geospatial_index_is_whole_whoever_leads() {
    let mut cluster = Cluster::start_with_reql(3);
    let ports = cluster.reql_ports();
    let mut client = Client::to(ports[0]);
    assert_eq!(client.ask(&json!([60, ["t"], {"replicas": 3, "shards": 8}]))["tables_created"], 1);
    let mut random = SmallRng::seed_from_u64(5);
    let documents: Vec<Value> = (0..300).map(|id| document(id, &mut random)).collect();
    // Leaders of a new table move to where they are to be, so the outcome of a write may not be known.
    wait_for("documents", PATIENCE, || {
        let answer = client.ask(&json!([56, [table("t"), [2, documents]], {"conflict": "replace"}]));
        let done = ["inserted", "replaced", "unchanged"].map(|what| answer[what].as_i64().unwrap_or(0));
        (done.iter().sum::<i64>() == 300).then_some(())
    });
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (stop, port) = (stop.clone(), ports[1]);
        std::thread::spawn(move || {
            let (mut random, mut client, mut writes) = (SmallRng::seed_from_u64(6), None, 0);
            // On a machine that is busy with other things, the indexes may be built before there are many writes.
            while !stop.load(Ordering::Relaxed) || writes < 20 {
                let Some(connection) = client.as_mut() else {
                    client = Client::try_to(port);
                    continue;
                };
                let id = random.random_range(0..300);
                let term = json!([56, [table("t"), document(id, &mut random)], {"conflict": "replace"}]);
                match Client::try_ask(connection, &term) {
                    Some(_) => writes += 1,
                    None => client = None,
                }
            }
        })
    };
    create_indexes(&mut client);
    cluster.kill(2);
    wait_for("the indexes", PATIENCE, || {
        let ready = client.ask(&json!([140, [table("t")]]));
        ready.as_array().filter(|ready| ready.iter().all(|index| index["ready"] == true)).map(|_| ())
    });
    stop.store(true, Ordering::Relaxed);
    writer.join().unwrap();
    check(&mut Client::to(ports[1]), &mut random, 20);
}
