//! Which of the transactions that were left behind are looked after now.

use crate::ledger::PartitionName;
use std::collections::{HashMap, HashSet};
use tessera_transaction::TransactionId;

/// So many are looked after at one time.
const AT_ONE_TIME: usize = 1_024;

/// A transaction, and the partition in which it stands.
pub(super) type Place = (PartitionName, TransactionId);

/// Those under way, and those that were tried in vain. Whatever was not tried for longest comes first, so that those that cannot be
/// brought to their end keep no other from it.
#[derive(Default)]
pub(super) struct Places {
    under_way: HashSet<Place>,
    /// When they were begun last, as numbers that rise.
    tried: HashMap<Place, u64>,
    count: u64,
}

impl Places {
    /// Of all that is to be looked after, what is begun now.
    pub(super) fn take<T>(&mut self, mut overdue: Vec<(Place, T)>) -> Vec<(Place, T)> {
        if !self.tried.is_empty() {
            let known: HashSet<Place> = overdue.iter().map(|(place, _)| *place).collect();
            self.tried.retain(|place, _| known.contains(place));
        }
        overdue.retain(|(place, _)| !self.under_way.contains(place));
        overdue.sort_by_key(|(place, _)| self.tried.get(place).copied());
        overdue.truncate(AT_ONE_TIME - self.under_way.len());
        for (place, _) in &overdue {
            self.count += 1;
            self.under_way.insert(*place);
            self.tried.insert(*place, self.count);
        }
        overdue
    }

    /// One has ended, or was given up.
    pub(super) fn end(&mut self, place: &Place) {
        self.under_way.remove(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_types::{NodeId, TableId};

    /// Those that could not be ended once took all places again and again, and what came after them in the order had to wait for ever.
    #[test]
    fn what_cannot_be_ended_keeps_nothing_else_from_its_end() {
        let place = |partition: usize| {
            let partition = u32::try_from(partition).unwrap();
            let name = PartitionName { table: TableId(1), partition };
            (name, TransactionId { node: NodeId(1), generation: 1, sequence: 0 })
        };
        let all = || (0..AT_ONE_TIME + 2).map(|at| (place(at), ())).collect::<Vec<_>>();
        let mut places = Places::default();
        let first = places.take(all());
        assert_eq!(first.len(), AT_ONE_TIME);
        assert!(places.take(all()).is_empty(), "each has its place");
        first.iter().for_each(|(place, ())| places.end(place));
        let second = places.take(all());
        assert_eq!((second[0].0, second[1].0), (place(AT_ONE_TIME), place(AT_ONE_TIME + 1)));
        assert_eq!(second.len(), AT_ONE_TIME);
        second.iter().for_each(|(place, ())| places.end(place));
        places.take(Vec::<(Place, ())>::new());
        assert!(places.tried.is_empty() && places.under_way.is_empty());
    }
}
