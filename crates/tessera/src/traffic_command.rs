//! What `tessera table traffic` and `tessera table hot-keys` print.

use crate::size::size;
use serde_json::Value;

pub fn print_traffic(partitions: &Value) {
    println!(
        "{:>9} {:>7} {:>14} {:>9} {:>9} {:>12} {:>13}  hot",
        "partition", "leader", "size", "reads/s", "writes/s", "read units/s", "write units/s"
    );
    for partition in partitions.as_array().into_iter().flatten() {
        let number = |value: &Value| value.as_u64().map_or("-".into(), |number| number.to_string());
        let per_second = &partition["per_second"];
        let hot = ["reads", "writes"].into_iter().filter(|what| partition[format!("is_hot_for_{what}")] == true);
        println!(
            "{:>9} {:>7} {:>14} {:>9} {:>9} {:>12} {:>13}  {}",
            partition["partition"].to_string(),
            number(&partition["leader"]),
            size(&partition["bytes"]),
            number(&per_second["reads"]),
            number(&per_second["writes"]),
            number(&per_second["read_units"]),
            number(&per_second["write_units"]),
            hot.collect::<Vec<_>>().join(", ")
        );
    }
}

pub fn print_hot_keys(found: &Value) {
    for what in ["reads", "writes"] {
        let keys = found[what].as_array().map(Vec::as_slice).unwrap_or_default();
        println!(
            "{what}: {} sampled, {} hash keys with 5 % of them or more",
            found[format!("sampled_{what}")],
            keys.len()
        );
        for key in keys {
            println!(
                "  {:>5.1} %  {}",
                100.0 * key["share"].as_f64().unwrap_or(0.0),
                key["hash_key"].as_str().unwrap_or("-")
            );
        }
    }
}
