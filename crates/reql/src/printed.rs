//! Queries as people read them: about as JavaScript would have them, and as RethinkDB shows the queries that run.

use std::borrow::Cow;
use std::sync::Arc;

use crate::function::Function;
use crate::json::Json;
use crate::term::{Datum, Term, code};
use crate::value::{Value, ValueExt as _};

/// Deeper parts are not shown.
const MAX_DEPTH: usize = 64;

/// Fields whose values are not shown: they are secrets where RethinkDB gives them a meaning.
const SECRET: &[&str] = &["password", "pass", "auth", "header"];

/// Terms that are not written behind their first argument.
const FREE: &[i32] = &[17, 18, 66, 67, code::BRANCH, 154];

/// What terms are called in JavaScript, by their numbers.
#[rustfmt::skip]
const NAMES: &[(i32, &str)] = &[
    (11, "js"), (12, "error"), (13, "row"), (14, "db"), (15, "table"), (16, "get"), (17, "eq"), (18, "ne"), (19, "lt"),
    (20, "le"), (21, "gt"), (22, "ge"), (23, "not"), (24, "add"), (25, "sub"), (26, "mul"), (27, "div"), (28, "mod"),
    (29, "append"), (30, "slice"), (31, "getField"), (32, "hasFields"), (33, "pluck"), (34, "without"), (35, "merge"),
    (36, "between"), (37, "reduce"), (38, "map"), (39, "filter"), (40, "concatMap"), (41, "orderBy"), (42, "distinct"),
    (43, "count"), (44, "union"), (45, "nth"), (48, "innerJoin"), (49, "outerJoin"), (50, "eqJoin"), (51, "coerceTo"),
    (52, "typeOf"), (53, "update"), (54, "delete"), (55, "replace"), (56, "insert"), (57, "dbCreate"), (58, "dbDrop"),
    (59, "dbList"), (60, "tableCreate"), (61, "tableDrop"), (62, "tableList"), (64, "do"), (65, "branch"), (66, "or"),
    (67, "and"), (68, "forEach"), (70, "skip"), (71, "limit"), (72, "zip"), (73, "asc"), (74, "desc"),
    (75, "indexCreate"), (76, "indexDrop"), (77, "indexList"), (78, "getAll"), (79, "info"), (80, "prepend"),
    (81, "sample"), (82, "insertAt"), (83, "deleteAt"), (84, "changeAt"), (85, "spliceAt"), (86, "isEmpty"),
    (87, "offsetsOf"), (88, "setInsert"), (89, "setIntersection"), (90, "setUnion"), (91, "setDifference"),
    (92, "default"), (93, "contains"), (94, "keys"), (95, "difference"), (96, "withFields"), (97, "match"),
    (98, "json"), (99, "ISO8601"), (100, "toISO8601"), (101, "epochTime"), (102, "toEpochTime"), (103, "now"),
    (104, "inTimezone"), (105, "during"), (106, "date"), (107, "monday"), (108, "tuesday"), (109, "wednesday"),
    (110, "thursday"), (111, "friday"), (112, "saturday"), (113, "sunday"), (114, "january"), (115, "february"),
    (116, "march"), (117, "april"), (118, "may"), (119, "june"), (120, "july"), (121, "august"), (122, "september"),
    (123, "october"), (124, "november"), (125, "december"), (126, "timeOfDay"), (127, "timezone"), (128, "year"),
    (129, "month"), (130, "day"), (131, "dayOfWeek"), (132, "dayOfYear"), (133, "hours"), (134, "minutes"),
    (135, "seconds"), (136, "time"), (137, "literal"), (138, "sync"), (139, "indexStatus"), (140, "indexWait"),
    (141, "upcase"), (142, "downcase"), (143, "object"), (144, "group"), (145, "sum"), (146, "avg"), (147, "min"),
    (148, "max"), (149, "split"), (150, "ungroup"), (151, "random"), (152, "changes"), (153, "http"), (154, "args"),
    (155, "binary"), (156, "indexRename"), (157, "geojson"), (158, "toGeojson"), (159, "point"), (160, "line"),
    (161, "polygon"), (162, "distance"), (163, "intersects"), (164, "includes"), (165, "circle"),
    (166, "getIntersecting"), (167, "fill"), (168, "getNearest"), (169, "uuid"), (171, "polygonSub"),
    (172, "toJsonString"), (173, "range"), (174, "config"), (175, "status"), (176, "reconfigure"), (177, "wait"),
    (179, "rebalance"), (180, "minval"), (181, "maxval"), (182, "between"), (183, "floor"), (184, "ceil"),
    (185, "round"), (186, "values"), (187, "fold"), (188, "grant"), (189, "setWriteHook"), (190, "getWriteHook"),
    (191, "bitAnd"), (192, "bitOr"), (193, "bitXor"), (194, "bitNot"), (195, "bitSal"), (196, "bitSar"),
    (197, "format"),
];

