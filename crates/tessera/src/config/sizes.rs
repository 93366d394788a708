//! Sizes like `"4GB"`, which may stand in the place of numbers wherever a setting's name says that it counts bytes.

use bytesize::ByteSize;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// Whether a setting counts bytes.
fn counts_bytes(key: &str) -> bool {
    key.contains("_bytes")
}

/// The number of bytes of a size.
///
/// # Errors
/// That it is none, with the setting's name.
fn bytes(key: &str, text: &str) -> Result<i64, String> {
    let bytes = text.parse().ok().and_then(|ByteSize(bytes)| i64::try_from(bytes).ok());
    bytes.ok_or_else(|| {
        format!("{key}: {text:?} is no size: write a number of bytes, or a size such as \"4GB\" or \"512MiB\"")
    })
}

/// Puts numbers of bytes in the place of sizes.
///
/// # Errors
/// The setting's name, and what is no size.
pub(super) fn read(table: &mut toml::Table) -> Result<(), String> {
    for (key, value) in table.iter_mut() {
        match value {
            toml::Value::Table(section) => read(section).map_err(|error| format!("{key}.{error}"))?,
            toml::Value::String(text) if counts_bytes(key) => *value = toml::Value::Integer(bytes(key, text)?),
            _ => {}
        }
    }
    Ok(())
}

/// The same in the text of a file, whose other parts stay in their lines, so that whoever reads it can say in which line something is
/// wrong. A text that is no TOML stays as it is.
///
/// # Errors
/// The line and the setting's name, and what is no size.
pub(super) fn read_in_text(text: &str) -> Result<String, String> {
    let Ok(table) = DeTable::parse(text) else { return Ok(text.into()) };
    let mut sizes = Vec::new();
    find(text, table.get_ref(), "", &mut sizes)?;
    sizes.sort_by_key(|(place, _)| place.start);
    let mut read = text.to_string();
    // The last one first: the places of those before it stay.
    for (place, bytes) in sizes.into_iter().rev() {
        read.replace_range(place, &bytes.to_string());
    }
    Ok(read)
}

/// Adds the places of all sizes in a section, whose settings' names begin with `prefix`, and the bytes that they mean.
fn find(text: &str, section: &DeTable<'_>, prefix: &str, sizes: &mut Vec<(Range<usize>, i64)>) -> Result<(), String> {
    for (key, value) in section.iter() {
        let key: &str = key.get_ref();
        match value.get_ref() {
            DeValue::Table(inner) => find(text, inner, &format!("{prefix}{key}."), sizes)?,
            DeValue::String(size) if counts_bytes(key) => {
                let place = value.span();
                let line = text[..place.start].matches('\n').count() + 1;
                let bytes = bytes(key, size).map_err(|error| format!("line {line}: {prefix}{error}"))?;
                sizes.push((place, bytes));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_keeps_its_lines_and_has_numbers_in_the_place_of_sizes() {
        let text = "a_bytes = \"1kB\" # as it is\n\n[log]\nlimit_bytes = '4MiB'\nsegment_bytes = 7\nname = \"1kB\"\n\
                    [x]\ny = { z_bytes = \"1GB\", n = \"ü\" }\n";
        let read = read_in_text(text).unwrap();
        let expected = "a_bytes = 1000 # as it is\n\n[log]\nlimit_bytes = 4194304\nsegment_bytes = 7\nname = \"1kB\"\n\
                        [x]\ny = { z_bytes = 1000000000, n = \"ü\" }\n";
        assert_eq!(read, expected);
        let error = read_in_text("[log]\n\nlimit_bytes = \"many\"\n").unwrap_err();
        assert!(error.starts_with("line 3: log.limit_bytes: \"many\" is no size"), "{error}");
        assert_eq!(read_in_text("[log\n").unwrap(), "[log\n");
    }
}
