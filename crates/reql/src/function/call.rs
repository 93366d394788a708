//! Calling functions.

use tessera_document::Document;

use super::{Body, Bound, Function, Scope};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::geometry;
use crate::lazy::{self, Lazy};
use crate::node::{NodeKind, Template};
use crate::script::ScriptSource;
use crate::term::code;
use crate::val::Val;
use crate::value::{Value, ValueExt as _};

impl Function {
    /// Calls the function.
    ///
    /// # Errors
    /// What its body complains about, or that it takes another number of arguments.
    pub fn call(&self, env: &Env, args: &[Value], literals: bool) -> Result<Val> {
        match &self.body {
            Body::Query { template, scope } => {
                let args = args.iter().map(|value| Bound::Value(value.clone()));
                self.call_query(env, template, scope, args, literals)
            }
            Body::Script(source) => {
                let args: Vec<_> = args.iter().map(Document::encode).collect();
                self.call_script(env, source, &args)
            }
            _ => self.call_on(env, &Lazy::Value(args.first().cloned().unwrap_or(Value::Null)), literals),
        }
        .map_err(|error| error.at(self.frame))
    }

    /// Calls the function for a row.
    ///
    /// # Errors
    /// As [`Function::call`].
    pub fn call_row(&self, env: &Env, row: &Lazy) -> Result<Val> {
        match &self.body {
            Body::Query { template, scope } => {
                self.call_query(env, template, scope, std::iter::once(Bound::from(row)), false)
            }
            Body::Script(source) => self.call_script(env, source, &[row.to_document()]),
            _ => self.call_on(env, row, false),
        }
        .map_err(|error| error.at(self.frame))
    }

    fn call_query(
        &self,
        env: &Env,
        template: &Template,
        scope: &Scope,
        args: impl ExactSizeIterator<Item = Bound>,
        literals: bool,
    ) -> Result<Val> {
        let count = template.parameters.len();
        if count != 0 && count != args.len() {
            return Err(Error::logic(format!(
                "Expected function with {} but found function with {}.",
                counted(args.len()),
                counted(count)
            )));
        }
        let implicit = template.binds_implicit();
        let mut inner = scope.clone();
        for (id, value) in template.parameters.iter().zip(args) {
            inner = inner.with(*id, value, implicit);
        }
        env.evaluate(&template.body, &inner, literals)
    }

    fn call_script(&self, env: &Env, source: &ScriptSource, args: &[Document]) -> Result<Val> {
        Ok(Val::datum(self.frame, env.call_script(source, args)?))
    }

    /// Calls a function that is none of the query.
    fn call_on(&self, env: &Env, row: &Lazy, literals: bool) -> Result<Val> {
        match &self.body {
            Body::GetField(name) => {
                if let (Lazy::Document(document), Value::String(name)) = (row, name)
                    && let Some(found) = lazy::field(document, name)
                {
                    return Ok(Val::datum(self.frame, found?));
                }
                env.field_of(self.frame, row.to_value()?, name)
            }
            Body::OfField(name, function) => {
                let field = match row {
                    Lazy::Document(document) => document.get_field(name).map(Lazy::Document),
                    Lazy::Value(value) => value.get_field(name).map(Lazy::Value),
                };
                function.call_row(env, &field.unwrap_or(Lazy::Value(Value::Null)))
            }
            Body::Meets { index, multi, shape } => {
                let count = match index.indexed(env, row)? {
                    Some(value) => geometry::count_meeting(env, *multi, &value, shape)?,
                    None => 0,
                };
                Ok(Val::datum(
                    self.frame,
                    match multi {
                        true => Value::array(vec![row.to_value()?; count])?,
                        false => Value::Bool(count > 0),
                    },
                ))
            }
            Body::Again { node, scope } => env.evaluate_for(node, scope, row),
            Body::Constant(value) => Ok(Val::datum(self.frame, value.clone())),
            Body::Pluck(paths) => env.part_of(self.frame, &row.to_value()?, paths),
            Body::Equals(value) => {
                env.work(value.encoded_len().min(row.encoded_len()))?;
                Ok(Val::datum(self.frame, Value::Bool(row.to_value()? == *value)))
            }
            Body::Query { .. } | Body::Script(_) => self.call(env, &[row.to_value()?], literals),
        }
    }

