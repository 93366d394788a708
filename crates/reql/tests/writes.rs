//! Writes of many documents: what is answered if they fail half-way, and how much is listed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on is to fail")]

mod tables;

use std::sync::Arc;

use serde_json::{Value, json};
use tables::{Tables, t};
use tessera_reql::{ErrorKind, Pacer, Source};

/// Drops the table `t` while a query runs, once it has so many documents.
struct Drops {
    source: Arc<dyn Source>,
    documents: u64,
}

impl Pacer for Drops {
    fn goes_on(&self) -> bool {
        let database = self.source.database("test").unwrap().unwrap();
        if let Some(table) = self.source.table(&database, "t").unwrap()
            && self.source.document_counts(&table).unwrap().iter().sum::<u64>() >= self.documents
        {
            self.source.drop_table(&database, "t").unwrap();
        }
        true
    }
}

fn documents(count: u32) -> Value {
    json!([38, [[173, [count]], [69, [[2, [1]], {"id": [10, [1]]}]]]])
}

#[test]
fn a_write_that_fails_when_it_has_written_is_not_said_to_be_undone() {
    let each = json!([68, [documents(1000), [69, [[2, [2]], [56, [t(), [10, [2]]]]]]]]);
    let array = json!([2, [[56, [t(), documents(1000)]], [56, [[15, ["u"]], {}]], [56, [t(), documents(1000)]]]]);
    for (term, reads) in [(json!([56, [t(), documents(1000)]]), false), (each, false), (array, true)] {
        for documents in [0, 1] {
            let tables = Tables::new(&["t", "u"]);
            let pacer = Drops { source: tables.0.clone(), documents };
            let failed = tables.ask_while(Arc::new(pacer), &term, &json!({})).unwrap_err();
            let expected = if documents == 0 && !reads { ErrorKind::OpFailed } else { ErrorKind::OpIndeterminate };
            if documents == 1 {
                assert_eq!(failed.kind, expected, "{term} {documents}: {}", failed.message);
                assert!(failed.message.contains("the query has written some documents"), "{}", failed.message);
            } else {
                assert_eq!(failed.kind, ErrorKind::OpFailed, "{term}: {}", failed.message);
            }
        }
    }
}
