//! Searches by geospatial indexes: documents whose shapes meet a shape, and the nearest ones to a point.

use std::sync::Arc;

use tessera_document::reconstructable;
use tessera_geo::{CellRange, Ellipsoid, Point, ranges};

use super::geometry::{ellipsoid, geometry_of, unit};
use crate::call::Call;
use crate::cells::Cells;
use crate::compared::Compared;
use crate::env::Env;
use crate::error::{Error, FrameId, Result, until_nul};
use crate::function::{Body, Function};
use crate::geometry;
use crate::plan::Definition;
use crate::scan::{IndexDefinition, KeyRange, Order, Scan};
use crate::selection::Table;
use crate::size::Size;
use crate::stream::{BATCH_ROWS, Operation, Stream, TableRows};
use crate::val::{Kind, Val};
use crate::value::{self, Value};

pub const TERMS: &[Definition] = &[
    Definition::new(166, 2, 2, get_intersecting).optargs(&["index"]),
    Definition::new(168, 2, 2, get_nearest).optargs(&["index", "max_results", "max_dist", "geo_system", "unit"]),
];

/// How far documents may be in metres if the query does not say.
const MAX_DISTANCE: f64 = 100_000.0;

/// How many documents are wanted if the query does not say.
const MAX_RESULTS: i64 = 100;

/// The radius of the first circle that is searched, as a part of that of the equator: ten metres on earth.
const FIRST_RADIUS: f64 = 10.0 / 6_378_137.0;

/// The radius of a circle is at least and at most so many times that of the circle before it.
const LEAST_GROWTH: f64 = 1.2;
const MOST_GROWTH: f64 = 5.0;

/// Documents are hoped for by this factor more than are wanted, so that one more circle is seldom needed.
const SURPLUS: f64 = 1.3;

/// The search ends where RethinkDB's does, which looks for what meets a polygon of so many vertices around the circle.
const CIRCLE_VERTICES: u32 = 8;

fn index_name(call: &Call<'_>, env: &Env, term: &str) -> Result<Arc<str>> {
    match call.optarg(env, "index")? {
        Some(name) => name.as_string(),
        None => Err(Error::logic(format!("{term} requires an index argument."))),
    }
}

/// The definition of the index that a search names. What is wrong with an index is told without a place in the query.
fn definition(env: &Env, term: &str, table: &Table, name: &str) -> Result<IndexDefinition> {
    if *name == *table.primary_key() {
        return Err(Error::logic(format!("{term} cannot use the primary index.")));
    }
    let found = env.source()?.index_definition(&table.info, name)?;
    let definition = found.ok_or_else(|| table.info.index_not_found(name).at(FrameId::ROOT))?;
    if !definition.geo {
        let name = until_nul(name);
        let message =
            format!("Index `{name}` is not a geospatial index.  {term} can only be used with a geospatial index.");
        return Err(Error::logic(message).at(FrameId::ROOT));
    }
    Ok(definition)
}

fn scan(table: &Table, index: &Arc<str>, ranges: Vec<CellRange>) -> Scan {
    Scan {
        index: Some(index.clone()),
        range: KeyRange::ALL,
        cells: Some(Arc::new(Cells::new(ranges))),
        order: Order::Any,
        after: None,
        limit: BATCH_ROWS,
        reads: table.reads,
    }
}

fn get_intersecting(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    const TERM: &str = "get_intersecting";
    let table = call.arg(env, 0)?.into_table()?;
    let query = call.arg(env, 1)?;
    let name = index_name(call, env, TERM)?;
    let geojson = geometry_of(&query)?;
    let definition = definition(env, TERM, &table, &name)?;
    let shape = geometry::shape(env, geojson)?;
    let scan = scan(&table, &name, geometry::paced(env, |pace| ranges(&shape, pace))?);
    let shape = Compared::new(geojson.clone());
    let body = Body::Meets { index: definition.function, multi: definition.multi, shape };
    let meets = Arc::new(Function { frame: call.frame(), body });
    let operation = match definition.multi {
        // A document comes once for each of its shapes that meets the other one.
        true => Operation::ConcatMap(meets, call.frame()),
        false => Operation::Filter(meets, None),
    };
    let rows = TableRows::new(table.clone(), vec![(scan, 1)]);
    let stream = Stream::new(call.frame(), Box::new(rows)).with(operation);
    Ok(call.result(Kind::Selection(table, stream)))
}

