//! What a player is expected to answer alike, and whether it does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::scope::{has_scope, is_in_scope};
use crate::{Area, Json, Player, Sample, areas, judge, write};

/// So many steps that differ may stand together in a scenario.
const CLUSTER: f64 = 8.0;

/// What is expected of a player.
pub struct Expected {
    /// Where the file lies that says, for each area, which share of its steps must be answered alike.
    floors: PathBuf,
    /// Steps that differ on purpose, as `area/scenario/step`.
    deliberate: BTreeSet<String>,
    /// Everything is played without one.
    sample: Option<Sample>,
    /// Areas that are not played.
    without: &'static [&'static str],
    /// Whether steps that differ on purpose may agree.
    may_be_better: bool,
}

/// How many steps of an area agreed.
#[derive(Default)]
struct Rates {
    steps: usize,
    passed: usize,
    /// Passed, and the place of errors agrees as well.
    placed: usize,
    /// Steps that are said to differ on purpose, and agree all the same.
    agree_after_all: Vec<String>,
    differences: Vec<String>,
}

/// The lines of a file that are no comments.
fn read_list(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).map(str::to_string).collect()
}

impl Expected {
    /// What `floors.txt` in a directory says, and that nothing but `differences.txt` differs on purpose: the list that all players
    /// share, and the one in the directory, if there is one.
    pub fn of(directory: &Path) -> Self {
        let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("differences.txt");
        let own = directory.join("differences.txt");
        let own = if own.exists() { read_list(&own) } else { Vec::new() };
        let deliberate = read_list(&shared).into_iter().chain(own).collect();
        Self { floors: directory.join("floors.txt"), deliberate, sample: None, without: &[], may_be_better: false }
    }

    /// Plays a sample of the steps only, and lets the shares fall short of the floors by what chance explains.
    #[must_use]
    pub fn in_sample(self, sample: Option<Sample>) -> Self {
        Self { sample, ..self }
    }

