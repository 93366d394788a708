//! `grant`: what users may do.

use crate::account::Place;
use crate::call::Call;
use crate::env::Env;
use crate::error::Result;
use crate::plan::Definition;
use crate::system;
use crate::val::{Kind, Val};
use crate::value::{self, Value};
use tessera_types::{Right, Scope};

pub const TERMS: &[Definition] = &[Definition::new(188, 2, 3, grant).nondeterministic()];

/// Everywhere, in a database or in a table, which is the first argument then.
fn grant(call: &mut Call<'_>, env: &Env) -> Result<Val> {
    let has_place = call.count() == 3;
    let scope = if has_place {
        let target = call.arg(env, 0)?;
        match target.kind {
            Kind::Database(database) => Scope::Database(database.name),
            kind => Scope::Table(Val { frame: target.frame, kind }.into_table()?.info.full_name()),
        }
    } else {
        Scope::Global
    };
    let name = call.string(env, usize::from(has_place))?;
    let wanted = call.datum(env, usize::from(has_place) + 1)?;
    let source = env.source_alone()?;
    let permissions = system::permissions_table();
    for right in [Right::Read, Right::Write] {
        source.require(right, Place::Table(&permissions))?;
    }
    let (old, new) = env.alter(|source| system::grant(source, &name, scope, &wanted))?;
    let change = value::object([("new_val", new), ("old_val", old)])?;
    call.value(value::object([("granted", Value::from(1)), ("permissions_changes", Value::array(vec![change])?)])?)
}
