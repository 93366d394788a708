//! A part of the globe with a boundary of one or more rings.

use std::collections::HashSet;

use crate::bound::Bound;
use crate::edge::{self, Crosser, Meeting, crosses_at_vertex};
use crate::edge_tree::Cuboid;
use crate::outline::outlines;
use crate::pace::Pace;
use crate::ring::RingRelation;
use crate::{GeometryError, Line, Point, Ring};

/// Holes are compared in pairs.
const MOST_HOLES: usize = 2_000;

/// A ring, and whether it is the boundary of a hole: whether it lies in an odd number of others.
#[derive(Clone, Debug)]
struct Outline {
    ring: Ring,
    is_hole: bool,
}

/// Shells and holes. Boundaries neither cross nor share edges.
#[derive(Clone, Debug)]
pub struct Polygon {
    /// Each one before those inside of it.
    outlines: Vec<Outline>,
    bound: Bound,
}

impl Polygon {
    /// The polygon of a shell and of holes in it, in this order.
    ///
    /// # Errors
    /// If rings cross, there are too many holes, or the calculation is interrupted.
    pub fn new(mut rings: Vec<Ring>, pace: &Pace<'_>) -> Result<Self, GeometryError> {
        let holes = rings.len().saturating_sub(1);
        if holes > MOST_HOLES {
            return Err(GeometryError::ManyHoles { holes, most: MOST_HOLES });
        }
        for hole in rings.iter_mut().skip(1) {
            hole.invert();
        }
        let rings = outlines(rings, pace)?;
        check(&rings, pace)?;
        Ok(Self::nest(rings))
    }

