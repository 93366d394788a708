//! Edges: parts of great circles between two points.

use crate::Point;
use crate::orientation::{is_about_counterclockwise, is_ordered, orientation, orientation_with};

/// How two edges meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// They have no point in common.
    Apart,
    /// A vertex of one is a vertex of the other.
    AtVertex,
    /// They cross inside of both.
    Crossing,
}

/// Asks one edge how it meets others. Fast for edges that follow one another.
pub(crate) struct Crosser {
    a: Point,
    b: Point,
    a_cross_b: Point,
    /// The last vertex that was asked about, with the orientation of the edge and it.
    last: Option<(Point, i32)>,
}

impl Crosser {
    pub(crate) fn new(a: Point, b: Point) -> Self {
        Self { a, b, a_cross_b: a.cross(b), last: None }
    }

    pub(crate) fn meeting(&mut self, c: Point, d: Point) -> Meeting {
        let acb = -match self.last {
            Some((last, orientation)) if last == c => orientation,
            _ => orientation_with(self.a, self.b, c, self.a_cross_b),
        };
        let abd = orientation_with(self.a, self.b, d, self.a_cross_b);
        self.last = Some((d, abd));
        if abd == -acb && abd != 0 {
            return Meeting::Apart;
        }
        if abd == 0 || acb == 0 {
            return Meeting::AtVertex;
        }
        // Both vertices of the other edge lie on different sides of this one; now the same for the vertices of this one.
        let c_cross_d = c.cross(d);
        let is_crossed =
            -orientation_with(c, d, self.b, c_cross_d) == acb && orientation_with(c, d, self.a, c_cross_d) == acb;
        if is_crossed { Meeting::Crossing } else { Meeting::Apart }
    }

    /// Whether the edge changes sides of a boundary that the other edge is part of.
    pub(crate) fn changes_side(&mut self, c: Point, d: Point) -> bool {
        match self.meeting(c, d) {
            Meeting::Apart => false,
            Meeting::Crossing => true,
            Meeting::AtVertex => crosses_at_vertex(self.a, self.b, c, d),
        }
    }
}

/// Whether two edges with a common vertex count as crossing, so that counting crossings tells inside from outside: if the first
/// one comes after the other one on the way around the vertex, counterclockwise from a direction that is fixed for the vertex.
pub(crate) fn crosses_at_vertex(a: Point, b: Point, c: Point, d: Point) -> bool {
    if a == b || c == d {
        false
    } else if a == d {
        is_ordered(a.orthogonal(), c, b, a)
    } else if b == c {
        is_ordered(b.orthogonal(), d, a, b)
    } else if a == c {
        is_ordered(a.orthogonal(), d, b, a)
    } else if b == d {
        is_ordered(b.orthogonal(), c, a, b)
    } else {
        false
    }
}

/// Where two edges cross that are known to cross.
pub(crate) fn crossing_point(a: (Point, Point), b: (Point, Point)) -> Point {
    let a_normal = a.0.normal(a.1).normalized();
    let b_normal = b.0.normal(b.1).normalized();
    let mut crossing = a_normal.normal(b_normal).normalized();
    // Two great circles cross twice; the sum of the vertices is on the side of the crossing that is meant.
    if crossing.dot((a.0 + a.1) + (b.0 + b.1)) < 0.0 {
        crossing = -crossing;
    }
    let is_on_a = |point| is_ordered(a.0, point, a.1, a_normal);
    let is_on_b = |point| is_ordered(b.0, point, b.1, b_normal);
    if is_on_a(crossing) && is_on_b(crossing) {
        return crossing;
    }
    // Nearly parallel edges: rounding has moved the crossing out of them, and the nearest vertex on the other edge takes its place.
    let mut best = (10.0, crossing);
    let candidates = [(a.0, is_on_b(a.0)), (a.1, is_on_b(a.1)), (b.0, is_on_a(b.0)), (b.1, is_on_a(b.1))];
    for (vertex, is_on_other) in candidates {
        let distance = crossing.chord2(vertex);
        if is_on_other && (distance < best.0 || (distance == best.0 && vertex.order(best.1).is_lt())) {
            best = (distance, vertex);
        }
    }
    best.1
}

