//! A part of the recordings that is played in less time.

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::{Json, text};

/// Terms that change documents, tables or databases, so that later steps rest on them.
const CHANGES: &[i32] = &[53, 54, 55, 56, 57, 58, 60, 61, 68, 75, 76, 138, 140, 156, 174, 176, 177, 179, 188, 189];

/// Of each area, this share of the scenarios, and of those this share of the steps that change nothing. A scenario is either left
/// out or all that it changes is done, so that the steps that are played mean what they meant.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Chooses which scenarios and steps are played.
    pub seed: u64,
    /// The share of scenarios that are played, from 0 to 1.
    pub scenarios: f64,
    /// The share of steps that change nothing which are played, from 0 to 1.
    pub steps: f64,
}

impl Sample {
    /// Which scenarios of an area are played: at least one.
    pub fn scenarios(&self, area: &str, count: usize) -> Vec<bool> {
        let mut random = self.random(area);
        let mut played: Vec<bool> = (0..count).map(|_| random.random_bool(self.scenarios)).collect();
        if !played.contains(&true) {
            played[random.random_range(0..count)] = true;
        }
        played
    }

    /// Which steps of a scenario are played.
    pub fn steps(&self, scenario: &str, steps: &[Json]) -> Vec<bool> {
        let mut random = self.random(scenario);
        steps.iter().map(|step| has_effect(step) || random.random_bool(self.steps)).collect()
    }

    fn random(&self, name: &str) -> StdRng {
        let number = name.bytes().fold(self.seed, |number, byte| number.wrapping_mul(31).wrapping_add(byte.into()));
        StdRng::seed_from_u64(number)
    }
}

fn has_effect(step: &Json) -> bool {
    let opens_or_reads = matches!(text(step, "op"), Some("login" | "open" | "read" | "drain" | "stop"));
    opens_or_reads
        || matches!(step.get("setup"), Some(Json::Bool(true)))
        || text(step, "op") == Some("q") && step.get("q").is_some_and(changes)
}

fn changes(json: &Json) -> bool {
    match json {
        Json::Array(items) => {
            let is_change = matches!(items.first(), Some(Json::Number(code)) if CHANGES.contains(&(*code as i32)));
            let has_arguments = matches!(items.get(1), Some(Json::Array(_)));
            is_change && has_arguments || items.iter().any(changes)
        }
        Json::Object(fields) => fields.iter().any(|(_, value)| changes(value)),
        _ => false,
    }
}
