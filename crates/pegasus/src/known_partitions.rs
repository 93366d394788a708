//! Which clients may believe that a table has half of its partitions. Clients ask once how many there are, and go by that until an answer
//! says that it is not so any more. After a split, requests for keys get that answer as soon as they go to the wrong partition. A scan of a
//! whole partition would not: the partition is there, and a client that scans all that it knows of would take half of the records for all.

use std::time::Instant;
use tessera_store::Table;
use tessera_types::TableNumber;

/// A table that was split while this node ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SplitTable {
    number: TableNumber,
    partitions: u32,
    /// When this node heard of the split.
    heard: Instant,
}

impl SplitTable {
    /// `None` for a table that was not split, or before this node started.
    #[inline]
    pub(crate) fn of(table: &Table) -> Option<Self> {
        let heard = table.split_heard()?;
        Some(Self { number: table.number(), partitions: table.schema().partitions, heard })
    }
}

/// What the client of a connection knows of tables that were split since it came.
pub(crate) struct KnownPartitions {
    /// When the client came.
    came: Instant,
    /// Tables, with how many partitions the client knows them to have. A truncation changes neither.
    known: Vec<(TableNumber, u32)>,
}

impl KnownPartitions {
    /// A client that came at this time knows of no later split.
    pub(crate) fn since(came: Instant) -> Self {
        Self { came, known: Vec::new() }
    }

    /// Whether the client came before the table was split, and nothing has shown since that it knows of the new partitions.
    pub(crate) fn lacks(&self, table: SplitTable) -> bool {
        self.came <= table.heard && !self.known.contains(&(table.number, table.partitions))
    }

    /// The client is told, or was, how many partitions the table has.
    pub(crate) fn note(&mut self, table: SplitTable) {
        if self.lacks(table) {
            self.known.push((table.number, table.partitions));
        }
    }

    /// The client asks for a partition, and so knows the new ones if it is one of them.
    pub(crate) fn note_asked(&mut self, table: SplitTable, partition: u32) {
        if partition >= table.partitions / 2 {
            self.note(table);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn table(number: u32, partitions: u32, heard: Instant) -> SplitTable {
        SplitTable { number: TableNumber(number), partitions, heard }
    }

    #[test]
    fn a_client_that_came_before_a_split_knows_of_it_once_it_is_told_or_asks_for_a_new_partition() {
        let came = Instant::now();
        let (mut client, heard) = (KnownPartitions::since(came), came + SECOND);
        let [told, asked, other] = [1, 2, 3].map(|number| table(number, 4, heard));
        assert!([told, asked, other].into_iter().all(|table| client.lacks(table)));
        client.note(told);
        client.note_asked(asked, 1);
        assert!(!client.lacks(told) && client.lacks(asked), "the partition was there before");
        client.note_asked(asked, 2);
        assert!(!client.lacks(asked) && client.lacks(other));
        // The client knows nothing of the next split.
        let again = table(1, 8, heard + SECOND);
        client.note_asked(again, 3);
        assert!(client.lacks(again) && !client.lacks(told));
        assert!(!KnownPartitions::since(heard + SECOND).lacks(other), "it came later");
    }

    /// A truncated table goes by another identifier, by which what clients knew was forgotten.
    #[test]
    fn a_client_that_knows_of_a_split_knows_of_it_after_a_truncation() {
        let came = Instant::now();
        let mut client = KnownPartitions::since(came);
        let split = table(1, 4, came + SECOND);
        client.note(split);
        // The empty table in its place has its number and its partitions, and was split when it was.
        assert!(!client.lacks(table(1, 4, came + SECOND)));
    }
}