/// How far along an edge a point on it is, from 0 to 1.
pub(crate) fn fraction(point: Point, a: Point, b: Point) -> f64 {
    let (before, after) = (point.angle(a), point.angle(b));
    before / (before + after)
}

/// The angle between a point and the nearest point of an edge.
pub(crate) fn distance(point: Point, a: Point, b: Point) -> f64 {
    let normal = a.normal(b);
    if is_about_counterclockwise(normal, a, point) && is_about_counterclockwise(point, b, normal) {
        let sine = point.dot(normal).abs() / normal.length();
        return sine.min(1.0).asin();
    }
    let chord2 = point.chord2(a).min(point.chord2(b));
    2.0 * (0.5 * chord2.sqrt()).min(1.0).asin()
}

/// The squared length of a projection that is so short that much of it is rounding: the point is nearly a quarter of the globe away from
/// all of the edge.
const SHORT_PROJECTION: f64 = 1e-8;

/// The point of an edge that is nearest to a point.
pub(crate) fn nearest(point: Point, a: Point, b: Point) -> Point {
    let normal = a.normal(b);
    let project = |point: Point| point - normal * (point.dot(normal) / normal.square());
    let mut projected = project(point);
    if projected.square() < SHORT_PROJECTION {
        projected = project(projected.normalized());
    }
    if is_about_counterclockwise(normal, a, projected) && is_about_counterclockwise(projected, b, normal) {
        return projected.normalized();
    }
    if point.chord2(a) <= point.chord2(b) { a } else { b }
}

/// The edges of two boundaries at a common vertex: those before and after it of one, and of the other. A boundary has its inside on
/// its left.
#[derive(Clone, Copy)]
pub(crate) struct Corner {
    pub vertex: Point,
    pub a_before: Point,
    pub a_after: Point,
    pub b_before: Point,
    pub b_after: Point,
}

/// How the insides of two boundaries lie at a common vertex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CornerRelation {
    Equal,
    /// The first has all of the second, and more.
    Contains,
    /// The second has all of the first, and more.
    IsContained,
    Overlapping,
    Disjoint,
}

impl Corner {
    /// Whether the inside of the second is in that of the first.
    pub(crate) fn contains(&self) -> bool {
        is_ordered(self.a_after, self.b_after, self.b_before, self.vertex)
            && is_ordered(self.b_before, self.a_before, self.a_after, self.vertex)
    }

    /// Whether the insides have something in common.
    pub(crate) fn intersects(&self) -> bool {
        !(is_ordered(self.a_before, self.b_after, self.b_before, self.vertex)
            && is_ordered(self.b_before, self.a_after, self.a_before, self.vertex))
    }

    pub(crate) fn relation(&self) -> CornerRelation {
        if self.a_before == self.b_before && self.a_after == self.b_after {
            return CornerRelation::Equal;
        }
        if is_ordered(self.a_before, self.a_after, self.b_after, self.vertex) {
            if is_ordered(self.b_after, self.b_before, self.a_before, self.vertex) {
                return CornerRelation::Contains;
            }
            return if self.a_after == self.b_after {
                CornerRelation::IsContained
            } else {
                CornerRelation::Overlapping
            };
        }
        if is_ordered(self.a_before, self.b_before, self.b_after, self.vertex) {
            return CornerRelation::IsContained;
        }
        if is_ordered(self.a_before, self.b_before, self.a_after, self.vertex) {
            CornerRelation::Disjoint
        } else {
            CornerRelation::Overlapping
        }
    }
}

/// The angle by which a way turns at `b`: positive to the left.
pub(crate) fn turn(a: Point, b: Point, c: Point) -> f64 {
    let angle = b.normal(a).angle(c.normal(b));
    if orientation(a, b, c) > 0 { angle } else { -angle }
}
