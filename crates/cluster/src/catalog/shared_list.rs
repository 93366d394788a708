//! A list whose copies share their equal parts.
//!
//! Code that follows the catalog keeps a copy of it, and every command changes the catalog: mostly one partition of one
//! table, which may have thousands. So a copy costs a pointer for each [`CHUNK`] of elements, and a change copies only
//! its chunk, if another list shares that. Shared chunks are compared without looking into them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::iter::FlatMap;
use std::ops::Index;
use std::slice;
use std::sync::Arc;

/// Elements of a chunk: as many as there are chunks in a list of 4,096, so that copying one of either costs about the
/// same.
const CHUNK: usize = 64;

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedList<T> {
    /// All chunks have [`CHUNK`] elements, except the last one, which has at least one.
    chunks: Vec<Arc<Vec<T>>>,
}

/// The elements of a list, in order.
pub type Iter<'a, T> =
    FlatMap<slice::Iter<'a, Arc<Vec<T>>>, slice::Iter<'a, T>, fn(&'a Arc<Vec<T>>) -> slice::Iter<'a, T>>;

impl<T> SharedList<T> {
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len())
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// The element at this position, counted from 0; `None` beyond the end.
    pub fn get(&self, at: usize) -> Option<&T> {
        self.chunks.get(at / CHUNK)?.get(at % CHUNK)
    }

    /// All elements in their order.
    pub fn iter(&self) -> Iter<'_, T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }
}

impl<T: Clone> SharedList<T> {
    /// The element at a place, which may be changed; copies its chunk if others have that too.
    pub fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        Arc::make_mut(self.chunks.get_mut(at / CHUNK)?).get_mut(at % CHUNK)
    }
}

impl<T> Default for SharedList<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> FromIterator<T> for SharedList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut elements = elements.into_iter();
        let mut chunk = || Some(elements.by_ref().take(CHUNK).collect()).filter(|chunk: &Vec<T>| !chunk.is_empty());
        Self { chunks: std::iter::from_fn(|| chunk().map(Arc::new)).collect() }
    }
}

impl<'a, T> IntoIterator for &'a SharedList<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> Index<usize> for SharedList<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at / CHUNK][at % CHUNK]
    }
}

impl<T: Serialize> Serialize for SharedList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for SharedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::from_iter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_what_a_vector_does_and_reads_and_writes_the_same_json() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let vector: Vec<usize> = (0..length).collect();
            let list: SharedList<usize> = vector.iter().copied().collect();
            assert_eq!((list.len(), list.is_empty()), (length, length == 0));
            assert_eq!(list.iter().copied().collect::<Vec<_>>(), vector);
            assert!((0..length + CHUNK).all(|at| list.get(at) == vector.get(at)));
            assert_eq!(serde_json::to_string(&list).unwrap(), serde_json::to_string(&vector).unwrap());
            assert_eq!(
                serde_json::from_str::<SharedList<usize>>(&serde_json::to_string(&vector).unwrap()).unwrap(),
                list
            );
        }
    }

    #[test]
    fn a_change_copies_one_chunk_and_leaves_other_copies_as_they_are() {
        let before: SharedList<usize> = (0..3 * CHUNK).collect();
        let mut after = before.clone();
        assert_eq!(after, before);
        *after.get_mut(CHUNK + 3).unwrap() = 0;
        assert_ne!(after, before);
        assert_eq!((before[CHUNK + 3], after[CHUNK + 3]), (CHUNK + 3, 0));
        let shared = |at: usize| Arc::ptr_eq(&before.chunks[at], &after.chunks[at]);
        assert_eq!([0, 1, 2].map(shared), [true, false, true]);
        assert_eq!(after.get_mut(3 * CHUNK), None);
    }
}
