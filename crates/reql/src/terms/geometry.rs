//! Geometry, which this server does not have yet: the terms are known and refused.

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::plan::Definition;
use crate::val::Val;

const SYSTEM: &[&str] = &["geo_system", "unit"];

pub const TERMS: &[Definition] = &[
    Definition::new(157, 1, 1, refuse),
    Definition::new(158, 1, 1, refuse),
    Definition::new(159, 2, 2, refuse),
    Definition::variadic(160, 2, refuse),
    Definition::variadic(161, 3, refuse),
    Definition::new(162, 2, 2, refuse).optargs(SYSTEM),
    Definition::new(163, 2, 2, refuse),
    Definition::new(164, 2, 2, refuse),
    Definition::new(165, 2, 2, refuse).optargs(&["geo_system", "unit", "fill", "num_vertices"]),
    Definition::new(166, 2, 2, refuse).optargs(&["index"]),
    Definition::new(167, 1, 1, refuse),
    Definition::new(168, 2, 2, refuse).optargs(&["index", "max_results", "max_dist", "geo_system", "unit"]),
    Definition::new(171, 2, 2, refuse),
];

fn refuse(_call: &mut Call<'_>, _env: &Env) -> Result<Val> {
    Err(Error::logic("Geometry is not available on this server yet."))
}
