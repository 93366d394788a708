//! Values of ReQL in JavaScript, and back.
//!
//! | ReQL | JavaScript | and back |
//! |---|---|---|
//! | null, bool, number, string, array, object | the same | the same; numbers are finite, and no element or field is `undefined` |
//! | time | `Date`, without its time zone | a time in UTC |
//! | geometry | its object | an object with a `$reql_type$` is what it says |
//! | binary, `minval`, `maxval` | none | |
//! | | functions, regular expressions, symbols, `BigInt` | none |
//!
//! Errors have the words of RethinkDB where it has some.

use rquickjs::function::This;
use rquickjs::object::Property;
use rquickjs::{Array, Ctx, Error, Function, Object, Persistent, Type, Value as Js};
use tessera_document::{
    EncodedObject, EncodedValue, MAX_DEPTH, ObjectBuilder, Time, Timezone, Value, ValueError, View,
};

/// Why there is no such value.
pub enum Fault {
    /// It cannot be: the text.
    Text(String),
    /// The program threw an exception, or the engine has a reason of its own.
    Thrown(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Thrown(error)
    }
}

impl From<ValueError> for Fault {
    fn from(error: ValueError) -> Self {
        Self::Text(error.to_string())
    }
}

fn text<T>(text: impl Into<String>) -> Result<T, Fault> {
    Err(Fault::Text(text.into()))
}

/// What of the engine converting needs, as it was before a program could change it.
pub struct Builtins {
    date: Persistent<Function<'static>>,
    get_time: Persistent<Function<'static>>,
    regular_expression: Persistent<Function<'static>>,
}

impl Builtins {
    pub fn of(ctx: &Ctx<'_>) -> rquickjs::Result<Self> {
        let date: Function<'_> = ctx.globals().get("Date")?;
        let get_time: Function<'_> = date.get::<_, Object<'_>>("prototype")?.get("getTime")?;
        let regular_expression: Function<'_> = ctx.globals().get("RegExp")?;
        Ok(Self {
            date: Persistent::save(ctx, date),
            get_time: Persistent::save(ctx, get_time),
            regular_expression: Persistent::save(ctx, regular_expression),
        })
    }

    /// A value of ReQL in JavaScript.
    ///
    /// # Errors
    /// If it has none there.
    pub fn to_js<'js>(&self, ctx: &Ctx<'js>, value: EncodedValue<'_>) -> Result<Js<'js>, Fault> {
        Ok(match value.view() {
            View::Null => Js::new_null(ctx.clone()),
            View::Bool(value) => Js::new_bool(ctx.clone(), value),
            View::Number(number) => Js::new_number(ctx.clone(), number.get()),
            View::String(text) => rquickjs::String::from_str(ctx.clone(), text.as_str())?.into_value(),
            View::Array(items) => {
                let array = Array::new(ctx.clone())?;
                for (at, item) in items.iter().enumerate() {
                    array.set(at, self.to_js(ctx, item)?)?;
                }
                array.into_value()
            }
            View::Object(object) | View::Geometry(object) => self.object_to_js(ctx, object)?,
            View::Time(time) => {
                let date = self.date.clone().restore(ctx)?;
                let date = date.as_constructor().map(|date| date.construct((1000.0 * time.epoch_seconds(),)));
                date.unwrap_or(Err(Error::Unknown))?
            }
            View::Binary(_) => return text("`r.binary` data cannot be used in `r.js`."),
            View::MinVal => return text("`r.minval` cannot be passed to `r.js`."),
            View::MaxVal => return text("`r.maxval` cannot be passed to `r.js`."),
        })
    }

    fn object_to_js<'js>(&self, ctx: &Ctx<'js>, fields: EncodedObject<'_>) -> Result<Js<'js>, Fault> {
        let object = Object::new(ctx.clone())?;
        for (name, value) in fields.fields() {
            let field = Property::from(self.to_js(ctx, value)?);
            // Defined and not assigned: `__proto__` is a field like any other.
            object.prop(name.as_str(), field.writable().enumerable().configurable())?;
        }
        Ok(object.into_value())
    }

    /// A value of JavaScript in ReQL.
    ///
    /// # Errors
    /// If it has none there.
    pub fn to_value(&self, value: &Js<'_>) -> Result<Value, Fault> {
        self.to_value_at(value, 0)
    }

    fn to_value_at(&self, value: &Js<'_>, depth: usize) -> Result<Value, Fault> {
        if depth > MAX_DEPTH {
            return text("Recursion limit exceeded in js_to_json (circular reference?).");
        }
        match value.type_of() {
            Type::Undefined | Type::Uninitialized => text("Cannot convert javascript `undefined` to ql::datum_t."),
            Type::Null => Ok(Value::Null),
            Type::Bool => Ok(Value::Bool(value.as_bool().unwrap_or_default())),
            Type::Int | Type::Float => match Value::number(value.as_number().unwrap_or(f64::NAN)) {
                Ok(number) => Ok(number),
                Err(_) => text("Number return value is not finite."),
            },
            Type::String => match value.as_string() {
                Some(string) => string_to_value(string).map(Value::from),
                None => unhandled(),
            },
            Type::Function | Type::Constructor => text("Cannot convert function to ql::datum_t."),
            Type::Array => match value.as_array() {
                Some(array) => {
                    let mut items = Vec::new();
                    for at in 0..array.len() {
                        items.push(self.to_value_at(&array.get(at)?, depth + 1)?);
                    }
                    Ok(Value::array(items)?)
                }
                None => unhandled(),
            },
            _ => match value.as_object() {
                Some(object) => self.object_to_value(object, depth),
                None => unhandled(),
            },
        }
    }

    fn object_to_value(&self, object: &Object<'_>, depth: usize) -> Result<Value, Fault> {
        let ctx = object.ctx();
        if object.is_instance_of(self.date.clone().restore(ctx)?) {
            let get_time = self.get_time.clone().restore(ctx)?;
            let millis: f64 = get_time.call((This(object.clone()),))?;
            return Ok(Value::from(Time::new(millis / 1000.0, Timezone::UTC)?));
        }
        if object.is_instance_of(self.regular_expression.clone().restore(ctx)?) {
            return text("Cannot convert RegExp to ql::datum_t.");
        }
        let mut builder = ObjectBuilder::default();
        for field in object.props::<rquickjs::String<'_>, Js<'_>>() {
            let (name, value) = field?;
            builder.insert(string_to_value(&name)?, self.to_value_at(&value, depth + 1)?);
        }
        Ok(builder.finish()?)
    }
}

fn unhandled<T>() -> Result<T, Fault> {
    text("Unhandled value type when converting to ql::datum_t.")
}

fn string_to_value(string: &rquickjs::String<'_>) -> Result<String, Fault> {
    match string.to_string() {
        Ok(string) => Ok(string),
        // Half of a character that takes two.
        Err(Error::Utf8(_)) => text("Cannot convert a string with a lone surrogate to ql::datum_t."),
        Err(error) => Err(error.into()),
    }
}
