//! Queries about one document by its primary key, which most queries of many services are: reads, and writes of plain values. They
//! are seen by their form, and need neither a plan nor an evaluation.

use crate::json::Json;
use crate::query::Query;
use crate::scan::ReadMode;
use crate::source::{Change, Conflict, Durability};
use crate::system;
use crate::value::{self, Value};
use std::collections::BTreeSet;
use std::sync::Arc;

const MAKE_ARRAY: f64 = 2.0;
const DB: f64 = 14.0;
const TABLE: f64 = 15.0;
const GET: f64 = 16.0;
const UPDATE: f64 = 53.0;
const DELETE: f64 = 54.0;
const REPLACE: f64 = 55.0;
const INSERT: f64 = 56.0;

/// A field of this name makes an object something else.
const PSEUDO_TYPE: &str = "$reql_type$";

/// The document of a table that has this key is asked for, and nothing more.
#[derive(Debug)]
pub struct Point<'a> {
    /// The name of the database.
    pub database: &'a str,
    /// The name of the table.
    pub table: &'a str,
    /// The primary key of the document.
    pub key: Value,
    /// Which replicas have to answer.
    pub reads: ReadMode,
}

/// One document of a table is written, with values that stand in the query, and the answer is to list no changes.
#[derive(Debug)]
pub struct PointWrite<'a> {
    /// The name of the database.
    pub database: &'a str,
    /// The name of the table.
    pub table: &'a str,
    /// The primary key of the document; `None` if it is the new document's.
    pub key: Option<Value>,
    /// What is made of the document.
    pub change: Change,
    /// What is promised for the write.
    pub durability: Durability,
}

/// The arguments and the options of a term.
type Parts<'a> = (&'a [Json], &'a [(Arc<str>, Json)]);

fn parts(json: &Json, code: f64) -> Option<Parts<'_>> {
    let Json::Array(items) = json else { return None };
    match &items[..] {
        [Json::Number(own), Json::Array(args)] if *own == code => Some((args, &[])),
        [Json::Number(own), Json::Array(args), Json::Object(options)] if *own == code => Some((args, options)),
        _ => None,
    }
}

/// The arguments of a term without options.
fn arguments(json: &Json, code: f64) -> Option<&[Json]> {
    parts(json, code).filter(|(_, options)| options.is_empty()).map(|(args, _)| args)
}

fn read_mode(json: &Json) -> Option<ReadMode> {
    let Json::String(mode) = json else { return None };
    match &**mode {
        "single" => Some(ReadMode::Single),
        "outdated" => Some(ReadMode::Outdated),
        "majority" => Some(ReadMode::Majority),
        _ => None,
    }
}

fn durability(json: &Json) -> Option<Durability> {
    let Json::String(durability) = json else { return None };
    match &**durability {
        "hard" => Some(Durability::Hard),
        "soft" => Some(Durability::Soft),
        _ => None,
    }
}

fn conflict(json: &Json) -> Option<Conflict> {
    let Json::String(conflict) = json else { return None };
    match &**conflict {
        "error" => Some(Conflict::Error),
        "replace" => Some(Conflict::Replace),
        "update" => Some(Conflict::Update),
        _ => None,
    }
}

fn database(json: &Json) -> Option<&str> {
    match arguments(json, DB)? {
        [Json::String(name)] => Some(name),
        _ => None,
    }
}

/// A table as a query names it.
struct Named<'a> {
    database: &'a str,
    table: &'a str,
    options: &'a [(Arc<str>, Json)],
}

fn table_of<'a>(json: &'a Json, default: &'a str) -> Option<Named<'a>> {
    let (table, options) = parts(json, TABLE)?;
    let (database, table) = match table {
        [Json::String(table)] => (default, table),
        [of, Json::String(table)] => (database(of)?, table),
        _ => return None,
    };
    (database != system::DATABASE).then_some(Named { database, table, options })
}

fn key_of(json: &Json) -> Option<Value> {
    matches!(json, Json::String(_) | Json::Number(_) | Json::Bool(_)).then(|| value::from_json(json).ok())?
}

