//! Terms that are short for trees of other terms. What is made has the place of the term that it is made of; its parts
//! keep theirs.

use std::sync::Arc;

use super::Rewrite;
use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::plan::{Definition, Grouping};
use crate::term::{Term, code};
use crate::val::Val;
use crate::value::Value;

pub const TERMS: &[Definition] = &[
    Definition::new(code::INNER_JOIN, 3, 3, never),
    Definition::new(code::OUTER_JOIN, 3, 3, never),
    Definition::new(code::UPDATE, 2, 2, never).optargs(super::writes::REPLACE_OPTARGS),
    Definition::new(code::DELETE, 1, 1, never).optargs(super::writes::DELETE_OPTARGS),
    Definition::new(code::SKIP, 2, 2, never),
    Definition::new(code::DIFFERENCE, 2, 2, never),
    Definition::variadic(code::WITH_FIELDS, 1, never).grouping(Grouping::Stream),
];

/// None of these terms is evaluated: plans hold what they were rewritten into.
fn never(_call: &mut Call<'_>, _env: &Env) -> Result<Val> {
    Err(Error::new(ErrorKind::Internal, "A term was not rewritten."))
}

pub fn rewrite(code: i32) -> Option<Rewrite> {
    Some(match code {
        code::INNER_JOIN => inner_join,
        code::OUTER_JOIN => outer_join,
        code::UPDATE => update,
        code::DELETE => delete,
        code::SKIP => skip,
        code::DIFFERENCE => difference,
        code::WITH_FIELDS => with_fields,
        _ => return None,
    })
}

/// Makes parts of the rewritten term at its place.
struct Maker<'a> {
    term: &'a Term,
    dummies: &'a mut i64,
}

impl Maker<'_> {
    fn call(&self, code: i32, args: Vec<Term>) -> Term {
        Term::call(self.term.frame, code, args)
    }

    fn datum(&self, value: Value) -> Term {
        Term::datum(self.term.frame, value)
    }

    fn variable(&self, id: i64) -> Term {
        Term::variable(self.term.frame, id)
    }

    fn function(&self, parameters: &[i64], body: Term) -> Term {
        Term::function(self.term.frame, parameters, body)
    }

    fn parameter(&mut self) -> i64 {
        *self.dummies -= 1;
        *self.dummies
    }

    fn object(&self, fields: Vec<(&str, Term)>) -> Term {
        let mut term = self.call(code::MAKE_OBJ, Vec::new());
        term.optargs = fields.into_iter().map(|(name, part)| (Arc::from(name), part)).collect();
        term
    }

    /// The pairs of a row with the rows of the right side for which the function holds.
    fn pairs(&self, left: i64, right: i64) -> Term {
        let (n, m) = (|| self.variable(left), || self.variable(right));
        let pair = self.object(vec![("left", n()), ("right", m())]);
        let holds = self.call(code::FUNCALL, vec![self.term.args[2].clone(), n(), m()]);
        let branch = self.call(
            code::BRANCH,
            vec![holds, self.call(code::MAKE_ARRAY, vec![pair]), self.call(code::MAKE_ARRAY, Vec::new())],
        );
        let function = self.function(&[right], branch);
        self.call(code::CONCAT_MAP, vec![self.term.args[1].clone(), function])
    }
}

fn inner_join(term: &Term, dummies: &mut i64) -> Term {
    let mut maker = Maker { term, dummies };
    let (n, m) = (maker.parameter(), maker.parameter());
    let function = maker.function(&[n], maker.pairs(n, m));
    let mut joined = maker.call(code::CONCAT_MAP, vec![term.args[0].clone(), function]);
    joined.optargs.clone_from(&term.optargs);
    joined
}

