//! Paths: which fields of an object, and of the objects in it, are meant by `pluck`, `without` and `has_fields`.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::value::{ObjectBuilder, Value, ValueExt as _};

#[derive(Debug)]
pub enum Path {
    Field(Arc<str>),
    All(Vec<Path>),
    Below(Vec<(Arc<str>, Path)>),
}

impl Path {
    /// # Errors
    /// If the value is neither a name, nor an array or object of paths.
    pub fn new(value: &Value) -> Result<Self> {
        let mut path = match value {
            Value::String(name) => Self::Field(name.clone()),
            Value::Array(items) => Self::All(items.iter().map(Self::new).collect::<Result<_>>()?),
            other if other.is_object() => {
                let (mut all, mut below) = (Vec::new(), Vec::new());
                for (name, inner) in &other.to_fields()? {
                    if matches!(inner, Value::Bool(true)) {
                        all.push(Self::Field(name.clone()));
                    } else {
                        below.push((name.clone(), Self::new(inner)?));
                    }
                }
                if all.is_empty() {
                    Self::Below(below)
                } else {
                    if !below.is_empty() {
                        all.push(Self::Below(below));
                    }
                    Self::All(all)
                }
            }
            other => {
                return Err(Error::logic(format!("Invalid path argument `{}`.", other.print_truncated()?)));
            }
        };
        if let Self::All(paths) = &mut path
            && paths.len() == 1
            && let Some(only) = paths.pop()
        {
            path = only;
        }
        Ok(path)
    }

    /// The fields of an object that the path looks at.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Field(name) => vec![name],
            Self::All(paths) => paths.iter().flat_map(Self::names).collect(),
            Self::Below(paths) => paths.iter().map(|(name, _)| &**name).collect(),
        }
    }

    /// The object with only the fields that the path names.
    ///
    /// # Errors
    /// If the value is no object.
    pub fn project(&self, value: &Value) -> Result<Value> {
        let mut builder = ObjectBuilder::default();
        self.project_into(value, &mut builder)?;
        Ok(builder.finish()?)
    }

    fn project_into(&self, value: &Value, out: &mut ObjectBuilder) -> Result<()> {
        match self {
            Self::Field(name) => {
                if let Some(found) = value.to_fields()?.get(name) {
                    out.insert(name.clone(), found.clone());
                }
            }
            Self::All(paths) => {
                for path in paths {
                    path.project_into(value, out)?;
                }
            }
            Self::Below(paths) => {
                for (name, path) in paths {
                    if let Some(found) = value.to_fields()?.get(name)
                        && let Ok(part) = path.project_below(found)
                    {
                        out.insert(name.clone(), part);
                    }
                }
            }
        }
        Ok(())
    }

    fn project_below(&self, value: &Value) -> Result<Value> {
        match value {
            Value::Array(items) => {
                let items = items.iter().map(|item| self.project(item)).collect::<Result<_>>()?;
                Ok(Value::array(items)?)
            }
            other => self.project(other),
        }
    }

    /// The object without the fields that the path names.
    ///
    /// # Errors
    /// If the value is no object.
    pub fn remove_from(&self, value: &Value) -> Result<Value> {
        let fields = value.to_fields()?.into_fields().into_iter();
        let mut fields: Vec<_> = fields.map(|(name, value)| (name, Some(value))).collect();
        self.remove_fields(&mut fields)?;
        let mut builder = ObjectBuilder::with_capacity(fields.len());
        for (name, value) in fields {
            if let Some(value) = value {
                builder.insert(name, value);
            }
        }
        Ok(builder.finish()?)
    }

    /// Takes values away from fields, which are in the order of their names.
    fn remove_fields(&self, fields: &mut [(Arc<str>, Option<Value>)]) -> Result<()> {
        let at = |fields: &[(Arc<str>, Option<Value>)], name| fields.binary_search_by(|(field, _)| field.cmp(name));
        match self {
            Self::Field(name) => {
                if let Ok(at) = at(fields, name) {
                    fields[at].1 = None;
                }
            }
            Self::All(paths) => {
                for path in paths {
                    path.remove_fields(fields)?;
                }
            }
            Self::Below(paths) => {
                for (name, path) in paths {
                    if let Ok(at) = at(fields, name)
                        && let Some(found) = &mut fields[at].1
                        && let Ok(part) = path.remove_below(found)
                    {
                        *found = part;
                    }
                }
            }
        }
        Ok(())
    }

    fn remove_below(&self, value: &Value) -> Result<Value> {
        match value {
            Value::Array(items) => {
                let items = items.iter().map(|item| self.remove_from(item)).collect::<Result<_>>()?;
                Ok(Value::array(items)?)
            }
            other => self.remove_from(other),
        }
    }

    /// Whether the object has all fields that the path names, and none of them is null.
    pub fn is_in(&self, value: &Value) -> bool {
        let field = |name: &str| value.get_field(name);
        match self {
            Self::Field(name) => field(name).is_some_and(|found| !found.is_null()),
            Self::All(paths) => paths.iter().all(|path| path.is_in(value)),
            Self::Below(paths) => paths.iter().all(|(name, path)| field(name).is_some_and(|found| path.is_in(&found))),
        }
    }
}
