//! On which side of a great circle a point lies, without rounding errors.
//!
//! Everything about shapes that touch or cross is decided by the sign of one determinant. Nearly always doubles are sure of it. If
//! not, it is computed exactly, and if it is zero, which means that the three points lie on one great circle, then by what the sign
//! would be if every point were moved by an infinitely small amount of its own (Edelsbrunner and Mücke, "Simulation of Simplicity",
//! 1990; S2 perturbs in the same order). So no three different points ever lie on one great circle, and answers never contradict one
//! another.

use robust::{Coord, Coord3D, orient2d, orient3d};

use crate::Point;

/// The largest rounding error of the determinant of three points of the sphere: 14 roundings of 2^-54.
const MAX_ERROR: f64 = 0.8e-15;

/// 1 if the points are in counterclockwise order, -1 if clockwise, 0 only if two of them are the same.
pub(crate) fn orientation(a: Point, b: Point, c: Point) -> i32 {
    orientation_with(a, b, c, a.cross(b))
}

/// The same with the cross product of the first two.
pub(crate) fn orientation_with(a: Point, b: Point, c: Point, a_cross_b: Point) -> i32 {
    let determinant = a_cross_b.dot(c);
    if determinant > MAX_ERROR {
        1
    } else if determinant < -MAX_ERROR {
        -1
    } else {
        exact(a, b, c)
    }
}

/// As doubles see it: true if certainly, or perhaps, counterclockwise. Fit for choosing between distances, not for topology.
pub(crate) fn is_about_counterclockwise(a: Point, b: Point, c: Point) -> bool {
    c.cross(a).dot(b) > 0.0
}

/// Whether `a`, `b` and `c` are met in this order on the way around `origin` counterclockwise. True if `b` is one of the others,
/// otherwise false if `a` is `c`.
pub(crate) fn is_ordered(a: Point, b: Point, c: Point, origin: Point) -> bool {
    let mut agreeing = 0;
    agreeing += i32::from(orientation(b, origin, a) >= 0);
    agreeing += i32::from(orientation(c, origin, b) >= 0);
    agreeing += i32::from(orientation(a, origin, c) > 0);
    agreeing >= 2
}

fn sign(number: f64) -> i32 {
    i32::from(number > 0.0) - i32::from(number < 0.0)
}

fn exact(a: Point, b: Point, c: Point) -> i32 {
    if a == b || b == c || c == a {
        return 0;
    }
    let mut points = [a, b, c];
    let mut parity = 1;
    for (left, right) in [(0, 1), (1, 2), (0, 1)] {
        if points[left].order(points[right]).is_gt() {
            points.swap(left, right);
            parity = -parity;
        }
    }
    let [a, b, c] = points;
    let coordinates = |point: Point| Coord3D { x: point.x, y: point.y, z: point.z };
    let origin = Coord3D { x: 0.0, y: 0.0, z: 0.0 };
    let determinant = sign(orient3d(coordinates(a), coordinates(b), coordinates(c), origin));
    parity * if determinant == 0 { perturbed(a, b, c) } else { determinant }
}

/// The sign of the determinant of three points on one great circle, in lexicographic order, after each coordinate was moved by its
/// own power of an infinitely small number. The coefficients of these powers are looked at from the largest power down.
fn perturbed(a: Point, b: Point, c: Point) -> i32 {
    // The sign of u.0 * v.1 - u.1 * v.0, exactly.
    let minor = |u: (f64, f64), v: (f64, f64)| {
        let coordinates = |(x, y)| Coord { x, y };
        sign(orient2d(coordinates(u), coordinates(v), Coord { x: 0.0, y: 0.0 }))
    };
    let coefficients: [&dyn Fn() -> i32; 12] = [
        &|| minor((b.x, b.y), (c.x, c.y)),
        &|| minor((b.z, b.x), (c.z, c.x)),
        &|| minor((b.y, b.z), (c.y, c.z)),
        &|| minor((c.x, c.y), (a.x, a.y)),
        &|| sign(c.x),
        &|| -sign(c.y),
        &|| minor((c.z, c.x), (a.z, a.x)),
        &|| sign(c.z),
        &|| minor((a.x, a.y), (b.x, b.y)),
        &|| -sign(b.x),
        &|| sign(b.y),
        &|| sign(a.x),
    ];
    coefficients.iter().map(|coefficient| coefficient()).find(|sign| *sign != 0).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Position;

    fn at(longitude: f64, latitude: f64) -> Point {
        Position { longitude, latitude }.to_point()
    }

    #[test]
    fn three_points_have_one_orientation() {
        let [a, b, c] = [at(0.0, 0.0), at(10.0, 0.0), at(5.0, 5.0)];
        assert_eq!(orientation(a, b, c), 1);
        assert_eq!(exact(a, b, c), 1);
        assert_eq!(orientation(c, b, a), -1);
        assert_eq!(orientation(a, a, c), 0);
    }

    #[test]
    fn points_on_one_great_circle_are_told_apart_consistently() {
        let points: Vec<Point> = (-9..9).map(|step| at(0.0, f64::from(step) * 10.0)).collect();
        for a in &points {
            for b in &points {
                for c in &points {
                    let found = orientation(*a, *b, *c);
                    assert_eq!(found == 0, a == b || b == c || a == c);
                    assert_eq!(found, orientation(*b, *c, *a));
                    assert_eq!(found, -orientation(*c, *b, *a));
                }
            }
        }
    }
}
