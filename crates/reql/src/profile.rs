//! How long the parts of a query took, which the option `profile` asks for, as RethinkDB tells it.
//!
//! A term is a task, and the terms that it has evaluated, and what it has asked of tables, are tasks in it. What is done again, for another
//! row or another page, is told as one task, with how often it was done and how long it took on average. So a profile is about as long
//! as its query.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::Result;
use crate::value::{self, Value};

/// The tasks that a profile tells, at most.
const MAX_TASKS: usize = 1_000;

/// What is measured of a query until its next answer.
#[derive(Debug, Default)]
pub struct Profile(Mutex<Tasks>);

#[derive(Debug, Default)]
struct Tasks {
    /// Those under way, each one a part of the one before it.
    open: Vec<Task>,
    done: Vec<Task>,
    count: usize,
}

#[derive(Debug)]
struct Task {
    /// Tells terms apart that are called the same.
    number: usize,
    description: String,
    took: Duration,
    times: u32,
    parts: Vec<Task>,
}

/// A task that is under way, until dropped.
pub(crate) struct UnderWay<'a> {
    profile: &'a Profile,
    began: Instant,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.profile.tasks().end(self.began.elapsed());
    }
}

impl Profile {
    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures a task until what this returns goes. The same task may be done again.
    pub(crate) fn begin(&self, number: usize, description: String) -> UnderWay<'_> {
        let task = Task { number, description, took: Duration::ZERO, times: 1, parts: Vec::new() };
        self.tasks().open.push(task);
        UnderWay { profile: self, began: Instant::now() }
    }

    /// What was measured, as JSON. What comes later is another profile.
    pub fn take(&self) -> Vec<u8> {
        let tasks = {
            let mut tasks = self.tasks();
            tasks.count = 0;
            std::mem::take(&mut tasks.done)
        };
        let mut out = Vec::new();
        let written = told(&tasks).is_ok_and(|told| told.write_json(&mut out).is_ok());
        if written { out } else { b"[]".to_vec() }
    }
}

impl Tasks {
    fn end(&mut self, took: Duration) {
        let Some(mut task) = self.open.pop() else { return };
        task.took = took;
        let siblings = match self.open.last_mut() {
            Some(outer) => &mut outer.parts,
            None => &mut self.done,
        };
        let is_same = |known: &&mut Task| known.number == task.number && known.description == task.description;
        match siblings.iter_mut().rev().find(is_same) {
            Some(known) => {
                known.took += took;
                known.times = known.times.saturating_add(1);
                // They would be those of the first time.
                let parts = std::mem::take(&mut known.parts);
                self.count -= size(&parts) + size(&task.parts);
            }
            None if self.count < MAX_TASKS => {
                siblings.push(task);
                self.count += 1;
            }
            None => self.count -= size(&task.parts),
        }
    }
}

/// The number of tasks, with those in them.
fn size(tasks: &[Task]) -> usize {
    tasks.iter().map(|task| 1 + size(&task.parts)).sum()
}

fn told(tasks: &[Task]) -> Result<Value> {
    let millis = |took: Duration| value::number(took.as_nanos() as f64 / 1e6);
    let tell = |task: &Task| {
        let description = ("description", Value::from(task.description.clone()));
        match task.times {
            1 => value::object([description, ("duration(ms)", millis(task.took)?), ("sub_tasks", told(&task.parts)?)]),
            times => value::object([
                description,
                ("mean_duration(ms)", millis(task.took / times)?),
                ("n_samples", Value::from(times)),
            ]),
        }
    };
    Ok(Value::array(tasks.iter().map(tell).collect::<Result<_>>()?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(profile: &Profile) -> String {
        let text = String::from_utf8(profile.take()).unwrap();
        // How long something took is another thing each time.
        let digits = |c: char| c.is_ascii_digit() || ".e-".contains(c);
        let (mut out, mut rest) = (String::new(), text.as_str());
        while let Some((before, after)) = rest.split_once("duration(ms)\":") {
            out += before;
            out += "took\":_";
            rest = after.trim_start_matches(digits);
        }
        out + rest
    }

    #[test]
    fn tasks_have_parts_and_those_that_are_done_again_are_one() {
        let profile = Profile::default();
        let name = |name: &str| name.to_string();
        {
            let _outer = profile.begin(1, name("outer"));
            for row in 0..3 {
                let _function = profile.begin(2, name("function"));
                let _field = profile.begin(3 + row, name("field"));
            }
            drop(profile.begin(9, name("function")));
        }
        drop(profile.begin(4, name("next")));
        let inner = r#"{"description":"function","mean_took":_,"n_samples":3},{"description":"function","took":_,"sub_tasks":[]}"#;
        let expected = format!(
            r#"[{{"description":"outer","took":_,"sub_tasks":[{inner}]}},{{"description":"next","took":_,"sub_tasks":[]}}]"#
        );
        assert_eq!(text(&profile), expected);
        assert_eq!(text(&profile), "[]");
    }

    #[test]
    fn a_profile_is_not_long() {
        let profile = Profile::default();
        for number in 0..3_000 {
            let _outer = profile.begin(number, "outer".into());
            drop(profile.begin(0, "inner".into()));
        }
        let tasks = profile.tasks();
        assert_eq!((size(&tasks.done), tasks.count), (MAX_TASKS, MAX_TASKS));
        drop(tasks);
        // Rows of which each has parts are one.
        profile.take();
        for _ in 0..3_000 {
            let _outer = profile.begin(1, "outer".into());
            drop(profile.begin(0, "inner".into()));
        }
        assert_eq!(profile.tasks().count, 1);
    }
}
