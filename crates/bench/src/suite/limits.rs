//! What nubase's report keeps within: not how fast a server goes at all, but how fast with room to spare.

use serde::{Deserialize, Serialize};

/// What a rate must keep within.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Of the machine's cores, by the servers alone, 0 to 1.
    pub cpu_share: f64,
    /// Of what crosses the network, both ways and replication included.
    pub network_bits_per_second: f64,
    /// Of requests over the limit of the run, 0 to 1.
    pub slow_share: f64,
}

/// As in nubase's report: CPU under 60 %, network under 70 % of 10 Gbit/s, under 0.1 % of requests over 10 ms.
pub const PUBLISHED: Limits = Limits { cpu_share: 0.6, network_bits_per_second: 0.7 * 10e9, slow_share: 0.001 };

/// What came of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Operations per second that were due.
    pub rate: f64,
    pub cpu_share: f64,
    pub network_bits_per_second: f64,
    pub slow_share: f64,
    /// Whether all that was due was done.
    pub kept_up: bool,
}

impl Attempt {
    pub fn is_within(&self, limits: &Limits) -> bool {
        self.kept_up
            && self.cpu_share <= limits.cpu_share
            && self.network_bits_per_second <= limits.network_bits_per_second
            && self.slow_share <= limits.slow_share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_within_all_limits_or_not() {
        let good =
            Attempt { rate: 1.0, cpu_share: 0.6, network_bits_per_second: 7e9, slow_share: 0.001, kept_up: true };
        assert!(good.is_within(&PUBLISHED));
        for bad in [
            Attempt { cpu_share: 0.61, ..good },
            Attempt { network_bits_per_second: 7.1e9, ..good },
            Attempt { slow_share: 0.0011, ..good },
            Attempt { kept_up: false, ..good },
        ] {
            assert!(!bad.is_within(&PUBLISHED), "{bad:?}");
        }
    }
}
