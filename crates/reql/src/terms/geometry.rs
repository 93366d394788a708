//! Geometry: making shapes, and asking how they lie to one another.

use std::sync::Arc;

use tessera_geo::{Ellipsoid, Position, Unit};

use super::fields::{Subject, subject_of};
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result, until_nul};
use crate::geometry;
use crate::plan::Definition;
use crate::stream::Operation;
use crate::val::Val;
use crate::value::{self, ObjectBuilder, PSEUDO_TYPE_KEY, Value, ValueExt as _};

const SYSTEM: &[&str] = &["geo_system", "unit"];

pub const TERMS: &[Definition] = &[
    Definition::new(157, 1, 1, geojson),
    Definition::new(158, 1, 1, to_geojson),
    Definition::new(159, 2, 2, point),
    Definition::variadic(160, 2, line),
    Definition::variadic(161, 3, polygon),
    Definition::new(162, 2, 2, distance).optargs(SYSTEM),
    Definition::new(163, 2, 2, intersects),
    Definition::new(164, 2, 2, includes),
    Definition::new(165, 2, 2, circle).optargs(&["geo_system", "unit", "fill", "num_vertices"]),
    Definition::new(167, 1, 1, fill),
    Definition::new(171, 2, 2, polygon_sub),
];

/// Terms whose results rest on roundings, so that the function of an index must not have them.
pub const INEXACT: &[i32] = &[157, 160, 161, 162, 163, 164, 165, 167, 171];

/// How many vertices a circle has that says nothing else.
const CIRCLE_VERTICES: u32 = 32;

/// The argument as a geometry. Other pseudotypes pass, as in RethinkDB: they fail for what they lack.
pub(super) fn geometry_of(argument: &Val) -> Result<&Value> {
    match argument.as_datum()? {
        value if value.is_pseudotype() => Ok(value),
        other => {
            let shown = other.print_truncated().map_err(|error| error.at(argument.frame))?;
            Err(Error::logic(format!("Not a GEOMETRY pseudotype: `{shown}`.")).at(argument.frame))
        }
    }
}

fn check_reference_system(geojson: &Value) -> Result<()> {
    match geojson.to_fields()?.get("crs") {
        None | Some(Value::Null) => Ok(()),
        Some(_) => Err(Error::logic(
            "Non-default coordinate reference systems are not supported in GeoJSON objects.  Make sure the `crs` field \
             of the geometry is null or non-existent.",
        )),
    }
}

fn geojson(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let geojson = call.datum(env, 0)?;
    check_reference_system(&geojson)?;
    geometry::shape(env, &geojson)?;
    let fields = geojson.to_fields()?;
    if fields.get(PSEUDO_TYPE_KEY).is_some() {
        return Err(Error::logic("GeoJSON object already had a $reql_type$ field."));
    }
    let mut builder = ObjectBuilder::with_capacity(fields.len() + 1);
    builder.insert(Arc::from(PSEUDO_TYPE_KEY), Value::from("GEOMETRY"));
    for (name, value) in fields.fields().iter().filter(|(name, _)| &**name != "bbox") {
        builder.insert(name.clone(), value.clone());
    }
    call.value(builder.finish()?)
}

fn to_geojson(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let argument = call.arg(env, 0)?;
    let fields = geometry_of(&argument)?.to_fields()?;
    let mut builder = ObjectBuilder::with_capacity(fields.len());
    for (name, value) in fields.fields().iter().filter(|(name, _)| &**name != PSEUDO_TYPE_KEY) {
        builder.insert(name.clone(), value.clone());
    }
    call.value(builder.finish()?)
}

/// A geometry that is checked.
fn checked(call: &Call<'_>, env: &Env, kind: &str, coordinates: Value) -> Result<Val> {
    let made = geometry::geometry(kind, coordinates)?;
    geometry::shape(env, &made)?;
    call.value(made)
}

fn point(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let longitude = call.number(env, 0)?;
    let latitude = call.number(env, 1)?;
    checked(call, env, "Point", geometry::pair(Position { longitude, latitude })?)
}

fn positions(call: &mut Call<'_>, env: &Env) -> Result<Vec<Position>> {
    let mut positions = Vec::with_capacity(call.count());
    for at in 0..call.count() {
        let argument = call.arg(env, at)?;
        positions.push(geometry::position_argument(argument.as_datum()?)?);
    }
    Ok(positions)
}

fn line(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let positions = positions(call, env)?;
    checked(call, env, "LineString", geometry::pairs(env, &positions)?)
}

fn polygon_of(call: &Call<'_>, env: &Env, shell: Vec<Position>) -> Result<Val> {
    checked(call, env, "Polygon", Value::array(vec![geometry::closed_pairs(env, shell)?])?)
}

fn polygon(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let shell = positions(call, env)?;
    polygon_of(call, env, shell)
}

fn fill(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let argument = call.arg(env, 0)?;
    let shell = geometry::line_positions(geometry_of(&argument)?)?;
    polygon_of(call, env, shell)
}

