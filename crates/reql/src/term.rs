//! The term tree of a query, as it came: numbers, arguments, optional arguments and places, before names are looked up.
//!
//! A query is read here once and checked for what can be seen without knowing the terms' own rules: that it is built of
//! terms at all, that writes do not stand inside of functions of streams, that `asc` and `desc` stand where they mean
//! something. [`crate::plan`] makes of it what runs.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::error::{Error, FrameId, Frames, Result, Step};
use crate::json::Json;
use crate::value::{self, Value};

/// Numbers of terms that this crate names; the other ones stand in the tables of `terms` alone.
pub mod code {
    pub const DATUM: i32 = 1;
    pub const MAKE_ARRAY: i32 = 2;
    pub const MAKE_OBJ: i32 = 3;
    pub const VAR: i32 = 10;
    pub const IMPLICIT_VAR: i32 = 13;
    pub const EQ: i32 = 17;
    pub const GT: i32 = 21;
    pub const SLICE: i32 = 30;
    pub const GET_FIELD: i32 = 31;
    pub const HAS_FIELDS: i32 = 32;
    pub const PLUCK: i32 = 33;
    pub const MERGE: i32 = 35;
    pub const REDUCE: i32 = 37;
    pub const MAP: i32 = 38;
    pub const FILTER: i32 = 39;
    pub const CONCAT_MAP: i32 = 40;
    pub const ORDER_BY: i32 = 41;
    pub const COUNT: i32 = 43;
    pub const UNION: i32 = 44;
    pub const NTH: i32 = 45;
    pub const INNER_JOIN: i32 = 48;
    pub const OUTER_JOIN: i32 = 49;
    pub const EQ_JOIN: i32 = 50;
    pub const COERCE_TO: i32 = 51;
    pub const UPDATE: i32 = 53;
    pub const DELETE: i32 = 54;
    pub const REPLACE: i32 = 55;
    pub const INSERT: i32 = 56;
    pub const FUNCALL: i32 = 64;
    pub const BRANCH: i32 = 65;
    pub const FUNC: i32 = 69;
    pub const SKIP: i32 = 70;
    pub const LIMIT: i32 = 71;
    pub const ASC: i32 = 73;
    pub const DESC: i32 = 74;
    pub const CONTAINS: i32 = 93;
    pub const DIFFERENCE: i32 = 95;
    pub const WITH_FIELDS: i32 = 96;
    pub const NOW: i32 = 103;
    pub const GROUP: i32 = 144;
    pub const MIN: i32 = 147;
    pub const MAX: i32 = 148;
    pub const ARGS: i32 = 154;
    pub const UUID: i32 = 169;
    pub const BRACKET: i32 = 170;
    pub const NOT: i32 = 23;
}

/// The deepest nesting of terms. Evaluation recurses over terms, so this bounds its stack.
pub const MAX_TERM_DEPTH: usize = 500;

/// Objects that stand in a query as they are, nested at most so deeply, are read as values. Those that are nested deeper are read as
/// terms, and looked at once more for each of these levels.
const PLAIN_LEVELS: usize = 4;

/// One term with its parts.
#[derive(Debug, Clone)]
pub struct Term {
    pub code: i32,
    pub frame: FrameId,
    pub args: Vec<Term>,
    pub optargs: Vec<(Arc<str>, Term)>,
    /// The value of a [`code::DATUM`], or of a [`code::MAKE_OBJ`] that stands in the query as it is.
    pub datum: Option<Datum>,
}

/// A literal of a query, not yet checked where it is more than a scalar.
#[derive(Debug, Clone)]
pub enum Datum {
    Value(Value),
    Json(Json),
}

impl Term {
    pub fn datum(frame: FrameId, value: Value) -> Self {
        Self { code: code::DATUM, frame, args: Vec::new(), optargs: Vec::new(), datum: Some(Datum::Value(value)) }
    }

    pub fn call(frame: FrameId, code: i32, args: Vec<Term>) -> Self {
        Self { code, frame, args, optargs: Vec::new(), datum: None }
    }

    pub fn variable(frame: FrameId, id: i64) -> Self {
        Self::call(frame, code::VAR, vec![Self::datum(frame, number(id))])
    }