    /// Leaves these areas out, and scenarios that are named as `area/scenario`.
    #[must_use]
    pub fn without(self, areas: &'static [&'static str]) -> Self {
        Self { without: areas, ..self }
    }

    /// Of a player that shares its list of deliberate differences with another one, and may have fewer of them.
    #[must_use]
    pub fn or_better(self) -> Self {
        Self { may_be_better: true, ..self }
    }

    fn floors(&self) -> BTreeMap<String, f64> {
        let line = |line: String| {
            let (area, percent) = line.split_once(' ').unwrap();
            (area.to_string(), percent.trim().parse::<f64>().unwrap() / 100.0)
        };
        read_list(&self.floors).into_iter().map(line).collect()
    }

    /// Plays the areas, each by one of the players, and prints what came of it.
    ///
    /// # Panics
    /// If an area does not reach its floor, or a step does not differ any more that is said to.
    pub fn check<P: Player + Send>(&self, players: Vec<P>) {
        let only = std::env::var("ORACLE_ONLY").ok();
        let is_wanted = |area: &Area| {
            !self.without.contains(&&*area.name)
                && only.as_ref().is_none_or(|only| area.name.starts_with(only.as_str()))
        };
        let mut wanted: Vec<Area> = areas().into_iter().filter(is_wanted).collect();
        // They are taken from the end: the largest first, so that none is left alone when all others are done.
        wanted.reverse();
        let (queue, results) = (Mutex::new(wanted), Mutex::new(BTreeMap::new()));
        std::thread::scope(|scope| {
            for mut player in players {
                let (queue, results) = (&queue, &results);
                let worker = std::thread::Builder::new().stack_size(16 << 20);
                let work = move || {
                    loop {
                        let Some(area) = queue.lock().unwrap().pop() else { break };
                        let rates = self.play(&area, &mut player);
                        results.lock().unwrap().insert(area.name, rates);
                    }
                };
                worker.spawn_scoped(scope, work).unwrap();
            }
        });
        self.tell(&results.into_inner().unwrap());
    }

    fn play(&self, area: &Area, player: &mut impl Player) -> Rates {
        let shown = std::env::var("ORACLE_SHOW").map_or(3, |shown| shown.parse().unwrap());
        let only = std::env::var("ORACLE_SCENARIO").ok();
        let scenarios = area.scenarios();
        let chosen = self.sample.map(|sample| sample.scenarios(&area.name, scenarios.len()));
        let mut rates = Rates::default();
        for (number, scenario) in scenarios.iter().enumerate() {
            let name = &scenario.name;
            let is_chosen = chosen.as_ref().is_none_or(|chosen| chosen[number]);
            let is_without = self.without.contains(&format!("{}/{name}", area.name).as_str());
            if !is_chosen || is_without || !has_scope(name) || only.as_ref().is_some_and(|only| !name.contains(only)) {
                continue;
            }
            player.begin();
            let chosen = self.sample.map(|sample| sample.steps(name, &scenario.steps));
            for (at, step) in scenario.steps.iter().enumerate() {
                if chosen.as_ref().is_some_and(|chosen| !chosen[at]) {
                    continue;
                }
                let Some(actual) = player.play(step) else { continue };
                let expected = step.get("reply").unwrap();
                if matches!(expected, Json::Null) || !is_in_scope(name, step) {
                    continue;
                }
                let verdict = judge(step, expected, &actual);
                let is_alike = verdict.passed && verdict.placed;
                let index = step.get("i").map(write).unwrap_or_default();
                let step_name = format!("{}/{name}/{index}", area.name);
                if self.deliberate.contains(&step_name) {
                    if is_alike && !self.may_be_better {
                        rates.agree_after_all.push(step_name);
                    }
                    continue;
                }
                rates.steps += 1;
                rates.passed += usize::from(verdict.passed);
                rates.placed += usize::from(is_alike);
                if !is_alike && rates.differences.len() < shown {
                    let asked = ["q", "text", "send", "op"].into_iter().find_map(|field| step.get(field)).unwrap();
                    let mut asked = write(asked);
                    asked.truncate(asked.floor_char_boundary(400));
                    rates.differences.push(format!("    {name}[{index}] {asked}\n        {}", verdict.difference));
                }
            }
        }
        rates
    }

    fn tell(&self, results: &BTreeMap<String, Rates>) {
        let floors = self.floors();
        let (mut total, mut sunk) = (Rates::default(), Vec::new());
        println!("{:20} {:>7} {:>8} {:>9}", "area", "steps", "passed %", "in all %");
        let rate = |count: usize, steps: usize| 100.0 * count as f64 / steps.max(1) as f64;
        for (area, rates) in results {
            let (passed, placed) = (rate(rates.passed, rates.steps), rate(rates.placed, rates.steps));
            println!("{area:20} {:7} {passed:8.2} {placed:9.2}", rates.steps);
            rates.differences.iter().for_each(|difference| println!("{difference}"));
            match floors.get(area) {
                Some(floor) if !self.reaches(rates, *floor) => {
                    sunk.push(format!("{area}: {placed:.2}, floor {:.2}", 100.0 * floor));
                }
                Some(_) => {}
                None => sunk.push(format!("{area} has no floor")),
            }
            sunk.extend(rates.agree_after_all.iter().map(|step| format!("{step} does not differ any more")));
            total.steps += rates.steps;
            total.passed += rates.passed;
            total.placed += rates.placed;
        }
        let (passed, placed) = (rate(total.passed, total.steps), rate(total.placed, total.steps));
        println!("{:20} {:7} {passed:8.2} {placed:9.2}", "all", total.steps);
        println!("{} steps differ on purpose (differences.txt)", self.deliberate.len());
        assert!(sunk.is_empty() || std::env::var("ORACLE_SCENARIO").is_ok(), "answers have become worse: {sunk:?}");
    }

    /// A part of an area may by chance hold more of the steps that differ than the whole, by three standard deviations and a cluster:
    /// scenarios are played whole, and steps that differ stand together in some.
    fn reaches(&self, rates: &Rates, floor: f64) -> bool {
        let differing = rates.steps - rates.placed;
        let expected = rates.steps as f64 * (1.0 - floor);
        let slack = if self.sample.is_some() { 3.0 * (expected * CLUSTER).sqrt() + CLUSTER } else { 1e-6 };
        differing as f64 <= expected + slack
    }
}
