//! Which record comes next. The generators are YCSB's (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB",
//! 2010), the zipfian one after Gray et al., "Quickly Generating Billion-Record Synthetic Databases", 1994.

use rand::Rng;
use rand::rngs::SmallRng;

/// How records are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyDistribution {
    /// Popular records spread over the whole key space, theta 0.99
    Zipfian,
    Uniform,
    /// The newest records are the popular ones
    Latest,
    Sequential,
    /// 80 % of operations on 20 % of the records
    Hotspot,
    /// The newest records are the popular ones, 95 % of operations on 86 % of them
    Exponential,
}

/// YCSB's exponent.
const THETA: f64 = 0.99;
/// YCSB draws scrambled zipfian items from this many, so that popularity does not depend on the table's size.
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
/// Sum of 1/i^0.99 for i up to `SCRAMBLED_ITEMS`, as YCSB has it.
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// FNV-1a over the eight bytes of a number, made non-negative as in YCSB.
pub fn fnv1a(number: u64) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in number.to_le_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    hash.cast_signed().unsigned_abs()
}

/// Draws ranks: 0 most often.
struct Zipfian {
    items: u64,
    zeta: f64,
    alpha: f64,
    eta: f64,
    half_power: f64,
}

impl Zipfian {
    fn new(items: u64, zeta: f64) -> Self {
        let zeta2 = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - THETA)) / (1.0 - zeta2 / zeta);
        Self { items, zeta, alpha: 1.0 / (1.0 - THETA), eta, half_power: 1.0 + 0.5f64.powf(THETA) }
    }

    fn with_items(items: u64) -> Self {
        let zeta = (1..=items).map(|rank| (rank as f64).powf(-THETA)).sum();
        Self::new(items, zeta)
    }

    fn next(&self, random: &mut SmallRng) -> u64 {
        let u: f64 = random.random();
        let uz = u * self.zeta;
        if uz < 1.0 {
            return 0;
        }
        if uz < self.half_power {
            return 1;
        }
        let rank = self.items as f64 * (self.eta * u - self.eta + 1.0).powf(self.alpha);
        (rank as u64).min(self.items - 1)
    }
}

enum Generator {
    /// With the number of records that hashes fall on. YCSB has one more than there are and are to come, so that inserts do not
    /// change which records are popular; one that is not there is drawn again.
    Scrambled(Zipfian, u64),
    Uniform,
    Latest(Zipfian),
    /// With the next record.
    Sequential(u64),
    Hotspot,
    /// With the rate of decay, in records.
    Exponential(f64),
}

/// YCSB's: so many operations go to so large a part of the records.
const EXPONENTIAL_PERCENTILE: f64 = 0.95;
const EXPONENTIAL_PART: f64 = 0.857_142_857_1;

/// Chooses record numbers.
pub struct KeyChooser {
    generator: Generator,
}

impl KeyChooser {
    /// `records` exist at the start, and about so many are `to_come`.
    pub fn new(distribution: KeyDistribution, records: u64, to_come: u64) -> Self {
        let generator = match distribution {
            KeyDistribution::Zipfian => {
                Generator::Scrambled(Zipfian::new(SCRAMBLED_ITEMS, SCRAMBLED_ZETA), records + to_come + 1)
            }
            KeyDistribution::Uniform => Generator::Uniform,
            // As YCSB has it, the oldest of all is never chosen.
            KeyDistribution::Latest => Generator::Latest(Zipfian::with_items(records.max(3) - 1)),
            KeyDistribution::Sequential => Generator::Sequential(0),
            KeyDistribution::Hotspot => Generator::Hotspot,
            KeyDistribution::Exponential => {
                Generator::Exponential(-(1.0 - EXPONENTIAL_PERCENTILE).ln() / (EXPONENTIAL_PART * records as f64))
            }
        };
        Self { generator }
    }

