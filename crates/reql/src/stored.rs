//! Functions as bytes: those of indexes outlive their query and are evaluated by any node, and those of a scan go to where the
//! documents are.
//!
//! | bytes | |
//! |---|---|
//! | 1 | form of the bytes: 1 without places, 2 with them |
//! | 4 | with places: the function's place in its query |
//! | 1 | kind; 0: the field whose name follows as a value; 1: a function of a query |
//! | | of a query: the variables from outside, innermost first, each a byte 1, its number (`i64`), whether `r.row` means it (`u8`) and its value; a byte 0; then the term |
//!
//! A term is its code (`i32`), with places its own (`u32`), a byte 1 and a value if it is a literal or a byte 0, its arguments after their
//! number (`u32`), and its options after their number, each a text and a term. A text or value follows its length in bytes (`u32`); a
//! value is an encoded document. Numbers are little-endian. The kinds 2 to 6 exist with places only, and are written to no file; their
//! fields are those that [`Function::put`] writes.

use std::sync::Arc;

use bytes::Bytes;
use tessera_document::{Document, EncodedValue};

use crate::compared::Compared;
use crate::error::{Error, ErrorKind, FrameId, Result};
use crate::function::{Body, Function, Scope};
use crate::node::{Node, NodeKind};
use crate::plan;
use crate::term::{Datum, MAX_TERM_DEPTH, Term, code};
use crate::value::Value;

const WITHOUT_PLACES: u8 = 1;
const WITH_PLACES: u8 = 2;

const FIELD: u8 = 0;
const QUERY: u8 = 1;
const CONSTANT: u8 = 2;
const PLUCK: u8 = 3;
const EQUALS: u8 = 4;
const OF_FIELD: u8 = 5;
const AGAIN: u8 = 6;
const MEETS: u8 = 7;

impl Function {
    /// The function as bytes, which [`Function::from_bytes`] reads, for one that outlives its query.
    ///
    /// # Errors
    /// If the function is of a kind that only lives within its query.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        if !matches!(self.body, Body::GetField(_) | Body::Query { .. }) {
            return Err(Error::new(ErrorKind::Internal, "A function of this kind cannot be stored."));
        }
        let mut writer = Writer { out: vec![WITHOUT_PLACES], has_places: false };
        self.put(&mut writer)?;
        Ok(writer.out)
    }

    /// Reads what [`Function::to_bytes`] has written.
    ///
    /// # Errors
    /// If the bytes are no function.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader { rest: bytes, has_places: false, whole: None };
        let function = reader.function(0)?;
        if reader.rest.is_empty() { Ok(function) } else { Err(unreadable()) }
    }

    /// The term that the function was made from, if it is one of a query.
    pub(crate) fn term(&self) -> Option<Term> {
        match &self.body {
            Body::Query { template, .. } => {
                Some(Term::function(template.frame, &template.parameters, term_of(&template.body)))
            }
            _ => None,
        }
    }

    fn put(&self, writer: &mut Writer) -> Result<()> {
        writer.put_place(self.frame);
        match &self.body {
            Body::GetField(name) => writer.put_kind(FIELD, name),
            Body::Constant(value) => writer.put_kind(CONSTANT, value),
            Body::Pluck(paths) => writer.put_kind(PLUCK, paths),
            Body::Equals(value) => writer.put_kind(EQUALS, value),
            Body::OfField(name, function) => {
                writer.out.push(OF_FIELD);
                writer.put_text(name);
                function.put(writer)?;
            }
            Body::Meets { index, multi, shape } => {
                writer.put_kind(MEETS, &shape.geojson);
                writer.out.push(u8::from(*multi));
                index.put(writer)?;
            }
            Body::Query { template, scope } => {
                writer.out.push(QUERY);
                writer.put_scope(scope)?;
                writer.put_term(&Term::function(template.frame, &template.parameters, term_of(&template.body)));
            }
            Body::Again { node, scope } => {
                writer.out.push(AGAIN);
                writer.put_scope(scope)?;
                let mut term = term_of(node);
                // Rows stand in its place, and it may be a table.
                if let Some(first) = term.args.first_mut() {
                    *first = Term::datum(first.frame, Value::Null);
                }
                writer.put_term(&term);
            }
            Body::Script(_) => {
                return Err(Error::new(ErrorKind::Internal, "JavaScript stays where it was asked for."));
            }
        }
        Ok(())
    }
}

