//! What writes did, counted, and lists of it that are no longer than an array may be: what was written is answered, whatever it was.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::error::Result;
use crate::selection::Table;
use crate::size::{ELEMENT_BYTES, Size};
use crate::source::Written;
use crate::value::{self, ObjectBuilder, Value, ValueExt as _};

/// The most that the lists of an answer take, in bytes of their encoding.
const MAX_LISTED_BYTES: usize = 256 << 20;

/// The field of an answer that says which of its lists are not whole.
const WARNINGS: &str = "warnings";

/// Which changes an answer lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    None,
    Made,
    Always,
}

/// The lists of an answer: what is more than an array may hold, or than answers are to have, is left out.
#[derive(Debug)]
struct Lists {
    array_limit: usize,
    bytes: usize,
}

impl Lists {
    fn new(array_limit: usize) -> Self {
        Self { array_limit, bytes: 0 }
    }

    /// Says whether there was room.
    fn push(&mut self, list: &mut Vec<Value>, item: Value) -> bool {
        let bytes = self.bytes + item.encoded_len() + ELEMENT_BYTES;
        if list.len() >= self.array_limit || bytes > MAX_LISTED_BYTES {
            return false;
        }
        self.bytes = bytes;
        list.push(item);
        true
    }
}

fn too_many_changes(listed: usize) -> String {
    format!("Too many changes, array truncated to {listed}.")
}

fn warnings(texts: BTreeSet<String>) -> Result<Value> {
    Ok(Value::array(texts.into_iter().map(Value::from).collect())?)
}

/// What a write did, counted.
#[derive(Debug)]
pub struct Counts {
    deleted: usize,
    errors: usize,
    inserted: usize,
    replaced: usize,
    skipped: usize,
    unchanged: usize,
    first_error: Option<String>,
    lists: Lists,
    changes: Vec<Value>,
    has_more_changes: bool,
    /// Whether anything was written or refused; an answer about nothing lists no changes.
    has_rows: bool,
    generated_keys: Vec<Value>,
    /// Generated keys that are not listed.
    more_keys: usize,
}

impl Counts {
    /// Nothing yet, with lists of so many elements at most.
    pub fn new(array_limit: usize) -> Self {
        Self {
            deleted: 0,
            errors: 0,
            inserted: 0,
            replaced: 0,
            skipped: 0,
            unchanged: 0,
            first_error: None,
            lists: Lists::new(array_limit),
            changes: Vec::new(),
            has_more_changes: false,
            has_rows: false,
            generated_keys: Vec::new(),
            more_keys: 0,
        }
    }

    pub fn take(&mut self, written: Written, wanted: Changes) -> Result<()> {
        self.has_rows = true;
        let Written { old, new, error } = written;
        if let Some(error) = error {
            self.errors += 1;
            let message = error.message().to_string();
            if wanted == Changes::Always {
                let error = Value::from(message.clone());
                self.list(&[("old_val", &old), ("new_val", &old), ("error", &error)])?;
            }
            self.first_error.get_or_insert(message);
            return Ok(());
        }
        let is_unchanged = old == new && old.to_json().ok() == new.to_json().ok();
        match (old.is_null(), new.is_null()) {
            (true, true) => self.skipped += 1,
            (true, false) => self.inserted += 1,
            (false, true) => self.deleted += 1,
            (false, false) if is_unchanged => self.unchanged += 1,
            (false, false) => self.replaced += 1,
        }
        if wanted == Changes::Always || (wanted == Changes::Made && !is_unchanged) {
            self.list(&[("old_val", &old), ("new_val", &new)])?;
        }
        Ok(())
    }

    fn list(&mut self, change: &[(&str, &Value)]) -> Result<()> {
        if !self.has_more_changes {
            let change = Value::object(change.iter().map(|(name, value)| (*name, (*value).clone())))?;
            self.has_more_changes = !self.lists.push(&mut self.changes, change);
        }
        Ok(())
    }

    /// Notes a key that was made for a document.
    pub fn generated(&mut self, key: Value) {
        self.more_keys += usize::from(!self.lists.push(&mut self.generated_keys, key));
    }

