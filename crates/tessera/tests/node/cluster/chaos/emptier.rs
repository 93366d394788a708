//! Whoever truncates, drops and recalls a table while clients use it.

use super::emptied::{Emptied, NAMES, OF_EMPTIED, read};
use crate::cluster::checks::emptyings::{Emptying, Table};
use crate::cluster::{Cluster, WHOLE};
use crate::reql::Client;
use crate::server::{tessera, wait_for};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a node is waited for, and how long when nothing happens to any of them.
const TIMEOUT_SECONDS: &str = "15";
const CALM_TIMEOUT_SECONDS: &str = "60";
/// How long it may take until a table that was dropped can be recalled, whatever happens to nodes.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(50);

/// Empties one of the tables.
pub struct Emptier<'a> {
    emptied: &'a Emptied,
    /// Where nodes are asked.
    admins: Vec<String>,
    /// Which of the tables.
    table: usize,
    /// The number of the table, which the empty one takes over each time.
    number: u64,
    random: StdRng,
    attempts: Vec<Attempt>,
    /// What truncated tables held, and can be recalled.
    held: Vec<u64>,
    recalled: Vec<u64>,
    pub drops: u32,
}

/// A truncation that was asked for.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    began: u64,
    ended: u64,
    /// By which number what the table held can be recalled; `None` if it was not said that it is empty.
    held: Option<u64>,
}

