//! A kind of term: what is known of it, and the function that evaluates it.

use crate::call::Call;
use crate::env::Env;
use crate::error::Result;
use crate::node::{Arity, Grouping, Signature};
use crate::val::Val;

/// Evaluates a term, whose arguments it evaluates when it wants them.
pub type Evaluate = fn(&mut Call<'_>, &Env) -> Result<Val>;

/// What is known of a kind of term.
#[derive(Debug, Clone, Copy)]
pub struct Definition {
    pub code: i32,
    pub signature: Signature,
    pub evaluate: Evaluate,
}

impl Definition {
    pub const fn new(code: i32, min: usize, max: usize, evaluate: Evaluate) -> Self {
        let signature = Signature {
            arity: Arity { min, max: Some(max) },
            optargs: &[],
            grouping: Grouping::Each,
            deterministic: true,
            literals: false,
        };
        Self { code, signature, evaluate }
    }

    /// A term that takes any number of arguments from `min` on.
    pub const fn variadic(code: i32, min: usize, evaluate: Evaluate) -> Self {
        let mut definition = Self::new(code, min, 0, evaluate);
        definition.signature.arity.max = None;
        definition
    }

    #[must_use]
    pub const fn optargs(mut self, optargs: &'static [&'static str]) -> Self {
        self.signature.optargs = optargs;
        self
    }

    #[must_use]
    pub const fn grouping(mut self, grouping: Grouping) -> Self {
        self.signature.grouping = grouping;
        self
    }

    #[must_use]
    pub const fn nondeterministic(mut self) -> Self {
        self.signature.deterministic = false;
        self
    }

    #[must_use]
    pub const fn literals(mut self) -> Self {
        self.signature.literals = true;
        self
    }
}
