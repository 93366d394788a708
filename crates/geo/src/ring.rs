//! A closed path that does not cross itself, with its inside on its left.

use std::collections::HashSet;

use crate::bound::Bound;
use crate::edge::{self, Corner, CornerRelation, Crosser, Meeting};
use crate::edge_tree::EdgeTree;
use crate::orientation::is_ordered;
use crate::pace::Pace;
use crate::{GeometryError, Point};

/// The fewest positions of a ring in GeoJSON, where the last one repeats the first.
const MIN_POSITIONS: usize = 4;

/// A hemisphere turns by nothing; rounding must not turn it inside out.
const TURN_TOLERANCE: f64 = 1e-14;

/// A closed path and what lies on its left.
#[derive(Clone, Debug)]
pub struct Ring {
    vertices: Vec<Point>,
    /// Whether [`origin`] is inside.
    has_origin: bool,
    bound: Bound,
    tree: EdgeTree,
}

/// From this point, which is no likely vertex, boundaries are counted to tell inside from outside.
fn origin() -> Point {
    Point { x: 0.00457, y: 1.0, z: 0.0321 }.normalized()
}

/// How a ring relates to another one whose boundary may cross its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingRelation {
    Crosses,
    Contains,
    Other,
}

impl Ring {
    /// The ring through these points, of which the last one is the first one again. Whichever of both sides is the smaller one is
    /// the inside, whatever the direction is.
    ///
    /// # Errors
    /// If it is too short, is not closed, meets itself, or the calculation is interrupted.
    pub fn new(mut closed: Vec<Point>, pace: &Pace<'_>) -> Result<Self, GeometryError> {
        if closed.len() < MIN_POSITIONS {
            return Err(GeometryError::ShortRing);
        }
        if closed.first() != closed.last() {
            return Err(GeometryError::OpenRing);
        }
        closed.pop();
        let mut ring = Self::of_vertices(closed);
        ring.check(pace)?;
        ring.normalize();
        Ok(ring)
    }

    /// The ring through these vertices, without checks.
    pub(crate) fn of_vertices(vertices: Vec<Point>) -> Self {
        let tree = EdgeTree::new(vertices.len(), |at| (vertices[at], vertices[(at + 1) % vertices.len()]));
        let mut ring = Self { vertices, has_origin: false, bound: Bound::full(), tree };
        // A ring holds its second vertex if a direction that is fixed for the vertex lies between its edges. That decides whether
        // the origin is inside.
        let second = ring.vertices[1];
        let holds_second = is_ordered(second.orthogonal(), ring.vertices[0], ring.vertex(2), second);
        ring.has_origin = holds_second != ring.holds(second);
        ring.find_bound();
        ring
    }

    fn find_bound(&mut self) {
        let closed = self.vertices.iter().chain(self.vertices.first()).copied();
        let mut bound = Bound::of_path(closed);
        self.bound = Bound::full();
        if self.holds(Point::NORTH_POLE) {
            bound.add_north_pole();
        }
        if bound.has_all_longitudes() && self.holds(Point::SOUTH_POLE) {
            bound.add_south_pole();
        }
        self.bound = bound;
    }

    /// The corners, each once.
    pub fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    pub(crate) fn bound(&self) -> &Bound {
        &self.bound
    }

    pub(crate) fn vertex(&self, at: usize) -> Point {
        self.vertices[at % self.vertices.len()]
    }

    /// The edges in their order.
    pub(crate) fn edges(&self) -> impl Iterator<Item = (Point, Point)> {
        let rest = self.vertices.iter().skip(1).chain(self.vertices.first());
        self.vertices.iter().copied().zip(rest.copied())
    }

    pub(crate) fn tree(&self) -> &EdgeTree {
        &self.tree
    }

    fn check(&self, pace: &Pace<'_>) -> Result<(), GeometryError> {
        let mut seen = HashSet::with_capacity(self.vertices.len());
        if !self.vertices.iter().all(|vertex| vertex.is_on_sphere() && seen.insert(vertex.bits())) {
            return Err(GeometryError::Ring);
        }
        for (at, (a, b)) in self.edges().enumerate() {
            let mut crosser = Crosser::new(a, b);
            let mut is_crossed = false;
            self.tree.visit_meeting(self.tree.cuboid(at), pace, |other| {
                // Neighbours share a vertex, which was looked at above.
                is_crossed = other > at + 1
                    && crosser.meeting(self.vertices[other], self.vertex(other + 1)) == Meeting::Crossing;
                !is_crossed
            })?;
            if is_crossed {
                return Err(GeometryError::Ring);
            }
        }
        Ok(())
    }

    /// Whether the inside is at most half of the globe.
    pub(crate) fn is_normalized(&self) -> bool {
        self.bound.is_narrow() || self.turning() >= -TURN_TOLERANCE
    }

    pub(crate) fn normalize(&mut self) {
        if !self.is_normalized() {
            self.invert();
        }
    }

    /// Turns the ring inside out.
    pub(crate) fn invert(&mut self) {
        self.vertices.reverse();
        self.tree = EdgeTree::new(self.vertices.len(), |at| (self.vertices[at], self.vertex(at + 1)));
        self.has_origin = !self.has_origin;
        if self.bound.touches_pole() {
            self.find_bound();
        } else {
            // The outside has both poles.
            self.bound = Bound::full();
        }
    }

