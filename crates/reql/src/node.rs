//! Terms of a plan: data, which whoever evaluates it walks over.

use std::sync::Arc;

use crate::error::{Error, FrameId, Result};
use crate::value::Value;

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

/// What can be said of a kind of term without evaluating it.
#[derive(Debug, Clone, Copy)]
pub struct Signature {
    pub arity: Arity,
    pub optargs: &'static [&'static str],
    pub grouping: Grouping,
    /// Whether equal arguments give equal results.
    pub deterministic: bool,
    /// Whether markers of `r.literal` may stand in the arguments.
    pub literals: bool,
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
    pub signature: &'static Signature,
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