    /// Notes under which key a row of a system table is that was given a generated one: what is made there has its own.
    pub fn note_key(&mut self, table: &Table, generated: &Value, row: &Value) {
        let key = row.get_field(table.primary_key());
        let place = self.generated_keys.iter_mut().find(|own| *own == generated);
        if let (Some(key), Some(place)) = (key, place) {
            *place = key;
        }
    }

    pub fn finish(self, wanted: Changes) -> Result<Value> {
        let mut builder = ObjectBuilder::default();
        for (name, count) in [
            ("deleted", self.deleted),
            ("errors", self.errors),
            ("inserted", self.inserted),
            ("replaced", self.replaced),
            ("skipped", self.skipped),
            ("unchanged", self.unchanged),
        ] {
            builder.insert(name, value::integer(count));
        }
        if let Some(message) = self.first_error {
            builder.insert("first_error", Value::from(message));
        }
        let mut cut = BTreeSet::new();
        if self.has_more_changes {
            cut.insert(too_many_changes(self.changes.len()));
        }
        if self.more_keys > 0 {
            let listed = self.generated_keys.len();
            let total = listed + self.more_keys;
            cut.insert(format!("Too many generated keys ({total}), array truncated to {listed}."));
        }
        if wanted != Changes::None && self.has_rows {
            builder.insert("changes", Value::array(self.changes)?);
        }
        if !self.generated_keys.is_empty() {
            builder.insert("generated_keys", Value::array(self.generated_keys)?);
        }
        if !cut.is_empty() {
            builder.insert(WARNINGS, warnings(cut)?);
        }
        Ok(builder.finish()?)
    }
}

/// A field of answers that are added up.
enum Sum {
    List(Vec<Value>),
    /// A number, or a value of which the first one stays.
    Value(Value),
}

/// The answers of several writes, added up: numbers are added, lists joined, the first error is kept.
pub struct Total {
    fields: BTreeMap<Arc<str>, Sum>,
    lists: Lists,
    warnings: BTreeSet<String>,
    /// What the names of the fields take, and values that are no lists.
    size: Size,
}

impl Total {
    /// Nothing yet, with lists of so many elements at most.
    pub fn new(array_limit: usize) -> Self {
        Self {
            fields: BTreeMap::new(),
            lists: Lists::new(array_limit),
            warnings: BTreeSet::new(),
            size: Size::default(),
        }
    }

    /// # Errors
    /// If the answer is no object, or the sum is none that a query may have.
    pub fn add(&mut self, answer: &Value) -> Result<()> {
        for (name, value) in &answer.to_fields()? {
            if let (WARNINGS, Value::Array(texts)) = (&**name, value) {
                self.warnings.extend(texts.iter().filter_map(|text| text.as_str().map(String::from)));
                continue;
            }
            if let (None, Value::Array(_)) = (self.fields.get(name), value) {
                self.size.add(name.len())?;
                self.fields.insert(name.clone(), Sum::List(Vec::new()));
            }
            match (self.fields.get_mut(name), value) {
                (Some(Sum::List(list)), Value::Array(items)) => {
                    if !items.iter().all(|item| self.lists.push(list, item.clone())) {
                        self.warnings.insert(too_many_changes(list.len()));
                    }
                }
                (Some(Sum::Value(Value::Number(left))), Value::Number(right)) => {
                    let sum = value::number(left.get() + right.get())?;
                    self.fields.insert(name.clone(), Sum::Value(sum));
                }
                (Some(_), _) => {}
                (None, value) => {
                    self.size.add(name.len() + value.encoded_len())?;
                    self.fields.insert(name.clone(), Sum::Value(value.clone()));
                }
            }
        }
        Ok(())
    }

    pub fn finish(self) -> Result<Value> {
        let mut builder = ObjectBuilder::with_capacity(self.fields.len());
        for (name, sum) in self.fields {
            let value = match sum {
                Sum::List(items) => Value::array(items)?,
                Sum::Value(value) => value,
            };
            builder.insert(name, value);
        }
        if !self.warnings.is_empty() {
            builder.insert(WARNINGS, warnings(self.warnings)?);
        }
        Ok(builder.finish()?)
    }
}
