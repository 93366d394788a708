//! What a query runs as: terms with their definitions looked up, arguments counted and variables resolved.
//!
//! Plans are data: a function that goes to where documents are is a [`Function`](crate::function::Function) with the
//! values of the variables that it mentions.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

pub use crate::definition::Definition;
use crate::error::{Error, Result};
use crate::function::Scope;
use crate::node::{CallNode, Node, NodeKind};
pub use crate::node::{Grouping, Template};
use crate::term::{Datum, MAX_TERM_DEPTH, Term, code};
use crate::terms;
use crate::value::{self, Value};

/// Makes the plan of a term tree.
///
/// # Errors
/// What RethinkDB calls compile errors: wrong numbers of arguments, unknown options and variables.
pub fn compile(term: &Term) -> Result<Arc<Node>> {
    Compiler { variables: BTreeMap::new(), implicit_depth: 0, dummies: -1, rewrites: 0, depth: 0 }.node(term)
}

/// Makes the plan of a term that mentions variables from outside, whose values `scope` has.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_within(term: &Term, scope: &Scope) -> Result<Arc<Node>> {
    let implicit_depth = scope.variables().filter(|(_, implicit)| *implicit).count();
    let mut compiler = Compiler { variables: BTreeMap::new(), implicit_depth, dummies: -1, rewrites: 0, depth: 0 };
    scope.variables().for_each(|(id, _)| compiler.bind(id));
    compiler.node(term)
}

/// Some terms are rewritten into others that have an argument twice, so that the plan of nested ones grows by powers of
/// two. No query that means something has so many.
const MAX_REWRITES: usize = 10_000;

/// The deepest nesting of a plan, which is deeper than its query where terms are rewritten. Evaluation recurses over plans,
/// so this bounds its stack.
const MAX_PLAN_DEPTH: usize = MAX_TERM_DEPTH + 100;

/// Makes plans of terms.
struct Compiler {
    /// How many functions around a term have a variable of a number: a query may have millions of variables and mention each.
    variables: BTreeMap<i64, usize>,
    implicit_depth: usize,
    /// The next number for a parameter of a function that the server makes.
    dummies: i64,
    /// Terms that were rewritten so far.
    rewrites: usize,
    depth: usize,
}

impl Compiler {
    fn node(&mut self, term: &Term) -> Result<Arc<Node>> {
        if self.depth > MAX_PLAN_DEPTH {
            let message = format!("The plan of the query is nested deeper than {MAX_PLAN_DEPTH} terms.");
            return Err(Error::limit(message).at(term.frame));
        }
        self.depth += 1;
        let node = self.node_at(term).map_err(|error| error.at(term.frame));
        self.depth -= 1;
        node
    }

    fn node_at(&mut self, term: &Term) -> Result<Arc<Node>> {
        let (kind, deterministic) = match term.code {
            code::DATUM => (NodeKind::Datum(literal(term)?), true),
            code::MAKE_OBJ if term.datum.is_some() => (NodeKind::Datum(literal(term)?), true),
            code::VAR => (self.variable(term)?, true),
            code::IMPLICIT_VAR => (self.implicit(term)?, true),
            code::FUNC => {
                let template = self.function(term)?;
                let deterministic = template.body.deterministic;
                (NodeKind::Function(Arc::new(template)), deterministic)
            }
            _ => return self.call(term),
        };
        Ok(Arc::new(Node { code: term.code, frame: term.frame, kind, deterministic }))
    }

    fn call(&mut self, term: &Term) -> Result<Arc<Node>> {
        let Some(definition) = terms::definition(term.code) else {
            return Err(Error::logic(format!("Unrecognized TermType: {}.", term.code)));
        };
        if let Some(rewrite) = terms::rewrite(term.code) {
            // What is rewritten must be written down: an argument that is to be spread counts as one.
            definition.signature.arity.check(term.args.len())?;
            self.rewrites += 1;
            if self.rewrites > MAX_REWRITES {
                return Err(Error::limit(format!(
                    "The query has more than {MAX_REWRITES} joins, updates and the like."
                )));
            }
            let rewritten = rewrite(term, &mut self.dummies);
            return self.node_at(&rewritten);
        }
        let is_object = term.code == code::MAKE_OBJ;
        if is_object && !term.args.is_empty() {
            return Err(Error::logic("MAKE_OBJ term must not have any args."));
        }
        let mut args = term.args.iter().map(|arg| self.node(arg)).collect::<Result<Vec<_>>>()?;
        note_first_rows(term.code, &mut args);
        let has_spread = term.args.iter().any(|arg| arg.code == code::ARGS);
        if !has_spread {
            definition.signature.arity.check(args.len())?;
        }
        let mut optargs = Vec::with_capacity(term.optargs.len());
        for (name, part) in &term.optargs {
            if !is_object && !definition.signature.optargs.contains(&&**name) {
                let message = format!("Unrecognized optional argument `{name}`.");
                return Err(Error::logic(message).at(part.frame));
            }
            optargs.push((name.clone(), self.node(part)?));
        }
        if is_object {
            optargs.sort_by(|(left, _), (right, _)| left.cmp(right));
        }
        let deterministic = (definition.signature.deterministic || (term.code == code::UUID && !args.is_empty()))
            && args.iter().all(|arg| arg.deterministic)
            && optargs.iter().all(|(_, optarg)| optarg.deterministic);
        let kind =
            NodeKind::Call(CallNode { signature: &definition.signature, args, optargs, has_spread, first_rows: None });
        Ok(Arc::new(Node { code: term.code, frame: term.frame, kind, deterministic }))
    }