    pub fn function(frame: FrameId, parameters: &[i64], body: Term) -> Self {
        let ids = parameters.iter().map(|id| Self::datum(frame, number(*id))).collect();
        Self::call(frame, code::FUNC, vec![Self::call(frame, code::MAKE_ARRAY, ids), body])
    }

    #[must_use]
    pub fn with_optarg(mut self, name: &str, value: Term) -> Self {
        self.optargs.push((Arc::from(name), value));
        self
    }
}

/// The number of a variable as a value.
fn number(id: i64) -> Value {
    value::number(id as f64).unwrap_or(Value::Null)
}

/// Reads a term tree; fills `frames` with the places of its terms. `exists` tells whether there are terms with a number.
///
/// # Errors
/// If the JSON is not a term tree, or a term stands where it must not.
pub fn read(json: &Json, frames: &mut Frames, exists: fn(i32) -> bool) -> Result<Term> {
    let context = Context { parent: None, writes_allowed: true, depth: 0 };
    Reader { frames, exists }.read(json, FrameId::ROOT, context)
}

struct Reader<'a> {
    frames: &'a mut Frames,
    exists: fn(i32) -> bool,
}

#[derive(Clone, Copy)]
struct Context {
    parent: Option<i32>,
    writes_allowed: bool,
    depth: usize,
}

impl Context {
    /// What holds for a part of a term.
    fn below(self, parent: i32, is_first_argument: bool) -> Self {
        let writes_allowed = self.writes_allowed && (is_first_argument || !forbids_writes(parent));
        Self { parent: Some(parent), writes_allowed, depth: self.depth + 1 }
    }
}

impl Reader<'_> {
    fn read(&mut self, json: &Json, frame: FrameId, context: Context) -> Result<Term> {
        if context.depth > MAX_TERM_DEPTH {
            let message = format!("The query is nested deeper than {MAX_TERM_DEPTH} terms.");
            return Err(Error::limit(message).at(frame));
        }
        match json {
            Json::Array(items) => self.term(items, frame, context),
            Json::Object(fields) => {
                let term = Term::call(frame, code::MAKE_OBJ, Vec::new());
                self.check_place(&term, context)?;
                // Nothing can be wrong with its parts, so they need no places.
                let plain = value::plain_object(fields, PLAIN_LEVELS);
                match plain.filter(|value| context.depth + value.depth() <= MAX_TERM_DEPTH) {
                    Some(value) => Ok(Term { datum: Some(Datum::Value(value)), ..term }),
                    None => self.with_optargs(term, fields, context),
                }
            }
            scalar => {
                Ok(Term { datum: Some(Datum::Json(scalar.clone())), ..Term::call(frame, code::DATUM, Vec::new()) })
            }
        }
    }

    fn term(&mut self, items: &[Json], frame: FrameId, context: Context) -> Result<Term> {
        let wrong = |message: String| Err(Error::logic(message).at(frame));
        let Some(kind) = items.first() else {
            return wrong("Expected between 1 and 3 elements in a raw term, but found 0.".into());
        };
        if items.len() > 3 {
            return wrong(format!("Expected between 1 and 3 elements in a raw term, but found {}.", items.len()));
        }
        let Json::Number(number) = kind else {
            return wrong(format!("Expected a TermType as a NUMBER but found {}.", kind.type_name()));
        };
        let code = *number as i32;
        if !(self.exists)(code) {
            return wrong(format!("Unrecognized TermType: {code}."));
        }
        let mut term = Term::call(frame, code, Vec::new());
        self.check_place(&term, context)?;
        if code == code::DATUM {
            if items.len() != 2 {
                return wrong(format!("Expected 3 items in array, but found {}.", items.len() + 1));
            }
            term.datum = Some(Datum::Json(items[1].clone()));
            return Ok(term);
        }
        for (at, item) in items.iter().enumerate().skip(1) {
            match (at, item) {
                (1, Json::Array(args)) => {
                    for (position, arg) in args.iter().enumerate() {
                        let place = self.frames.add(frame, Step::Position(position as u32));
                        term.args.push(self.read(arg, place, context.below(code, position == 0))?);
                    }
                }
                (_, Json::Object(fields)) if at == items.len() - 1 => {
                    term = self.with_optargs(term, fields, context)?;
                }
                (2, _) => return wrong("Third element in a Term is not optional arguments.".into()),
                _ => return wrong("Second element in a Term is neither arguments nor optional arguments.".into()),
            }
        }
        Ok(term)
    }

    fn with_optargs(&mut self, mut term: Term, fields: &[(Arc<str>, Json)], context: Context) -> Result<Term> {
        let mut names = BTreeSet::new();
        for (name, json) in fields {
            if !names.insert(name) {
                let what = if term.code == code::MAKE_OBJ { "object key" } else { "optional argument" };
                return Err(Error::logic(format!("Duplicate {what}: {name}.")).at(term.frame));
            }
            let place = self.frames.add(term.frame, Step::Name((**name).into()));
            let part = self.read(json, place, context.below(term.code, false))?;
            term.optargs.push((name.clone(), part));
        }
        Ok(term)
    }

    fn check_place(&self, term: &Term, context: Context) -> Result<()> {
        if matches!(term.code, code::ASC | code::DESC) && !matches!(context.parent, Some(code::ORDER_BY | code::UNION))
        {
            let name = if term.code == code::ASC { "ASC" } else { "DESC" };
            let message = format!("{name} may only be used as an argument to ORDER_BY or UNION.");
            return Err(Error::logic(message).at(term.frame));
        }
        if !context.writes_allowed && is_write_or_meta(term.code) {
            let message = "Cannot nest writes or meta ops in stream operations.  Use FOR_EACH instead.";
            return Err(Error::logic(message).at(term.frame));
        }
        Ok(())
    }
}