fn get_nearest(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    const TERM: &str = "get_nearest";
    let table = call.arg(env, 0)?.into_table()?;
    let center = call.arg(env, 1)?;
    let name = index_name(call, env, TERM)?;
    let center = geometry::position_argument(center.as_datum()?)?.to_point();
    let ellipsoid = ellipsoid(call, env)?;
    let unit = unit(call, env)?;
    let max_distance = match call.optarg(env, "max_dist")? {
        None => MAX_DISTANCE,
        Some(option) => {
            let metres = option.as_number()? * unit.metres();
            if metres <= 0.0 {
                return Err(Error::logic("max_dist must be positive.").at(option.frame));
            }
            metres
        }
    };
    let max_results = match call.optarg(env, "max_results")? {
        None => MAX_RESULTS,
        Some(option) => {
            let count = option.as_integer()?;
            if count <= 0 {
                return Err(Error::logic("max_results must be positive.").at(option.frame));
            }
            count
        }
    };
    let definition = definition(env, TERM, &table, &name)?;
    let search = Search {
        table,
        name,
        definition,
        center,
        ellipsoid,
        max_distance,
        max_results: usize::try_from(max_results).unwrap_or(usize::MAX),
    };
    let found = search.nearest(env).map_err(|error| error.at(FrameId::ROOT))?;
    let mut results = Vec::with_capacity(found.len());
    for (metres, document) in found {
        let distance = value::number(metres * (1.0 / unit.metres()))?;
        results.push(value::object([("dist", distance), ("doc", document)])?);
    }
    call.value(env.array(results)?)
}

/// A search for the documents that are nearest to a point: in a circle, then in rings around it.
struct Search {
    table: Arc<Table>,
    name: Arc<str>,
    definition: IndexDefinition,
    center: Point,
    ellipsoid: Ellipsoid,
    max_distance: f64,
    max_results: usize,
}

impl Search {
    /// Documents with their distances in metres, the nearest ones first; of equally near ones the one with the lower key.
    fn nearest(&self, env: &Env) -> Result<Vec<(f64, Value)>> {
        let limit = self.ellipsoid.radius_limit() / self.ellipsoid.outer_radius(1.0, CIRCLE_VERTICES);
        let (mut found, mut size) = (Vec::new(), Size::default());
        let (mut inner, mut outer) = (0.0, FIRST_RADIUS * self.ellipsoid.equator_radius);
        loop {
            outer = f64::min(outer, self.max_distance);
            let is_last = outer >= limit;
            outer = outer.min(limit);
            self.ring(env, (inner, outer), &mut found, &mut size)?;
            if found.len() >= self.max_results || (outer >= self.max_distance && !is_last) {
                break;
            }
            if is_last {
                return Err(self.too_far());
            }
            let growth = (SURPLUS * self.max_results as f64 / found.len() as f64).sqrt();
            (inner, outer) = (outer, outer * growth.clamp(LEAST_GROWTH, MOST_GROWTH));
        }
        let mut sorted: Vec<(f64, Value, Value)> = found
            .into_iter()
            .map(|(distance, document)| {
                let key = document.get_field(self.table.primary_key()).unwrap_or(Value::Null);
                (distance, key, document)
            })
            .collect();
        sorted.sort_by(|left, right| left.0.total_cmp(&right.0).then_with(|| left.1.cmp(&right.1)));
        sorted.truncate(self.max_results);
        Ok(sorted.into_iter().map(|(distance, _, document)| (distance, document)).collect())
    }

    /// Adds the documents that are farther away than `inner` and not farther than `outer`, or, if `inner` is zero, not farther than
    /// `outer`.
    fn ring(
        &self,
        env: &Env,
        (inner, outer): (f64, f64),
        found: &mut Vec<(f64, Value)>,
        size: &mut Size,
    ) -> Result<()> {
        let (least, most) = (self.ellipsoid.angles(inner).0, self.ellipsoid.angles(outer).1);
        let ranges = geometry::paced(env, |pace| CellRange::around(self.center, least, most, pace))?;
        let mut scan = scan(&self.table, &self.name, ranges);
        loop {
            env.check()?;
            let page =
                env.ask("Reading from table", &self.table.info, |source| source.scan(env, &self.table.info, &scan))?;
            for row in page.rows {
                env.step()?;
                let Some(value) = self.definition.function.indexed(env, &row)? else { continue };
                for shape in geometry::shapes(env, self.definition.multi, &value)? {
                    let distance = self.ellipsoid.distance(self.center, &shape);
                    if distance <= outer && (distance > inner || inner == 0.0) {
                        size.add(row.encoded_len())?;
                        found.push((distance, row.to_value()?));
                        env.check_array(found.len())?;
                    }
                }
            }
            match page.next {
                Some(position) => scan.after = Some(position),
                None => return Ok(()),
            }
        }
    }

    /// The error when so many documents are wanted that the search would have to go around the globe. It tells the radius at which
    /// RethinkDB gives up where it finds nothing: that doubles from circle to circle.
    fn too_far(&self) -> Error {
        let limit = self.ellipsoid.radius_limit();
        let mut radius = f64::min(FIRST_RADIUS * self.ellipsoid.equator_radius, self.max_distance);
        while self.ellipsoid.outer_radius(radius, CIRCLE_VERTICES) < limit && radius < self.max_distance {
            radius = f64::min(2.0 * radius, self.max_distance);
        }
        let radius = reconstructable(self.ellipsoid.outer_radius(radius, CIRCLE_VERTICES));
        let limit = reconstructable(limit);
        Error::logic(format!(
            "The distance has become too large for continuing the indexed nearest traversal.  Consider specifying a \
             smaller `max_dist` parameter.  (Radius must be smaller than a quarter of the circumference along the minor \
             axis of the reference ellipsoid.  Got {radius}m, but must be smaller than {limit}m.)"
        ))
    }
}
