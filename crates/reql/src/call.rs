//! A term being evaluated: its arguments, evaluated when the term asks for them.

use std::sync::Arc;

use tessera_document::Document;

use crate::env::Env;
use crate::error::{Error, FrameId, Result};
use crate::function::{Body, Function, Scope};
use crate::node::{CallNode, Node, NodeKind};
use crate::stream::Stream;
use crate::term::code;
use crate::val::{Kind, Shortcut, Val};
use crate::value::{Value, ValueExt as _};

/// An argument after `r.args` has been spread.
pub(crate) enum Slot<'a> {
    Node(&'a Arc<Node>),
    Value(Value),
}

pub struct Call<'a> {
    pub node: &'a Arc<Node>,
    pub call: &'a CallNode,
    pub scope: &'a Scope,
    /// The arguments, if `r.args` stands among them.
    pub(crate) spread: Option<Vec<Slot<'a>>>,
    pub(crate) first: Option<Val>,
    /// The first argument, as long as it is a document that is still encoded.
    pub document: Option<&'a Document>,
    /// Whether markers of `r.literal` may come out.
    pub literals: bool,
    /// Whether the term is called for an object inside of the sequence that it was given.
    pub inside_sequence: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn spread_args(&mut self, env: &Env) -> Result<()> {
        if !self.call.has_spread {
            return Ok(());
        }
        let mut slots = Vec::new();
        for arg in &self.call.args {
            if arg.code != code::ARGS {
                slots.push(Slot::Node(arg));
                continue;
            }
            let list = env.evaluate(arg, self.scope, self.literals || self.call.signature.literals)?;
            let list = list.into_datum()?;
            slots.extend(list.to_items()?.iter().cloned().map(Slot::Value));
        }
        self.call.signature.arity.check(slots.len())?;
        self.spread = Some(slots);
        Ok(())
    }

    pub fn frame(&self) -> FrameId {
        self.node.frame
    }

    pub fn count(&self) -> usize {
        self.spread.as_ref().map_or(self.call.args.len(), Vec::len)
    }

    pub(crate) fn evaluate_slot(&self, env: &Env, at: usize, literals: bool) -> Result<Val> {
        match &self.spread {
            None => env.evaluate(&self.call.args[at], self.scope, literals),
            Some(slots) => match &slots[at] {
                Slot::Node(node) => env.evaluate(node, self.scope, literals),
                Slot::Value(value) => Ok(Val::datum(self.node.frame, value.clone())),
            },
        }
    }

    /// The argument at this position. Each one is asked for once.
    pub fn arg(&mut self, env: &Env, at: usize) -> Result<Val> {
        self.arg_with(env, at, self.call.signature.literals)
    }

    pub fn arg_with(&mut self, env: &Env, at: usize, literals: bool) -> Result<Val> {
        let mut value = self.arg_unread_with(env, at, literals)?;
        if let Kind::Row(row) = &mut value.kind
            && let Some(error) = row.error.take()
        {
            return Err(error);
        }
        Ok(value)
    }

    /// The argument, for terms that do not look into a document that could not be read.
    pub fn arg_unread(&mut self, env: &Env, at: usize) -> Result<Val> {
        self.arg_unread_with(env, at, self.call.signature.literals)
    }

    fn arg_unread_with(&mut self, env: &Env, at: usize, literals: bool) -> Result<Val> {
        if at == 0 {
            if let Some(first) = self.first.take() {
                return Ok(first);
            }
            if let (Some(document), true) = (self.document.take(), self.inside_sequence) {
                return Ok(Val::datum(self.node.frame, crate::lazy::decode(document)?));
            }
        }
        self.evaluate_slot(env, at, literals)
    }

    pub fn datum(&mut self, env: &Env, at: usize) -> Result<Value> {
        self.arg(env, at)?.into_datum()
    }

    pub fn string(&mut self, env: &Env, at: usize) -> Result<Arc<str>> {
        self.arg(env, at)?.as_string()
    }

    pub fn number(&mut self, env: &Env, at: usize) -> Result<f64> {
        self.arg(env, at)?.as_number()
    }

    pub fn integer(&mut self, env: &Env, at: usize) -> Result<i64> {
        self.arg(env, at)?.as_integer()
    }

    /// An integer of 32 bits.
    pub fn small_integer(&mut self, env: &Env, at: usize) -> Result<i32> {
        self.arg(env, at)?.as_small_integer()
    }

    pub fn stream(&mut self, env: &Env, at: usize) -> Result<Stream> {
        self.arg(env, at)?.into_stream(env)
    }

    pub fn function(&mut self, env: &Env, at: usize, shortcut: Shortcut) -> Result<Arc<Function>> {
        self.arg(env, at)?.into_function(shortcut)
    }

    /// The term of an argument, to see what stands there before it is evaluated.
    pub fn term_code(&self, at: usize) -> Option<i32> {
        match &self.spread {
            None => self.call.args.get(at).map(|node| node.code),
            Some(slots) => match slots.get(at) {
                Some(Slot::Node(node)) => Some(node.code),
                _ => None,
            },
        }
    }

    /// Whether the argument gives the same whenever it is evaluated; known before that.
    pub fn is_deterministic(&self, at: usize) -> bool {
        match &self.spread {
            None => self.call.args.get(at).is_none_or(|node| node.deterministic),
            Some(slots) => match slots.get(at) {
                Some(Slot::Node(node)) => node.deterministic,
                _ => true,
            },
        }
    }

    /// The value of an argument that is a literal.
    pub fn constant(&self, at: usize) -> Option<&'a Value> {
        match (&self.spread, self.call.args.get(at).map(|node| &node.kind)) {
            (None, Some(NodeKind::Datum(value))) => Some(value),
            _ => None,
        }
    }

    pub fn optarg_node(&self, name: &str) -> Option<&'a Arc<Node>> {
        self.call.optargs.iter().find(|(optarg, _)| &**optarg == name).map(|(_, node)| node)
    }

    /// The optional argument of this name, of the term or else of the whole query.
    pub fn optarg(&self, env: &Env, name: &str) -> Result<Option<Val>> {
        match self.optarg_node(name) {
            Some(node) => env.evaluate(node, self.scope, false).map(Some),
            None => env.global_optarg(name),
        }
    }

    pub fn optarg_bool(&self, env: &Env, name: &str) -> Result<Option<bool>> {
        self.optarg(env, name)?.map(|value| value.as_bool()).transpose()
    }

    /// A result of this term.
    pub fn value(&self, value: Value) -> Result<Val> {
        Ok(Val::datum(self.node.frame, value))
    }

    pub fn bool(&self, value: bool) -> Result<Val> {
        self.value(Value::Bool(value))
    }

    pub fn result(&self, kind: Kind) -> Val {
        Val { frame: self.node.frame, kind }
    }

    /// A stream as result: one that is an array in disguise becomes an array.
    pub fn sequence(&self, env: &Env, stream: Stream) -> Result<Val> {
        Val::from_stream(env, self.node.frame, stream)
    }

    /// This term as a function of the objects of a sequence.
    pub fn again(&self) -> Arc<Function> {
        Arc::new(Function {
            frame: self.node.frame,
            body: Body::Again { node: self.node.clone(), scope: self.scope.clone() },
        })
    }

    /// Whether an end of a range belongs to it: the optional argument is `open` or `closed`.
    pub fn bound(&self, env: &Env, name: &str, default: bool) -> Result<bool> {
        let Some(value) = self.optarg(env, name)? else { return Ok(default) };
        match &*value.as_string()? {
            "closed" => Ok(true),
            "open" => Ok(false),
            other => {
                let shown = Value::from(other).print()?;
                Err(Error::logic(format!("Expected `open` or `closed` for optarg `{name}` (got `{shown}`).")))
            }
        }
    }

    /// Whether the left and right end of a range belong to it.
    pub fn bounds(&self, env: &Env, left: bool, right: bool) -> Result<(bool, bool)> {
        Ok((self.bound(env, "left_bound", left)?, self.bound(env, "right_bound", right)?))
    }
}
