//! In which proportions operations come.

use anyhow::{Context, bail};
use rand::Rng;
use rand::rngs::SmallRng;

/// What is done to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Read,
    Update,
    Insert,
    ReadModifyWrite,
    /// A range of records in order.
    Scan,
    /// A query over all records, computed where they are.
    MapReduce,
}

impl Operation {
    pub fn only_reads(self) -> bool {
        matches!(self, Self::Read | Self::Scan | Self::MapReduce)
    }
}

/// Weights of operations.
#[derive(Clone, Debug, PartialEq)]
pub struct Mix {
    pub name: String,
    read: f64,
    update: f64,
    insert: f64,
    read_modify_write: f64,
    scan: f64,
    map_reduce: f64,
}

impl Mix {
    fn of(name: &str, read: f64, update: f64, insert: f64, read_modify_write: f64) -> Self {
        Self { name: name.into(), read, update, insert, read_modify_write, scan: 0.0, map_reduce: 0.0 }
    }

    pub fn scans(&self) -> bool {
        self.scan > 0.0
    }

    /// Whether it is the query of [`Operation::MapReduce`].
    pub fn map_reduces(&self) -> bool {
        self.map_reduce > 0.0
    }

    /// As many records as YCSB expects so many operations to insert at most: twice as many as are likely. If it is not known how
    /// many there will be, inserted records are not popular.
    pub fn inserts(&self, operations: Option<u64>) -> u64 {
        operations.map_or(0, |operations| (operations as f64 * self.insert * 2.0) as u64)
    }

    /// A mix in proportions, which need not add up to one.
    ///
    /// # Errors
    /// If all are zero.
    pub fn of_proportions(
        read: f64,
        update: f64,
        insert: f64,
        read_modify_write: f64,
        scan: f64,
    ) -> anyhow::Result<Self> {
        let sum = read + update + insert + read_modify_write + scan;
        if sum <= 0.0 {
            bail!("all proportions are zero");
        }
        let [read, update, insert, read_modify_write, scan] =
            [read, update, insert, read_modify_write, scan].map(|share| share / sum);
        let parts = [("r", read), ("u", update), ("i", insert), ("m", read_modify_write), ("s", scan)];
        let name = parts.iter().filter(|(_, share)| *share > 0.0).map(|(letter, share)| format!("{letter}{share:.2}"));
        let name = name.collect::<Vec<_>>().join(" ");
        Ok(Self { name, read, update, insert, read_modify_write, scan, map_reduce: 0.0 })
    }

    /// What YCSB calls the operations that write, by the most frequent kind.
    pub fn write_name(&self) -> &'static str {
        match self.update.max(self.insert).max(self.read_modify_write) {
            most if most == self.update => "UPDATE",
            most if most == self.insert => "INSERT",
            _ => "READ-MODIFY-WRITE",
        }
    }

    /// `read`, `write`, a ratio of reads to writes such as `1:3`, a YCSB core workload by its letter, or `map-reduce`.
    ///
    /// # Errors
    /// If it is none of these.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lower = text.to_lowercase();
        Ok(match lower.strip_prefix("workload").unwrap_or(&lower) {
            "read" => Self::of(text, 1.0, 0.0, 0.0, 0.0),
            "write" => Self::of(text, 0.0, 1.0, 0.0, 0.0),
            "a" => Self::of(text, 0.5, 0.5, 0.0, 0.0),
            "b" => Self::of(text, 0.95, 0.05, 0.0, 0.0),
            "c" => Self::of(text, 1.0, 0.0, 0.0, 0.0),
            "d" => Self::of(text, 0.95, 0.0, 0.05, 0.0),
            "e" => Self { scan: 0.95, ..Self::of(text, 0.0, 0.0, 0.05, 0.0) },
            "f" => Self::of(text, 0.5, 0.0, 0.0, 0.5),
            "map-reduce" => Self { map_reduce: 1.0, ..Self::of(text, 0.0, 0.0, 0.0, 0.0) },
            ratio => {
                let (reads, writes) =
                    ratio.split_once(':').context("a mix is read, write, R:W, a to f, or map-reduce")?;
                let weight =
                    |text: &str| text.trim().parse::<f64>().ok().filter(|weight| weight.is_finite() && *weight >= 0.0);
                let (reads, writes) = weight(reads).zip(weight(writes)).context("a ratio is two numbers, as in 1:3")?;
                if reads + writes == 0.0 {
                    bail!("a ratio of 0:0 asks for nothing");
                }
                Self::of(text, reads / (reads + writes), writes / (reads + writes), 0.0, 0.0)
            }
        })
    }

    pub fn next(&self, random: &mut SmallRng) -> Operation {
        let mut draw: f64 = random.random();
        for (weight, operation) in
            [(self.read, Operation::Read), (self.update, Operation::Update), (self.insert, Operation::Insert)]
        {
            if draw < weight {
                return operation;
            }
            draw -= weight;
        }
        match () {
            () if self.scan > 0.0 => Operation::Scan,
            () if self.map_reduce > 0.0 => Operation::MapReduce,
            () if self.read_modify_write > 0.0 => Operation::ReadModifyWrite,
            () => Operation::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn mixes_are_read() {
        let mut random = SmallRng::seed_from_u64(1);
        for (text, share) in
            [("read", 1.0), ("write", 0.0), ("1:3", 0.25), ("30:1", 30.0 / 31.0), ("workloada", 0.5), ("b", 0.95)]
        {
            let mix = Mix::parse(text).unwrap();
            let reads = (0..10_000).filter(|_| mix.next(&mut random) == Operation::Read).count();
            assert!((reads as f64 / 10_000.0 - share).abs() < 0.02, "{text}: {reads}");
        }
        let query = Mix::parse("map-reduce").unwrap();
        assert!(query.map_reduces() && query.next(&mut random) == Operation::MapReduce);
        for bad in ["", "x", "1:", "0:0", "-1:2", "g"] {
            assert!(Mix::parse(bad).is_err(), "{bad}");
        }
    }
}
