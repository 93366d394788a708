//! Functions as bytes: those of indexes outlive their query, and are evaluated by any node.
//!
//! | bytes | |
//! |---|---|
//! | 1 | form of the bytes, 1 |
//! | 1 | 0: the field whose name follows as a value; 1: a function of a query |
//! | | of a query: the variables from outside, innermost first, each a byte 1, its number (`i64`), whether `r.row` means it (`u8`) and its value; a byte 0; then the term |
//!
//! A term is its code (`i32`), a byte 1 and a value if it is a literal or a byte 0, its arguments after their number (`u32`), and its options
//! after their number, each a text and a term. A text or value follows its length in bytes (`u32`); a value is an encoded document.
//! Numbers are little-endian.

use std::sync::Arc;

use tessera_document::{Document, EncodedValue};

use crate::error::{Error, ErrorKind, FrameId, Result};
use crate::function::{Body, Function, Scope};
use crate::plan::{self, Node, NodeKind};
use crate::term::{Datum, MAX_TERM_DEPTH, Term, code};
use crate::value::Value;

const FORM: u8 = 1;
const FIELD: u8 = 0;
const QUERY: u8 = 1;

impl Function {
    /// The function as bytes, which [`Function::from_bytes`] reads.
    ///
    /// # Errors
    /// If the function is of a kind that only lives within its query.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut out = vec![FORM];
        match &self.body {
            Body::GetField(name) => {
                out.push(FIELD);
                put_value(&mut out, name);
            }
            Body::Query { template, scope } => {
                out.push(QUERY);
                for (id, value, implicit) in scope.bindings() {
                    out.push(1);
                    out.extend_from_slice(&id.to_le_bytes());
                    out.push(u8::from(implicit));
                    put_value(&mut out, value);
                }
                out.push(0);
                let frame = FrameId::ROOT;
                put_term(&mut out, &Term::function(frame, &template.parameters, term_of(&template.body)));
            }
            _ => return Err(Error::new(ErrorKind::Internal, "A function of this kind cannot be stored.")),
        }
        Ok(out)
    }

    /// Reads what [`Function::to_bytes`] has written.
    ///
    /// # Errors
    /// If the bytes are no function.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader(bytes);
        let function = reader.function()?;
        if reader.0.is_empty() { Ok(function) } else { Err(unreadable()) }
    }
}

fn unreadable() -> Error {
    Error::logic("The bytes are no stored function.")
}

/// The term that a node was made from, or one that means the same.
fn term_of(node: &Node) -> Term {
    let frame = FrameId::ROOT;
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

fn put_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).expect("a query is shorter than 4 GiB").to_le_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    let document = Document::encode(value).into_bytes();
    put_length(out, document.len());
    out.extend_from_slice(&document);
}

fn put_term(out: &mut Vec<u8>, term: &Term) {
    out.extend_from_slice(&term.code.to_le_bytes());
    match &term.datum {
        Some(Datum::Value(value)) => {
            out.push(1);
            put_value(out, value);
        }
        // The literals of a plan are values.
        Some(Datum::Json(_)) | None => out.push(0),
    }
    put_length(out, term.args.len());
    term.args.iter().for_each(|arg| put_term(out, arg));
    put_length(out, term.optargs.len());
    for (name, optarg) in &term.optargs {
        put_length(out, name.len());
        out.extend_from_slice(name.as_bytes());
        put_term(out, optarg);
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or_else(unreadable)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn length(&mut self) -> Result<usize> {
        usize::try_from(u32::from_le_bytes(self.take()?)).map_err(|_| unreadable())
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = self.length()?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(unreadable)?;
        self.0 = rest;
        Ok(taken)
    }

    fn value(&mut self) -> Result<Value> {
        let bytes = self.bytes()?;
        EncodedValue::check(bytes).and_then(EncodedValue::to_value).map_err(|_| unreadable())
    }

    fn function(&mut self) -> Result<Function> {
        if self.byte()? != FORM {
            return Err(unreadable());
        }
        if self.byte()? == FIELD {
            return Ok(Function { frame: FrameId::ROOT, body: Body::GetField(self.value()?) });
        }
        let mut bindings = Vec::new();
        while self.byte()? == 1 {
            let id = i64::from_le_bytes(self.take()?);
            let implicit = self.byte()? != 0;
            bindings.push((id, self.value()?, implicit));
        }
        let scope = Scope::of(bindings);
        let term = self.term(0)?;
        let node = plan::compile_within(&term, &scope)?;
        match &node.kind {
            NodeKind::Function(template) => Ok(Function::new(template.clone(), scope)),
            _ => Err(unreadable()),
        }
    }

    fn term(&mut self, depth: usize) -> Result<Term> {
        if depth > MAX_TERM_DEPTH {
            return Err(unreadable());
        }
        let code = i32::from_le_bytes(self.take()?);
        let datum = (self.byte()? != 0).then(|| self.value()).transpose()?.map(Datum::Value);
        let mut term = Term { datum, ..Term::call(FrameId::ROOT, code, Vec::new()) };
        for _ in 0..self.length()? {
            term.args.push(self.term(depth + 1)?);
        }
        for _ in 0..self.length()? {
            let name = std::str::from_utf8(self.bytes()?).map_err(|_| unreadable())?;
            term.optargs.push((Arc::from(name), self.term(depth + 1)?));
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
    use crate::memory::MemorySource;
    use crate::val::Shortcut;

    fn env() -> Env {
        Env::new(Arc::new(MemorySource::new("server")), Arc::new(Stop::default()), Value::Null)
    }

    fn value(text: &str) -> Value {
        crate::value::from_json(&json::parse(text, 100).unwrap()).unwrap()
    }

    /// The function that a query gives, which may be one within the function of another.
    fn function(query: &str) -> Arc<Function> {
        let mut frames = Frames::default();
        let term = crate::term::read(&json::parse(query, 100).unwrap(), &mut frames).unwrap();
        let node = plan::compile(&term).unwrap();
        plan::evaluate(&node, &env(), &Scope::default(), false).unwrap().into_function(Shortcut::None).unwrap()
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
        let term = crate::term::read(&term, &mut Frames::default()).unwrap();
        let node = plan::compile_within(&term, &bound).unwrap();
        let NodeKind::Function(template) = &node.kind else { panic!("it is a function") };
        let before = Function::new(template.clone(), bound);
        let after = Function::from_bytes(&before.to_bytes().unwrap()).unwrap();
        let wanted = value(r#"[[1, 2], "inner", "row"]"#);
        assert_eq!(after.value_of(&env(), &Value::from("row")).unwrap(), wanted);
    }

    #[test]
    fn what_is_nested_too_deep_is_no_function() {
        let mut bytes = vec![FORM, QUERY, 0];
        for _ in 0..100_000 {
            bytes.extend_from_slice(&code::NOT.to_le_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&1u32.to_le_bytes());
        }
        assert!(Function::from_bytes(&bytes).is_err());
    }
}