    fn nest(rings: Vec<Ring>) -> Self {
        let mut outlines = Vec::with_capacity(rings.len());
        let mut root = Vec::new();
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); rings.len()];
        for new in 0..rings.len() {
            // Down to the innermost ring that has the new one inside.
            let mut parent: Option<usize> = None;
            loop {
                let siblings = parent.map_or(&root, |parent| &children[parent]);
                match siblings.iter().find(|sibling| rings[**sibling].nests(&rings[new])) {
                    Some(inner) => parent = Some(*inner),
                    None => break,
                }
            }
            let siblings = parent.map_or(&mut root, |parent| &mut children[parent]);
            let (inside, mut beside): (Vec<usize>, Vec<usize>) =
                siblings.iter().partition(|sibling| rings[new].nests(&rings[**sibling]));
            beside.push(new);
            *siblings = beside;
            children[new] = inside;
        }
        // Outer rings first; a stack, since a polygon may have many rings inside of one another.
        let mut rings: Vec<Option<Ring>> = rings.into_iter().map(Some).collect();
        let mut open: Vec<(usize, bool)> = root.iter().rev().map(|at| (*at, false)).collect();
        while let Some((at, is_hole)) = open.pop() {
            outlines.extend(rings[at].take().map(|ring| Outline { ring, is_hole }));
            open.extend(children[at].iter().rev().map(|child| (*child, !is_hole)));
        }
        let shells = outlines.iter().filter(|outline| !outline.is_hole);
        let bound = shells.fold(Bound::empty(), |bound, shell| bound.union(shell.ring.bound()));
        Self { outlines, bound }
    }

    /// Whether nothing is left of it: holes may cover all of a shell.
    pub fn is_empty(&self) -> bool {
        self.outlines.is_empty()
    }

    pub(crate) fn rings(&self) -> impl Iterator<Item = &Ring> {
        self.outlines.iter().map(|outline| &outline.ring)
    }

    fn has_holes(&self) -> bool {
        self.outlines.iter().any(|outline| outline.is_hole)
    }

    fn only_ring(&self) -> Option<&Ring> {
        if let [outline] = &self.outlines[..] { Some(&outline.ring) } else { None }
    }

    /// Whether the point is inside; of points on the boundary some are and some are not.
    pub(crate) fn holds(&self, point: Point) -> bool {
        if let Some(ring) = self.only_ring() {
            return ring.holds(point);
        }
        self.bound.contains_point(point) && self.rings().fold(false, |inside, ring| inside ^ ring.holds(point))
    }

    /// The nearest point of the polygon: the point itself, if it is inside. `None` if the polygon is empty.
    pub(crate) fn nearest(&self, point: Point) -> Option<Point> {
        if self.holds(point) {
            return Some(point);
        }
        self.nearest_edge(point).map(|(_, (a, b))| edge::nearest(point, a, b))
    }

    /// The edge that is nearest to a point, and the angle between them.
    pub(crate) fn nearest_edge(&self, point: Point) -> Option<(f64, (Point, Point))> {
        let mut best: Option<(f64, (Point, Point))> = None;
        for ring in self.rings() {
            ring.tree().visit_nearer(point, |at| {
                let (a, b) = (ring.vertex(at), ring.vertex(at + 1));
                let distance = edge::distance(point, a, b);
                if best.is_none_or(|(least, _)| distance < least) {
                    best = Some((distance, (a, b)));
                }
                best.map_or(distance, |(least, _)| least)
            });
        }
        best
    }

    /// Whether an edge lies within an angle of a point.
    pub(crate) fn has_edge_within(&self, point: Point, angle: f64) -> bool {
        self.rings().any(|ring| {
            let is_near = |at| edge::distance(point, ring.vertex(at), ring.vertex(at + 1)) <= angle;
            ring.tree().any_within(point, angle, is_near)
        })
    }

    /// Whether both have something in common that has an area.
    pub(crate) fn intersects(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        if let (Some(ring), Some(other)) = (self.only_ring(), other.only_ring()) {
            return ring.intersects(other, pace);
        }
        if !self.bound.intersects(&other.bound) {
            return Ok(false);
        }
        if !self.has_holes() && !other.has_holes() {
            for ring in self.rings() {
                for other in other.rings() {
                    if ring.intersects(other, pace)? {
                        return Ok(true);
                    }
                }
            }
            return Ok(false);
        }
        Ok(self.intersects_shell_of(other, pace)? || other.intersects_shell_of(self, pace)?)
    }

    fn intersects_shell_of(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        for shell in other.outlines.iter().filter(|outline| !outline.is_hole) {
            let shell = &shell.ring;
            let mut is_inside = false;
            for ring in self.rings() {
                if ring.contains(shell, pace)? {
                    is_inside = !is_inside;
                } else if !shell.contains(ring, pace)? && ring.intersects(shell, pace)? {
                    return Ok(true);
                }
            }
            if is_inside {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether all of the other polygon is inside of this one.
    pub(crate) fn contains(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        if let (Some(ring), Some(other)) = (self.only_ring(), other.only_ring()) {
            return ring.contains(other, pace);
        }
        if !self.bound.contains(&other.bound) && !self.bound.union(&other.bound).has_all_longitudes() {
            return Ok(false);
        }
        if !self.has_holes() && !other.has_holes() {
            for other in other.rings() {
                let mut is_inside = false;
                for ring in self.rings() {
                    is_inside = is_inside || ring.contains(other, pace)?;
                }
                if !is_inside {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        for shell in other.outlines.iter().filter(|outline| !outline.is_hole) {
            if self.relation(&shell.ring, pace)? != RingRelation::Contains {
                return Ok(false);
            }
        }
        for hole in self.outlines.iter().filter(|outline| outline.is_hole) {
            if other.relation(&hole.ring, pace)? != RingRelation::Other {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn relation(&self, ring: &Ring, pace: &Pace<'_>) -> Result<RingRelation, GeometryError> {
        let mut is_inside = false;
        for own in self.rings() {
            match own.relation(ring, pace)? {
                RingRelation::Crosses => return Ok(RingRelation::Crosses),
                RingRelation::Contains => is_inside = !is_inside,
                RingRelation::Other => {}
            }
        }
        Ok(if is_inside { RingRelation::Contains } else { RingRelation::Other })
    }

    /// Whether a line has a part inside, or, if `outside`, a part that is not inside. A part has a length.
    pub(crate) fn has_part_of(&self, line: &Line, outside: bool, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        let Some(first) = line.vertices().first() else { return Ok(false) };
        let mut is_inside = self.holds(*first) != outside;
        let mut crossings: Vec<(f64, Point)> = Vec::new();
        for (a, b) in line.edges() {
            crossings.clear();
            self.clip(a, b, &mut crossings, pace)?;
            if is_inside {
                crossings.push((0.0, a));
            }
            is_inside = crossings.len() % 2 == 1;
            if is_inside {
                crossings.push((1.0, b));
            }
            crossings.sort_by(|left, right| left.0.total_cmp(&right.0).then_with(|| left.1.order(right.1)));
            if crossings.chunks_exact(2).any(|part| part[0] != part[1]) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The places where an edge crosses the boundary, each with how far along the edge it is.
    fn clip(&self, a: Point, b: Point, out: &mut Vec<(f64, Point)>, pace: &Pace<'_>) -> Result<(), GeometryError> {
        for ring in self.rings() {
            let mut crosser = Crosser::new(a, b);
            ring.tree().visit_meeting(&Cuboid::of_edge(a, b), pace, |at| {
                let (from, to) = (ring.vertex(at), ring.vertex(at + 1));
                match crosser.meeting(from, to) {
                    Meeting::Apart => {}
                    Meeting::Crossing => {
                        let crossing = edge::crossing_point((a, b), (from, to));
                        out.push((edge::fraction(crossing, a, b), crossing));
                    }
                    Meeting::AtVertex if crosses_at_vertex(a, b, from, to) => {
                        out.push(if a == from || a == to { (0.0, a) } else { (1.0, b) });
                    }
                    Meeting::AtVertex => {}
                }
                true
            })?;
        }
        Ok(())
    }
}

/// Whether the rings can be the boundary of a polygon.
fn check(rings: &[Ring], pace: &Pace<'_>) -> Result<(), GeometryError> {
    if let [ring] = rings {
        return if ring.is_normalized() { Ok(()) } else { Err(GeometryError::Polygon) };
    }
    let mut edges = HashSet::new();
    for (a, b) in rings.iter().flat_map(Ring::edges) {
        if !edges.insert([a.bits(), b.bits()]) || !edges.insert([b.bits(), a.bits()]) {
            return Err(GeometryError::Polygon);
        }
    }
    for (at, ring) in rings.iter().enumerate() {
        if !ring.is_normalized() {
            return Err(GeometryError::Polygon);
        }
        for other in &rings[at + 1..] {
            if ring.relation(other, pace)? == RingRelation::Crosses {
                return Err(GeometryError::Polygon);
            }
        }
    }
    Ok(())
}
