//! Geometry values: GeoJSON objects to and from shapes.

use tessera_document::reconstructable;
use tessera_geo::{Geometry, GeometryError, Line, Pace, Point, Polygon, Position, Ring};

use crate::compared::Compared;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::value::{self, PSEUDO_TYPE_KEY, Value, ValueExt as _};

/// Kinds of GeoJSON that are known to exist.
const UNSUPPORTED: &[&str] =
    &["MultiPoint", "MultiLineString", "MultiPolygon", "GeometryCollection", "Feature", "FeatureCollection"];

/// The fewest positions of a line and of a ring. They are counted before positions are looked at.
const MIN_LINE: usize = 2;
const MIN_RING: usize = 4;

impl From<GeometryError> for Error {
    fn from(error: GeometryError) -> Self {
        let message = match error {
            GeometryError::RadiusTooLarge { radius, limit } => format!(
                "Radius must be smaller than a quarter of the circumference along the minor axis of the reference \
                 ellipsoid.  Got {}m, but must be smaller than {}m.",
                reconstructable(radius),
                reconstructable(limit)
            ),
            other => other.to_string(),
        };
        Self::logic(message)
    }
}

/// Calculates with a pace that ends the calculation when the query ends.
///
/// # Errors
/// What the calculation complains about, or that the query was stopped.
pub fn paced<T>(env: &Env, calculate: impl FnOnce(&Pace<'_>) -> std::result::Result<T, GeometryError>) -> Result<T> {
    let goes_on = || env.check().is_ok();
    match calculate(&Pace::new(&goes_on)) {
        Err(GeometryError::Interrupted) => {
            env.check()?;
            // The query was stopped, and somebody let it go on.
            Err(Error::new(crate::ErrorKind::Interrupted, "Query interrupted."))
        }
        result => Ok(result?),
    }
}

/// The shape that a GeoJSON object means.
///
/// # Errors
/// If it is none, or the query was stopped.
pub fn shape(env: &Env, geojson: &Value) -> Result<Geometry> {
    let kind = geojson.field("type")?;
    let coordinates = geojson.field("coordinates")?;
    match &**kind.to_text()? {
        "Point" => Ok(Geometry::Point(point(&coordinates)?)),
        "LineString" => {
            let points = points(env, &coordinates, MIN_LINE, GeometryError::ShortLine)?;
            Ok(Geometry::Line(Line::new(points)?))
        }
        "Polygon" => Ok(Geometry::Polygon(polygon(env, &coordinates)?)),
        kind if UNSUPPORTED.contains(&kind) => Err(Error::logic(format!("GeoJSON type `{kind}` is not supported."))),
        kind => Err(Error::logic(format!("Unrecognized GeoJSON type `{kind}`."))),
    }
}

/// The shapes in what an index's function gives for a document. Whatever is none is left out.
///
/// # Errors
/// If the query was stopped.
pub fn shapes(env: &Env, multi: bool, value: &Value) -> Result<Vec<Geometry>> {
    let mut shapes = Vec::new();
    let mut add = |value: &Value| {
        if matches!(value, Value::Geometry(_)) {
            match shape(env, value) {
                Ok(found) => shapes.push(found),
                Err(error) if error.kind() == crate::ErrorKind::Interrupted => return Err(error),
                Err(_) => {}
            }
        }
        Ok(())
    };
    match value {
        Value::Array(items) if multi => items.iter().try_for_each(add)?,
        value => add(value)?,
    }
    Ok(shapes)
}

/// How many of the shapes in what an index's function gives for a document meet a shape.
///
/// # Errors
/// If the query was stopped.
pub fn count_meeting(env: &Env, multi: bool, value: &Value, query: &Compared) -> Result<usize> {
    let query = query.shape(|geojson| shape(env, geojson))?;
    let mut count = 0;
    for other in shapes(env, multi, value)? {
        count += usize::from(paced(env, |pace| query.intersects(&other, pace))?);
    }
    Ok(count)
}

/// The shape of an object that must be of one kind.
///
/// # Errors
/// If it is of another kind, or invalid, or the query was stopped.
pub fn point_shape(geojson: &Value) -> Result<Point> {
    expect_kind(geojson, "Point")?;
    point(&geojson.field("coordinates")?)
}

/// The polygon of an object that must be one.
///
/// # Errors
/// As [`point_shape`].
pub fn polygon_shape(env: &Env, geojson: &Value) -> Result<Polygon> {
    expect_kind(geojson, "Polygon")?;
    polygon(env, &geojson.field("coordinates")?)
}

/// The positions of a line, as they are.
///
/// # Errors
/// If the object is no line, or has something else in the place of a position.
pub fn line_positions(geojson: &Value) -> Result<Vec<Position>> {
    expect_kind(geojson, "LineString")?;
    geojson.field("coordinates")?.to_items()?.iter().map(position).collect()
}

/// The position of a point or a pair of numbers, as it is.
///
/// # Errors
/// If it is neither.
pub fn position_argument(value: &Value) -> Result<Position> {
    if let Value::Geometry(_) = value {
        expect_kind(value, "Point")?;
        return position(&value.field("coordinates")?);
    }
    let pair = value.to_items()?;
    if pair.len() != 2 {
        let count = pair.len();
        return Err(Error::logic(format!(
            "Expected point coordinate pair.  Got {count} element array instead of a 2 element one."
        )));
    }
    Ok(Position { longitude: pair[0].to_number()?, latitude: pair[1].to_number()? })
}

fn expect_kind(geojson: &Value, expected: &str) -> Result<()> {
    let kind = geojson.field("type")?;
    let kind = kind.to_text()?;
    if **kind == *expected {
        return Ok(());
    }
    Err(Error::logic(format!("Expected geometry of type `{expected}` but found `{kind}`.")))
}

/// A position in GeoJSON.
fn position(value: &Value) -> Result<Position> {
    let items = value.to_items()?;
    match items.len() {
        2 => Ok(Position { longitude: items[0].to_number()?, latitude: items[1].to_number()? }),
        0 | 1 => Err(Error::logic("Too few coordinates.  Need at least longitude and latitude.")),
        3 => Err(Error::logic("A third altitude coordinate in GeoJSON positions was found, but is not supported.")),
        count => Err(Error::logic(format!(
            "Too many coordinates.  GeoJSON position should have no more than three coordinates, but got {count}."
        ))),
    }
}

fn point(value: &Value) -> Result<Point> {
    let position = position(value)?;
    if !(-180.0..=180.0).contains(&position.longitude) {
        let got = reconstructable(position.longitude);
        return Err(Error::logic(format!("Longitude must be between -180 and 180.  Got {got}.")));
    }
    if !(-90.0..=90.0).contains(&position.latitude) {
        let got = reconstructable(position.latitude);
        return Err(Error::logic(format!("Latitude must be between -90 and 90.  Got {got}.")));
    }
    Ok(position.to_point())
}

fn points(env: &Env, value: &Value, least: usize, too_few: GeometryError) -> Result<Vec<Point>> {
    let items = value.to_items()?;
    if items.len() < least {
        return Err(too_few.into());
    }
    let mut points = Vec::with_capacity(items.len());
    for item in items.iter() {
        env.step()?;
        points.push(point(item)?);
    }
    Ok(points)
}

fn polygon(env: &Env, value: &Value) -> Result<Polygon> {
    let mut rings = Vec::new();
    for ring in value.to_items()?.iter() {
        let points = points(env, ring, MIN_RING, GeometryError::ShortRing)?;
        rings.push(paced(env, |pace| Ring::new(points, pace))?);
    }
    paced(env, |pace| Polygon::new(rings, pace))
}

/// A geometry value; nothing but its form is checked.
///
/// # Errors
/// If the coordinates are nested too deeply.
pub fn geometry(kind: &str, coordinates: Value) -> Result<Value> {
    value::object([
        (PSEUDO_TYPE_KEY, Value::from("GEOMETRY")),
        ("coordinates", coordinates),
        ("type", Value::from(kind)),
    ])
}

/// The coordinates of a position.
///
/// # Errors
/// If a number is not finite.
pub fn pair(position: Position) -> Result<Value> {
    Ok(Value::array(vec![value::number(position.longitude)?, value::number(position.latitude)?])?)
}

/// The coordinates of a line.
///
/// # Errors
/// If it has more positions than an array may have elements.
pub fn pairs(env: &Env, positions: &[Position]) -> Result<Value> {
    env.check_array(positions.len())?;
    env.array(positions.iter().map(|position| pair(*position)).collect::<Result<_>>()?)
}

/// The coordinates of a ring: a line that ends where it began.
///
/// # Errors
/// As [`pairs`].
pub fn closed_pairs(env: &Env, mut positions: Vec<Position>) -> Result<Value> {
    if positions.first() != positions.last() {
        positions.extend(positions.first().copied());
    }
    pairs(env, &positions)
}
