//! All kinds of terms, by family; a file for each.

mod admin;
mod aggregation;
mod arrays;
mod bits;
mod changes;
mod control;
mod counts;
pub(crate) mod fields;
mod geo_search;
mod geometry;
mod grant;
mod hooks;
mod http;
mod indexes;
mod javascript;
mod joins;
mod literals;
mod logic;
mod math;
mod order;
mod paths;
mod rewrites;
mod selection;
mod sequences;
mod sets;
mod slices;
mod strings;
mod tables;
mod times;
mod types;
pub(crate) mod writes;

use std::sync::OnceLock;

use crate::plan::Definition;
use crate::term::{Term, code};
pub(crate) use tables::is_name;

/// Terms have numbers below this.
const CODES: usize = 256;

const FAMILIES: &[&[Definition]] = &[
    admin::TERMS,
    aggregation::TERMS,
    arrays::TERMS,
    bits::TERMS,
    changes::TERMS,
    control::TERMS,
    http::TERMS,
    javascript::TERMS,
    fields::TERMS,
    geo_search::TERMS,
    geometry::TERMS,
    grant::TERMS,
    hooks::TERMS,
    indexes::TERMS,
    joins::TERMS,
    literals::TERMS,
    logic::TERMS,
    math::TERMS,
    order::TERMS,
    rewrites::TERMS,
    selection::TERMS,
    sequences::TERMS,
    sets::TERMS,
    slices::TERMS,
    strings::TERMS,
    tables::TERMS,
    times::TERMS,
    types::TERMS,
    writes::TERMS,
];

/// What is known of the term with this number.
pub fn definition(code: i32) -> Option<&'static Definition> {
    static TABLE: OnceLock<[Option<&'static Definition>; CODES]> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table = [None; CODES];
        for definition in FAMILIES.iter().copied().flatten() {
            table[definition.code as usize] = Some(definition);
        }
        table
    });
    usize::try_from(code).ok().and_then(|code| table.get(code).copied().flatten())
}

/// Whether there is a term with this number.
pub fn exists(code: i32) -> bool {
    matches!(code, code::DATUM | code::VAR | code::IMPLICIT_VAR | code::FUNC) || definition(code).is_some()
}

/// Makes another term tree of a term; the number is the next one for a parameter of a function.
pub type Rewrite = fn(&Term, &mut i64) -> Term;

/// How the term with this number is made of other terms, if it is.
pub fn rewrite(code: i32) -> Option<Rewrite> {
    rewrites::rewrite(code)
}