/// The ellipsoid that the option `geo_system` names or describes.
pub(super) fn ellipsoid(call: &Call<'_>, env: &Env) -> Result<Ellipsoid> {
    let Some(option) = call.optarg(env, "geo_system")? else { return Ok(Ellipsoid::WGS84) };
    let value = option.as_datum()?;
    if value.is_object() {
        let equator_radius = value.field("a")?.to_number()?;
        let flattening = value.field("f")?.to_number()?;
        if equator_radius <= 0.0 {
            return Err(Error::logic("The equator radius `a` must be positive.").at(option.frame));
        }
        if !(0.0..1.0).contains(&flattening) {
            return Err(Error::logic("The flattening `f` must be in the range [0, 1).").at(option.frame));
        }
        return Ok(Ellipsoid { equator_radius, flattening });
    }
    match &*option.as_string()? {
        "WGS84" => Ok(Ellipsoid::WGS84),
        "unit_sphere" => Ok(Ellipsoid::UNIT_SPHERE),
        other => {
            let other = until_nul(other);
            let message = format!("Unrecognized geo system \"{other}\" (valid options: \"WGS84\", \"unit_sphere\").");
            Err(Error::logic(message).at(option.frame))
        }
    }
}

pub(super) fn unit(call: &Call<'_>, env: &Env) -> Result<Unit> {
    let Some(option) = call.optarg(env, "unit")? else { return Ok(Unit::Metre) };
    let name = option.as_string()?;
    Unit::of_name(&name).ok_or_else(|| {
        let message = format!("Unrecognized distance unit `{name}`.");
        Error::logic(until_nul(&message))
    })
}

fn distance(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let first = call.arg(env, 0)?;
    let second = call.arg(env, 1)?;
    let ellipsoid = ellipsoid(call, env)?;
    let unit = unit(call, env)?;
    let kind = geometry_of(&first)?.field("type")?;
    let (point, other) = match &**kind.to_text()? {
        "Point" => (geometry::point_shape(geometry_of(&first)?)?, &second),
        _ => (geometry::point_shape(geometry_of(&second)?)?, &first),
    };
    let shape = geometry::shape(env, geometry_of(other)?)?;
    let metres = ellipsoid.distance(point, &shape);
    call.value(value::number(metres * (1.0 / unit.metres()))?)
}

fn intersects(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    relate(call, env, "intersects", |env, first, second| {
        let second = geometry_of(second)?;
        let first = geometry::shape(env, geometry_of(first)?)?;
        let second = geometry::shape(env, second)?;
        geometry::paced(env, |pace| first.intersects(&second, pace))
    })
}

fn includes(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    relate(call, env, "includes", |env, first, second| {
        let first = geometry::polygon_shape(env, geometry_of(first)?)?;
        let second = geometry::shape(env, geometry_of(second)?)?;
        geometry::paced(env, |pace| first.includes(&second, pace))
    })
}

/// How two shapes lie to one another; of a sequence, those shapes for which the answer is true.
fn relate(call: &mut Call<'_>, env: &Env, name: &str, is_related: fn(&Env, &Val, &Val) -> Result<bool>) -> Result<Val> {
    let first = call.arg(env, 0)?;
    let frame = first.frame;
    let is_geometry = |value: &Value| matches!(value, Value::Geometry(_));
    match subject_of(call, env, name, first, |function| Operation::Filter(function, None), is_geometry)? {
        Subject::Done(result) => Ok(result),
        Subject::Object(object) => {
            let first = Val::datum(frame, object);
            let second = call.arg(env, 1)?;
            let is_related = is_related(env, &first, &second)?;
            call.bool(is_related)
        }
    }
}

fn circle(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let center = call.arg(env, 0)?;
    let radius = call.arg(env, 1)?;
    let is_filled = call.optarg_bool(env, "fill")?.unwrap_or(true);
    let vertices = match call.optarg(env, "num_vertices")? {
        None => CIRCLE_VERTICES,
        Some(option) => {
            let count = option.as_integer()?;
            let count = u32::try_from(count)
                .map_err(|_| Error::logic(format!("Integer too large: {count}")).at(option.frame))?;
            if count == 0 {
                return Err(Error::logic("num_vertices must be positive.").at(option.frame));
            }
            count
        }
    };
    let ellipsoid = ellipsoid(call, env)?;
    let unit = unit(call, env)?;
    let center = geometry::position_argument(center.as_datum()?)?;
    let radius = radius.as_number()? * unit.metres();
    env.check_array(vertices as usize + 1)?;
    let circle = ellipsoid.circle(center, radius, vertices)?;
    if is_filled {
        return polygon_of(call, env, circle);
    }
    checked(call, env, "LineString", geometry::pairs(env, &circle)?)
}

fn expect_shell(argument: &Val) -> Result<&Value> {
    let polygon = geometry_of(argument)?;
    let kind = polygon.field("type")?;
    let kind = kind.to_text()?;
    if **kind != *"Polygon" {
        return Err(Error::logic(format!("Expected a Polygon but found a {kind}.")).at(argument.frame));
    }
    if polygon.field("coordinates")?.to_items()?.len() > 1 {
        return Err(
            Error::logic("Expected a Polygon with only an outer shell.  This one has holes.").at(argument.frame)
        );
    }
    Ok(polygon)
}

fn polygon_sub(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let first = call.arg(env, 0)?;
    let whole = expect_shell(&first)?;
    let second = call.arg(env, 1)?;
    let part = expect_shell(&second)?;
    let polygon = geometry::polygon_shape(env, whole)?;
    let shape = geometry::shape(env, part)?;
    if !geometry::paced(env, |pace| polygon.includes(&shape, pace))? {
        return Err(Error::logic("The second argument to `polygon_sub` is not contained in the first one."));
    }
    let mut rings = whole.field("coordinates")?.to_items()?.to_vec();
    rings.extend(part.field("coordinates")?.to_items()?.first().cloned());
    checked(call, env, "Polygon", env.array(rings)?)
}
