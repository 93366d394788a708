//! Rectangles of latitudes and longitudes around shapes.

use std::f64::consts::{FRAC_PI_2, PI};

use s2::rect::Rect;
use s2::s1::interval;
use s2::{r1, s1};

use crate::Point;

/// An edge whose highest latitude comes so near to a pole may pass on either side of it.
const POLE_TOLERANCE: f64 = 1e-15;

/// The latitudes and longitudes, in radians, between which a shape lies.
#[derive(Clone, Debug)]
pub(crate) struct Bound(Rect);

impl Bound {
    pub(crate) fn empty() -> Self {
        Self(Rect::empty())
    }

    pub(crate) fn full() -> Self {
        Self(Rect::full())
    }

    /// Around the edges from each vertex to the next. The insides of edges count too: they bulge towards the poles.
    pub(crate) fn of_path(vertices: impl Iterator<Item = Point>) -> Self {
        let mut bound = Rect::empty();
        let mut before: Option<(Point, (f64, f64))> = None;
        for vertex in vertices {
            let place = (vertex.latitude(), vertex.longitude());
            match before {
                None => bound = pair(place, place),
                Some((last, last_place)) => {
                    bound = bound.union(&pair(last_place, place));
                    widen(&mut bound, last, vertex);
                }
            }
            before = Some((vertex, place));
        }
        Self(bound)
    }

    pub(crate) fn contains(&self, other: &Self) -> bool {
        self.0.contains(&other.0)
    }

    pub(crate) fn contains_point(&self, point: Point) -> bool {
        self.0.lat.contains(point.latitude()) && self.0.lng.contains(point.longitude())
    }

    pub(crate) fn intersects(&self, other: &Self) -> bool {
        self.0.intersects(&other.0)
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }

    pub(crate) fn is_full(&self) -> bool {
        self.0.is_full()
    }

    pub(crate) fn has_all_longitudes(&self) -> bool {
        self.0.lng.is_full()
    }

    /// Whether it lies within half of the globe's longitudes.
    pub(crate) fn is_narrow(&self) -> bool {
        self.0.lng.len() < PI
    }

    /// Whether it reaches a pole.
    pub(crate) fn touches_pole(&self) -> bool {
        self.0.lat.lo <= -FRAC_PI_2 || self.0.lat.hi >= FRAC_PI_2
    }

    pub(crate) fn add_north_pole(&mut self) {
        self.0.lat = r1::interval::Interval::new(self.0.lat.lo, FRAC_PI_2);
        self.0.lng = interval::FULL;
    }

    pub(crate) fn add_south_pole(&mut self) {
        self.0.lat.lo = -FRAC_PI_2;
    }
}

fn pair(one: (f64, f64), other: (f64, f64)) -> Rect {
    Rect {
        lat: r1::interval::Interval::from_point_pair(one.0, other.0),
        lng: s1::interval::Interval::from_point_pair(one.1, other.1),
    }
}

fn widen(bound: &mut Rect, a: Point, b: Point) {
    let normal = a.normal(b);
    let direction = normal.cross(Point::NORTH_POLE);
    let (towards_a, towards_b) = (direction.dot(a), direction.dot(b));
    if towards_a * towards_b >= 0.0 {
        return;
    }
    // The highest or lowest latitude is inside of the edge.
    let latitude = (normal.z / normal.length()).abs().acos();
    if towards_a < 0.0 {
        bound.lat.hi = latitude.max(bound.lat.hi);
    } else {
        bound.lat.lo = (-latitude).min(bound.lat.lo);
    }
    if latitude >= FRAC_PI_2 - POLE_TOLERANCE {
        bound.lng = interval::FULL;
    }
}
