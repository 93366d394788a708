//! Shapes, and what can be asked of them.

use crate::pace::Pace;
use crate::{GeometryError, Line, Point, Polygon};

/// A shape on the globe.
#[derive(Clone, Debug)]
pub enum Geometry {
    /// A place.
    Point(Point),
    /// Edges.
    Line(Line),
    /// A part of the globe.
    Polygon(Polygon),
}

impl Geometry {
    /// Whether two shapes have something in common. Points are on a line or the boundary of a polygon only if doubles can say so.
    /// Lines that touch a polygon at its boundary, and polygons that touch there, do not intersect.
    ///
    /// # Errors
    /// If the calculation is interrupted.
    pub fn intersects(&self, other: &Self, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        Ok(match (self, other) {
            (Self::Point(one), Self::Point(other)) => one == other,
            (Self::Point(point), Self::Line(line)) | (Self::Line(line), Self::Point(point)) => {
                line.nearest(*point) == *point
            }
            (Self::Point(point), Self::Polygon(polygon)) | (Self::Polygon(polygon), Self::Point(point)) => {
                polygon.nearest(*point) == Some(*point)
            }
            (Self::Line(one), Self::Line(other)) => other.intersects(one, pace)?,
            (Self::Line(line), Self::Polygon(polygon)) | (Self::Polygon(polygon), Self::Line(line)) => {
                !polygon.is_empty() && polygon.has_part_of(line, false, pace)?
            }
            (Self::Polygon(one), Self::Polygon(other)) => {
                !one.is_empty() && !other.is_empty() && other.intersects(one, pace)?
            }
        })
    }

    /// The nearest point of the shape to a point: the point itself, if the shape has it. `None` if the shape is empty.
    pub fn nearest(&self, point: Point) -> Option<Point> {
        match self {
            Self::Point(own) => Some(*own),
            Self::Line(line) => Some(line.nearest(point)),
            Self::Polygon(polygon) => polygon.nearest(point),
        }
    }
}

impl Polygon {
    /// Whether all of a shape is in the polygon.
    ///
    /// # Errors
    /// If the calculation is interrupted.
    pub fn includes(&self, shape: &Geometry, pace: &Pace<'_>) -> Result<bool, GeometryError> {
        match shape {
            Geometry::Point(point) => Ok(self.nearest(*point) == Some(*point)),
            Geometry::Line(line) => Ok(!self.has_part_of(line, true, pace)?),
            Geometry::Polygon(polygon) => self.contains(polygon, pace),
        }
    }
}
