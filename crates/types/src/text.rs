//! Values that are text in JSON.

/// Has a type with a text form be that text in JSON.
macro_rules! json_is_text {
    ($type:ident) => {
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    };
}

pub(crate) use json_is_text;