/// A field of an object, or an option of a term.
type Field = (Arc<str>, Json);

/// The text has become as long as it may.
struct Full;

type Printed = Result<(), Full>;

struct Printer {
    out: String,
    limit: usize,
    depth: usize,
}

fn name_in_javascript(number: i32) -> Option<&'static str> {
    NAMES.binary_search_by_key(&number, |(own, _)| *own).ok().map(|at| NAMES[at].1)
}

/// What a term is called where it is not JavaScript: `get_field`.
pub(crate) fn name(number: i32) -> String {
    let Some(name) = name_in_javascript(number) else {
        return match number {
            code::MAKE_ARRAY => "make_array".into(),
            code::MAKE_OBJ => "make_obj".into(),
            code::BRACKET => "bracket".into(),
            _ => format!("term_{number}"),
        };
    };
    let (mut snake, mut is_inside) = (String::new(), false);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && is_inside {
            snake.push('_');
        }
        is_inside = letter.is_ascii_lowercase();
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// The text of a term with its options, which is cut when it has more bytes than `limit`.
pub(crate) fn print(term: &Json, options: &[Field], limit: usize) -> String {
    let mut printer = Printer { out: String::new(), limit, depth: 0 };
    let printed = printer.chained(term).and_then(|()| match options.is_empty() {
        true => Ok(()),
        false => {
            printer.push(".run(")?;
            printer.object(options)?;
            printer.push(")")
        }
    });
    if printed.is_err() {
        printer.out.push_str("...");
    }
    printer.out
}

/// The text of a function, cut in the same way.
pub(crate) fn print_function(function: &Function, limit: usize) -> String {
    let mut printer = Printer { out: String::new(), limit, depth: 0 };
    if function.term().is_none_or(|term| printer.any(&json_of(&term)).is_err()) {
        printer.out.push_str("...");
    }
    printer.out
}

/// A term as it would stand in a query.
fn json_of(term: &Term) -> Json {
    match &term.datum {
        Some(Datum::Json(json)) => return json.clone(),
        Some(Datum::Value(value)) => return json_of_value(value),
        None => {}
    }
    let arguments = term.args.iter().map(json_of).collect();
    let options = term.optargs.iter().map(|(name, option)| (name.clone(), json_of(option))).collect();
    Json::Array(vec![Json::Number(f64::from(term.code)), Json::Array(arguments), Json::Object(options)])
}

fn json_of_value(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::Bool(*value),
        Value::Number(number) => Json::Number(number.get()),
        Value::String(text) => Json::String(text.clone()),
        Value::Array(items) => {
            let items = items.iter().map(json_of_value).collect();
            Json::Array(vec![Json::Number(f64::from(code::MAKE_ARRAY)), Json::Array(items)])
        }
        Value::Object(object) => {
            Json::Object(object.into_iter().map(|(name, value)| (name.clone(), json_of_value(value))).collect())
        }
        other => Json::String(other.print().unwrap_or_default().into()),
    }
}

/// The number and the arguments of a term.
fn parts(json: &Json) -> Option<(i32, &[Json], &[Field])> {
    let Json::Array(items) = json else { return None };
    let Some(Json::Number(number)) = items.first() else { return None };
    let arguments = match items.get(1) {
        Some(Json::Array(arguments)) => &arguments[..],
        _ => &[],
    };
    let options = match items.last() {
        Some(Json::Object(options)) => &options[..],
        _ => &[],
    };
    Some((*number as i32, arguments, options))
}

fn is_value(json: &Json) -> bool {
    parts(json).is_none_or(|(number, ..)| [code::MAKE_ARRAY, code::MAKE_OBJ, code::DATUM, code::FUNC].contains(&number))
}

/// Whether a term is written without brackets: `r.row`, `r.monday` to `r.december`, `r.minval` and `r.maxval`.
fn is_constant(number: i32) -> bool {
    matches!(number, code::IMPLICIT_VAR | 107..=125 | 180 | 181)
}

