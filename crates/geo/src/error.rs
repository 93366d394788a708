//! Why something is no geometry, in RethinkDB's words.

/// Why positions make no shape, or a circle cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GeometryError {
    /// A line has fewer than two positions.
    #[error("GeoJSON LineString must have at least two positions.")]
    ShortLine,
    /// Two adjacent vertices of a line are the same, or at opposite ends of the globe.
    #[error("Invalid LineString.  Are there antipodal or duplicate vertices?")]
    Line,
    /// A ring has fewer than four positions, with the last one that repeats the first.
    #[error("GeoJSON LinearRing must have at least four positions.")]
    ShortRing,
    /// A ring does not end where it began.
    #[error("First and last vertex of GeoJSON LinearRing must be identical.")]
    OpenRing,
    /// A ring meets itself.
    #[error("Invalid LinearRing.  Are there antipodal or duplicate vertices? Is it self-intersecting?")]
    Ring,
    /// The rings of a polygon cross, or share edges in a way that bounds nothing.
    #[error("Some edges in GeoJSON polygon could not be used.  Are they intersecting?")]
    Polygon,
    /// A polygon has more holes than are compared with one another in a moment.
    #[error("A polygon may have at most {most} holes, and this one has {holes}.")]
    ManyHoles {
        /// How many it has.
        holes: usize,
        /// How many it may have.
        most: usize,
    },
    /// The radius of a circle is zero or less.
    #[error("Radius must be positive")]
    Radius,
    /// The radius of a circle is so large that it might reach the other side of the globe.
    #[error(
        "Radius must be smaller than a quarter of the circumference along the minor axis of the reference ellipsoid.  Got {radius}m, \
         but must be smaller than {limit}m."
    )]
    RadiusTooLarge {
        /// The radius that was asked for, in metres.
        radius: f64,
        /// The radius that cannot be reached.
        limit: f64,
    },
    /// The caller's [`Pace`](crate::Pace) ended the work.
    #[error("The calculation was interrupted.")]
    Interrupted,
}
