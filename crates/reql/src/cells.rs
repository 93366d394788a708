//! Geospatial indexes: what they derive from documents, and which of their entries a search looks at.
//!
//! An entry is a cell of the covering of a document's shape. Its key is the number of the cell, and behind that the numbers of the
//! document's other cells that are less. So whoever meets an entry in a search sees whether the search has met the document before,
//! and each document is found once, without anything being remembered.

use tessera_geo::CellRange;

/// The bytes of a cell's number.
const CELL_BYTES: usize = size_of::<u64>();

/// Which entries of a geospatial index a search looks at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cells(Vec<CellRange>);

impl Cells {
    /// Ranges of numbers of cells, ascending and apart.
    pub fn new(ranges: Vec<CellRange>) -> Self {
        Self(ranges)
    }

    /// Ranges of numbers of cells, ascending and apart.
    pub fn ranges(&self) -> &[CellRange] {
        &self.0
    }

    /// The ranges with these ends; `None` if they are not ascending and apart.
    pub fn of_numbers(ends: Vec<(u64, u64)>) -> Option<Self> {
        let are_apart = ends.windows(2).all(|pair| pair[0].1 < pair[1].0);
        let are_ranges = ends.iter().all(|(first, last)| first <= last && *last < u64::MAX);
        let range = |(first, last)| CellRange { first, last };
        (are_apart && are_ranges).then(|| Self(ends.into_iter().map(range).collect()))
    }

    fn has(&self, cell: u64) -> bool {
        let at = self.0.partition_point(|range| range.last < cell);
        self.0.get(at).is_some_and(|range| range.first <= cell)
    }

    /// Whether the search finds a document by this entry, and by none before it.
    pub fn finds_by(&self, key: &[u8]) -> bool {
        let mut cells = key.chunks_exact(CELL_BYTES).map(|bytes| {
            let mut number = [0; CELL_BYTES];
            number.copy_from_slice(bytes);
            u64::from_be_bytes(number)
        });
        cells.next().is_some_and(|cell| self.has(cell)) && !cells.any(|smaller| self.has(smaller))
    }
}

/// The keys of a geospatial index's entries whose cells lie in a range: from the first one on, up to but without the second one.
pub fn cell_bounds(range: CellRange) -> (Vec<u8>, Vec<u8>) {
    // No cell has the highest number of all.
    (range.first.to_be_bytes().to_vec(), (range.last + 1).to_be_bytes().to_vec())
}
