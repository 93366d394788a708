#![no_main]
//! Shapes on the globe: whatever positions clients give make shapes or errors, in bounded time, and what meets is found by its cells.

use std::sync::atomic::{AtomicU32, Ordering};

use libfuzzer_sys::fuzz_target;
use tessera_geo::{
    CellRange, Ellipsoid, Geometry, GeometryError, Line, Pace, Point, Polygon, Position, Ring, covering, index_number, ranges,
};

/// Ends a calculation after so many looks.
const LOOKS: u32 = 200;

fn number(bytes: &mut &[u8]) -> Option<u8> {
    let (first, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(*first)
}

/// A position among few, so that shapes touch; or anywhere.
fn position(bytes: &mut &[u8]) -> Option<Position> {
    let (east, north) = (number(bytes)?, number(bytes)?);
    if east != u8::MAX {
        return Some(Position { longitude: f64::from(east % 25) * 15.0 - 180.0, latitude: f64::from(north % 13) * 15.0 - 90.0 });
    }
    let (numbers, rest) = bytes.split_first_chunk::<16>()?;
    *bytes = rest;
    let [longitude, latitude] = [0, 8].map(|at| {
        let number = f64::from_le_bytes(std::array::from_fn(|byte| numbers[at + byte]));
        if number.is_finite() { number } else { 0.0 }
    });
    Some(Position { longitude: longitude % 180.0, latitude: latitude % 90.0 })
}

fn points(bytes: &mut &[u8]) -> Option<Vec<Point>> {
    let count = number(bytes)? % 32;
    (0..count).map(|_| Some(position(bytes)?.to_point())).collect()
}

fn shape(bytes: &mut &[u8], pace: &Pace<'_>) -> Option<Result<Geometry, GeometryError>> {
    Some(match number(bytes)? % 4 {
        0 => Ok(Geometry::Point(position(bytes)?.to_point())),
        1 => Line::new(points(bytes)?).map(Geometry::Line),
        kind => {
            let rings = (1..kind).map(|_| {
                let mut points = points(bytes)?;
                points.extend(points.first().copied());
                Some(Ring::new(points, pace))
            });
            let rings: Result<Vec<Ring>, GeometryError> = rings.collect::<Option<Vec<_>>>()?.into_iter().collect();
            rings.and_then(|rings| Polygon::new(rings, pace)).map(Geometry::Polygon)
        }
    })
}

fn has(ranges: &[CellRange], cells: &[u64]) -> bool {
    let mut numbers = cells.iter().map(|cell| index_number(*cell));
    numbers.any(|number| ranges.iter().any(|range| (range.first..=range.last).contains(&number)))
}

/// Returns an error if a shape is none, or the calculation was ended.
fn check(one: Geometry, other: Geometry, pace: &Pace<'_>) -> Result<(), GeometryError> {
    let meets = one.intersects(&other, pace)?;
    assert_eq!(meets, other.intersects(&one, pace)?, "it is the same from both sides");
    if meets {
        assert!(has(&ranges(&one, pace)?, &covering(&other, pace)?) && has(&ranges(&other, pace)?, &covering(&one, pace)?));
    }
    if let (Geometry::Point(point), shape) | (shape, Geometry::Point(point)) = (&one, &other) {
        assert!(Ellipsoid::WGS84.distance(*point, shape) >= 0.0);
    }
    if let Geometry::Polygon(polygon) = &one {
        polygon.includes(&other, pace)?;
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let looks = AtomicU32::new(0);
    let goes_on = || looks.fetch_add(1, Ordering::Relaxed) < LOOKS;
    let (pace, mut bytes) = (Pace::new(&goes_on), bytes);
    let (Some(Ok(one)), Some(Ok(other))) = (shape(&mut bytes, &pace), shape(&mut bytes, &pace)) else { return };
    let _ = check(one, other, &pace);
});
