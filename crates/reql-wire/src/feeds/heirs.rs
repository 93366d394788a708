//! Which partitions have what a partition had before its table was split.

use std::collections::BTreeMap;
use tessera_reql::Resume;
use tessera_types::Partitioner;

/// How the keys of a table are divided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    pub(crate) partitioner: Partitioner,
    pub(crate) partitions: u32,
}

impl Division {
    /// The partitions that have what one of `before` partitions had.
    pub(super) fn heirs(self, partition: u32, before: u32) -> Vec<u32> {
        let (mut heirs, mut count) = (vec![partition], before);
        while count < self.partitions {
            count *= 2;
            heirs = heirs.iter().flat_map(|heir| self.partitioner.children_of(*heir, count)).collect();
        }
        heirs
    }

    /// Where to go on in each partition of a table which may have been split since. What the client says need not make sense.
    pub(crate) fn positions(self, resume: &Resume) -> BTreeMap<u32, u64> {
        let known = resume.reached.iter().filter(|(partition, _)| *partition < resume.scheme);
        let heirs = known.flat_map(|(of, at)| self.heirs(*of, resume.scheme).into_iter().map(move |heir| (heir, *at)));
        heirs.filter(|(heir, _)| *heir < self.partitions).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(partitioner: Partitioner, partitions: u32, scheme: u32, reached: &[(u32, u64)]) -> Vec<(u32, u64)> {
        let resume = Resume { scheme, reached: reached.to_vec() };
        Division { partitioner, partitions }.positions(&resume).into_iter().collect()
    }

    #[test]
    fn a_feed_goes_on_in_the_heirs_of_its_partitions() {
        let told = [(0, 10), (1, 11)];
        assert_eq!(positions(Partitioner::Crc64, 2, 2, &told), told);
        assert_eq!(positions(Partitioner::Crc64, 4, 2, &told), [(0, 10), (1, 11), (2, 10), (3, 11)]);
        assert_eq!(positions(Partitioner::RedisSlots, 4, 2, &told), [(0, 10), (1, 10), (2, 11), (3, 11)]);
        assert_eq!(positions(Partitioner::Crc64, 8, 2, &told[..1]), [(0, 10), (2, 10), (4, 10), (6, 10)]);
    }

    #[test]
    fn partitions_that_cannot_be_are_left_out() {
        for partitioner in [Partitioner::Crc64, Partitioner::RedisSlots] {
            assert!(positions(partitioner, 8, 1, &[(u32::MAX, 1)]).is_empty());
            assert!(positions(partitioner, 8, 0, &[(0, 1), (7, 1)]).is_empty());
            assert!(positions(partitioner, 8, u32::MAX, &[(u32::MAX - 1, 1)]).is_empty());
            assert!(positions(partitioner, 8, 3, &[(2, 1)]).iter().all(|(partition, _)| *partition < 8));
        }
    }
}
