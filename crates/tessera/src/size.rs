use bytesize::ByteSize;
use serde_json::Value;

/// A number of bytes as people read it, with one digit after the point: `12.3 GiB`.
pub fn size(bytes: &Value) -> String {
    bytes.as_u64().map_or("-".into(), |bytes| ByteSize(bytes).display().iec().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_units() {
        assert_eq!([0u64, 999, 12_638_257_152].map(|bytes| size(&bytes.into())), ["0 B", "999 B", "11.8 GiB"]);
        assert_eq!(size(&Value::Null), "-");
    }
}