fn unreadable() -> Error {
    Error::logic("The bytes are no stored function.")
}

/// The term that a node was made from, or one that means the same.
fn term_of(node: &Node) -> Term {
    let frame = node.frame;
    match &node.kind {
        NodeKind::Datum(value) => Term::datum(frame, value.clone()),
        NodeKind::Variable(id) => Term::variable(frame, *id),
        NodeKind::ImplicitVariable => Term::call(frame, code::IMPLICIT_VAR, Vec::new()),
        NodeKind::Function(template) => Term::function(frame, &template.parameters, term_of(&template.body)),
        NodeKind::Call(call) => {
            let args = call.args.iter().map(|arg| term_of(arg)).collect();
            let optargs = call.optargs.iter().map(|(name, optarg)| (name.clone(), term_of(optarg))).collect();
            Term { optargs, ..Term::call(frame, node.code, args) }
        }
    }
}

/// Writes what [`Reader`] reads.
pub(crate) struct Writer {
    pub(crate) out: Vec<u8>,
    /// Whether places in the query are written down, for the errors of functions that come back to it.
    has_places: bool,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { out: Vec::new(), has_places: true }
    }

    pub(crate) fn put_length(&mut self, length: usize) {
        let length = u32::try_from(length).expect("a query, a value and a page are shorter than 4 GiB");
        self.out.extend_from_slice(&length.to_le_bytes());
    }

    pub(crate) fn put_bytes(&mut self, bytes: &[u8]) {
        self.put_length(bytes.len());
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn put_text(&mut self, text: &str) {
        self.put_bytes(text.as_bytes());
    }

    pub(crate) fn put_value(&mut self, value: &Value) {
        self.put_bytes(Document::encode(value).bytes());
    }

    pub(crate) fn put_place(&mut self, place: FrameId) {
        if self.has_places {
            self.out.extend_from_slice(&place.0.to_le_bytes());
        }
    }

    pub(crate) fn put_function(&mut self, function: &Function) -> Result<()> {
        self.out.push(WITH_PLACES);
        function.put(self)
    }

    fn put_kind(&mut self, kind: u8, value: &Value) {
        self.out.push(kind);
        self.put_value(value);
    }

    fn put_scope(&mut self, scope: &Scope) -> Result<()> {
        for (id, value, implicit) in scope.bindings()? {
            self.out.push(1);
            self.out.extend_from_slice(&id.to_le_bytes());
            self.out.push(u8::from(implicit));
            self.put_value(&value);
        }
        self.out.push(0);
        Ok(())
    }

    fn put_term(&mut self, term: &Term) {
        self.out.extend_from_slice(&term.code.to_le_bytes());
        self.put_place(term.frame);
        match &term.datum {
            Some(Datum::Value(value)) => {
                self.out.push(1);
                self.put_value(value);
            }
            // The literals of a plan are values.
            Some(Datum::Json(_)) | None => self.out.push(0),
        }
        self.put_length(term.args.len());
        term.args.iter().for_each(|arg| self.put_term(arg));
        self.put_length(term.optargs.len());
        for (name, optarg) in &term.optargs {
            self.put_text(name);
            self.put_term(optarg);
        }
    }
}