/// Whether a term changes documents, tables, indexes or the cluster.
fn is_write_or_meta(code: i32) -> bool {
    matches!(
        code,
        code::UPDATE
            | code::DELETE
            | code::INSERT
            | code::REPLACE
            | 57..=58 // creating and dropping databases
            | 60..=61 // creating and dropping tables
            | 75..=76 // creating and dropping indexes
            | 138 // sync
            | 156 // renaming indexes
            | 176..=177 // reconfigure, wait
            | 179 // rebalance
            | 188..=189 // grant, setting write hooks
    )
}

/// Whether a term calls its functions while it reads a stream, where a write could not be carried out in order.
fn forbids_writes(code: i32) -> bool {
    matches!(
        code,
        code::REDUCE
            | code::MAP
            | code::FILTER
            | code::CONCAT_MAP
            | code::GROUP
            | code::INNER_JOIN
            | code::OUTER_JOIN
            | code::EQ_JOIN
            | code::UPDATE
            | code::DELETE
            | code::REPLACE
            | code::INSERT
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json, terms};

    /// How many places a query has, and whether its term is a value.
    fn places(text: &str) -> (usize, bool) {
        let mut frames = Frames::default();
        let term = read(&json::parse(text, 2000).unwrap(), &mut frames, terms::exists).unwrap();
        (frames.len() - 1, term.datum.is_some())
    }

    #[test]
    fn objects_that_stand_in_a_query_as_they_are_are_read_as_values() {
        assert_eq!(places(r#"{"b":1,"a":{"c":"x","d":{"e":null,"f":true,"g":{}}}}"#), (0, true));
        assert_eq!(places("{}"), (0, true));
        // What an evaluation could see otherwise, or refuse.
        assert_eq!(places(r#"{"a":1,"b":[2,[]]}"#), (2, false));
        assert_eq!(places(r#"{"a":{"b":1},"c":{"d":[103,[]]}}"#), (3, false));
        assert_eq!(places(r#"{"a":{"$reql_type$":"TIME"}}"#), (2, false));
        let twice = json::parse(r#"{"a":{"b":1,"b":1}}"#, 10).unwrap();
        let error = read(&twice, &mut Frames::default(), terms::exists).unwrap_err();
        assert_eq!(error.message(), "Duplicate object key: b.");
        // What is nested deeply is not looked through for each of its levels.
        let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        assert_eq!(places(&nested(PLAIN_LEVELS)), (0, true));
        assert_eq!(places(&nested(PLAIN_LEVELS + 2)), (2, false));
        let too_deep = json::parse(&nested(MAX_TERM_DEPTH + 1), 2000).unwrap();
        assert!(read(&too_deep, &mut Frames::default(), terms::exists).is_err());
    }
}