/// A value that stands in the query as it is; what an evaluation could see in it otherwise, or refuse, is none.
fn plain(json: &Json) -> Option<Value> {
    match json {
        Json::Array(_) => {
            let items = arguments(json, MAKE_ARRAY)?.iter().map(plain).collect::<Option<_>>()?;
            Value::array(items).ok()
        }
        Json::Object(fields) => {
            let names: BTreeSet<&str> = fields.iter().map(|(name, _)| &**name).collect();
            if names.len() < fields.len() || names.contains(PSEUDO_TYPE) {
                return None;
            }
            let fields = fields.iter().map(|(name, value)| Some((name.clone(), plain(value)?)));
            Value::object(fields.collect::<Option<Vec<_>>>()?).ok()
        }
        scalar => value::from_json(scalar).ok(),
    }
}

/// An object that stands in the query as it is.
fn plain_object(json: &Json) -> Option<Value> {
    matches!(json, Json::Object(_)).then(|| plain(json))?
}

impl Query {
    /// What the query asks for, if it is one for a document by its key. Others, and those that do it in an unusual way, are evaluated.
    pub fn point(&self) -> Option<Point<'_>> {
        let (mut default, mut reads) = (None, None);
        for (name, option) in self.options() {
            match &**name {
                "db" if default.is_none() => default = Some(database(option)?),
                "read_mode" if reads.is_none() => reads = Some(read_mode(option)?),
                _ => return None,
            }
        }
        let [table, key] = arguments(self.term(), GET)? else { return None };
        let Named { database, table, options } = table_of(table, default.unwrap_or("test"))?;
        match options {
            [] => {}
            // What the table says comes before what the query says.
            [(name, mode)] if &**name == "read_mode" => reads = Some(read_mode(mode)?),
            _ => return None,
        }
        Some(Point { database, table, key: key_of(key)?, reads: reads.unwrap_or(ReadMode::Single) })
    }

    /// The names of the database and of the table that the query begins with, if it does with one.
    pub fn first_table(&self) -> Option<(&str, &str)> {
        let default = self.options().iter().find(|(name, _)| &**name == "db");
        let default = default.and_then(|(_, option)| database(option)).unwrap_or("test");
        let mut term = self.term();
        loop {
            if let Some(Named { database, table, .. }) = table_of(term, default) {
                return Some((database, table));
            }
            let Json::Array(items) = term else { return None };
            let [Json::Number(_), Json::Array(args), ..] = &items[..] else { return None };
            term = args.first()?;
        }
    }

    /// What the query writes, if it writes one document by its key, with plain values. Others, and those that do it in an unusual way,
    /// are evaluated.
    pub fn point_write(&self) -> Option<PointWrite<'_>> {
        let (mut default, mut promised) = (None, None);
        for (name, option) in self.options() {
            match &**name {
                "db" if default.is_none() => default = Some(database(option)?),
                "durability" if promised.is_none() => promised = Some(durability(option)?),
                _ => return None,
            }
        }
        let default = default.unwrap_or("test");
        let code = match self.term() {
            Json::Array(items) => match items.first() {
                Some(Json::Number(code)) => *code,
                _ => return None,
            },
            _ => return None,
        };
        let (args, options) = parts(self.term(), code)?;
        let (mut own, mut on_conflict) = (None, None);
        for (name, option) in options {
            match &**name {
                "durability" if own.is_none() => own = Some(durability(option)?),
                "conflict" if code == INSERT && on_conflict.is_none() => on_conflict = Some(conflict(option)?),
                _ => return None,
            }
        }
        let of_document = |of| -> Option<(&Json, Option<Value>)> {
            let [table, key] = arguments(of, GET)? else { return None };
            Some((table, Some(key_of(key)?)))
        };
        let ((table, key), change) = match (code, args) {
            (UPDATE, [of, document]) => (of_document(of)?, Change::Update { document: plain_object(document)? }),
            (REPLACE, [of, document]) => (of_document(of)?, Change::Set { document: plain_object(document)? }),
            (DELETE, [of]) => (of_document(of)?, Change::Set { document: Value::Null }),
            (INSERT, [table, document]) => {
                let (document, conflict) = (plain_object(document)?, on_conflict.unwrap_or(Conflict::Error));
                ((table, None), Change::Insert { document, conflict })
            }
            _ => return None,
        };
        let Named { database, table, options: [] } = table_of(table, default)? else { return None };
        // What the term says comes before what the query says.
        let durability = own.or(promised).unwrap_or(Durability::Default);
        Some(PointWrite { database, table, key, change, durability })
    }
}

