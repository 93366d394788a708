//! CPU time of processes, and the cores they run on.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Cores of the machine by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cores {
    /// As it was given.
    text: String,
    /// Ascending, each once, and at least one.
    numbers: Vec<usize>,
}

impl Cores {
    /// # Errors
    /// As [`check`].
    pub fn check(&self) -> anyhow::Result<()> {
        check(&self.numbers)
    }

    pub fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Runs the calling thread on these cores only, and what it starts from now on.
    pub fn pin(&self) -> std::io::Result<()> {
        pin_to_all(&self.numbers)
    }
}

impl FromStr for Cores {
    type Err = String;

    /// Reads `0-2,5`.
    fn from_str(text: &str) -> Result<Self, String> {
        // As many as a set of cores has room for.
        let number = |text: &str| text.parse().ok().filter(|number: &usize| *number < 1_024);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(number(first)?..=number(last)?).filter(|range| !range.is_empty())
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        let ranges = ranges.ok_or_else(|| format!("'{text}' names no cores; an example: 0-2,5"))?;
        let numbers = ranges.into_iter().flatten().collect::<std::collections::BTreeSet<_>>();
        Ok(Self { text: text.into(), numbers: numbers.into_iter().collect() })
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl From<Cores> for String {
    fn from(cores: Cores) -> Self {
        cores.text
    }
}

impl TryFrom<String> for Cores {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// User and system time of a process with all its threads so far; `None` if there is no such process.
pub fn of_process(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name is in parentheses and may hold anything, so fields are counted behind it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_secs_f64(ticks as f64 / ticks_per_second()))
}

/// How many ticks a second has. The kernel counts CPU time in ticks.
pub fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second().max(1) as f64
}

/// CPU time of the calling thread.
pub fn of_this_thread() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Runs the calling thread on one core only.
pub fn pin_to(core: usize) -> std::io::Result<()> {
    pin_to_all(&[core])
}

/// # Errors
/// If this program cannot run on one of the cores, in words for people.
pub fn check(cores: &[usize]) -> anyhow::Result<()> {
    // The thread that tries ends at once, so nothing stays on the core.
    let is_there = |core: usize| std::thread::spawn(move || pin_to(core).is_ok()).join().unwrap_or(false);
    let Some(missing) = cores.iter().find(|core| !is_there(**core)) else { return Ok(()) };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let others = allowed.map_or(String::new(), |cores| format!("; it can on {}", cores.trim()));
    anyhow::bail!("this program cannot run on core {missing}{others}")
}

fn pin_to_all(cores: &[usize]) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if cores.iter().any(|core| *core >= rustix::thread::CpuSet::MAX_CPU) {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    cores.iter().for_each(|core| set.set(*core));
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_are_not_there_are_refused() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| allowed.is_set(*core)).unwrap();
        check(&[first]).unwrap();
        // The last one that a set has room for, and one that it has none for.
        for missing in [1_023, 99_999] {
            let error = check(&[first, missing]).unwrap_err().to_string();
            assert!(error.starts_with(&format!("this program cannot run on core {missing}; it can on ")), "{error}");
        }
    }

    #[test]
    fn cores_are_read() {
        let cores: Cores = "5,0-2,2".parse().unwrap();
        assert_eq!((&cores.numbers[..], cores.to_string().as_str()), (&[0, 1, 2, 5][..], "5,0-2,2"));
        for wrong in ["", "x", "3-1", "1-", "1,,2", "99999"] {
            assert!(wrong.parse::<Cores>().is_err(), "{wrong}");
        }
    }
}
