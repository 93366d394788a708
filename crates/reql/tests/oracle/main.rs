//! Plays what a RethinkDB server was recorded to answer, and says how much of it is answered alike here.
//!
//! `README.md` says where the recordings come from. Every area must answer at least what `floors.txt` says, so that no
//! change makes answers worse unseen. `make oracle` prints the rates; `ORACLE_ONLY=area` plays one area, `ORACLE_SHOW=20`
//! prints that many differences of each.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on is to fail")]

mod compare;
mod cut;
mod player;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use player::Tables;
use tessera_reql::{Json, parse_json};

/// Deeper than any recorded query or answer.
const JSON_DEPTH: usize = 2000;

/// How many steps of an area agreed.
#[derive(Default)]
struct Rates {
    steps: usize,
    passed: usize,
    /// Passed, and the place of errors agrees as well.
    placed: usize,
    /// Steps in `differences.txt` that agree all the same.
    agree_after_all: Vec<String>,
    differences: Vec<String>,
}

impl Rates {
    /// Steps that agreed in all, of 10,000.
    fn placed_per_myriad(&self) -> usize {
        self.placed * 10_000 / self.steps.max(1)
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle")
}

fn lines(path: &Path) -> Vec<Json> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| parse_json(line, JSON_DEPTH).unwrap()).collect()
}

pub fn text<'a>(json: &'a Json, name: &str) -> Option<&'a str> {
    match json.get(name) {
        Some(Json::String(text)) => Some(text),
        _ => None,
    }
}

/// Steps that differ on purpose, as `area/scenario/step`.
fn deliberate_differences() -> BTreeSet<String> {
    let text = fs::read_to_string(directory().join("differences.txt")).unwrap();
    text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).map(str::to_string).collect()
}

fn play_area(area: &str, path: &Path, shown: usize, deliberate: &BTreeSet<String>, tables: Tables) -> Rates {
    let mut scenarios: Vec<(String, Vec<Json>)> = Vec::new();
    for line in lines(path) {
        let name = text(&line, "s").unwrap().to_string();
        match scenarios.last_mut() {
            Some((last, steps)) if *last == name => steps.push(line),
            _ => scenarios.push((name, vec![line])),
        }
    }
    let only = std::env::var("ORACLE_SCENARIO").ok();
    let mut rates = Rates::default();
    for (name, steps) in scenarios {
        if only.as_ref().is_some_and(|only| !name.contains(only)) {
            continue;
        }
        let player = player::Player::new(tables);
        for step in steps {
            let Some(actual) = player.play(&step) else { continue };
            let expected = step.get("reply").unwrap();
            if matches!(expected, Json::Null) || name == "write hooks" || !player::is_in_scope(&step) {
                continue;
            }
            let verdict = compare::judge(&step, expected, &actual);
            let index = step.get("i").map(compare::write).unwrap_or_default();
            if deliberate.contains(&format!("{area}/{name}/{index}")) {
                if verdict.passed && verdict.placed {
                    rates.agree_after_all.push(format!("{area}/{name}/{index}"));
                }
                continue;
            }
            rates.steps += 1;
            rates.passed += usize::from(verdict.passed);
            rates.placed += usize::from(verdict.passed && verdict.placed);
            if !(verdict.passed && verdict.placed) && rates.differences.len() < shown {
                let query = step.get("q").or_else(|| step.get("text")).unwrap();
                let mut query = compare::write(query);
                query.truncate(query.floor_char_boundary(400));
                rates.differences.push(format!("    {name}[{index}] {query}\n        {}", verdict.difference));
            }
        }
    }
    rates
}

fn floors() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(directory().join("floors.txt")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#') && !line.trim().is_empty())
        .map(|line| {
            let (area, floor) = line.split_once(' ').unwrap();
            let rate: f64 = floor.trim().parse().unwrap();
            (area.to_string(), (rate * 100.0).round() as usize)
        })
        .collect()
}

#[test]
fn answers_are_those_of_rethinkdb() {
    play(Tables::Whole);
}

#[test]
fn answers_are_those_of_rethinkdb_from_the_parts_of_tables() {
    play(Tables::Cut);
}

fn play(tables: Tables) {
    let only = std::env::var("ORACLE_ONLY").ok();
    let shown = std::env::var("ORACLE_SHOW").map_or(3, |shown| shown.parse().unwrap());
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory().join("recordings")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (floors, deliberate) = (floors(), deliberate_differences());
    let areas: Vec<(String, PathBuf)> = files
        .into_iter()
        .map(|path| (path.file_name().unwrap().to_str().unwrap().split('.').next().unwrap().to_string(), path))
        .filter(|(area, _)| only.as_ref().is_none_or(|only| area.starts_with(only.as_str())))
        .collect();
    let queue = std::sync::Mutex::new(areas);
    let results = std::sync::Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let worker = std::thread::Builder::new().stack_size(16 << 20);
            worker
                .spawn_scoped(scope, || {
                    loop {
                        let Some((area, path)) = queue.lock().unwrap().pop() else { break };
                        let rates = play_area(&area, &path, shown, &deliberate, tables);
                        results.lock().unwrap().insert(area, rates);
                    }
                })
                .unwrap();
        }
    });
    let (mut total, mut sunk) = (Rates::default(), Vec::new());
    println!("{:20} {:>7} {:>8} {:>9}", "area", "steps", "passed %", "in all %");
    let rate = |count: usize, steps: usize| 100.0 * count as f64 / steps.max(1) as f64;
    for (area, rates) in results.into_inner().unwrap() {
        let (passed, placed) = (rate(rates.passed, rates.steps), rate(rates.placed, rates.steps));
        println!("{area:20} {:7} {passed:8.2} {placed:9.2}", rates.steps);
        for difference in &rates.differences {
            println!("{difference}");
        }
        match floors.get(&area) {
            Some(floor) if rates.placed_per_myriad() < *floor => {
                sunk.push(format!("{area}: {placed:.2}, floor {:.2}", *floor as f64 / 100.0));
            }
            Some(_) => {}
            None => sunk.push(format!("{area} has no floor")),
        }
        if let Tables::Whole = tables {
            // In parts, rows that are evaluated one after the other agree with RethinkDB where batches do not.
            sunk.extend(rates.agree_after_all.iter().map(|step| format!("{step} does not differ any more")));
        }
        total.steps += rates.steps;
        total.passed += rates.passed;
        total.placed += rates.placed;
    }
    println!(
        "{:20} {:7} {:8.2} {:9.2}",
        "all",
        total.steps,
        rate(total.passed, total.steps),
        rate(total.placed, total.steps)
    );
    println!("{} steps differ on purpose (differences.txt)", deliberate.len());
    assert!(sunk.is_empty() || std::env::var("ORACLE_SCENARIO").is_ok(), "answers have become worse: {sunk:?}");
}
