//! What is done with documents, alone: nanoseconds of a processor for each. Two documents: ten fields of a hundred bytes, as
//! YCSB has them, and a nested one of a few hundred bytes.
//!
//! ```text
//! cargo run --release -p tessera-document --example parts
//! ```

use std::hint::black_box;
use std::time::{Duration, Instant};
use tessera_document::{Document, EncodedValue, IndexShape, SecondaryKey, Value, primary_key};

const MEASURED: Duration = Duration::from_millis(300);
/// So many rounds, of which the median counts.
const ROUNDS: usize = 7;

/// The time that this thread has had a processor, which other processes do not lengthen as they do the time on the wall.
fn cpu_nanoseconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("nanoseconds come first")
}

/// Measures `work`, which does something once, and prints a line.
fn measure(what: &str, bytes: usize, mut work: impl FnMut()) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let (start, cpu, mut count) = (Instant::now(), cpu_nanoseconds(), 0u32);
            while start.elapsed() < MEASURED {
                (0..256).for_each(|_| work());
                count += 256;
            }
            (cpu_nanoseconds() - cpu) / f64::from(count)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("| {what} | {bytes} | {:.0} | {:.0} to {:.0} |", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
}

fn ycsb() -> String {
    let field =
        |number: usize| format!("\"field{number}\":\"{}\"", (0..100).map(|at| letter(number + at)).collect::<String>());
    format!("{{\"id\":\"user6284781860667377211\",{}}}", (0..10).map(field).collect::<Vec<_>>().join(","))
}

fn letter(number: usize) -> char {
    char::from(b'a' + (number * 7 % 26) as u8)
}

const NESTED: &str = r#"{"id":4711,"name":"Ada \"Lovelace\"","active":true,"score":98.6,"tags":["math","engine","notes"],
    "born":{"$reql_type$":"TIME","epoch_time":-4865270400,"timezone":"+00:00"},"address":{"city":"London","street":
    {"name":"St James's Square","number":12},"position":[51.5074,-0.1278]},"visits":[1,2,3,5,8,13,21,34,55,89]}"#;

fn measure_document(name: &str, json: &str, first: &str, last: &str) {
    let value = Value::from_json(json).expect("JSON");
    let document = Document::encode(&value);
    let other = Document::encode(&Value::from_json(json).expect("JSON"));
    let encoded = document.value();
    let bytes = document.bytes().len();
    let mut out = Vec::with_capacity(4096);
    let line = |what: &str| format!("{name}: {what}");

    measure(&line("read JSON into a value"), json.len(), || {
        black_box(Value::from_json(black_box(json)).expect("JSON"));
    });
    measure(&line("encode a value"), bytes, || {
        out.clear();
        black_box(&value).encode(&mut out);
    });
    measure(&line("decode to a value"), bytes, || {
        black_box(black_box(encoded).to_value().expect("an encoding"));
    });
    measure(&line("check hostile bytes"), bytes, || {
        EncodedValue::check(black_box(document.bytes())).expect("an encoding");
    });
    measure(&line("read two fields"), bytes, || {
        black_box(black_box(encoded).get_field(first));
        black_box(black_box(encoded).get_field(last));
    });
    measure(&line("compare with an equal one"), bytes, || {
        black_box(black_box(encoded).cmp(&black_box(other.value())));
    });
    measure(&line("pluck two fields"), bytes, || {
        out.clear();
        let object = black_box(encoded).as_object().expect("an object");
        object.pluck(&[first, last], &mut out).expect("a small document");
    });
    measure(&line("change one field"), bytes, || {
        out.clear();
        let object = black_box(encoded).as_object().expect("an object");
        object.with_field(last, encoded.get_field(first).expect("a field"), &mut out).expect("a small document");
    });
    measure(&line("write JSON from the encoding"), json.len(), || {
        out.clear();
        black_box(encoded).write_json(&mut out).expect("no extrema");
    });
    measure(&line("write JSON from a value"), json.len(), || {
        out.clear();
        black_box(&value).write_json(&mut out).expect("no extrema");
    });
    measure(&line("primary key"), bytes, || {
        out.clear();
        let id = black_box(encoded).get_field("id").expect("a field");
        primary_key(id, &mut out).expect("a key");
    });
    measure(&line("secondary key and entry"), bytes, || {
        let mut entries = Vec::with_capacity(1);
        IndexShape::Single.entries(black_box(encoded).get_field(first), b"\x30", &mut entries);
        black_box(entries);
    });
}

fn main() {
    println!("| what | bytes | ns, median | range |\n|---|---|---|---|");
    measure_document("ten fields", &ycsb(), "field0", "field9");
    measure_document("nested", NESTED, "active", "visits");
    let number = Document::encode(&Value::from(12_345));
    measure("secondary key of a number", number.bytes().len(), || {
        black_box(SecondaryKey::of_entry(black_box(number.value())).expect("a key"));
    });
}