/// Reads what [`Writer`] has written.
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
    has_places: bool,
    /// What the bytes are part of, to share them.
    whole: Option<&'a Bytes>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, has_places: true, whole: None }
    }

    pub(crate) fn sharing(bytes: &'a Bytes) -> Self {
        Self { whole: Some(bytes), ..Self::new(bytes) }
    }

    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(unreadable)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn length(&mut self) -> Result<usize> {
        usize::try_from(u32::from_le_bytes(self.take()?)).map_err(|_| unreadable())
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(unreadable)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Bytes that are kept. They share those that are read, if that is allowed.
    pub(crate) fn kept_bytes(&mut self) -> Result<Bytes> {
        let bytes = self.bytes()?;
        Ok(self.whole.map_or_else(|| Bytes::copy_from_slice(bytes), |whole| whole.slice_ref(bytes)))
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| unreadable())
    }

    pub(crate) fn value(&mut self) -> Result<Value> {
        let bytes = self.bytes()?;
        EncodedValue::check(bytes).and_then(EncodedValue::to_value).map_err(|_| unreadable())
    }

    pub(crate) fn place(&mut self) -> Result<FrameId> {
        if self.has_places { self.take().map(|bytes| FrameId(u32::from_le_bytes(bytes))) } else { Ok(FrameId::ROOT) }
    }

    pub(crate) fn function(&mut self, depth: usize) -> Result<Function> {
        if self.byte()? != if self.has_places { WITH_PLACES } else { WITHOUT_PLACES } || depth > MAX_TERM_DEPTH {
            return Err(unreadable());
        }
        self.inner_function(depth)
    }

    fn inner_function(&mut self, depth: usize) -> Result<Function> {
        let frame = self.place()?;
        let body = match self.byte()? {
            FIELD => Body::GetField(self.value()?),
            QUERY => {
                let (node, scope) = self.node()?;
                let NodeKind::Function(template) = &node.kind else { return Err(unreadable()) };
                Body::Query { template: template.clone(), scope }
            }
            CONSTANT if self.has_places => Body::Constant(self.value()?),
            PLUCK if self.has_places => Body::Pluck(self.value()?),
            EQUALS if self.has_places => Body::Equals(self.value()?),
            OF_FIELD if self.has_places && depth < MAX_TERM_DEPTH => {
                Body::OfField(Arc::from(self.text()?), Arc::new(self.inner_function(depth + 1)?))
            }
            MEETS if self.has_places && depth < MAX_TERM_DEPTH => {
                let (shape, multi) = (Compared::new(self.value()?), self.byte()? != 0);
                Body::Meets { index: Arc::new(self.inner_function(depth + 1)?), multi, shape }
            }
            AGAIN if self.has_places => {
                let (node, scope) = self.node()?;
                Body::Again { node, scope }
            }
            _ => return Err(unreadable()),
        };
        Ok(Function { frame, body })
    }

    fn node(&mut self) -> Result<(Arc<Node>, Scope)> {
        let mut bindings = Vec::new();
        while self.byte()? == 1 {
            let id = i64::from_le_bytes(self.take()?);
            let implicit = self.byte()? != 0;
            bindings.push((id, self.value()?, implicit));
        }
        let scope = Scope::of(bindings);
        let term = self.term(0)?;
        Ok((plan::compile_within(&term, &scope)?, scope))
    }

    fn term(&mut self, depth: usize) -> Result<Term> {
        if depth > MAX_TERM_DEPTH {
            return Err(unreadable());
        }
        let (code, frame) = (i32::from_le_bytes(self.take()?), self.place()?);
        let datum = (self.byte()? != 0).then(|| self.value()).transpose()?.map(Datum::Value);
        let mut term = Term { datum, ..Term::call(frame, code, Vec::new()) };
        for _ in 0..self.length()? {
            term.args.push(self.term(depth + 1)?);
        }
        for _ in 0..self.length()? {
            let name = Arc::from(self.text()?);
            term.optargs.push((name, self.term(depth + 1)?));
        }
        Ok(term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::{Env, Stop};
    use crate::error::Frames;
    use crate::json;
    use crate::terms;
    use crate::val::Shortcut;

    fn env() -> Env {
        Env::for_functions(Arc::new(Stop::default()), Value::Null)
    }

    fn value(text: &str) -> Value {
        crate::value::from_json(&json::parse(text, 100).unwrap()).unwrap()
    }

    /// The function that a query gives, which may be one within the function of another.
    fn function(query: &str) -> Arc<Function> {
        let mut frames = Frames::default();
        let term = crate::term::read(&json::parse(query, 100).unwrap(), &mut frames, terms::exists).unwrap();
        let node = plan::compile(&term).unwrap();
        env().evaluate(&node, &Scope::default(), false).unwrap().into_function(Shortcut::None).unwrap()
    }

    #[test]
    fn stored_functions_do_what_they_did() {
        let document = value(r#"{"id": 1, "a": 5, "tags": ["x", "y"], "b": {"c": "deep"}}"#);
        let queries = [
            // r.row["a"] + 1
            r#"[69, [[2, [1]], [24, [[170, [[10, [1]], "a"]], 1]]]]"#,
            // lambda row: [row["b"]["c"], {"k": row["a"]}]
            r#"[69, [[2, [7]], [2, [[170, [[170, [[10, [7]], "b"]], "c"]], {"k": [170, [[10, [7]], "a"]]}]]]]"#,
            // a function within it, with r.row: row["tags"].map(r.row + "!")
            r#"[69, [[2, [3]], [38, [[170, [[10, [3]], "tags"]], [69, [[2, [4]], [24, [[10, [4]], "!"]]]]]]]]"#,
            // with an option: row["tags"].slice(0, 1, right_bound: "closed")
            r#"[69, [[2, [3]], [30, [[170, [[10, [3]], "tags"]], 0, 1], {"right_bound": "closed"}]]]"#,
            // a term that is rewritten: row.has_fields("a") and row.with_fields on an array
            r#"[69, [[2, [3]], [96, [[2, [[10, [3]]]], "a"]]]]"#,
        ];
        for query in queries {
            let before = function(query);
            let bytes = before.to_bytes().unwrap();
            let after = Function::from_bytes(&bytes).unwrap();
            let wanted = before.value_of(&env(), &document).unwrap();
            assert_eq!(after.value_of(&env(), &document).unwrap(), wanted, "{query}");
            assert_eq!(after.to_bytes().unwrap(), bytes, "{query}");
            assert!(after.is_deterministic());
            for length in 0..bytes.len() {
                assert!(Function::from_bytes(&bytes[..length]).is_err(), "cut at {length}");
            }
        }
    }

    #[test]
    fn a_stored_function_keeps_the_variables_from_outside() {
        let bound = Scope::of(vec![(9, Value::from("inner"), true), (8, value("[1, 2]"), false)]);
        // [outer 8, outer 9, the argument]
        let term = json::parse(r#"[69, [[2, [1]], [2, [[10, [8]], [10, [9]], [10, [1]]]]]]"#, 100).unwrap();
        let term = crate::term::read(&term, &mut Frames::default(), terms::exists).unwrap();
        let node = plan::compile_within(&term, &bound).unwrap();
        let NodeKind::Function(template) = &node.kind else { panic!("it is a function") };
        let before = Function::new(template.clone(), bound);
        let after = Function::from_bytes(&before.to_bytes().unwrap()).unwrap();
        let wanted = value(r#"[[1, 2], "inner", "row"]"#);
        assert_eq!(after.value_of(&env(), &Value::from("row")).unwrap(), wanted);
    }

    #[test]
    fn what_is_nested_too_deep_is_no_function() {
        let mut bytes = vec![WITHOUT_PLACES, QUERY, 0];
        for _ in 0..100_000 {
            bytes.extend_from_slice(&code::NOT.to_le_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&1u32.to_le_bytes());
        }
        assert!(Function::from_bytes(&bytes).is_err());
    }

    #[test]
    fn a_stored_function_may_come_with_any_number_of_variables() {
        let query = function("[69, [[2, [1]], [10, [1]]]]").to_bytes().unwrap();
        let (head, term) = (&query[..2], &query[3..]);
        let mut null = Writer::new();
        null.put_value(&Value::Null);
        let variable = [&[1; 9][..], &[0], &null.out].concat();
        let bytes = [head, &variable.repeat(1_000_000), &[0], term].concat();
        let function = Function::from_bytes(&bytes).unwrap();
        assert_eq!(function.to_bytes().unwrap(), bytes);
    }
}