    /// The sum of all turns, added in an order that depends neither on the first vertex nor on the direction.
    fn turning(&self) -> f64 {
        let count = self.vertices.len();
        let least =
            (0..count).min_by(|left, right| self.vertices[*left].order(self.vertices[*right])).unwrap_or_default();
        let is_forwards = self.vertex(least + 1).order(self.vertex(least + count - 1)).is_lt();
        let at = |steps: usize| match is_forwards {
            true => self.vertex(least + steps),
            false => self.vertex(least + 2 * count - steps),
        };
        let sum = (0..count).fold(0.0, |sum, step| sum + edge::turn(at(step + count - 1), at(step), at(step + 1)));
        if is_forwards { sum } else { -sum }
    }

    /// Whether the point is inside. Of a vertex that several rings share, exactly one of those around it holds it.
    pub(crate) fn holds(&self, point: Point) -> bool {
        if !self.bound.contains_point(point) {
            return false;
        }
        let mut crosser = Crosser::new(origin(), point);
        self.edges().fold(self.has_origin, |inside, (a, b)| inside ^ crosser.changes_side(a, b))
    }

    fn position_of(&self, point: Point) -> Option<usize> {
        self.vertices.iter().position(|vertex| *vertex == point)
    }

    /// Looks for places where the boundaries cross. At common vertices `look` decides whether to look on; the answer is false if it
    /// ended the search.
    fn crosses_boundary(
        &self,
        other: &Self,
        pace: &Pace<'_>,
        mut look: impl FnMut(Corner) -> bool,
    ) -> Result<bool, GeometryError> {
        let mut found = None;
        for (at, (a, b)) in other.edges().enumerate() {
            let mut crosser = Crosser::new(a, b);
            self.tree.visit_meeting(other.tree.cuboid(at), pace, |edge| {
                let (from, to) = (self.vertices[edge], self.vertex(edge + 1));
                match crosser.meeting(from, to) {
                    Meeting::Apart => {}
                    Meeting::Crossing => found = Some(true),
                    // Each common vertex is looked at once: where it ends both edges.
                    Meeting::AtVertex if to == b => {
                        let corner = Corner {
                            vertex: to,
                            a_before: from,
                            a_after: self.vertex(edge + 2),
                            b_before: a,
                            b_after: other.vertex(at + 2),
                        };
                        if !look(corner) {
                            found = Some(false);
                        }
                    }
                    Meeting::AtVertex => {}
                }
                found.is_none()
            })?;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        Ok(false)
    }

    /// Whether all of the other ring is inside of this one.
    pub(crate) fn contains(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        if !self.bound.contains(&other.bound) {
            return Ok(false);
        }
        let first = other.vertices[0];
        if !self.holds(first) && self.position_of(first).is_none() {
            return Ok(false);
        }
        let mut contains_corners = true;
        let crosses = self.crosses_boundary(other, pace, |corner| {
            contains_corners = corner.contains();
            contains_corners
        })?;
        if crosses || !contains_corners {
            return Ok(false);
        }
        // Two rings that together are the whole globe have the boundary of each other, but not the inside.
        let first = self.vertices[0];
        let are_both_sides =
            self.bound.union(&other.bound).is_full() && other.holds(first) && other.position_of(first).is_none();
        Ok(!are_both_sides)
    }

    /// Whether the insides have something in common.
    pub(crate) fn intersects(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        if other.vertices.len() > self.vertices.len() {
            return other.intersects(self, pace);
        }
        if !self.bound.intersects(&other.bound) {
            return Ok(false);
        }
        let first = other.vertices[0];
        if self.holds(first) && self.position_of(first).is_none() {
            return Ok(true);
        }
        let mut intersects_corner = false;
        let crosses = self.crosses_boundary(other, pace, |corner| {
            intersects_corner = corner.intersects();
            !intersects_corner
        })?;
        if crosses || intersects_corner {
            return Ok(true);
        }
        let first = self.vertices[0];
        Ok(other.bound.contains(&self.bound) && other.holds(first) && other.position_of(first).is_none())
    }

    /// Whether the other ring is inside of this one, or their boundaries cross. Neither may be the complement of a part of the other.
    pub(crate) fn relation(&self, other: &Self, pace: &Pace<'_>) -> Result<RingRelation, GeometryError> {
        if !self.bound.intersects(&other.bound) {
            return Ok(RingRelation::Other);
        }
        let (mut is_more, mut is_less, mut overlaps, mut is_apart) = (false, false, false, false);
        let crosses = self.crosses_boundary(other, pace, |corner| {
            match corner.relation() {
                CornerRelation::Overlapping => overlaps = true,
                CornerRelation::Contains => is_more = true,
                CornerRelation::IsContained => is_less = true,
                CornerRelation::Disjoint => is_apart = true,
                CornerRelation::Equal => {}
            }
            overlaps |= is_more && is_less;
            !overlaps
        })?;
        if crosses || overlaps {
            return Ok(RingRelation::Crosses);
        }
        let first = other.vertices[0];
        let may_contain = !is_apart && !is_less && self.bound.contains(&other.bound);
        let contains = may_contain && (self.holds(first) || self.position_of(first).is_some());
        Ok(if contains { RingRelation::Contains } else { RingRelation::Other })
    }

    /// Whether the other ring is inside of this one, if it is known that they share no edge and do not cross.
    pub(crate) fn nests(&self, other: &Self) -> bool {
        if !self.bound.contains(&other.bound) {
            return false;
        }
        let vertex = other.vertices[1];
        let Some(at) = self.position_of(vertex) else { return self.holds(vertex) };
        let count = self.vertices.len();
        Corner {
            vertex,
            a_before: self.vertex(at + count - 1),
            a_after: self.vertex(at + 1),
            b_before: other.vertices[0],
            b_after: other.vertex(2),
        }
        .contains()
    }
}
