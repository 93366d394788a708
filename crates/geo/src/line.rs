//! Lines of one or more edges.

use crate::bound::Bound;
use crate::edge::{self, Crosser, Meeting};
use crate::edge_tree::EdgeTree;
use crate::pace::Pace;
use crate::{GeometryError, Point};

/// Edges from each vertex to the next one. A line may cross itself.
#[derive(Clone, Debug)]
pub struct Line {
    vertices: Vec<Point>,
    bound: Bound,
    tree: EdgeTree,
}

impl Line {
    /// The line through these points.
    ///
    /// # Errors
    /// If it is too short, or two adjacent vertices are the same or opposite.
    pub fn new(vertices: Vec<Point>) -> Result<Self, GeometryError> {
        if vertices.len() < 2 {
            return Err(GeometryError::ShortLine);
        }
        let is_edge = |pair: &[Point]| pair[0] != pair[1] && pair[0] != -pair[1];
        if !vertices.windows(2).all(is_edge) || !vertices.iter().all(|vertex| vertex.is_on_sphere()) {
            return Err(GeometryError::Line);
        }
        let tree = EdgeTree::new(vertices.len() - 1, |at| (vertices[at], vertices[at + 1]));
        let bound = Bound::of_path(vertices.iter().copied());
        Ok(Self { vertices, bound, tree })
    }

    /// The vertices, from the beginning to the end.
    pub fn vertices(&self) -> &[Point] {
        &self.vertices
    }

    pub(crate) fn edges(&self) -> impl Iterator<Item = (Point, Point)> {
        self.vertices.windows(2).map(|pair| (pair[0], pair[1]))
    }

    /// The edge that is nearest to a point, and the angle between them.
    pub(crate) fn nearest_edge(&self, point: Point) -> (f64, (Point, Point)) {
        let mut best = (f64::INFINITY, (self.vertices[0], self.vertices[1]));
        self.tree.visit_nearer(point, |at| {
            let (a, b) = (self.vertices[at], self.vertices[at + 1]);
            let distance = edge::distance(point, a, b);
            if distance < best.0 {
                best = (distance, (a, b));
            }
            best.0
        });
        best
    }

    /// Whether an edge lies within an angle of a point.
    pub(crate) fn has_edge_within(&self, point: Point, angle: f64) -> bool {
        let is_near = |at| edge::distance(point, self.vertices[at], self.vertices[at + 1]) <= angle;
        self.tree.any_within(point, angle, is_near)
    }

    /// The nearest point of the line.
    pub(crate) fn nearest(&self, point: Point) -> Point {
        let (_, (a, b)) = self.nearest_edge(point);
        edge::nearest(point, a, b)
    }

    /// Whether two lines cross or have a vertex in common.
    pub(crate) fn intersects(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        if !self.bound.intersects(&other.bound) {
            return Ok(false);
        }
        for (own, (a, b)) in self.edges().enumerate() {
            let mut crosser = Crosser::new(a, b);
            let mut meets = false;
            other.tree.visit_meeting(self.tree.cuboid(own), pace, |at| {
                meets = crosser.meeting(other.vertices[at], other.vertices[at + 1]) != Meeting::Apart;
                !meets
            })?;
            if meets {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