#[cfg(test)]
mod tests {
    use crate::query::Request;

    fn seen(text: &str) -> Option<String> {
        let Ok(Request::Start(query)) = Request::read(text) else { panic!("{text} is a query") };
        let shown = |point: crate::Point<'_>| {
            let reads = point.reads;
            format!("{}.{} {} {reads:?}", point.database, point.table, point.key.to_json().unwrap())
        };
        query.point().map(shown)
    }

    #[test]
    fn only_plain_reads_of_one_document_are_points() {
        assert_eq!(seen(r#"[1,[16,[[15,["t"]],"a"]],{}]"#).as_deref(), Some(r#"test.t "a" Single"#));
        assert_eq!(seen(r#"[1,[16,[[15,["t"]],1]],{"db":[14,["d"]]}]"#).as_deref(), Some("d.t 1 Single"));
        assert_eq!(seen(r#"[1,[16,[[15,[[14,["d"]],"t"]],true]]]"#).as_deref(), Some("d.t true Single"));
        let outdated = r#"[1,[16,[[15,["t"],{"read_mode":"outdated"}],1]]]"#;
        assert_eq!(seen(outdated).as_deref(), Some("test.t 1 Outdated"));
        let outdated = r#"[1,[16,[[15,["t"]],1]],{"read_mode":"outdated","db":[14,["d"]]}]"#;
        assert_eq!(seen(outdated).as_deref(), Some("d.t 1 Outdated"));
        let table_decides = r#"[1,[16,[[15,["t"],{"read_mode":"single"}],1]],{"read_mode":"outdated"}]"#;
        assert_eq!(seen(table_decides).as_deref(), Some("test.t 1 Single"));
        let confirmed = r#"[1,[16,[[15,["t"]],1]],{"read_mode":"majority"}]"#;
        assert_eq!(seen(confirmed).as_deref(), Some("test.t 1 Majority"));
        for other in [
            r#"[1,[16,[[15,["t"]],null]]]"#,
            r#"[1,[16,[[15,["t"]],[2,["a"]]]]]"#,
            r#"[1,[16,[[15,["t"],{"read_mode":"older"}],1]]]"#,
            r#"[1,[16,[[15,["t"],{"read_mode":"outdated","use_outdated":true}],1]]]"#,
            r#"[1,[16,[[15,["t"]],1]],{"db":[14,["d"]],"db":[14,["e"]]}]"#,
            r#"[1,[16,[[15,["t"]],1]],{"profile":true}]"#,
            r#"[1,[16,[[15,["t"]],1],{"index":"x"}]]"#,
            r#"[1,[16,[[15,[[14,["rethinkdb"]],"users"]],1]]]"#,
            r#"[1,[16,[[15,["t"]],1,2]]]"#,
            r#"[1,[170,[[16,[[15,["t"]],1]],"a"]]]"#,
        ] {
            assert_eq!(seen(other), None, "{other}");
        }
    }

    #[test]
    fn a_query_begins_with_a_table_whatever_is_done_with_it() {
        let first = |text: &str| {
            let Ok(Request::Start(query)) = Request::read(text) else { panic!("{text} is a query") };
            query.first_table().map(|(database, table)| format!("{database}.{table}"))
        };
        assert_eq!(first(r#"[1,[15,["t"]]]"#).as_deref(), Some("test.t"));
        assert_eq!(first(r#"[1,[43,[[71,[[15,["t"]],10]]]],{"db":[14,["d"]]}]"#).as_deref(), Some("d.t"));
        assert_eq!(first(r#"[1,[16,[[15,[[14,["d"]],"t"],{"read_mode":"outdated"}],1]]]"#).as_deref(), Some("d.t"));
        for none in [r#"[1,[24,[1,2]]]"#, r#"[1,[15,[[14,["rethinkdb"]],"users"]]]"#, r#"[1,"text"]"#, r#"[1,[24,[]]]"#]
        {
            assert_eq!(first(none), None, "{none}");
        }
    }

    fn written(text: &str) -> Option<String> {
        let Ok(Request::Start(query)) = Request::read(text) else { panic!("{text} is a query") };
        let shown = |write: crate::PointWrite<'_>| {
            let key = write.key.map(|key| key.to_json().unwrap());
            let json = |value: &crate::value::Value| value.to_json().unwrap();
            let change = match &write.change {
                crate::Change::Insert { document, conflict } => format!("inserted, {conflict:?}: {}", json(document)),
                crate::Change::Update { document } => format!("updated: {}", json(document)),
                crate::Change::Set { document } => format!("set: {}", json(document)),
                crate::Change::Replace { .. } => panic!("no plain value has a function"),
            };
            let place = format!("{}.{} {}", write.database, write.table, key.unwrap_or_default());
            format!("{place} {:?} {change}", write.durability)
        };
        query.point_write().map(shown)
    }

    #[test]
    fn only_writes_of_one_document_with_plain_values_are_points() {
        let update = r#"[1,[53,[[16,[[15,["t"]],"a"]],{"n":1,"l":[2,[1,[2,[]],{"m":null}]]}]],{"durability":"soft"}]"#;
        let shown = r#"test.t "a" Soft updated: {"l":[1,[],{"m":null}],"n":1}"#;
        assert_eq!(written(update).as_deref(), Some(shown));
        let replace =
            r#"[1,[55,[[16,[[15,[[14,["d"]],"t"]],1]],{"id":1}],{"durability":"hard"}],{"durability":"soft"}]"#;
        assert_eq!(written(replace).as_deref(), Some(r#"d.t 1 Hard set: {"id":1}"#));
        assert_eq!(written(r#"[1,[54,[[16,[[15,["t"]],1]]]]]"#).as_deref(), Some("test.t 1 Default set: null"));
        let insert = r#"[1,[56,[[15,["t"]],{"id":1,"s":"x"}],{"conflict":"update"}]]"#;
        assert_eq!(written(insert).as_deref(), Some(r#"test.t  Default inserted, Update: {"id":1,"s":"x"}"#));
        for other in [
            // Several documents, and selections of any number of them.
            r#"[1,[56,[[15,["t"]],[2,[{"id":1},{"id":2}]]]]]"#,
            r#"[1,[53,[[15,["t"]],{"n":1}]]]"#,
            r#"[1,[54,[[78,[[15,["t"]],1]]]]]"#,
            // What must be evaluated: functions, terms in values, markers, fields that come twice.
            r#"[1,[53,[[16,[[15,["t"]],1]],[69,[[2,[1]],{"n":1}]]]]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":[24,[1,2]]}]]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":[2,[[103,[]]]]}]]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":{"$reql_type$":"LITERAL"}}]]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":1,"n":2}]]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],null]]]"#,
            // Options that change the answer, or that are none.
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":1}],{"return_changes":true}]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":1}],{"durability":"firm"}]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":1}],{"conflict":"update"}]]"#,
            r#"[1,[56,[[15,["t"]],{"id":1}],{"conflict":"never"}]]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":1}]],{"noreply":true}]"#,
            r#"[1,[53,[[16,[[15,["t"]],1]],{"n":1}]],{"read_mode":"outdated"}]"#,
            r#"[1,[53,[[16,[[15,["t"],{"read_mode":"outdated"}],1]],{"n":1}]]]"#,
            r#"[1,[53,[[16,[[15,[[14,["rethinkdb"]],"t"]],1]],{"n":1}]]]"#,
            r#"[1,[54,[[16,[[15,["t"]],null]]]]]"#,
        ] {
            assert_eq!(written(other), None, "{other}");
        }
    }
}
