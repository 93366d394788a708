//! Queries for one document by its primary key, which most queries of many services are: they are seen by their form, and need
//! neither a plan nor an evaluation.

use crate::json::Json;
use crate::query::Query;
use crate::scan::ReadMode;
use crate::system;
use crate::value::{self, Value};
use std::sync::Arc;

const DB: f64 = 14.0;
const TABLE: f64 = 15.0;
const GET: f64 = 16.0;

/// The document of a table that has this key is asked for, and nothing more.
#[derive(Debug)]
pub struct Point<'a> {
    /// The name of the database.
    pub database: &'a str,
    /// The name of the table.
    pub table: &'a str,
    /// The primary key of the document.
    pub key: Value,
    /// Which replica may answer: that of the leader, or any.
    pub reads: ReadMode,
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

/// The modes of reading that need no other node.
fn read_mode(json: &Json) -> Option<ReadMode> {
    match json {
        Json::String(mode) if &**mode == "single" => Some(ReadMode::Single),
        Json::String(mode) if &**mode == "outdated" => Some(ReadMode::Outdated),
        _ => None,
    }
}

fn database(json: &Json) -> Option<&str> {
    match arguments(json, DB)? {
        [Json::String(name)] => Some(name),
        _ => None,
    }
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
        let default = default.unwrap_or("test");
        let [table, key] = arguments(self.term(), GET)? else { return None };
        let (table, options) = parts(table, TABLE)?;
        match options {
            [] => {}
            // What the table says comes before what the query says.
            [(name, mode)] if &**name == "read_mode" => reads = Some(read_mode(mode)?),
            _ => return None,
        }
        let (database, table) = match table {
            [Json::String(table)] => (default, table),
            [of, Json::String(table)] => (database(of)?, table),
            _ => return None,
        };
        if database == system::DATABASE || !matches!(key, Json::String(_) | Json::Number(_) | Json::Bool(_)) {
            return None;
        }
        Some(Point { database, table, key: value::from_json(key).ok()?, reads: reads.unwrap_or(ReadMode::Single) })
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
        for other in [
            r#"[1,[16,[[15,["t"]],null]]]"#,
            r#"[1,[16,[[15,["t"]],[2,["a"]]]]]"#,
            r#"[1,[16,[[15,["t"],{"read_mode":"majority"}],1]]]"#,
            r#"[1,[16,[[15,["t"],{"read_mode":"older"}],1]]]"#,
            r#"[1,[16,[[15,["t"],{"read_mode":"outdated","use_outdated":true}],1]]]"#,
            r#"[1,[16,[[15,["t"]],1]],{"read_mode":"majority"}]"#,
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
}
