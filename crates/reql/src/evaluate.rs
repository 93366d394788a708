//! Evaluating plans: each term is evaluated by the function of its definition, which gets its arguments unevaluated, so that it
//! decides what it evaluates and when.

use std::sync::Arc;

use crate::call::Call;
use crate::definition::Evaluate;
use crate::env::{Env, Evaluator, Pacer};
use crate::error::{Error, ErrorKind, FrameId, Result};
use crate::function::{Function, Scope};
use crate::lazy::{self, Lazy};
use crate::node::{CallNode, Grouping, Node, NodeKind};
use crate::printed;
use crate::source::Source;
use crate::term::code;
use crate::terms;
use crate::together;
use crate::val::{Groups, Kind, Val};
use crate::value::Value;

/// The one way to evaluate, by the definitions of [`terms`].
struct ByDefinitions;

impl Evaluator for ByDefinitions {
    fn evaluate(&self, env: &Env, node: &Arc<Node>, scope: &Scope, literals: bool) -> Result<Val> {
        evaluate(node, env, scope, literals)
    }

    fn evaluate_for(&self, env: &Env, node: &Arc<Node>, scope: &Scope, row: &Lazy) -> Result<Val> {
        run_again(node, env, scope, row)
    }

    fn field_of(&self, env: &Env, frame: FrameId, value: Value, name: &Value) -> Result<Val> {
        terms::fields::get_field_of(env, frame, value, name)
    }

    fn part_of(&self, env: &Env, frame: FrameId, value: &Value, paths: &Value) -> Result<Val> {
        terms::fields::pluck_of(env, frame, value, paths)
    }
}

impl Env {
    /// An environment with the default options.
    pub fn new(source: Arc<dyn Source>, pacer: Arc<dyn Pacer>, now: Value) -> Self {
        Self::with_evaluator(&ByDefinitions, Some(source), pacer, now)
    }

    /// An environment without tables, for functions that ask for none: those that are [portable](crate::Function::is_portable),
    /// and those of indexes.
    pub fn for_functions(pacer: Arc<dyn Pacer>, now: Value) -> Self {
        Self::with_evaluator(&ByDefinitions, None, pacer, now)
    }
}

/// Evaluates a node with the values of its variables.
///
/// # Errors
/// What the term complains about, or that the query was interrupted.
fn evaluate(node: &Arc<Node>, env: &Env, scope: &Scope, literals: bool) -> Result<Val> {
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
            None if env.profile.is_some() => run_measured(node, call, env, scope, literals),
            None => run(node, call, env, scope, literals),
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

/// How a term with this number is evaluated.
fn evaluate_of(code: i32) -> Result<Evaluate> {
    let unknown = || Error::new(ErrorKind::Internal, format!("There is no term {code}."));
    terms::definition(code).map(|definition| definition.evaluate).ok_or_else(unknown)
}

fn run(node: &Arc<Node>, call: &CallNode, env: &Env, scope: &Scope, literals: bool) -> Result<Val> {
    let option = call.optargs.iter().find(|(name, _)| &**name == together::OPTARG);
    if let Some((_, option)) = option
        // The fields of an object are options of the term that makes it.
        && call.signature.optargs.contains(&together::OPTARG)
        && let Some(result) = run_together(option, node, call, env, scope, literals)
    {
        return result;
    }
    let mut this =
        Call { node, call, scope, spread: None, first: None, document: None, literals, inside_sequence: false };
    this.spread_args(env)?;
    let (signature, evaluate) = (call.signature, evaluate_of(node.code)?);
    if signature.grouping == Grouping::Ignored || this.count() == 0 {
        return evaluate(&mut this, env);
    }
    if this.spread.is_none() {
        // A document is no group, and may be all that the term wants to look at.
        this.document = call.args.first().and_then(|first| scope.document(first));
        if this.document.is_some() {
            return evaluate(&mut this, env);
        }
    }
    let first = this.evaluate_slot(env, 0, literals || signature.literals)?;
    let groups = match first.kind {
        Kind::Grouped(groups) => groups,
        Kind::Stream(stream) if signature.grouping == Grouping::Each && stream.is_grouped() => {
            stream.into_groups(env)?
        }
        kind => {
            this.first = Some(Val { frame: first.frame, kind });
            return evaluate(&mut this, env);
        }
    };
    let mut out = Groups::default();
    for (group, value) in groups.into_iter() {
        this.first = Some(Val::datum(node.frame, value));
        let result = evaluate(&mut this, env)?.into_datum()?;
        out.insert(group, result)?;
    }
    Ok(Val { frame: node.frame, kind: Kind::Grouped(out) })
}

/// What a term gives, as a task of the query's profile.
#[cold]
#[inline(never)]
fn run_measured(node: &Arc<Node>, call: &CallNode, env: &Env, scope: &Scope, literals: bool) -> Result<Val> {
    let (number, description) = (Arc::as_ptr(node).addr(), format!("Evaluating {}.", printed::name(node.code)));
    let _measured = env.profile.as_ref().map(|profile| profile.begin(number, description));
    run(node, call, env, scope, literals)
}

/// What a term gives whose writes are to take effect together; `None` if they are not, or are part of others that do.
#[cold]
#[inline(never)]
fn run_together(
    option: &Arc<Node>,
    node: &Arc<Node>,
    call: &CallNode,
    env: &Env,
    scope: &Scope,
    literals: bool,
) -> Option<Result<Val>> {
    if env.is_together() {
        return None;
    }
    match env.evaluate(option, scope, false).and_then(|option| option.as_bool()) {
        Ok(true) => Some(together::evaluate(env, || run(node, call, env, scope, literals))),
        Ok(false) => None,
        Err(error) => Some(Err(error)),
    }
}

/// Evaluates the term with `value` in the place of its first argument, as part of a sequence.
fn run_again(node: &Arc<Node>, env: &Env, scope: &Scope, row: &Lazy) -> Result<Val> {
    let Some(call) = node.call() else { return env.evaluate(node, scope, false) };
    env.step()?;
    let (spread, literals, inside_sequence) = (None, false, true);
    let mut this = Call { node, call, scope, spread, first: None, document: None, literals, inside_sequence };
    this.spread_args(env)?;
    match row {
        Lazy::Value(value) => this.first = Some(Val::datum(node.frame, value.clone())),
        Lazy::Document(document) => this.document = Some(document),
    }
    evaluate_of(node.code)?(&mut this, env).map_err(|error| error.at(node.frame))
}
