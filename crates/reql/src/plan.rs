//! What a query runs as: terms with their definitions looked up, arguments counted and variables resolved.
//!
//! A [`Node`] calls its definition's function with its unevaluated arguments, so that each term decides what it
//! evaluates and when. Plans are data: a function that goes to where documents are is a [`Function`] with the values of
//! the variables that it mentions.

use std::sync::Arc;

use crate::call::Call;
use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::function::{Function, Scope};
use crate::lazy;
use crate::term::{Datum, MAX_TERM_DEPTH, Term, code};
use crate::terms;
use crate::val::Val;
use crate::value::{self, Value};

/// How many arguments a term takes; without `max` any number from `min` on.
#[derive(Debug, Clone, Copy)]
pub struct Arity {
    pub min: usize,
    pub max: Option<usize>,
}

impl Arity {
    pub fn contains(self, count: usize) -> bool {
        count >= self.min && self.max.is_none_or(|max| count <= max)
    }

    /// # Errors
    /// If a term with this arity must not have so many arguments.
    pub fn check(self, count: usize) -> Result<()> {
        if self.contains(count) {
            return Ok(());
        }
        let wanted = match self.max {
            None => format!("{} or more arguments", self.min),
            Some(max) if max == self.min => format!("{max} argument{}", if max == 1 { "" } else { "s" }),
            Some(max) => format!("between {} and {max} arguments", self.min),
        };
        Err(Error::logic(format!("Expected {wanted} but found {count}.")))
    }
}

/// What a term does when its first argument is grouped data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grouping {
    /// It is called for each group.
    Each,
    /// A grouped stream is taken as it is; grouped data is taken group by group.
    Stream,
    /// Groups mean nothing special to it.
    Ignored,
}

pub type Evaluate = fn(&mut Call<'_>, &Env) -> Result<Val>;

/// What is known of a kind of term.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    pub code: i32,
    pub arity: Arity,
    pub optargs: &'static [&'static str],
    pub evaluate: Evaluate,
    pub grouping: Grouping,
    /// Whether equal arguments give equal results.
    pub deterministic: bool,
    /// Whether markers of `r.literal` may stand in the arguments.
    pub literals: bool,
}

impl Definition {
    pub const fn new(code: i32, min: usize, max: usize, evaluate: Evaluate) -> Self {
        Self {
            code,
            arity: Arity { min, max: Some(max) },
            optargs: &[],
            evaluate,
            grouping: Grouping::Each,
            deterministic: true,
            literals: false,
        }
    }

    /// A term that takes any number of arguments from `min` on.
    pub const fn variadic(code: i32, min: usize, evaluate: Evaluate) -> Self {
        let mut definition = Self::new(code, min, 0, evaluate);
        definition.arity.max = None;
        definition
    }

    #[must_use]
    pub const fn optargs(mut self, optargs: &'static [&'static str]) -> Self {
        self.optargs = optargs;
        self
    }

    #[must_use]
    pub const fn grouping(mut self, grouping: Grouping) -> Self {
        self.grouping = grouping;
        self
    }

    #[must_use]
    pub const fn nondeterministic(mut self) -> Self {
        self.deterministic = false;
        self
    }

    #[must_use]
    pub const fn literals(mut self) -> Self {
        self.literals = true;
        self
    }
}

#[derive(Debug)]
pub struct Node {
    pub code: i32,
    pub frame: FrameId,
    pub kind: NodeKind,
    pub deterministic: bool,
}

#[derive(Debug)]
pub enum NodeKind {
    Datum(Value),
    Variable(i64),
    ImplicitVariable,
    Function(Arc<Template>),
    Call(CallNode),
}

#[derive(Debug)]
pub struct CallNode {
    pub definition: &'static Definition,
    pub args: Vec<Arc<Node>>,
    pub optargs: Vec<(Arc<str>, Arc<Node>)>,
    pub has_spread: bool,
    /// How many of the first rows of the result somebody looks at, if that is known.
    pub first_rows: Option<usize>,
}

/// A function of a query before its variables have values.
#[derive(Debug)]
pub struct Template {
    pub frame: FrameId,
    pub parameters: Vec<i64>,
    pub body: Arc<Node>,
}

impl Template {
    /// Whether `r.row` means the parameter. Functions that the server makes have negative parameters.
    pub fn binds_implicit(&self) -> bool {
        matches!(self.parameters[..], [id] if id >= 0)
    }
}

