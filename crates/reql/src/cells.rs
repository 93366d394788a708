//! Geospatial indexes: what they derive from documents, and which of their entries a search looks at.
//!
//! An entry is a cell of the covering of a document's shape. Its key is the number of the cell, and behind that the numbers of the
//! document's other cells that are less. So whoever meets an entry in a search sees whether the search has met the document before,
//! and each document is found once, without anything being remembered.

use tessera_geo::{CellRange, coarser, covering, index_number};

use crate::env::Env;
use crate::error::{ErrorKind, Result};
use crate::geometry;
use crate::scan::IndexDefinition;
use crate::value::Value;

/// The bytes of a cell's number.
const CELL_BYTES: usize = size_of::<u64>();

/// The most cells of one document, so that the longest key of an entry is no longer than that of another index. A document that has
/// more, because a multi index takes many shapes from it, is indexed by larger cells.
const MAX_CELLS: usize = 28;

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

/// The keys of the entries that a geospatial index has of a document.
///
/// # Errors
/// If the query was stopped. A document for which the function fails is not in the index.
pub fn cell_keys(env: &Env, definition: &IndexDefinition, document: &Value) -> Result<Vec<Vec<u8>>> {
    let value = match definition.function.value_of(env, document) {
        Ok(value) => value,
        Err(error) if error.kind() == ErrorKind::Interrupted => return Err(error),
        Err(_) => return Ok(Vec::new()),
    };
    let mut cells = Vec::new();
    for shape in geometry::shapes(env, definition.multi, &value)? {
        cells.extend(geometry::paced(env, |pace| covering(&shape, pace))?);
    }
    let mut cells: Vec<u64> = coarser(cells, MAX_CELLS).into_iter().map(index_number).collect();
    cells.sort_unstable();
    let key = |at: usize| {
        let others = cells[..at].iter();
        std::iter::once(&cells[at]).chain(others).flat_map(|cell| cell.to_be_bytes()).collect()
    };
    Ok((0..cells.len()).map(key).collect())
}

/// The keys of a geospatial index's entries whose cells lie in a range: from the first one on, up to but without the second one.
pub fn cell_bounds(range: CellRange) -> (Vec<u8>, Vec<u8>) {
    // No cell has the highest number of all.
    (range.first.to_be_bytes().to_vec(), (range.last + 1).to_be_bytes().to_vec())
}
