//! What else the machine does while something is measured.

use crate::cpu;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// From this share of the machine on, others disturb a run.
const DISTURBS: f64 = 0.1;

/// Shares of all cores' time during a run, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineLoad {
    /// Used by processes that are neither the servers nor the load generator; `None` if the servers' processes are not known.
    pub others_share: Option<f64>,
    /// Taken by the hypervisor for other machines ("steal").
    pub steal_share: f64,
}

impl MachineLoad {
    /// What a reader of the figures should know of it.
    pub fn warning(&self) -> Option<String> {
        let shown = |share: f64, who: &str| {
            (share > DISTURBS).then(|| format!("{who} took {:.0} % of the machine during the run", 100.0 * share))
        };
        shown(self.others_share.unwrap_or(0.0), "other processes")
            .or_else(|| shown(self.steal_share, "the hypervisor"))
            .map(|what| what + ": repeat it on a quiet machine, or compare ratios of one run only")
    }
}

/// All cores' time since the machine was started, in ticks, and CPU time of this process.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    busy: u64,
    stolen: u64,
    total: u64,
    own: Duration,
}

impl Sample {
    /// `None` where the kernel does not tell.
    pub fn take() -> Option<Self> {
        let own = cpu::of_process(std::process::id())?;
        Self::read(&std::fs::read_to_string("/proc/stat").ok()?, own)
    }

    fn read(stat: &str, own: Duration) -> Option<Self> {
        let ticks = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = ticks.map(str::parse).collect::<Result<_, _>>().ok()?;
        // Guests' time, behind these, is counted as user time already.
        let [user, nice, system, idle, io_wait, interrupts, soft_interrupts, stolen] = *ticks.get(..8)?.as_array()?;
        let busy = user + nice + system + interrupts + soft_interrupts;
        Some(Self { busy, stolen, total: busy + stolen + idle + io_wait, own })
    }

    /// What happened since an earlier sample, while the servers used so much time.
    pub fn since(&self, earlier: &Self, servers: Option<Duration>) -> Option<MachineLoad> {
        let total = self.total.checked_sub(earlier.total).filter(|total| *total > 0)? as f64;
        let ticks = |time: Duration| time.as_secs_f64() * cpu::ticks_per_second();
        let busy = self.busy.saturating_sub(earlier.busy) as f64;
        let own = ticks(self.own.saturating_sub(earlier.own));
        let others = servers.map(|servers| (busy - own - ticks(servers)).max(0.0) / total);
        Some(MachineLoad {
            others_share: others,
            steal_share: self.stolen.saturating_sub(earlier.stolen) as f64 / total,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_others_is_what_neither_servers_nor_load_generator_used() {
        let at = |stat: &str, own| Sample::read(stat, Duration::from_secs(own)).unwrap();
        let before = at("cpu  100 0 50 800 0 0 0 50 0 0\ncpu0 1 2 3\n", 1);
        let after = at("cpu  700 0 250 900 0 0 0 150 0 0\n", 2);
        // 1,000 ticks went by; 800 were busy, of which 100 are the load generator's and 500 the servers'.
        let ticks = cpu::ticks_per_second();
        let seconds = |of: f64| Duration::from_secs_f64(of / ticks);
        let after = Sample { own: before.own + seconds(100.0), ..after };
        let load = after.since(&before, Some(seconds(500.0))).unwrap();
        assert!((load.others_share.unwrap() - 0.2).abs() < 1e-9 && (load.steal_share - 0.1).abs() < 1e-9, "{load:?}");
        assert!(load.warning().unwrap().starts_with("other processes took 20 %"));
        let unknown = after.since(&before, None).unwrap();
        assert_eq!((unknown.others_share, unknown.warning()), (None, None));
        assert!(Sample::read("cpu 1 2", Duration::ZERO).is_none() && after.since(&after, None).is_none());
        assert!(Sample::take().is_some());
    }
}
