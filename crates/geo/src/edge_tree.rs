//! Finds the edges of a long path that are near to something, without looking at all of them.
//!
//! Edges that follow one another are near one another, so boxes around runs of edges, around runs of such boxes, and so on, make a
//! search tree without any sorting. Edges come out in their order, as if all had been looked at.

use crate::pace::Pace;
use crate::{GeometryError, Point};

/// How many boxes one box is around.
const FAN_OUT: usize = 8;

/// Added to boxes for rounding errors.
const SLACK: f64 = 4e-15;

/// A box with sides along the axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cuboid {
    low: [f64; 3],
    high: [f64; 3],
}

impl Cuboid {
    /// Around an edge, which bulges out of the straight line between its vertices.
    pub(crate) fn of_edge(a: Point, b: Point) -> Self {
        let chord2 = a.chord2(b);
        let bulge = 1.0 - (1.0 - chord2 / 4.0).max(0.0).sqrt() + SLACK;
        let of = |one: f64, other: f64| (one.min(other) - bulge, one.max(other) + bulge);
        let sides = [of(a.x, b.x), of(a.y, b.y), of(a.z, b.z)];
        Self { low: sides.map(|side| side.0), high: sides.map(|side| side.1) }
    }

    fn around(&self, other: &Self) -> Self {
        let mut around = *self;
        for axis in 0..3 {
            around.low[axis] = self.low[axis].min(other.low[axis]);
            around.high[axis] = self.high[axis].max(other.high[axis]);
        }
        around
    }

    fn meets(&self, other: &Self) -> bool {
        (0..3).all(|axis| self.low[axis] <= other.high[axis] && other.low[axis] <= self.high[axis])
    }

    /// The squared length of the straight line from a point to the box.
    fn distance2(&self, point: Point) -> f64 {
        let along = |axis: usize, at: f64| (self.low[axis] - at).max(at - self.high[axis]).max(0.0);
        let (x, y, z) = (along(0, point.x), along(1, point.y), along(2, point.z));
        x * x + y * y + z * z
    }
}

/// Boxes around the edges of a path.
#[derive(Clone, Debug)]
pub(crate) struct EdgeTree {
    /// Boxes around edges first, then those around runs of boxes, the outermost ones last.
    levels: Vec<Vec<Cuboid>>,
}

impl EdgeTree {
    /// Makes the tree of as many edges as `edges` says; `edge` gives the edge of each number, counted from zero.
    pub(crate) fn new(edges: usize, edge: impl Fn(usize) -> (Point, Point)) -> Self {
        let mut level: Vec<Cuboid> = (0..edges).map(&edge).map(|(a, b)| Cuboid::of_edge(a, b)).collect();
        let mut levels = Vec::new();
        while level.len() > 2 * FAN_OUT {
            let above = group(&level);
            levels.push(level);
            level = above;
        }
        levels.push(level);
        Self { levels }
    }

    /// The box around an edge.
    pub(crate) fn cuboid(&self, edge: usize) -> &Cuboid {
        &self.levels[0][edge]
    }

    /// Calls `visit` with each edge that may meet the box, until it says false.
    pub(crate) fn visit_meeting(
        &self,
        around: &Cuboid,
        pace: &Pace<'_>,
        mut visit: impl FnMut(usize) -> bool,
    ) -> Result<(), GeometryError> {
        self.visit(pace, |cuboid| cuboid.meets(around), &mut visit)
    }

    /// Calls `visit` with each edge that may be nearer to a point than the angle that `visit` last gave, in their order.
    pub(crate) fn visit_nearer(&self, point: Point, mut visit: impl FnMut(usize) -> f64) {
        let limit = std::cell::Cell::new(f64::INFINITY);
        let is_near = |cuboid: &Cuboid| cuboid.distance2(point) <= limit.get();
        let mut each = |edge: usize| {
            limit.set(squared_chord(visit(edge)));
            true
        };
        // An endless pace does not fail.
        let _ = self.visit(&Pace::endless(), is_near, &mut each);
    }

    /// Whether an edge for which `is_near` says true lies within an angle of a point.
    pub(crate) fn any_within(&self, point: Point, angle: f64, mut is_near: impl FnMut(usize) -> bool) -> bool {
        let limit = squared_chord(angle);
        let mut found = false;
        // An endless pace does not fail.
        let _ = self.visit(&Pace::endless(), |cuboid| cuboid.distance2(point) <= limit, &mut |edge| {
            found = is_near(edge);
            !found
        });
        found
    }

    fn visit(
        &self,
        pace: &Pace<'_>,
        is_wanted: impl Fn(&Cuboid) -> bool,
        visit: &mut dyn FnMut(usize) -> bool,
    ) -> Result<(), GeometryError> {
        let Some((top, below)) = self.levels.split_last() else { return Ok(()) };
        pace.steps(top.len())?;
        if below.is_empty() {
            (0..top.len()).filter(|edge| is_wanted(&top[*edge])).all(visit);
            return Ok(());
        }
        // Pairs of a level and a place in it; the next one in order is on top.
        let mut open: Vec<(usize, usize)> = (0..top.len()).rev().map(|at| (below.len(), at)).collect();
        while let Some((level, at)) = open.pop() {
            if !is_wanted(&self.levels[level][at]) {
                continue;
            }
            let Some(below) = level.checked_sub(1) else {
                if !visit(at) {
                    return Ok(());
                }
                continue;
            };
            pace.steps(FAN_OUT)?;
            let first = at * FAN_OUT;
            let end = (first + FAN_OUT).min(self.levels[below].len());
            open.extend((first..end).rev().map(|at| (below, at)));
        }
        Ok(())
    }
}

/// The squared straight line that belongs to an angle, with room for rounding errors. Nothing is farther than half of the globe.
fn squared_chord(angle: f64) -> f64 {
    let chord = 2.0 * (angle.clamp(0.0, std::f64::consts::PI) / 2.0).sin() + SLACK;
    chord * chord * (1.0 + 1e-9)
}

fn group(boxes: &[Cuboid]) -> Vec<Cuboid> {
    boxes.chunks(FAN_OUT).map(|run| run[1..].iter().fold(run[0], |around, next| around.around(next))).collect()
}
