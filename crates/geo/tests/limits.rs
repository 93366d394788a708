//! Shapes that are none, and shapes that would take for ever.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tessera_geo::{Ellipsoid, Geometry, GeometryError, Line, Pace, Point, Polygon, Position, Ring, covering, ranges};

fn points(positions: &[(f64, f64)]) -> Vec<Point> {
    positions
        .iter()
        .map(|(longitude, latitude)| Position { longitude: *longitude, latitude: *latitude }.to_point())
        .collect()
}

fn ring(positions: &[(f64, f64)]) -> Result<Ring, GeometryError> {
    Ring::new(points(positions), &Pace::endless())
}

/// A star of a million corners: nearly a circle, whose radius changes from corner to corner.
fn star(corners: u32, depth: f64) -> Vec<Point> {
    let corner = |at: u32| {
        let angle = f64::from(at) / f64::from(corners) * std::f64::consts::TAU;
        let radius = if at.is_multiple_of(2) { 10.0 } else { 10.0 - depth };
        (20.0 + radius * angle.cos(), 10.0 + radius * angle.sin())
    };
    let mut positions: Vec<_> = (0..corners).map(corner).collect();
    positions.push(positions[0]);
    points(&positions)
}

#[test]
fn degenerate_shapes_are_refused() {
    assert_eq!(ring(&[(0.0, 0.0), (1.0, 1.0), (0.0, 0.0)]).unwrap_err(), GeometryError::ShortRing);
    assert_eq!(ring(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0), (0.5, 0.0)]).unwrap_err(), GeometryError::OpenRing);
    assert_eq!(ring(&[(0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (0.0, 0.0)]).unwrap_err(), GeometryError::Ring, "twice");
    let bow = [(0.0, 0.0), (4.0, 4.0), (0.0, 4.0), (4.0, 0.0), (0.0, 0.0)];
    assert_eq!(ring(&bow).unwrap_err(), GeometryError::Ring, "it crosses itself");
    assert_eq!(Line::new(points(&[(0.0, 0.0)])).unwrap_err(), GeometryError::ShortLine);
    assert_eq!(Line::new(points(&[(1.0, 1.0), (1.0, 1.0)])).unwrap_err(), GeometryError::Line, "no length");
    let opposite = points(&[(30.0, 10.0)])[0];
    let opposite = Point { x: -opposite.x, y: -opposite.y, z: -opposite.z };
    let antipodes = vec![points(&[(30.0, 10.0)])[0], opposite];
    assert_eq!(Line::new(antipodes).unwrap_err(), GeometryError::Line, "any great circle would do");
    let not_numbers = vec![Point { x: f64::NAN, y: 0.0, z: 0.0 }; 4];
    assert_eq!(Ring::new(not_numbers.clone(), &Pace::endless()).unwrap_err(), GeometryError::OpenRing);
    assert_eq!(Line::new(not_numbers).unwrap_err(), GeometryError::Line);
}

#[test]
fn holes_that_cross_their_shell_are_refused_and_those_that_touch_it_are_not() {
    let shell = ring(&[(0.0, 0.0), (0.0, 4.0), (4.0, 4.0), (4.0, 0.0), (0.0, 0.0)]).unwrap();
    let polygon = |hole: &[(f64, f64)]| Polygon::new(vec![shell.clone(), ring(hole).unwrap()], &Pace::endless());
    let crossing = [(2.0, 2.0), (2.0, 6.0), (6.0, 6.0), (6.0, 2.0), (2.0, 2.0)];
    assert_eq!(polygon(&crossing).unwrap_err(), GeometryError::Polygon);
    let touching = polygon(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0), (0.0, 0.0)]).unwrap();
    let holds = |longitude, latitude| {
        let point = Position { longitude, latitude }.to_point();
        touching.includes(&Geometry::Point(point), &Pace::endless()).unwrap()
    };
    assert!(holds(3.0, 1.0) && !holds(1.0, 1.0));
    let all = [(0.0, 0.0), (0.0, 4.0), (4.0, 4.0), (4.0, 0.0), (0.0, 0.0)];
    assert!(polygon(&all).unwrap().is_empty(), "the hole is all of the shell");
}

#[test]
fn a_polygon_with_a_million_corners_is_checked_covered_and_compared_in_seconds() {
    let began = Instant::now();
    let large = Ring::new(star(1_000_000, 0.001), &Pace::endless()).unwrap();
    let large = Geometry::Polygon(Polygon::new(vec![large], &Pace::endless()).unwrap());
    assert!(covering(&large, &Pace::endless()).unwrap().len() <= 8);
    assert!(!ranges(&large, &Pace::endless()).unwrap().is_empty());
    let other = Ring::new(star(100_000, 0.5), &Pace::endless()).unwrap();
    let other = Geometry::Polygon(Polygon::new(vec![other], &Pace::endless()).unwrap());
    assert!(large.intersects(&other, &Pace::endless()).unwrap());
    let far = Position { longitude: 100.0, latitude: 0.0 }.to_point();
    assert!(Ellipsoid::WGS84.distance(far, &large) > 7e6);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

#[test]
fn a_calculation_that_takes_long_ends_when_nobody_wants_it() {
    // Each spoke of this star passes near to all others, so that no tree of boxes helps.
    let calls = Cell::new(0);
    let goes_on = || {
        calls.set(calls.get() + 1);
        calls.get() < 100
    };
    let pace = Pace::new(&goes_on);
    let began = Instant::now();
    assert_eq!(Ring::new(star(1_000_000, 9.999), &pace).unwrap_err(), GeometryError::Interrupted);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn circles_have_limits() {
    let center = Position { longitude: 0.0, latitude: 90.0 };
    assert_eq!(Ellipsoid::WGS84.circle(center, 0.0, 4), Err(GeometryError::Radius));
    let too_large = Ellipsoid::WGS84.circle(center, 1e7, 4);
    assert!(matches!(too_large, Err(GeometryError::RadiusTooLarge { .. })));
    assert_eq!(Ellipsoid::WGS84.circle(center, 1000.0, 4).unwrap().len(), 5);
}

/// Holes are compared in pairs: 100,000 of them took minutes.
#[test]
fn a_polygon_has_a_limit_of_holes() {
    let ring = |longitude: f64, latitude: f64, size: f64| {
        let corners = [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0), (1.0, 0.0), (0.0, 0.0)];
        let position = |(x, y): (f64, f64)| Position { longitude: longitude + x * size, latitude: latitude + y * size };
        Ring::new(corners.map(|corner| position(corner).to_point()).to_vec(), &Pace::endless()).unwrap()
    };
    let polygon = |holes: usize| {
        let holes = (0..holes).map(|number| ring(5.0 + number as f64 * 0.02, 20.0, 0.01));
        Polygon::new(std::iter::once(ring(0.0, 0.0, 80.0)).chain(holes).collect(), &Pace::endless())
    };
    let began = Instant::now();
    assert_eq!(polygon(2_001).unwrap_err(), GeometryError::ManyHoles { holes: 2_001, most: 2_000 });
    assert!(polygon(2_000).is_ok());
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}
