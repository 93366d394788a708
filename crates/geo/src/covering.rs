//! Cells that cover shapes, for indexes.
//!
//! The globe is six faces of a cube, each cut into four cells, these into four again, and so on for 30 levels: the cells of Google's
//! S2 library. The number of a cell lies in the middle of the numbers of all cells inside of it. So an index that has an entry for
//! each cell of a shape's covering finds the shapes near a query by few ranges of numbers: the cells inside of each cell of the
//! query's covering, and each cell around one of them. The smallest cells, which those of points are, have an order of their own in
//! an index, before all others: an index that has nothing but points has nothing where larger cells would be.
//!
//! Shapes are indexed by cells of even levels only, which halves the number of cells around a query that must be looked for. Whether
//! a cell has to be in a covering is asked of the circle around it: that is exact enough, and never depends on rounding.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use s2::cell::Cell;
use s2::cellid::{CellID, MAX_LEVEL};
use s2::r3::vector::Vector;

use crate::pace::Pace;
use crate::{Geometry, GeometryError, Point};

/// The most cells by which one shape is indexed. RethinkDB has as many.
const INDEX_CELLS: usize = 8;

/// The most cells that a query looks for. RethinkDB has 16; see docs/decisions/0054-geo.md for the measurements.
const QUERY_CELLS: usize = 8;

/// Every so many levels there are cells by which shapes are indexed.
const INDEX_LEVEL_STEP: u64 = 2;

/// The width of the narrowest cell of level 0, in radians, which every level halves.
const NARROWEST_CELL: f64 = 2.0 * std::f64::consts::SQRT_2 / 3.0;

/// Added to angles against rounding errors.
const ANGLE_SLACK: f64 = 1e-14;

/// Numbers of cells in an index, from the first to the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellRange {
    /// The first number.
    pub first: u64,
    /// The last number.
    pub last: u64,
}

/// How a circle around a cell lies to what is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overlap {
    None,
    Part,
    Inside,
}

/// The cells by which a shape is indexed.
///
/// # Errors
/// If the calculation is interrupted.
pub fn covering(shape: &Geometry, pace: &Pace<'_>) -> Result<Vec<u64>, GeometryError> {
    cover_shape(shape, INDEX_CELLS, INDEX_LEVEL_STEP, pace)
}

/// The numbers of the cells under which an index may have what meets a shape, ascending.
///
/// # Errors
/// If the calculation is interrupted.
pub fn ranges(shape: &Geometry, pace: &Pace<'_>) -> Result<Vec<CellRange>, GeometryError> {
    Ok(with_cells_around(&cover_shape(shape, QUERY_CELLS, 1, pace)?))
}

impl CellRange {
    /// The numbers of the cells under which an index may have what is between two distances from a point. The distances are angles in
    /// radians.
    ///
    /// # Errors
    /// If the calculation is interrupted.
    pub fn around(center: Point, inner: f64, outer: f64, pace: &Pace<'_>) -> Result<Vec<Self>, GeometryError> {
        let overlap = |point: Point, radius: f64| {
            let angle = center.angle(point);
            if angle - radius > outer || angle + radius < inner {
                Overlap::None
            } else if angle + radius <= outer && angle - radius >= inner {
                Overlap::Inside
            } else {
                Overlap::Part
            }
        };
        Ok(with_cells_around(&cover(center, outer, QUERY_CELLS, 1, overlap, pace)?))
    }
}

fn cover_shape(shape: &Geometry, most: usize, step: u64, pace: &Pace<'_>) -> Result<Vec<u64>, GeometryError> {
    match shape {
        Geometry::Point(point) => Ok(vec![leaf(*point).0]),
        Geometry::Line(line) => {
            let (center, angle) = circle_around(|| line.vertices().iter().copied());
            let overlap = |point, radius| match line.has_edge_within(point, radius) {
                true => Overlap::Part,
                false => Overlap::None,
            };
            cover(center, angle, most, step, overlap, pace)
        }
        Geometry::Polygon(polygon) => {
            let (center, angle) = circle_around(|| polygon.rings().flat_map(|ring| ring.vertices().iter().copied()));
            let overlap = |point, radius| {
                if polygon.has_edge_within(point, radius) {
                    Overlap::Part
                } else if polygon.holds(point) {
                    Overlap::Inside
                } else {
                    Overlap::None
                }
            };
            cover(center, angle, most, step, overlap, pace)
        }
    }
}

/// A circle that holds all points, and all edges between them: its centre and its angle in radians.
fn circle_around<I: Iterator<Item = Point>>(points: impl Fn() -> I) -> (Point, f64) {
    let sum = points().fold(Point { x: 0.0, y: 0.0, z: 0.0 }, |sum, point| sum + point);
    if sum.length() < 1e-6 {
        return (Point::NORTH_POLE, std::f64::consts::PI);
    }
    let center = sum.normalized();
    let angle = points().fold(0.0, |angle: f64, point| angle.max(center.angle(point))) + ANGLE_SLACK;
    // Edges between points of a circle stay in it only if it is smaller than a hemisphere.
    (center, if angle < std::f64::consts::FRAC_PI_2 - ANGLE_SLACK { angle } else { std::f64::consts::PI })
}