fn outer_join(term: &Term, dummies: &mut i64) -> Term {
    let mut maker = Maker { term, dummies };
    let (n, m, list) = (maker.parameter(), maker.parameter(), maker.parameter());
    let pairs = maker.call(code::COERCE_TO, vec![maker.pairs(n, m), maker.datum(Value::from("ARRAY"))]);
    let count = maker.call(code::COUNT, vec![maker.variable(list)]);
    let has_some = maker.call(code::GT, vec![count, maker.datum(Value::from(0))]);
    let alone = maker.object(vec![("left", maker.variable(n))]);
    let branch =
        maker.call(code::BRANCH, vec![has_some, maker.variable(list), maker.call(code::MAKE_ARRAY, vec![alone])]);
    let body = maker.call(code::FUNCALL, vec![maker.function(&[list], branch), pairs]);
    let function = maker.function(&[n], body);
    let mut joined = maker.call(code::CONCAT_MAP, vec![term.args[0].clone(), function]);
    joined.optargs.clone_from(&term.optargs);
    joined
}

fn update(term: &Term, dummies: &mut i64) -> Term {
    let mut maker = Maker { term, dummies };
    let old = maker.parameter();
    let change = maker
        .call(code::FUNCALL, vec![term.args[1].clone(), maker.variable(old)])
        .with_optarg(super::control::LITERALS_OPTARG, maker.datum(Value::TRUE));
    let new = maker.parameter();
    let is_absent = maker.call(code::EQ, vec![maker.variable(old), maker.datum(Value::Null)]);
    // A change of null leaves the document as it is.
    let is_nothing = maker.call(code::EQ, vec![maker.variable(new), maker.datum(Value::Null)]);
    let merged = maker.call(code::MERGE, vec![maker.variable(old), maker.variable(new)]);
    let chosen = maker.call(code::BRANCH, vec![is_nothing, maker.variable(old), merged]);
    let merged = maker
        .call(code::FUNCALL, vec![maker.function(&[new], chosen), change])
        .with_optarg(super::control::LITERALS_OPTARG, maker.datum(Value::TRUE));
    let body = maker.call(code::BRANCH, vec![is_absent, maker.datum(Value::Null), merged]);
    let function = maker.function(&[old], body);
    let mut replace = maker.call(code::REPLACE, vec![term.args[0].clone(), function]);
    replace.optargs.clone_from(&term.optargs);
    replace
}

fn delete(term: &Term, dummies: &mut i64) -> Term {
    let mut maker = Maker { term, dummies };
    let old = maker.parameter();
    let function = maker.function(&[old], maker.datum(Value::Null));
    let mut replace = maker.call(code::REPLACE, vec![term.args[0].clone(), function]);
    replace.optargs.clone_from(&term.optargs);
    replace
}

fn skip(term: &Term, dummies: &mut i64) -> Term {
    let maker = Maker { term, dummies };
    let end = maker.datum(Value::from(-1));
    let mut slice = maker
        .call(code::SLICE, vec![term.args[0].clone(), term.args[1].clone(), end])
        .with_optarg("right_bound", maker.datum(Value::from("closed")));
    slice.optargs.extend(term.optargs.iter().cloned());
    slice
}

fn difference(term: &Term, dummies: &mut i64) -> Term {
    let mut maker = Maker { term, dummies };
    let row = maker.parameter();
    let contains = maker.call(code::CONTAINS, vec![term.args[1].clone(), maker.variable(row)]);
    let function = maker.function(&[row], maker.call(code::NOT, vec![contains]));
    let mut filter = maker.call(code::FILTER, vec![term.args[0].clone(), function]);
    filter.optargs.clone_from(&term.optargs);
    filter
}

fn with_fields(term: &Term, dummies: &mut i64) -> Term {
    let maker = Maker { term, dummies };
    let has_fields = maker.call(code::HAS_FIELDS, term.args.clone());
    let mut args = vec![has_fields];
    args.extend(term.args.iter().skip(1).cloned());
    let mut pluck = maker.call(code::PLUCK, args);
    pluck.optargs.clone_from(&term.optargs);
    pluck
}