    /// Calls the function for one value and takes a value from it.
    ///
    /// # Errors
    /// As [`Function::call`].
    pub fn value_of(&self, env: &Env, argument: &Value) -> Result<Value> {
        self.call(env, std::slice::from_ref(argument), false)?.into_datum().map_err(|error| error.at(self.frame))
    }

    /// As [`Function::value_of`], for a row.
    ///
    /// # Errors
    /// As [`Function::call`].
    pub fn value_of_row(&self, env: &Env, row: &Lazy) -> Result<Value> {
        self.call_row(env, row)?.into_datum().map_err(|error| error.at(self.frame))
    }

    /// What the function of an index gives for a row; `None` if it fails, so that the row is not in the index.
    ///
    /// # Errors
    /// If the query was stopped.
    pub fn indexed(&self, env: &Env, row: &Lazy) -> Result<Option<Value>> {
        match self.value_of_row(env, row) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == crate::ErrorKind::Interrupted => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Whether `filter` keeps a row. A row for which something is not there is kept if `default` says so.
    ///
    /// # Errors
    /// As [`Function::call`].
    pub fn accepts(&self, env: &Env, row: &Lazy, default: Option<&Function>) -> Result<bool> {
        let error = match self.predicate(env, row) {
            Err(error) if error.is_non_existence() => error,
            other => return other,
        };
        let Some(default) = default else { return Ok(false) };
        match default.call(env, &[], false).and_then(|value| value.as_bool()) {
            Err(inner) if inner.kind() == crate::ErrorKind::EmptyUser => Err(error),
            other => other,
        }
    }

    fn predicate(&self, env: &Env, row: &Lazy) -> Result<bool> {
        let result = self.call_row(env, row)?.into_datum()?;
        let is_pattern = match &self.body {
            Body::Constant(_) => true,
            Body::Query { template, .. } => {
                matches!(template.body.kind, NodeKind::Datum(_)) || template.body.code == code::MAKE_OBJ
            }
            _ => false,
        };
        if is_pattern && result.is_object() {
            // A row that is no object is the fault of `filter`, not of the pattern.
            let in_place = match row {
                Lazy::Document(document) => {
                    result.to_object().and_then(|pattern| lazy::part(document, pattern.keys().map(|name| &**name)))
                }
                Lazy::Value(_) => None,
            };
            let row = in_place.map_or_else(|| row.to_value(), Ok)?;
            return matches_pattern(&result, &row).map_err(|error| match &self.body {
                Body::Query { template, .. } => error.at(template.frame),
                _ => error,
            });
        }
        result.to_bool()
    }
}

fn counted(count: usize) -> String {
    format!("{count} argument{}", if count == 1 { "" } else { "s" })
}

/// Whether a row has the fields of a pattern; an object in a pattern is a pattern of its own.
fn matches_pattern(pattern: &Value, row: &Value) -> Result<bool> {
    if let Some(inner) = pattern.literal() {
        return Ok(inner.is_some_and(|inner| inner == *row));
    }
    let row = row.to_fields()?;
    for (name, wanted) in &pattern.to_fields()? {
        let Some(found) = row.get(name) else {
            return Err(Error::non_existence(format!("No attribute `{name}` in object.")));
        };
        // Times and geometry are objects, of which a pattern may have some fields.
        if matches!(wanted, Value::Object(_)) && found.is_object() {
            if !matches_pattern(wanted, found)? {
                return Ok(false);
            }
        } else if wanted != found {
            return Ok(false);
        }
    }
    Ok(true)
}