/// A text without the names and passwords that stand before the hosts of URLs, as in `http://ann:secret@example.org/`. Of a text that is cut
/// a host at its end may be such a name.
fn without_logins(text: &str, is_cut: bool) -> Cow<'_, str> {
    const HIDDEN: &str = "<hidden>";
    if !text.contains("://") {
        return text.into();
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find("://") {
        let (head, behind) = rest.split_at(at + 3);
        shown.push_str(head);
        let end = behind.find(|letter: char| matches!(letter, '/' | '?' | '#') || letter.is_whitespace());
        rest = match behind[..end.unwrap_or(behind.len())].rfind('@') {
            _ if end.is_none() && is_cut => HIDDEN,
            Some(login) => {
                shown.push_str(HIDDEN);
                &behind[login..]
            }
            None => behind,
        };
    }
    (shown + rest).into()
}

impl Printer {
    fn push(&mut self, text: &str) -> Printed {
        let left = self.limit.saturating_sub(self.out.len());
        if text.len() <= left {
            self.out.push_str(text);
            return Ok(());
        }
        self.out.push_str(&text[..text.floor_char_boundary(left)]);
        Err(Full)
    }

    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Self, &T) -> Printed) -> Printed {
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.push(", ")?;
            }
            each(self, item)?;
        }
        Ok(())
    }

    fn string(&mut self, text: &str) -> Printed {
        self.push("\"")?;
        // Of a long text no more is looked at than is shown.
        let left = self.limit.saturating_sub(self.out.len());
        let seen = &text[..text.ceil_char_boundary(left.saturating_add(1))];
        let is_cut = seen.len() < text.len();
        let seen = without_logins(seen, is_cut);
        let mut rest = &*seen;
        while let Some(at) = rest.find(|letter: char| matches!(letter, '"' | '\\') || letter < ' ') {
            self.push(&rest[..at])?;
            let letter = rest.as_bytes()[at];
            match letter {
                b'"' => self.push("\\\"")?,
                b'\\' => self.push("\\\\")?,
                b'\n' => self.push("\\n")?,
                other => self.push(&format!("\\u{other:04x}"))?,
            }
            rest = &rest[at + 1..];
        }
        self.push(rest)?;
        if is_cut {
            return Err(Full);
        }
        self.push("\"")
    }

    fn object(&mut self, fields: &[Field]) -> Printed {
        self.push("{")?;
        self.list(fields, |printer, (name, value)| {
            printer.string(name)?;
            printer.push(": ")?;
            if SECRET.contains(&&**name) { printer.push("\"<hidden>\"") } else { printer.any(value) }
        })?;
        self.push("}")
    }

    /// A part as what something is done to.
    fn chained(&mut self, json: &Json) -> Printed {
        if is_value(json) {
            self.push("r.expr(")?;
            self.any(json)?;
            return self.push(")");
        }
        self.any(json)
    }

    fn any(&mut self, json: &Json) -> Printed {
        if self.depth == MAX_DEPTH {
            return self.push("...");
        }
        self.depth += 1;
        let printed = match json {
            Json::Null => self.push("null"),
            Json::Bool(value) => self.push(if *value { "true" } else { "false" }),
            Json::Number(number) => self.push(&number.to_string()),
            Json::String(text) => self.string(text),
            Json::Object(fields) => self.object(fields),
            Json::Array(_) => self.term(json),
        };
        self.depth -= 1;
        printed
    }

    fn term(&mut self, json: &Json) -> Printed {
        let Some((number, arguments, options)) = parts(json) else { return self.push("...") };
        match (number, arguments) {
            (code::MAKE_ARRAY, items) => {
                self.push("[")?;
                self.list(items, Self::any)?;
                self.push("]")
            }
            (code::MAKE_OBJ, _) => self.object(options),
            (code::DATUM, [value]) => self.any(value),
            (code::VAR, [Json::Number(variable)]) => self.push(&format!("var{variable}")),
            (code::FUNC, [variables, body]) => {
                let variables = match parts(variables) {
                    Some((code::MAKE_ARRAY, variables, _)) => variables,
                    _ => &[],
                };
                self.push("function(")?;
                self.list(variables, |printer, variable| match variable {
                    Json::Number(variable) => printer.push(&format!("var{variable}")),
                    other => printer.any(other),
                })?;
                self.push(") { return ")?;
                self.chained(body)?;
                self.push("; }")
            }
            (code::BRACKET, [of, field]) => {
                self.chained(of)?;
                self.push("(")?;
                self.any(field)?;
                self.push(")")
            }
            (code::FUNCALL, [function, arguments @ ..]) => {
                self.push("r.do(")?;
                self.list(arguments, Self::any)?;
                self.push(if arguments.is_empty() { "" } else { ", " })?;
                self.any(function)?;
                self.push(")")
            }
            _ => self.named(number, arguments, options),
        }
    }

    fn named(&mut self, number: i32, arguments: &[Json], options: &[Field]) -> Printed {
        let rest = match arguments {
            [first, rest @ ..] if !is_value(first) && !FREE.contains(&number) => {
                self.any(first)?;
                rest
            }
            all => {
                self.push("r")?;
                all
            }
        };
        self.push(".")?;
        match name_in_javascript(number) {
            Some(name) => self.push(name)?,
            None => self.push(&format!("term_{number}"))?,
        }
        if is_constant(number) && arguments.is_empty() {
            return Ok(());
        }
        self.push("(")?;
        self.list(rest, Self::any)?;
        if !options.is_empty() {
            self.push(if rest.is_empty() { "" } else { ", " })?;
            self.object(options)?;
        }
        self.push(")")
    }
}

