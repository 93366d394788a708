//! Queries for one document by its primary key, which most queries of many services are: they are seen by their form, and need
//! neither a plan nor an evaluation.

use crate::json::Json;
use crate::query::Query;
use crate::system;
use crate::value::{self, Value};

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
}

/// The arguments of a term without options.
fn arguments(json: &Json, code: f64) -> Option<&[Json]> {
    match json {
        Json::Array(items) => match &items[..] {
            [Json::Number(own), Json::Array(args)] if *own == code => Some(args),
            _ => None,
        },
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
        let mut default = "test";
        for (name, option) in self.options() {
            if &**name != "db" {
                return None;
            }
            default = database(option)?;
        }
        let [table, key] = arguments(self.term(), GET)? else { return None };
        let (database, table) = match arguments(table, TABLE)? {
            [Json::String(table)] => (default, table),
            [of, Json::String(table)] => (database(of)?, table),
            _ => return None,
        };
        if database == system::DATABASE || !matches!(key, Json::String(_) | Json::Number(_) | Json::Bool(_)) {
            return None;
        }
        Some(Point { database, table, key: value::from_json(key).ok()? })
    }
}

#[cfg(test)]
mod tests {
    use crate::query::Request;

    fn seen(text: &str) -> Option<String> {
        let Ok(Request::Start(query)) = Request::read(text) else { panic!("{text} is a query") };
        query.point().map(|point| format!("{}.{} {}", point.database, point.table, point.key.to_json().unwrap()))
    }

    #[test]
    fn only_plain_reads_of_one_document_are_points() {
        assert_eq!(seen(r#"[1,[16,[[15,["t"]],"a"]],{}]"#).as_deref(), Some(r#"test.t "a""#));
        assert_eq!(seen(r#"[1,[16,[[15,["t"]],1]],{"db":[14,["d"]]}]"#).as_deref(), Some("d.t 1"));
        assert_eq!(seen(r#"[1,[16,[[15,[[14,["d"]],"t"]],true]]]"#).as_deref(), Some("d.t true"));
        for other in [
            r#"[1,[16,[[15,["t"]],null]]]"#,
            r#"[1,[16,[[15,["t"]],[2,["a"]]]]]"#,
            r#"[1,[16,[[15,["t"],{"read_mode":"outdated"}],1]]]"#,
            r#"[1,[16,[[15,["t"]],1]],{"read_mode":"outdated"}]"#,
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