    fn bind(&mut self, id: i64) {
        *self.variables.entry(id).or_default() += 1;
    }

    fn unbind(&mut self, id: i64) {
        if let Entry::Occupied(mut count) = self.variables.entry(id) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    fn variable(&mut self, term: &Term) -> Result<NodeKind> {
        let [arg] = &term.args[..] else {
            return Err(Error::logic("A variable term has the wrong number of arguments."));
        };
        if arg.code != code::DATUM {
            return Err(Error::logic("A variable term has a non-datum argument."));
        }
        let Value::Number(number) = literal(arg)? else {
            return Err(Error::logic("A variable term has a non-numeric name datum."));
        };
        let id = value::checked_integer(number.get())?;
        if !self.variables.contains_key(&id) {
            return Err(Error::logic("Variable name not found."));
        }
        Ok(NodeKind::Variable(id))
    }

    fn implicit(&mut self, term: &Term) -> Result<NodeKind> {
        if !term.args.is_empty() || !term.optargs.is_empty() {
            return Err(Error::logic("Expected no arguments or optional arguments on implicit variable term."));
        }
        match self.implicit_depth {
            0 => Err(Error::logic("r.row is not defined in this context.")),
            1 => Ok(NodeKind::ImplicitVariable),
            _ => Err(Error::logic("Cannot use r.row in nested queries.  Use functions instead.")),
        }
    }

    fn function(&mut self, term: &Term) -> Result<Template> {
        if !term.optargs.is_empty() {
            return Err(Error::logic("FUNC takes no optional arguments."));
        }
        let [variables, body] = &term.args[..] else {
            let count = term.args.len();
            return Err(Error::logic(format!("FUNC takes exactly two arguments (got {count})")));
        };
        let parameters = parameters(variables)?;
        parameters.iter().for_each(|id| self.bind(*id));
        let binds_implicit = matches!(parameters[..], [id] if id >= 0);
        self.implicit_depth += usize::from(binds_implicit);
        let body = self.node(body);
        self.implicit_depth -= usize::from(binds_implicit);
        parameters.iter().for_each(|id| self.unbind(*id));
        Ok(Template { frame: term.frame, parameters, body: body? })
    }
}

/// Tells a term that sorts how many rows the term around it takes.
fn note_first_rows(code: i32, args: &mut [Arc<Node>]) {
    let [sequence, count] = args else { return };
    let NodeKind::Datum(Value::Number(count)) = &count.kind else { return };
    let count = count.as_integer().and_then(|count| usize::try_from(count).ok());
    let rows = match code {
        code::LIMIT => count,
        code::NTH | code::BRACKET => count.and_then(|at| at.checked_add(1)),
        _ => return,
    };
    if sequence.code == code::ORDER_BY
        && let Some(NodeKind::Call(call)) = Arc::get_mut(sequence).map(|node| &mut node.kind)
    {
        call.first_rows = rows;
    }
}

fn parameters(term: &Term) -> Result<Vec<i64>> {
    match term.code {
        code::DATUM => Err(Error::logic("CLIENT ERROR: FUNC variables must be a literal *array* of numbers.")),
        code::MAKE_ARRAY => term
            .args
            .iter()
            .map(|arg| {
                if arg.code != code::DATUM {
                    return Err(Error::logic("CLIENT ERROR: FUNC variables must be a *literal* array of numbers."));
                }
                match literal(arg)? {
                    Value::Number(number) => Ok(number.get() as i64),
                    _ => Err(Error::logic("CLIENT ERROR: FUNC variables must be a literal array of *numbers*.")),
                }
            })
            .collect(),
        _ => Err(Error::logic("CLIENT ERROR: FUNC variables must be a *literal array of numbers*.")),
    }
}

/// The value of a literal term.
fn literal(term: &Term) -> Result<Value> {
    match &term.datum {
        Some(Datum::Value(value)) => Ok(value.clone()),
        Some(Datum::Json(json)) => value::from_json(json),
        None => Err(Error::logic("A datum term is missing its datum field.")),
    }
}