#[cfg(test)]
mod tests {
    use crate::query::Request;

    fn text(query: &str, limit: usize) -> String {
        match Request::read(query) {
            Ok(Request::Start(query)) => query.text(limit),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn terms_have_names_of_small_letters() {
        let names = [31, 16, 2, 3, 170, 100, 99, 180, -7].map(super::name);
        let expected =
            ["get_field", "get", "make_array", "make_obj", "bracket", "to_iso8601", "iso8601", "minval", "term_-7"];
        assert_eq!(names, expected);
    }

    #[test]
    fn queries_read_like_javascript() {
        for (query, printed) in [
            (r#"[1,[15,[[14,["rethinkdb"]],"jobs"]]]"#, r#"r.db("rethinkdb").table("jobs")"#),
            (
                r#"[1,[39,[[15,["t"]],[69,[[2,[1]],[21,[[170,[[10,[1]],"n"]],5]]]]],{"default":true}],{"db":[14,["d"]]}]"#,
                r#"r.table("t").filter(function(var1) { return var1("n").gt(5); }, {"default": true}).run({"db": r.db("d")})"#,
            ),
            (r#"[1,[38,[[2,[1,2]],[24,[[13,[]],1.5]]]]]"#, "r.map([1, 2], r.row.add(1.5))"),
            (
                r#"[1,[41,[[15,["t"]],[74,["a"]]],{"index":"a"}]]"#,
                r#"r.table("t").orderBy(r.desc("a"), {"index": "a"})"#,
            ),
            (r#"[1,[182,[[15,["t"]],[180,[]],"a\"\n\u0001b"]]]"#, r#"r.table("t").between(r.minval, "a\"\n\u0001b")"#),
            (r#"[1,[64,[[69,[[2,[1]],[10,[1]]]],7]]]"#, "r.do(7, function(var1) { return var1; })"),
            (r#"[1,[65,[true,1,[103,[]]]]]"#, "r.branch(true, 1, r.now())"),
            (r#"[1,{"a":[2,[null]]}]"#, r#"r.expr({"a": [null]})"#),
        ] {
            assert_eq!(text(query, 1000), printed);
        }
    }

    #[test]
    fn secrets_are_hidden_and_long_queries_cut() {
        let insert = r#"[1,[56,[[15,[[14,["rethinkdb"]],"users"]],{"id":"ann","password":"secret"}]]]"#;
        let printed = r#"r.db("rethinkdb").table("users").insert({"id": "ann", "password": "<hidden>"})"#;
        assert_eq!(text(insert, 1000), printed);
        for limit in 0..printed.len() {
            assert_eq!(text(insert, limit), format!("{}...", &printed[..limit]));
        }
        assert_eq!(text(r#"[1,"ééé"]"#, 11), "r.expr(\"é...");
        let url =
            r#"[1,[153,["http://ann:se@cret@example.org/a@b"],{"header":{"Authorization":"x"},"params":{"a":1}}]]"#;
        let printed = r#"r.http("http://<hidden>@example.org/a@b", {"header": "<hidden>", "params": {"a": 1}})"#;
        assert_eq!(text(url, 1000), printed);
        for limit in 0..printed.len() {
            let text = text(url, limit);
            assert!(text.ends_with("...") && !["ann", "se", "@c"].iter().any(|part| text.contains(part)), "{text}");
        }
        assert_eq!(text(r#"[1,"a://b c://d"]"#, 1000), r#"r.expr("a://b c://d")"#);
        let deep = format!("[1,{}1{}]", "[2,[".repeat(100), "]]".repeat(100));
        assert!(text(&deep, 1000).contains("[...]"));
    }
}
