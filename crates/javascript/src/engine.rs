//! The engine: programs, and the functions that they give.

use crate::convert::{Builtins, Fault};
use crate::message::Reply;
use rquickjs::context::EvalOptions;
use rquickjs::function::Args;
use rquickjs::{Coerced, Context, Ctx, Error, FromJs as _, Function, Persistent, Runtime, Value as Js};
use tessera_document::EncodedValue;

/// What programs may keep in memory.
pub const HEAP_BYTES: usize = 128 << 20;
/// What calls within calls may take; the engine's thread has more.
const STACK_BYTES: usize = 1 << 20;

/// What stands around a name that the engine does not know; RethinkDB's engine puts the name into quotes.
const UNKNOWN_NAME: (&str, &str) = ("ReferenceError: ", " is not defined");
/// As an object, `this` of a program has what the program itself has defined there, and nothing of the engine.
const HIDE_GLOBALS: &str =
    "for (const name of Object.keys(globalThis)) Object.defineProperty(globalThis, name, {enumerable: false});";

/// Programs of one query: what one of them defines globally is there for the next one.
pub struct Engine {
    // These go before the context that they belong to.
    functions: Vec<Persistent<Function<'static>>>,
    builtins: Builtins,
    context: Context,
}

impl Engine {
    pub fn new() -> rquickjs::Result<Self> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(HEAP_BYTES);
        runtime.set_max_stack_size(STACK_BYTES);
        let context = Context::full(&runtime)?;
        let builtins = context.with(|ctx| {
            ctx.eval::<(), _>(HIDE_GLOBALS)?;
            Builtins::of(&ctx)
        })?;
        Ok(Self { functions: Vec::new(), builtins, context })
    }

    /// Runs a program.
    pub fn evaluate(&mut self, source: &str) -> Reply {
        let (functions, builtins) = (&mut self.functions, &self.builtins);
        self.context.with(|ctx| {
            if source.contains('\0') {
                // The library takes no such text, which is a program only if the zero stands in a literal.
                return Reply::Failed("SyntaxError: expecting ';'".into());
            }
            let mut options = EvalOptions::default();
            options.strict = false;
            let value: Js<'_> = match ctx.eval_with_options(source, options) {
                Ok(value) => value,
                Err(error) => return Reply::Failed(describe(&ctx, &error)),
            };
            match value.as_function() {
                Some(function) => {
                    functions.push(Persistent::save(&ctx, function.clone()));
                    Reply::Function(functions.len() as u32 - 1)
                }
                None => reply(&ctx, builtins, &value),
            }
        })
    }

    /// Calls a function that a program has given.
    pub fn call(&self, function: u32, args: &[&[u8]]) -> Reply {
        let Some(function) = self.functions.get(function as usize) else {
            return Reply::Failed("There is no such function.".into());
        };
        self.context.with(|ctx| match call(&ctx, &self.builtins, function, args) {
            Ok(value) if value.is_function() => {
                Reply::Failed("Returning functions from within `r.js` is unsupported.".into())
            }
            Ok(value) => reply(&ctx, &self.builtins, &value),
            Err(fault) => failed(&ctx, fault),
        })
    }
}

fn call<'js>(
    ctx: &Ctx<'js>,
    builtins: &Builtins,
    function: &Persistent<Function<'static>>,
    args: &[&[u8]],
) -> Result<Js<'js>, Fault> {
    let mut given = Args::new(ctx.clone(), args.len());
    for arg in args {
        given.push_arg(builtins.to_js(ctx, EncodedValue::trusted(arg))?)?;
    }
    Ok(function.clone().restore(ctx)?.call_arg(given)?)
}

fn reply(ctx: &Ctx<'_>, builtins: &Builtins, value: &Js<'_>) -> Reply {
    builtins.to_value(value).map_or_else(|fault| failed(ctx, fault), Reply::Value)
}

fn failed(ctx: &Ctx<'_>, fault: Fault) -> Reply {
    Reply::Failed(match fault {
        Fault::Text(text) => text,
        Fault::Thrown(error) => describe(ctx, &error),
    })
}

/// What was thrown, as text.
fn describe(ctx: &Ctx<'_>, error: &Error) -> String {
    if !error.is_exception() {
        return error.to_string();
    }
    let thrown = Coerced::<String>::from_js(ctx, ctx.catch());
    match thrown {
        Ok(Coerced(text)) => match text.strip_prefix(UNKNOWN_NAME.0).and_then(|rest| rest.strip_suffix(UNKNOWN_NAME.1))
        {
            Some(name) => format!("{}'{name}'{}", UNKNOWN_NAME.0, UNKNOWN_NAME.1),
            None => text,
        },
        Err(_) => {
            // That it has no text is thrown as well.
            ctx.catch();
            "An exception that has no text.".into()
        }
    }
}