fn leaf(point: Point) -> CellID {
    CellID::from(s2::point::Point(Vector { x: point.x, y: point.y, z: point.z }))
}

/// A circle around a cell.
fn circle_of(id: CellID) -> (Point, f64) {
    let cell = Cell::from(id);
    let point = |point: s2::point::Point| Point { x: point.0.x, y: point.0.y, z: point.0.z };
    let vertices = cell.vertices().map(point);
    let center = point(cell.center()).normalized();
    // The chord is faster than the angle, and as good.
    let chord2 = vertices.iter().fold(0.0, |most: f64, vertex| most.max(center.chord2(*vertex)));
    (center, 2.0 * (0.5 * chord2.sqrt()).min(1.0).asin() + ANGLE_SLACK)
}

/// Few cells that together hold everything of which `overlap` says that it is to be covered, and which lies in a circle: the largest
/// cells are cut as long as there are not more than `most`.
fn cover(
    center: Point,
    angle: f64,
    most: usize,
    step: u64,
    overlap: impl Fn(Point, f64) -> Overlap,
    pace: &Pace<'_>,
) -> Result<Vec<u64>, GeometryError> {
    let mut cells = Vec::new();
    let mut parts = BinaryHeap::new();
    let sort = |id: CellID, cells: &mut Vec<u64>, parts: &mut BinaryHeap<_>| {
        let (center, radius) = circle_of(id);
        match overlap(center, radius) {
            Overlap::None => {}
            Overlap::Part if id.level() + step <= MAX_LEVEL => parts.push((Reverse(id.level()), Reverse(id.0))),
            Overlap::Part | Overlap::Inside => cells.push(id.0),
        }
    };
    for id in first_cells(center, angle, step) {
        sort(id, &mut cells, &mut parts);
    }
    while let Some((_, Reverse(id))) = parts.pop() {
        pace.steps(64)?;
        let (mut inside, mut partly) = (Vec::new(), BinaryHeap::new());
        for child in CellID(id).child_iter_at_level(CellID(id).level() + step) {
            sort(child, &mut inside, &mut partly);
        }
        let children = inside.len() + partly.len();
        if children <= 1 || cells.len() + parts.len() + children <= most {
            cells.append(&mut inside);
            parts.append(&mut partly);
        } else {
            cells.push(id);
        }
    }
    cells.sort_unstable();
    cells.dedup();
    Ok(cells)
}

/// At most six cells that hold a circle.
fn first_cells(center: Point, angle: f64, step: u64) -> Vec<CellID> {
    let mut level = 0;
    while level + 1 < MAX_LEVEL && NARROWEST_CELL / f64::from(1u32 << (level + 1).min(31)) >= 2.0 * angle {
        level += 1;
    }
    level -= level % step;
    if level == 0 {
        return (0..6).map(CellID::from_face).collect();
    }
    let mut cells = leaf(center).vertex_neighbors(level);
    cells.sort_unstable();
    cells.dedup();
    cells
}

/// Cells that hold all of these cells, at most so many, ascending: none of them lies in another one.
pub fn coarser(mut cells: Vec<u64>, most: usize) -> Vec<u64> {
    loop {
        cells.sort_unstable();
        cells.dedup();
        let ids: Vec<CellID> = cells.iter().map(|cell| CellID(*cell)).collect();
        cells.retain(|cell| {
            let around = (0..CellID(*cell).level()).map(|level| CellID(*cell).parent(level));
            !around.into_iter().any(|around| ids.binary_search(&around).is_ok())
        });
        let deepest = cells.iter().map(|cell| CellID(*cell).level()).max().unwrap_or_default();
        if cells.len() <= most || deepest == 0 {
            return cells;
        }
        let level = deepest.saturating_sub(INDEX_LEVEL_STEP);
        for cell in cells.iter_mut().filter(|cell| CellID(**cell).level() > level) {
            *cell = CellID(*cell).parent(level).0;
        }
    }
}

/// What is set in the numbers of cells that are not the smallest ones.
const LARGER: u64 = 1 << 63;

/// The number that a cell has in an index.
pub fn index_number(cell: u64) -> u64 {
    // The lowest bit is that of the smallest cells only.
    cell >> 1 | if cell & 1 == 0 { LARGER } else { 0 }
}

/// Ranges of what is inside of cells, and of the index's cells around them, ascending and apart.
fn with_cells_around(cells: &[u64]) -> Vec<CellRange> {
    let mut ranges: Vec<CellRange> = Vec::with_capacity(4 * cells.len());
    for cell in cells {
        let id = CellID(*cell);
        let (first, last) = (id.range_min().0 >> 1, id.range_max().0 >> 1);
        ranges.push(CellRange { first, last });
        ranges.push(CellRange { first: first | LARGER, last: last | LARGER });
        for level in (0..id.level()).step_by(INDEX_LEVEL_STEP as usize) {
            let around = index_number(id.parent(level).0);
            ranges.push(CellRange { first: around, last: around });
        }
    }
    ranges.sort_unstable();
    let mut apart: Vec<CellRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match apart.last_mut() {
            Some(last) if range.first <= last.last => last.last = last.last.max(range.last),
            _ => apart.push(range),
        }
    }
    apart
}