impl Node {
    /// Whether a term of this kind stands here or below.
    pub fn mentions(&self, code: i32) -> bool {
        match &self.kind {
            NodeKind::Call(call) => {
                self.code == code
                    || call.args.iter().any(|arg| arg.mentions(code))
                    || call.optargs.iter().any(|(_, optarg)| optarg.mentions(code))
            }
            NodeKind::Function(template) => template.body.mentions(code),
            _ => false,
        }
    }

    pub fn call(&self) -> Option<&CallNode> {
        match &self.kind {
            NodeKind::Call(call) => Some(call),
            _ => None,
        }
    }
}

/// Evaluates a node with the values of its variables.
///
/// # Errors
/// What the term complains about, or that the query was interrupted.
pub fn evaluate(node: &Arc<Node>, env: &Env, scope: &Scope, literals: bool) -> Result<Val> {
    env.step()?;
    let result = match &node.kind {
        NodeKind::Datum(value) => Ok(Val::datum(node.frame, value.clone())),
        NodeKind::Variable(id) => scope.variable(*id).map(|value| Val::datum(node.frame, value)),
        NodeKind::ImplicitVariable => scope.implicit().map(|value| Val::datum(node.frame, value)),
        NodeKind::Function(template) => {
            Ok(Val::function(node.frame, Arc::new(Function::new(template.clone(), scope.clone()))))
        }
        NodeKind::Call(call) => match field_in_place(node.code, call, scope) {
            Some(found) => found.map(|value| Val::datum(node.frame, value)),
            None => Call::run(node, call, env, scope, literals),
        },
    };
    result.map_err(|error| error.at(node.frame))
}

/// What a term gives that asks a variable for a field by its name, if the variable is a document that is still encoded: the most
/// frequent of all terms where documents are looked through.
fn field_in_place(code: i32, call: &CallNode, scope: &Scope) -> Option<Result<Value>> {
    let [of, name] = &call.args[..] else { return None };
    match &name.kind {
        NodeKind::Datum(Value::String(name)) if matches!(code, code::BRACKET | code::GET_FIELD) => {
            lazy::field(scope.document(of)?, name)
        }
        _ => None,
    }
}

/// Makes the plan of a term tree.
///
/// # Errors
/// What RethinkDB calls compile errors: wrong numbers of arguments, unknown options and variables.
pub fn compile(term: &Term) -> Result<Arc<Node>> {
    Compiler { variables: Vec::new(), implicit_depth: 0, dummies: -1, rewrites: 0, depth: 0 }.node(term)
}

/// Makes the plan of a term that mentions variables from outside, whose values `scope` has.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_within(term: &Term, scope: &Scope) -> Result<Arc<Node>> {
    let variables = scope.variables().map(|(id, _)| id).collect();
    let implicit_depth = scope.variables().filter(|(_, implicit)| *implicit).count();
    Compiler { variables, implicit_depth, dummies: -1, rewrites: 0, depth: 0 }.node(term)
}

/// Some terms are rewritten into others that have an argument twice, so that the plan of nested ones grows by powers of
/// two. No query that means something has so many.
const MAX_REWRITES: usize = 10_000;

/// The deepest nesting of a plan, which is deeper than its query where terms are rewritten. Evaluation recurses over plans,
/// so this bounds its stack.
const MAX_PLAN_DEPTH: usize = MAX_TERM_DEPTH + 100;

/// Makes plans of terms.
struct Compiler {
    variables: Vec<i64>,
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
            definition.arity.check(term.args.len())?;
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
            definition.arity.check(args.len())?;
        }
        let mut optargs = Vec::with_capacity(term.optargs.len());
        for (name, part) in &term.optargs {
            if !is_object && !definition.optargs.contains(&&**name) {
                let message = format!("Unrecognized optional argument `{name}`.");
                return Err(Error::logic(message).at(part.frame));
            }
            optargs.push((name.clone(), self.node(part)?));
        }
        if is_object {
            optargs.sort_by(|(left, _), (right, _)| left.cmp(right));
        }
        let deterministic = (definition.deterministic || (term.code == code::UUID && !args.is_empty()))
            && args.iter().all(|arg| arg.deterministic)
            && optargs.iter().all(|(_, optarg)| optarg.deterministic);
        let kind = NodeKind::Call(CallNode { definition, args, optargs, has_spread, first_rows: None });
        Ok(Arc::new(Node { code: term.code, frame: term.frame, kind, deterministic }))
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
        if !self.variables.contains(&id) {
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
        let outer = self.variables.len();
        self.variables.extend(&parameters);
        let binds_implicit = matches!(parameters[..], [id] if id >= 0);
        self.implicit_depth += usize::from(binds_implicit);
        let body = self.node(body);
        self.implicit_depth -= usize::from(binds_implicit);
        self.variables.truncate(outer);
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
