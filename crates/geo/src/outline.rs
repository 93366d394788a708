//! Puts the outlines of a polygon together from the edges of its rings.
//!
//! A hole may share edges with the shell. An edge that both have in opposite directions bounds nothing; what is left over makes new
//! rings, which turn left wherever they can.

use std::collections::HashMap;

use crate::orientation::is_ordered;
use crate::pace::Pace;
use crate::{GeometryError, Point, Ring};

/// Directed edges by the vertex where they begin.
struct Edges {
    from: HashMap<[u64; 3], Vec<Point>>,
    /// The vertices at which edges begin, in the order in which they came.
    starts: Vec<Point>,
}

impl Edges {
    fn add(&mut self, a: Point, b: Point) {
        if self.remove(b, a) {
            return;
        }
        let targets = self.from.entry(a.bits()).or_default();
        if targets.is_empty() {
            self.starts.push(a);
        }
        let at = targets.partition_point(|target| target.order(b).is_le());
        targets.insert(at, b);
    }

    fn remove(&mut self, a: Point, b: Point) -> bool {
        let Some(targets) = self.from.get_mut(&a.bits()) else { return false };
        let Some(at) = targets.iter().position(|target| *target == b) else { return false };
        targets.remove(at);
        if targets.is_empty() {
            self.from.remove(&a.bits());
        }
        true
    }

    fn targets(&self, a: Point) -> &[Point] {
        self.from.get(&a.bits()).map_or(&[], Vec::as_slice)
    }

    /// The ring that begins with an edge; `None` if it has a dead end.
    fn trace(&self, a: Point, b: Point) -> Option<Vec<Point>> {
        let mut path = vec![a, b];
        // Where each vertex but the first stands in the path.
        let mut places = HashMap::from([(b.bits(), 1)]);
        loop {
            let (before, at) = (path[path.len() - 2], path[path.len() - 1]);
            let mut next: Option<Point> = None;
            for target in self.targets(at).iter().filter(|target| **target != before) {
                if next.is_none_or(|next| is_ordered(before, next, *target, at)) {
                    next = Some(*target);
                }
            }
            let next = next?;
            if let Some(place) = places.insert(next.bits(), path.len()) {
                path.drain(..place);
                return Some(path);
            }
            path.push(next);
        }
    }
}

/// The outlines that the edges of rings make; the rings have their insides on the left, and holes are turned inside out.
///
/// # Errors
/// If edges are left over, or the calculation is interrupted.
pub(crate) fn outlines(rings: Vec<Ring>, pace: &Pace<'_>) -> Result<Vec<Ring>, GeometryError> {
    if rings.len() == 1 {
        // A ring meets itself nowhere.
        return Ok(rings);
    }
    let mut edges = Edges { from: HashMap::new(), starts: Vec::new() };
    for ring in &rings {
        let count = ring.vertices().len();
        for at in (1..=count).rev() {
            pace.steps(8)?;
            edges.add(ring.vertex(at), ring.vertex(at + 1));
        }
    }
    let mut outlines = Vec::new();
    let starts = std::mem::take(&mut edges.starts);
    for start in starts {
        while let Some(second) = edges.targets(start).first().copied() {
            let path = edges.trace(start, second).ok_or(GeometryError::Polygon)?;
            pace.steps(8 * path.len())?;
            let rest = path.iter().skip(1).chain(path.first());
            for (a, b) in path.iter().zip(rest) {
                edges.remove(*a, *b);
            }
            let mut outline = Ring::of_vertices(path);
            outline.normalize();
            outlines.push(outline);
        }
    }
    Ok(outlines)
}
