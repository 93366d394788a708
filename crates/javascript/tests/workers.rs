//! Workers as processes: what they may do, and what becomes of those that do not answer.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

use std::sync::Arc;
use std::time::{Duration, Instant};
use tessera_document::{Document, Value};
use tessera_javascript::{Launch, Workers, serve};
use tessera_reql::{Script, ScriptEngine as _, ScriptFailure, ScriptSource, Scripted};

const PATIENCE: Duration = Duration::from_secs(60);

fn workers(most: usize) -> Workers {
    Workers::new(Launch::itself(&["worker", "--exact", "--ignored"]), most)
}

#[test]
#[ignore = "is no test: the tests start it as a worker"]
fn worker() {
    serve();
}

fn source(text: &str) -> ScriptSource {
    ScriptSource { text: text.into(), timeout: PATIENCE }
}

fn shortly(text: &str) -> ScriptSource {
    ScriptSource { timeout: Duration::from_millis(300), ..source(text) }
}

fn evaluate(script: &mut dyn Script, source: &ScriptSource) -> Result<Value, ScriptFailure> {
    match script.evaluate(source, &|| true)? {
        Scripted::Value(value) => Ok(value),
        Scripted::Function => panic!("{source:?} gives a function"),
    }
}

fn call(script: &mut dyn Script, source: &ScriptSource, args: &[Value]) -> Result<Value, ScriptFailure> {
    let args: Vec<_> = args.iter().map(Document::encode).collect();
    script.call(source, &args, &|| true)
}

fn json(text: &str) -> Value {
    Value::from_json(text).unwrap()
}

#[test]
fn programs_give_values_and_functions() {
    let workers = workers(1);
    let mut script = workers.begin();
    assert_eq!(evaluate(&mut *script, &source("1 + 1")), Ok(Value::from(2)));
    let add = source("(a, b) => a + b");
    assert!(matches!(script.evaluate(&add, &|| true), Ok(Scripted::Function)));
    assert_eq!(call(&mut *script, &add, &[Value::from(1), Value::from(2)]), Ok(Value::from(3)));
    // Also one that was not evaluated here before.
    assert_eq!(call(&mut *script, &source("x => -x"), &[Value::from(1)]), Ok(Value::from(-1)));
    let failed = |text: &str| Err(ScriptFailure::Failed(text.into()));
    assert_eq!(evaluate(&mut *script, &source("throw new Error('boom')")), failed("Error: boom"));
    assert_eq!(
        call(&mut *script, &source("() => () => 1"), &[]),
        failed("Returning functions from within `r.js` is unsupported.")
    );
    assert_eq!(workers.counts().workers, 1);
}

#[test]
fn values_go_and_come_back() {
    let workers = workers(1);
    let mut script = workers.begin();
    let same = source("x => x");
    for text in [
        "null",
        "true",
        "-0.5",
        "1e300",
        "9007199254740992",
        "\"h\u{e9}\\u0000\u{1f600}\"",
        "[]",
        "[1,[\"a\",null]]",
        "{}",
        "{\"a\":{\"b\":[]},\"__proto__\":1,\"constructor\":2,\"length\":3,\"\":4}",
        "{\"$reql_type$\":\"TIME\",\"epoch_time\":-5.125,\"timezone\":\"+00:00\"}",
        "{\"$reql_type$\":\"GEOMETRY\",\"type\":\"Point\",\"coordinates\":[1,2]}",
    ] {
        assert_eq!(call(&mut *script, &same, &[json(text)]), Ok(json(text)), "{text}");
    }
    // A time zone has no place in a date.
    let there = json("{\"$reql_type$\":\"TIME\",\"epoch_time\":5,\"timezone\":\"-07:00\"}");
    let back = call(&mut *script, &same, &[there]).unwrap();
    assert_eq!(back.to_json().unwrap(), "{\"$reql_type$\":\"TIME\",\"epoch_time\":5,\"timezone\":\"+00:00\"}");
    for (value, error) in [
        (Value::binary(vec![1]), "`r.binary` data cannot be used in `r.js`."),
        (Value::MinVal, "`r.minval` cannot be passed to `r.js`."),
        (Value::array(vec![Value::MaxVal]).unwrap(), "`r.maxval` cannot be passed to `r.js`."),
    ] {
        assert_eq!(call(&mut *script, &same, &[value]), Err(ScriptFailure::Failed(error.into())));
    }
    for (program, error) in [
        ("NaN", "Number return value is not finite."),
        ("[1, -Infinity]", "Number return value is not finite."),
        ("({a: undefined})", "Cannot convert javascript `undefined` to ql::datum_t."),
        ("[,1]", "Cannot convert javascript `undefined` to ql::datum_t."),
        ("({f() {}})", "Cannot convert function to ql::datum_t."),
        ("[/re/]", "Cannot convert RegExp to ql::datum_t."),
        ("Symbol('a')", "Unhandled value type when converting to ql::datum_t."),
        ("10n", "Unhandled value type when converting to ql::datum_t."),
        ("new Date('x')", "Non-finite number: nan"),
        ("'\\ud800'", "Cannot convert a string with a lone surrogate to ql::datum_t."),
        ("let a = []; a.push(a); a", "Recursion limit exceeded in js_to_json (circular reference?)."),
        ("let o = {}; o.o = o; o", "Recursion limit exceeded in js_to_json (circular reference?)."),
        ("({get a() { throw 'got' }})", "got"),
        ("throw Symbol('a')", "An exception that has no text."),
        ("throw {toString() { throw 1 }}", "An exception that has no text."),
        ("Object.create(Date.prototype)", "TypeError: not a Date object"),
        ("(function f() { f() })()", "RangeError: Maximum call stack size exceeded"),
        ("a\0b", "SyntaxError: expecting ';'"),
        ("foo.bar", "ReferenceError: 'foo' is not defined"),
        ("({$reql_type$: 'TIME'})", ""),
    ] {
        match evaluate(&mut *workers.begin(), &source(program)) {
            Err(ScriptFailure::Failed(text)) if error.is_empty() || text == error => {}
            other => panic!("{program:?}: {other:?}"),
        }
    }
    for (program, value) in [
        ("new Map()", "{}"),
        ("this", "{}"),
        ("var a = 1; this", "{\"a\":1}"),
        ("Object.create(null)", "{}"),
        ("var x = 5; x", "5"),
        ("new Proxy([1], {})", "{\"0\":1}"),
        ("with ({a: 1}) { a }", "1"),
        ("typeof require + typeof print + typeof std", "\"undefinedundefinedundefined\""),
        ("new Date(2020, 0, 1).getTime()", "1577836800000"),
    ] {
        assert_eq!(evaluate(&mut *workers.begin(), &source(program)), Ok(json(value)), "{program}");
    }
}

