//! Whether what clients saw can have been: a checker for each kind of thing that they keep.
//!
//! None of them calls a sound history wrong. Each is tested with histories that are right and with ones that are wrong.

pub mod appending;
pub mod counting;
pub mod emptyings;
mod graphs;
pub mod models;
pub mod places;
pub mod records;
pub mod serializability;
pub mod transfers;