    /// The next record of `records` that exist now.
    pub fn next(&mut self, records: u64, random: &mut SmallRng) -> u64 {
        match &mut self.generator {
            Generator::Scrambled(zipfian, items) => loop {
                let record = fnv1a(zipfian.next(random)) % *items;
                if record < records {
                    break record;
                }
            },
            Generator::Uniform => random.random_range(0..records),
            Generator::Latest(zipfian) => records - 1 - zipfian.next(random).min(records - 1),
            Generator::Sequential(next) => {
                *next += 1;
                (*next - 1) % records
            }
            Generator::Exponential(gamma) => loop {
                let age = -(1.0 - random.random::<f64>()).ln() / *gamma;
                if age < records as f64 {
                    break records - 1 - age as u64;
                }
            },
            Generator::Hotspot => {
                let hot = (records / 5).max(1);
                if random.random_bool(0.8) {
                    random.random_range(0..hot)
                } else {
                    random.random_range(hot.min(records - 1)..records)
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn counts(distribution: KeyDistribution, records: u64, draws: usize) -> Vec<usize> {
        let mut chooser = KeyChooser::new(distribution, records, 0);
        let mut random = SmallRng::seed_from_u64(7);
        let mut counts = vec![0; records as usize];
        for _ in 0..draws {
            counts[chooser.next(records, &mut random) as usize] += 1;
        }
        counts
    }

    #[test]
    fn shares_are_those_of_the_distributions() {
        let draws = 200_000;
        let mut zipfian = counts(KeyDistribution::Zipfian, 1_000, draws);
        zipfian.sort_unstable_by(|a, b| b.cmp(a));
        // The most popular of ten billion items has a share of 1/zeta = 3.8 %, and the second half of that.
        let share = |count: usize| count as f64 / draws as f64;
        assert!((0.037..0.042).contains(&share(zipfian[0])), "{}", share(zipfian[0]));
        assert!((0.018..0.022).contains(&share(zipfian[1])), "{}", share(zipfian[1]));
        let uniform = counts(KeyDistribution::Uniform, 100, draws);
        assert!(uniform.iter().all(|count| (1_800..2_200).contains(count)));
        let hotspot = counts(KeyDistribution::Hotspot, 100, draws);
        assert!((0.79..0.81).contains(&share(hotspot[..20].iter().sum())));
        let latest = counts(KeyDistribution::Latest, 1_000, draws);
        assert!(latest[999] > latest[998] && latest[998] > latest[0]);
        let exponential = counts(KeyDistribution::Exponential, 1_000, draws);
        // Draws beyond the oldest record are made again, so the newest 857 of 1,000 have more than 95 %.
        let newest = share(exponential[143..].iter().sum());
        assert!((0.95..0.985).contains(&newest), "{newest}");
        assert!(counts(KeyDistribution::Sequential, 100, 1_000).iter().all(|count| *count == 10));
    }

    /// What YCSB 0.17's core workload drew: `scripts/ycsb draws`. Two samples of one distribution differ by more than the bound
    /// in one of a thousand tries.
    #[test]
    fn records_are_drawn_as_ycsb_draws_them() {
        let mut compared = 0;
        for line in include_str!("ycsb_draws.txt").lines() {
            let (name, theirs) = line.split_once(' ').unwrap();
            let distribution = <KeyDistribution as clap::ValueEnum>::from_str(name, false).unwrap();
            let theirs: Vec<f64> = theirs.split(' ').map(|count| count.parse().unwrap()).collect();
            let draws: f64 = theirs.iter().sum();
            let ours = counts(distribution, theirs.len() as u64, draws as usize);
            let pairs = ours.iter().map(|count| *count as f64).zip(theirs).filter(|(ours, theirs)| ours + theirs > 0.0);
            let freedom = pairs.clone().count() as f64 - 1.0;
            let chi_squared: f64 = pairs.map(|(ours, theirs)| (ours - theirs).powi(2) / (ours + theirs)).sum();
            // Wilson and Hilferty's approximation; 3.09 is the normal distribution's.
            let bound = freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.09 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
            assert!(chi_squared < bound, "{name}: {chi_squared:.0} of {bound:.0} with {freedom} degrees of freedom");
            compared += 1;
        }
        assert_eq!(compared, 6);
    }

    #[test]
    fn zeta_constant_continues_the_sum() {
        // The sum up to n, plus the integral from there: the constant must be between the bounds that gives.
        let n = 1_000_000u64;
        let head: f64 = (1..=n).map(|rank| (rank as f64).powf(-THETA)).sum();
        let integral =
            |from: f64| ((SCRAMBLED_ITEMS as f64).powf(1.0 - THETA) - from.powf(1.0 - THETA)) / (1.0 - THETA);
        assert!(head + integral(n as f64 + 1.0) <= SCRAMBLED_ZETA + 1e-3);
        assert!(head + integral(n as f64) >= SCRAMBLED_ZETA - 1e-3);
    }
}
