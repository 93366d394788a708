//! Points, lines and polygons on the sphere and on ellipsoids of revolution: whether they intersect, how far apart they are, and
//! which cells of the sphere cover them.
//!
//! Pure: nothing here knows values, documents or indexes. Read first: [`Geometry`] (what can be asked of a shape), `orientation` (the
//! exact predicate on which every answer about crossings rests) and `covering` (how shapes become cells of an index).
//!
//! Lines between vertices are great circles, and topology is that of the sphere; only distances and circles know the ellipsoid.
//! That is RethinkDB's model, which uses Google's S2 library for topology and Karney's geodesics for distances. Tessera has to give
//! the same answers for shapes that touch, so the rules for shared vertices and edges are S2's: a polygon owns the vertices where a
//! fixed direction lies inside of it, and three points on one great circle are told apart by a symbolic perturbation.

#![warn(missing_docs)]

mod bound;
mod covering;
mod edge;
mod edge_tree;
mod ellipsoid;
mod error;
mod geometry;
mod line;
mod orientation;
mod outline;
mod pace;
mod point;
mod polygon;
mod ring;

pub use covering::{CellRange, coarser, covering, index_number, ranges};
pub use ellipsoid::{Ellipsoid, Unit};
pub use error::GeometryError;
pub use geometry::Geometry;
pub use line::Line;
pub use pace::Pace;
pub use point::{Point, Position};
pub use polygon::Polygon;
pub use ring::Ring;
