//! Write hooks through the ReQL port of a cluster.

use crate::cluster::Cluster;
use crate::reql::{Client, insert, table};
use serde_json::{Value, json};

fn hook(body: Value) -> Value {
    json!([189, [table("t"), [69, [[2, [1, 2, 3]], body]]]])
}

fn get(id: i64) -> Value {
    json!([16, [table("t"), id]])
}

/// A hook that was set through one node holds for writes of every form through all nodes, at once, and goes with the table when that is
/// split or its nodes start again.
#[test]
fn every_write_goes_through_the_hook_of_its_table_whoever_is_asked() {
    let mut cluster = Cluster::start_with_reql(3);
    let mut clients: Vec<Client> = cluster.reql_ports().into_iter().map(Client::to).collect();
    clients[0].ask(&json!([60, ["t"], {"shards": 2, "replicas": 3}]));
    clients[0].ask(&json!([177, [table("t")]]));
    let mut id = 0;
    for round in 0..20 {
        let (setter, writer) = (round % 3, (round + 1) % 3);
        let set = clients[setter].ask(&hook(json!([35, [[10, [3]], {"round": round}]])));
        assert_eq!(set, json!({ (if round == 0 { "created" } else { "replaced" }): 1 }));
        id += 1;
        let one = clients[writer].ask(&insert("t", &[json!({"id": id})]));
        assert_eq!(one["inserted"], 1, "{one}");
        assert_eq!(clients[setter].ask(&get(id))["round"], round, "what one insert has written");
        id += 1;
        let many = clients[writer].ask(&insert("t", &[json!({"id": id}), json!({"id": id + 1000})]));
        assert_eq!(many["inserted"], 2, "{many}");
        let updated = clients[writer].ask(&json!([53, [get(1), {"n": round}]]));
        assert_eq!(updated["errors"], 0, "{updated}");
        let document = clients[setter].ask(&get(1));
        assert_eq!((&document["round"], &document["n"]), (&json!(round), &json!(round)));
        let together = json!([56, [table("t"), {"id": id + 2000}], {"atomic": true}]);
        let together = clients[writer].ask(&together);
        assert_eq!(together["inserted"], 1, "{together}");
        assert_eq!(clients[setter].ask(&get(id + 2000))["round"], round, "what an atomic query has written");
    }
    let before = clients[1].ask(&json!([190, [table("t")]]));
    assert_eq!(before["query"], "setWriteHook(function(var1, var2, var3) { return var3.merge({\"round\": 19}); })");
    cluster.cli(0, "table alter test.t --partitions 4").unwrap();
    cluster.wait_until_whole();
    cluster.kill(1);
    cluster.start_node(1);
    cluster.wait_until_whole();
    let mut again = Client::to(cluster.reql_ports()[1]);
    assert_eq!(again.ask(&json!([190, [table("t")]])), before);
    assert_eq!(again.ask(&insert("t", &[json!({"id": "late"})]))["inserted"], 1);
    assert_eq!(again.ask(&json!([16, [table("t"), "late"]]))["round"], 19);
    // The function travels as bytes, as tools for copies carry it, and a write may pass by it.
    assert_eq!(again.ask(&json!([189, [table("t"), before["function"].clone()]])), json!({"replaced": 1}));
    let past = json!([56, [table("t"), {"id": "past"}], {"ignore_write_hook": true}]);
    assert_eq!(again.ask(&past)["inserted"], 1);
    assert_eq!(again.ask(&json!([16, [table("t"), "past"]])), json!({"id": "past"}));
    assert_eq!(again.ask(&json!([189, [table("t"), null]])), json!({"deleted": 1}));
    assert_eq!(again.ask(&json!([190, [table("t")]])), Value::Null);
}