#[test]
fn what_does_not_end_is_killed() {
    let workers = workers(1);
    for program in [
        "while (true) {}",
        // None of these asks the engine whether it is to go on.
        "let s = 'a'.repeat(1 << 20); while (true) s.split('').sort(() => 0)",
        "/^(a+)+$/.test('a'.repeat(40) + 'b')",
        "new Array(4e9).indexOf(1)",
    ] {
        let began = Instant::now();
        assert_eq!(evaluate(&mut *workers.begin(), &shortly(program)), Err(ScriptFailure::Late), "{program}");
        assert!(began.elapsed() < PATIENCE / 2, "{program}");
        assert_eq!(workers.counts().workers, 0, "it was reaped");
    }
    assert_eq!(workers.counts().killed, 4);
    // A query that is stopped does not wait for its program.
    let began = Instant::now();
    let stopped =
        workers.begin().evaluate(&source("while (true) {}"), &|| began.elapsed() < Duration::from_millis(100));
    assert!(matches!(stopped, Err(ScriptFailure::Late)) && began.elapsed() < PATIENCE / 2);
    assert_eq!(evaluate(&mut *workers.begin(), &source("1")), Ok(Value::from(1)));
}

#[test]
fn memory_is_bounded() {
    let workers = workers(1);
    for program in [
        "let a = [1]; while (true) a = a.concat(a)",
        "'a'.repeat(1 << 29)",
        "let s = 'ab'; while (true) s += s",
        "let a = []; while (true) a.push(new ArrayBuffer(1 << 20))",
        "let m = new Map(); for (let i = 0; ; i++) m.set(i, 'x' + i)",
    ] {
        match evaluate(&mut *workers.begin(), &source(program)) {
            Err(ScriptFailure::Failed(_) | ScriptFailure::Crashed) => {}
            other => panic!("{program}: {other:?}"),
        }
        assert_eq!(evaluate(&mut *workers.begin(), &source("1")), Ok(Value::from(1)), "after {program}");
    }
    let long = evaluate(&mut *workers.begin(), &source("['a'.repeat(40 << 20), 'a'.repeat(40 << 20)]"));
    assert!(matches!(&long, Err(ScriptFailure::Failed(text)) if text.contains("MESSAGE_BYTES")), "{long:?}");
    let given = Value::from("a".repeat(65 << 20));
    let long = call(&mut *workers.begin(), &source("x => 1"), &[given]);
    assert!(matches!(&long, Err(ScriptFailure::Failed(text)) if text.contains("MESSAGE_BYTES")), "{long:?}");
}

#[test]
fn queries_see_nothing_of_each_other() {
    let workers = workers(1);
    let mut script = workers.begin();
    assert_eq!(evaluate(&mut *script, &source("var left = 1; left")), Ok(Value::from(1)));
    assert_eq!(evaluate(&mut *script, &source("left")), Ok(Value::from(1)), "programs of a query see each other");
    drop(script);
    let other = evaluate(&mut *workers.begin(), &source("typeof left"));
    assert_eq!((other, workers.counts().workers), (Ok(Value::from("undefined")), 1));
}

#[test]
fn many_queries_share_few_workers() {
    let workers = Arc::new(workers(2));
    let threads: Vec<_> = (0..40)
        .map(|number| {
            let workers = workers.clone();
            std::thread::spawn(move || {
                let (mut script, add) = (workers.begin(), source(&format!("x => x + {number}")));
                for value in 0..50 {
                    assert_eq!(call(&mut *script, &add, &[Value::from(value)]), Ok(Value::from(value + number)));
                }
                assert!(workers.counts().workers <= 2);
                script
            })
        })
        .collect();
    // Queries that have not ended, but ask for nothing, keep nobody from a worker.
    let open: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(evaluate(&mut *workers.begin(), &source("1")), Ok(Value::from(1)));
    drop(open);
    assert_eq!(workers.counts().killed, 0);
}

#[test]
fn who_waits_too_long_is_told() {
    let workers = Arc::new(workers(1));
    let busy = workers.clone();
    let thread = std::thread::spawn(move || {
        let long = ScriptSource { timeout: Duration::from_secs(2), ..source("while (true) {}") };
        evaluate(&mut *busy.begin(), &long)
    });
    let began = Instant::now();
    while workers.counts().calls == 0 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert_eq!(evaluate(&mut *workers.begin(), &shortly("1")), Err(ScriptFailure::Busy));
    // Whoever waits longer has a turn.
    assert_eq!(evaluate(&mut *workers.begin(), &source("1")), Ok(Value::from(1)));
    assert_eq!(thread.join().unwrap(), Err(ScriptFailure::Late));
}