/// Has one of some nodes carry out a command.
fn cli(admin: &str, timeout_seconds: &str, arguments: &str) -> Result<Value, String> {
    let fixed = ["--json", "--timeout", timeout_seconds, "--admin", admin];
    let output = tessera().args(arguments.split(' ')).args(fixed).output().unwrap();
    match output.status.success() {
        true => serde_json::from_slice(&output.stdout).map_err(|error| error.to_string()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

impl<'a> Emptier<'a> {
    /// One of a cluster that is whole.
    pub fn new(emptied: &'a Emptied, cluster: &Cluster, table: usize, seed: u64) -> Self {
        let admins: Vec<String> = cluster.running().into_iter().map(|at| cluster.admin(at)).collect();
        let show = format!("table show {}", OF_EMPTIED[table].name);
        let shown = cli(&admins[0], CALM_TIMEOUT_SECONDS, &show).unwrap();
        Self {
            emptied,
            admins,
            table,
            number: shown["number"].as_u64().unwrap(),
            random: StdRng::seed_from_u64(seed),
            attempts: Vec::new(),
            held: Vec::new(),
            recalled: Vec::new(),
            drops: 0,
        }
    }

    fn name(&self) -> &'static str {
        OF_EMPTIED[self.table].name
    }

    /// The name under which what it held is recalled.
    fn name_of(&self, held: u64) -> String {
        format!("{}{held}", self.name())
    }

    fn cli(&mut self, arguments: &str) -> Result<Value, String> {
        cli(self.admins.choose(&mut self.random).unwrap(), TIMEOUT_SECONDS, arguments)
    }

    fn pause(&mut self, most_millis: u64) {
        std::thread::park_timeout(Duration::from_millis(self.random.random_range(0..most_millis)));
    }

    fn is_over(&self) -> bool {
        self.emptied.is_calm.load(Ordering::Relaxed) || self.emptied.stop.load(Ordering::Relaxed)
    }

    /// What it does until all faults are over.
    pub fn run(mut self) -> Self {
        while !self.is_over() {
            self.pause(1_500);
            match self.random.random_range(0..10) {
                0..6 => self.truncate(),
                6..8 => self.drop_and_recall(),
                8 => self.recall(),
                _ => self.drop_again(),
            }
            self.bring_back();
        }
        self
    }

    fn truncate(&mut self) {
        let began = self.emptied.now();
        let truncated = self.cli(&format!("table truncate {} --yes", self.name()));
        let held = truncated.ok().map(|truncated| truncated["number"].as_u64().expect("it has a number"));
        self.attempts.push(Attempt { began, ended: self.emptied.now(), held });
        self.held.extend(held);
        // Whatever is still on its way to the table that was truncated must not reach it.
        if held.is_some() && self.random.random_bool(0.5) {
            self.recall();
        }
    }

    /// Brings back what was last truncated, beside the table.
    fn recall(&mut self) {
        let Some(held) = self.held.pop() else { return };
        // If it is not said that it was done, it may be done all the same.
        if self.cli(&format!("table recall {held} --as {}", self.name_of(held))).is_ok() {
            self.recalled.push(held);
        }
    }

    /// Drops what was recalled.
    fn drop_again(&mut self) {
        if let Some(held) = self.recalled.pop() {
            let _ = self.cli(&format!("table drop {}", self.name_of(held)));
        }
    }

    fn drop_and_recall(&mut self) {
        let _ = self.cli(&format!("table drop {}", self.name()));
        self.drops += 1;
        self.pause(400);
    }

    /// Recalls the table if it is not there.
    fn bring_back(&mut self) {
        let began = Instant::now();
        while let Err(error) = self.cli(&format!("table show {}", self.name())) {
            if began.elapsed() > PATIENCE {
                return self.emptied.contradict(format!("{} is not there for {PATIENCE:?}: {error}", self.name()));
            }
            let _ = self.cli(&format!("table recall {}", self.number));
            std::thread::park_timeout(STEP);
        }
    }

    /// Recalls all that was truncated, and returns what is found in it. Nobody writes any more, and the cluster is whole.
    pub fn finish(mut self, cluster: &Cluster, client: &mut Client) -> Table {
        self.bring_back();
        let name = self.name();
        let admin = cluster.admin(cluster.running()[0]);
        let number = |table: &Value| table["number"].as_u64().expect("tables have numbers");
        let names = |of: &str| {
            let tables = cli(&admin, CALM_TIMEOUT_SECONDS, of).unwrap();
            let is_own = |table: &&Value| table["name"].as_str().is_some_and(|its| its.starts_with(name));
            tables.as_array().unwrap().iter().filter(is_own).map(number).collect::<Vec<u64>>()
        };
        for held in names("table list --dropped") {
            let recall = format!("table recall {held} --as {}", self.name_of(held));
            cli(&admin, CALM_TIMEOUT_SECONDS, &recall).unwrap();
        }
        let mut held = names("table list");
        held.retain(|held| *held != self.number);
        held.sort_unstable();
        let is_there = |held: &u64| cluster.cli(cluster.running()[0], &format!("table show {}{held}", name)).is_ok();
        wait_for("what was truncated is there", WHOLE, || held.iter().all(is_there).then_some(()));
        let mut lives: Vec<_> = held.iter().map(|held| read(client, &format!("{}{held}", NAMES[self.table]))).collect();
        lives.push(read(client, NAMES[self.table]));
        Table { emptyings: self.emptyings(&held), lives }
    }

    /// When the table was emptied, by the numbers of what it held, which go up.
    fn emptyings(&self, held: &[u64]) -> Vec<Emptying> {
        let known = self.attempts.iter().filter_map(|attempt| Some((attempt.held?, attempt)));
        let known: BTreeMap<u64, &Attempt> = known.collect();
        for (number, attempt) in &known {
            if !held.contains(number) {
                self.emptied.contradict(format!("what {} held at {attempt:?} is not there", self.name()));
            }
        }
        let unknown = self.attempts.iter().find(|attempt| attempt.held.is_none());
        let mut emptyings: Vec<Emptying> = held
            .iter()
            .map(|number| match (known.get(number), unknown) {
                (Some(attempt), _) => Emptying { began: attempt.began, ended: attempt.ended },
                (None, Some(first)) => Emptying { began: first.began, ended: u64::MAX },
                (None, None) => {
                    self.emptied
                        .contradict(format!("{} was emptied, and nobody has asked for it: {number}", self.name()));
                    Emptying { began: 0, ended: u64::MAX }
                }
            })
            .collect();
        let mut began = 0;
        for emptying in &mut emptyings {
            began = emptying.began.max(began);
            emptying.began = began;
        }
        let mut ended = u64::MAX;
        for emptying in emptyings.iter_mut().rev() {
            ended = emptying.ended.min(ended);
            emptying.ended = ended;
        }
        emptyings
    }
}
