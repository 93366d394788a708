//! Tables in memory that tests ask.

use std::sync::Arc;

use serde_json::{Value, json};
use tessera_document::{Time, Timezone};
use tessera_reql::{Answer, Failure, MemorySource, Pacer, Request, Source, Stop};

pub struct Tables(pub Arc<dyn Source>);

impl Tables {
    /// Empty tables of these names.
    pub fn new(names: &[&str]) -> Self {
        let source = MemorySource::new("test");
        source.create_database("test").unwrap();
        let tables = Self(Arc::new(source));
        for name in names {
            tables.ask(&json!([60, [name]]), &json!({})).unwrap();
        }
        tables
    }

    pub fn ask(&self, term: &Value, options: &Value) -> Result<Value, Failure> {
        self.ask_while(Arc::new(Stop::default()), term, options)
    }

    pub fn ask_while(&self, pacer: Arc<dyn Pacer>, term: &Value, options: &Value) -> Result<Value, Failure> {
        let Request::Start(query) = Request::read(&json!([1, term, options]).to_string())? else { panic!("a query") };
        let prepared = query.prepare(Time::new(0.0, Timezone::UTC).unwrap().into())?;
        match prepared.run(self.0.clone(), pacer)? {
            Answer::Value(value) => Ok(serde_json::from_str(&value.to_json().unwrap()).unwrap()),
            Answer::Cursor(_) => panic!("a value"),
        }
    }
}

/// The table `t`.
pub fn t() -> Value {
    json!([15, ["t"]])
}
