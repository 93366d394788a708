//! The pages of an answer to `r.http`, as a stream.

use std::collections::VecDeque;

use super::options::check_params;
use super::{Asked, Page, answer};
use crate::env::Env;
use crate::error::{Error, Result};
use crate::lazy::Lazy;
use crate::stream::Rows;
use crate::val::Val;
use crate::value::{self, Value, ValueExt as _};

/// The pages of an answer, each asked for when the rows before it are taken.
pub(super) struct HttpPages {
    pub(super) asked: Asked,
    pub(super) page: Page,
    /// Pages that may still be asked for; less than none stands for any number.
    pub(super) left: i64,
    pub(super) is_done: bool,
    pub(super) ready: VecDeque<Value>,
}

impl Rows for HttpPages {
    fn next(&mut self, env: &Env, limit: usize) -> Result<Vec<Lazy>> {
        while self.ready.is_empty() && !self.is_done {
            self.read_page(env)?;
        }
        let count = limit.min(self.ready.len());
        Ok(self.ready.drain(..count).map(Lazy::Value).collect())
    }
}

impl HttpPages {
    fn read_page(&mut self, env: &Env) -> Result<()> {
        let answer = self.asked.perform(env)?;
        let (header, body) = answer::read(env, &self.asked, answer)?;
        self.is_done = !self.turn(env, &header, &body)?;
        match &body {
            Value::Array(items) => self.ready.extend(items.iter().cloned()),
            _ => self.ready.push_back(body),
        }
        Ok(())
    }

    /// Finds the next page. Returns whether there is one.
    fn turn(&mut self, env: &Env, header: &Value, body: &Value) -> Result<bool> {
        if self.left > 0 {
            self.left -= 1;
        }
        if self.left == 0 {
            return Ok(false);
        }
        let function = match &self.page {
            Page::Link => {
                let links = header.get_field("link").unwrap_or(Value::Null);
                let next = links.get_field("rel=\"next\"").unwrap_or(Value::Null);
                return self.go_to(&next);
            }
            Page::Function(function) => function.clone(),
        };
        let given =
            value::object([("body", body.clone()), ("header", header.clone()), ("params", self.asked.params.clone())])?;
        let next = function.call(env, std::slice::from_ref(&given), false).and_then(Val::into_datum);
        next.and_then(|next| self.follow(&next)).map_err(|error| {
            let (method, url) = (self.asked.request.method, &self.asked.url);
            let shown = given.print().unwrap_or_default();
            let message = format!(
                "Error in HTTP {method} of `{url}`: {}.\nError occurred during `page` called with:\n{shown}\n",
                error.message()
            );
            error.with_message(message)
        })
    }

    /// Goes where a function says.
    fn follow(&mut self, next: &Value) -> Result<bool> {
        if !next.is_object() {
            return match next {
                Value::Null | Value::String(_) => self.go_to(next),
                other => {
                    Err(Error::logic(format!("Expected `page` to return an OBJECT, but found {}.", other.type_name())))
                }
            };
        }
        let (url, params) = (next.get_field("url"), next.get_field("params"));
        if url.is_none() && params.is_none() {
            return Err(Error::logic("OBJECT returned by `page` must contain `url` and/or `params` fields."));
        }
        if let Some(params) = params {
            check_params(&params)?;
            self.asked.params = self.asked.params.merge(&params)?;
        }
        url.map_or(Ok(true), |url| self.go_to(&url))
    }

    fn go_to(&mut self, url: &Value) -> Result<bool> {
        match url {
            Value::Null => Ok(false),
            Value::String(url) => {
                self.asked.leave_for(url);
                Ok(true)
            }
            other => Err(Error::logic(format!(
                "Expected `url` in OBJECT returned by `page` to be a STRING or NULL, but found {}.",
                other.type_name()
            ))),
        }
    }
}
