//! Distances and circles on ellipsoids of revolution, by Karney's geodesics.

use std::f64::consts::{FRAC_PI_2, PI};
use std::sync::LazyLock;

use geographiclib_rs::{DirectGeodesic, Geodesic, InverseGeodesic};

use crate::{Geometry, GeometryError, Point, Position};

/// The shape of the globe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ellipsoid {
    /// The radius of the equator in metres.
    pub equator_radius: f64,
    /// By how much the radius of the poles is smaller, as a share of that of the equator.
    pub flattening: f64,
}

static WGS84: LazyLock<Geodesic> = LazyLock::new(|| Ellipsoid::WGS84.new_geodesic());
static UNIT_SPHERE: LazyLock<Geodesic> = LazyLock::new(|| Ellipsoid::UNIT_SPHERE.new_geodesic());

/// A polygon that must hold a circle is made for a radius that is larger by this factor, against rounding errors.
const LEEWAY: f64 = 0.01;

/// The same for angles.
const ANGLE_LEEWAY: f64 = 1e-6;

impl Ellipsoid {
    /// The globe as GPS sees it.
    pub const WGS84: Self = Self { equator_radius: 6_378_137.0, flattening: 1.0 / 298.257_223_563 };
    /// A sphere with a radius of one.
    pub const UNIT_SPHERE: Self = Self { equator_radius: 1.0, flattening: 0.0 };

    fn new_geodesic(self) -> Geodesic {
        Geodesic::new(self.equator_radius, self.flattening)
    }

    fn with_geodesic<T>(self, calculate: impl FnOnce(&Geodesic) -> T) -> T {
        if self == Self::WGS84 {
            calculate(&WGS84)
        } else if self == Self::UNIT_SPHERE {
            calculate(&UNIT_SPHERE)
        } else {
            calculate(&self.new_geodesic())
        }
    }

    fn pole_radius(self) -> f64 {
        (1.0 - self.flattening) * self.equator_radius
    }

    /// A radius that circles cannot have: from there on they might reach the other side.
    pub fn radius_limit(self) -> f64 {
        FRAC_PI_2 * self.equator_radius.min(self.pole_radius())
    }

    /// The length in metres of the shortest way from a point to a shape; infinite if the shape is empty. The nearest point of the
    /// shape is found on the sphere, so the way to lines and polygons that are far away may be a little longer than needed.
    pub fn distance(self, point: Point, shape: &Geometry) -> f64 {
        let Some(nearest) = shape.nearest(point) else { return f64::INFINITY };
        if !matches!(shape, Geometry::Point(_)) && nearest == point {
            return 0.0;
        }
        let (from, to) = (point.to_position(), nearest.to_position());
        self.with_geodesic(|geodesic| geodesic.inverse(from.latitude, from.longitude, to.latitude, to.longitude))
    }

    /// The vertices of a circle, beginning in the south, with the first one again at the end.
    ///
    /// # Errors
    /// If the radius, in metres, is zero or less, or too large.
    pub fn circle(self, center: Position, radius: f64, vertices: u32) -> Result<Vec<Position>, GeometryError> {
        if radius <= 0.0 {
            return Err(GeometryError::Radius);
        }
        let limit = self.radius_limit();
        if radius >= limit {
            return Err(GeometryError::RadiusTooLarge { radius, limit });
        }
        Ok(self.with_geodesic(|geodesic| {
            let at = |vertex: u32| {
                let azimuth = -180.0 + 360.0 / f64::from(vertices) * f64::from(vertex);
                let (latitude, longitude) = geodesic.direct(center.latitude, center.longitude, azimuth, radius);
                // The meridian opposite of Greenwich is that of 180° W.
                Position { longitude: if longitude == 180.0 { -180.0 } else { longitude }, latitude }
            };
            let mut circle: Vec<Position> = (0..vertices).map(at).collect();
            circle.extend(circle.first().copied());
            circle
        }))
    }

    /// A radius for a polygon whose vertices lie on a circle, so that it holds all that is within `radius`.
    pub fn outer_radius(self, radius: f64, vertices: u32) -> f64 {
        let (equator, pole) = (self.equator_radius, self.pole_radius());
        let distortion = equator.max(pole) / equator.min(pole);
        radius * (1.0 + LEEWAY) / (PI / f64::from(vertices)).cos() * distortion
    }

    /// Between which angles on the sphere everything lies that is so many metres away. A metre spans the largest angle where the
    /// meridian is bent most, at the equator, and the smallest one at the poles.
    pub fn angles(self, distance: f64) -> (f64, f64) {
        let (equator, pole) = (self.equator_radius, self.pole_radius());
        let least = distance * pole / (equator * equator);
        let most = distance * equator / (pole * pole);
        (least * (1.0 - ANGLE_LEEWAY), most * (1.0 + ANGLE_LEEWAY))
    }
}

/// A unit of length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// `m`
    Metre,
    /// `km`
    Kilometre,
    /// `mi`, international miles
    Mile,
    /// `nm`, nautical miles
    NauticalMile,
    /// `ft`, international feet
    Foot,
}

impl Unit {
    /// The unit of this abbreviation.
    pub fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "m" => Self::Metre,
            "km" => Self::Kilometre,
            "mi" => Self::Mile,
            "nm" => Self::NauticalMile,
            "ft" => Self::Foot,
            _ => return None,
        })
    }

    /// Its length in metres.
    pub fn metres(self) -> f64 {
        match self {
            Self::Metre => 1.0,
            Self::Kilometre => 1000.0,
            Self::Mile => 1609.344,
            Self::NauticalMile => 1852.0,
            Self::Foot => 0.3048,
        }
    }
}
