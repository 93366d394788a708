//! Functions with the values of their variables. [`call`] calls them.

mod call;

use std::sync::{Arc, OnceLock};

use tessera_document::Document;

use crate::compared::Compared;
use crate::error::{Error, FrameId, Result};
use crate::lazy::{self, Lazy};
use crate::node::{Node, NodeKind, Template};
use crate::script::ScriptSource;
use crate::value::Value;

/// The values of variables: a list from the innermost function outwards, shared by all that were made within.
#[derive(Debug, Clone, Default)]
pub struct Scope(Option<Arc<Binding>>);

#[derive(Debug)]
struct Binding {
    id: i64,
    value: Bound,
    /// Whether `r.row` means this variable.
    implicit: bool,
    outer: Scope,
}

impl Drop for Scope {
    /// One variable after the other: a function may have millions of them, more than a stack has room for.
    fn drop(&mut self) {
        let mut next = self.0.take();
        while let Some(mut binding) = next.and_then(Arc::into_inner) {
            next = binding.outer.0.take();
        }
    }
}

/// The value of a variable. A document is decoded once, when all of it is asked for.
#[derive(Debug)]
enum Bound {
    Value(Value),
    Document(Document, OnceLock<Value>),
}

impl Bound {
    fn get(&self) -> Result<Value> {
        match self {
            Self::Value(value) => Ok(value.clone()),
            Self::Document(document, decoded) => match decoded.get() {
                Some(value) => Ok(value.clone()),
                None => {
                    let value = lazy::decode(document)?;
                    Ok(decoded.get_or_init(|| value).clone())
                }
            },
        }
    }
}

impl From<&Lazy> for Bound {
    fn from(row: &Lazy) -> Self {
        match row {
            Lazy::Value(value) => Self::Value(value.clone()),
            Lazy::Document(document) => Self::Document(document.clone(), OnceLock::new()),
        }
    }
}

impl Scope {
    fn with(&self, id: i64, value: Bound, implicit: bool) -> Self {
        Self(Some(Arc::new(Binding { id, value, implicit, outer: self.clone() })))
    }

    /// A scope with these variables, innermost first.
    pub(crate) fn of(bindings: Vec<(i64, Value, bool)>) -> Self {
        let add = |scope: Self, (id, value, implicit)| scope.with(id, Bound::Value(value), implicit);
        bindings.into_iter().rev().fold(Self::default(), add)
    }

    fn all(&self) -> impl Iterator<Item = &Binding> {
        std::iter::successors(self.0.as_deref(), |binding| binding.outer.0.as_deref())
    }

    /// The numbers of the variables, and whether `r.row` means them, innermost first.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (i64, bool)> {
        self.all().map(|binding| (binding.id, binding.implicit))
    }

    /// The variables with their values, innermost first.
    ///
    /// # Errors
    /// If a stored document is damaged.
    pub(crate) fn bindings(&self) -> Result<Vec<(i64, Value, bool)>> {
        self.all().map(|binding| Ok((binding.id, binding.value.get()?, binding.implicit))).collect()
    }

    fn find(&self, matches: impl Fn(&Binding) -> bool) -> Result<Value> {
        match self.all().find(|binding| matches(binding)) {
            Some(binding) => binding.value.get(),
            None => Err(Error::new(crate::ErrorKind::Internal, "A variable has no value.")),
        }
    }

    /// The document that a node means, if it is a variable whose value is one that nobody has decoded yet.
    pub(crate) fn document(&self, node: &Node) -> Option<&Document> {
        let binding = match node.kind {
            NodeKind::Variable(id) => self.all().find(|binding| binding.id == id),
            NodeKind::ImplicitVariable => self.all().find(|binding| binding.implicit),
            _ => None,
        };
        match &binding?.value {
            Bound::Document(document, decoded) if decoded.get().is_none() => Some(document),
            _ => None,
        }
    }

    pub(crate) fn variable(&self, id: i64) -> Result<Value> {
        self.find(|binding| binding.id == id)
    }

    pub(crate) fn implicit(&self) -> Result<Value> {
        self.find(|binding| binding.implicit)
    }
}

/// Something that can be called with values. All of it is data, so that it can be carried out where documents are.
#[derive(Debug)]
pub struct Function {
    /// The term that made the function, for backtraces.
    pub frame: FrameId,
    /// What the function does.
    pub body: Body,
}

/// What a function does with its arguments.
#[derive(Debug)]
pub enum Body {
    /// A function of the query, with the values of the variables outside of it.
    Query {
        /// The function of the query.
        template: Arc<Template>,
        /// The values of the variables outside of the function.
        scope: Scope,
    },
    /// The value, whatever the argument.
    Constant(Value),
    /// The field of this name.
    GetField(Value),
    /// The fields of these names.
    Pluck(Value),
    /// Whether the argument equals the value.
    Equals(Value),
    /// The function of a field.
    OfField(Arc<str>, Arc<Function>),
    /// Whether the index has the argument with a shape that meets this one; of a multi index, the argument once for each such shape.
    Meets {
        /// The function of the index.
        index: Arc<Function>,
        /// Whether the index takes several shapes from a document.
        multi: bool,
        /// A geometry.
        shape: Compared,
    },
    /// The term once more, with the argument in the place of its first argument: what a term does that works on objects
    /// and, when given a sequence, on the objects in it.
    Again {
        /// The term.
        node: Arc<Node>,
        /// The values of the variables outside of it.
        scope: Scope,
    },
    /// What the function that a program of JavaScript gives makes of the arguments.
    Script(ScriptSource),
}

impl Function {
    /// A function of the query, with the values of the variables outside of it.
    pub fn new(template: Arc<Template>, scope: Scope) -> Self {
        Self { frame: template.body.frame, body: Body::Query { template, scope } }
    }

    /// Whether it gives the same result whenever it is called with the same arguments.
    pub fn is_deterministic(&self) -> bool {
        match &self.body {
            Body::Query { template, .. } => template.body.deterministic,
            Body::Again { node, .. } => node.deterministic,
            Body::OfField(_, function) => function.is_deterministic(),
            Body::Script(_) => false,
            _ => true,
        }
    }

    /// Whether the function gives the same where the documents are, and may be sent there: it asks for no other data, and writes
    /// none.
    pub fn is_portable(&self) -> bool {
        match &self.body {
            Body::Query { template, .. } => template.body.deterministic,
            // Rows stand in the place of the first argument.
            Body::Again { node, .. } => node.call().is_some_and(|call| {
                let rest = call.args.iter().skip(1).chain(call.optargs.iter().map(|(_, optarg)| optarg));
                call.signature.deterministic && !call.has_spread && rest.into_iter().all(|part| part.deterministic)
            }),
            Body::OfField(_, function) => function.is_portable(),
            // The node that was asked runs it, by its own settings and within what one query may use.
            Body::Script(_) => false,
            _ => true,
        }
    }

    /// Whether a term of this kind stands in the function. `now` is the same all through a query, so that updates may use
    /// it, but a function that outlives the query must not.
    pub fn mentions(&self, code: i32) -> bool {
        match &self.body {
            Body::Query { template, .. } => template.body.mentions(code),
            Body::Again { node, .. } => node.mentions(code),
            Body::OfField(_, function) => function.mentions(code),
            _ => false,
        }
    }

    /// How many arguments the function names, if it does: a function without parameters takes any number.
    pub fn parameters(&self) -> Option<usize> {
        match &self.body {
            Body::Query { template, .. } => Some(template.parameters.len()),
            _ => None,
        }
    }
}
