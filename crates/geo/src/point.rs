//! Positions in degrees, and points of the unit sphere.

use std::cmp::Ordering;
use std::ops::{Add, Mul, Neg, Sub};

/// A place in degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// East of Greenwich, from -180 to 180 where it must be a place.
    pub longitude: f64,
    /// North of the equator, from -90 to 90 where it must be a place.
    pub latitude: f64,
}

/// A vector from the centre of the globe; of length one, except where a computation says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Towards 0° N 0° E.
    pub x: f64,
    /// Towards 0° N 90° E.
    pub y: f64,
    /// Towards the north pole.
    pub z: f64,
}

/// How far the squared length of a point of the sphere may be from one.
const LENGTH_TOLERANCE: f64 = 1e-15;

impl Position {
    /// The point of the sphere. 180° W and 180° E are the same.
    pub fn to_point(self) -> Point {
        let longitude = if self.longitude == 180.0 { -180.0 } else { self.longitude };
        let (theta, phi) = (longitude * DEGREE, self.latitude * DEGREE);
        let equatorial = phi.cos();
        Point { x: theta.cos() * equatorial, y: theta.sin() * equatorial, z: phi.sin() }
    }
}

/// One degree in radians. `f64::to_radians` rounds differently for some angles.
const DEGREE: f64 = std::f64::consts::PI / 180.0;

impl Point {
    pub(crate) const NORTH_POLE: Self = Self { x: 0.0, y: 0.0, z: 1.0 };
    pub(crate) const SOUTH_POLE: Self = Self { x: 0.0, y: 0.0, z: -1.0 };

    /// In degrees, as far as doubles allow the place from which the point was made.
    pub fn to_position(self) -> Position {
        let radian = 180.0 / std::f64::consts::PI;
        Position { longitude: self.longitude() * radian, latitude: self.latitude() * radian }
    }

    /// Returns the latitude in radians.
    pub(crate) fn latitude(self) -> f64 {
        self.z.atan2((self.x * self.x + self.y * self.y).sqrt())
    }

    /// Returns the longitude in radians.
    pub(crate) fn longitude(self) -> f64 {
        self.y.atan2(self.x)
    }

    pub(crate) fn is_on_sphere(self) -> bool {
        (self.square() - 1.0).abs() <= LENGTH_TOLERANCE
    }

    pub(crate) fn dot(self, other: Self) -> f64 {
        self.x * other.x + self.y * other.y + self.z * other.z
    }

    pub(crate) fn cross(self, other: Self) -> Self {
        Self {
            x: self.y * other.z - self.z * other.y,
            y: self.z * other.x - self.x * other.z,
            z: self.x * other.y - self.y * other.x,
        }
    }

    /// The squared length.
    pub(crate) fn square(self) -> f64 {
        self.dot(self)
    }

    pub(crate) fn length(self) -> f64 {
        self.square().sqrt()
    }

    /// The vector of length one in this direction.
    pub(crate) fn normalized(self) -> Self {
        let length = self.length();
        if length == 0.0 { self } else { self * (1.0 / length) }
    }

    /// Returns the angle between two points in radians. It is accurate for small and for large angles.
    pub(crate) fn angle(self, other: Self) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }

    /// The squared length of the straight line between two points.
    pub(crate) fn chord2(self, other: Self) -> f64 {
        (self - other).square()
    }

    /// A vector at a right angle to this one: always the same for the same point, and seldom in a plane with an edge of a shape.
    pub(crate) fn orthogonal(self) -> Self {
        let (x, y, z) = (self.x.abs(), self.y.abs(), self.z.abs());
        let mut direction = Self { x: 0.012, y: 0.0053, z: 0.00457 };
        // One component, next to the largest of the point, is set, so that the two cannot be parallel.
        if x > y {
            if x > z { direction.z = 1.0 } else { direction.y = 1.0 }
        } else if y > z {
            direction.x = 1.0;
        } else {
            direction.y = 1.0;
        }
        self.cross(direction).normalized()
    }

    /// A vector at a right angle to both points, even if they are nearly the same or nearly opposite.
    pub(crate) fn normal(self, other: Self) -> Self {
        let normal = (other + self).cross(other - self);
        if normal == (Self { x: 0.0, y: 0.0, z: 0.0 }) { self.orthogonal() } else { normal }
    }

    /// Compares points by the first component, then by the second, then by the third.
    pub(crate) fn order(self, other: Self) -> Ordering {
        let compare = |left: f64, right: f64| left.partial_cmp(&right).unwrap_or(Ordering::Equal);
        compare(self.x, other.x).then(compare(self.y, other.y)).then(compare(self.z, other.z))
    }

    /// The same for points that are equal.
    pub(crate) fn bits(self) -> [u64; 3] {
        // Adding zero turns a negative zero, which equals the positive one, into that.
        [(self.x + 0.0).to_bits(), (self.y + 0.0).to_bits(), (self.z + 0.0).to_bits()]
    }
}

impl Add for Point {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { x: self.x + other.x, y: self.y + other.y, z: self.z + other.z }
    }
}

impl Sub for Point {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { x: self.x - other.x, y: self.y - other.y, z: self.z - other.z }
    }
}

impl Mul<f64> for Point {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self { x: self.x * factor, y: self.y * factor, z: self.z * factor }
    }
}

impl Neg for Point {
    type Output = Self;

    fn neg(self) -> Self {
        Self { x: -self.x, y: -self.y, z: -self.z }
    }
}
