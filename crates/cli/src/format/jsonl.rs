//! JSON lines: `{"key": "…", "value": "…", "expires_at": 1767225600000}`, one object per line.
//!
//! `key_hex` and `value_hex` hold bytes that are not UTF-8. A value that is not a string is kept as
//! its JSON text. Unknown fields are refused: a misspelt one would lose data.

use std::fmt;
use std::io::BufRead;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use siltstone::Entry;

use super::{Row, from_hex, read_line};

/// The fields of an object as written, duplicates included. Values are kept as raw text, because
/// parsing a number would lose digits.
struct Fields(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FieldsVisitor).map(Fields)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, Box<RawValue>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            fields.push(field);
        }
        Ok(fields)
    }
}

/// Reads the next row; `None` at the end. Empty lines are skipped.
pub(crate) fn read(input: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<Option<Row>, String> {
    while read_line(input, line)? {
        if !line.iter().all(u8::is_ascii_whitespace) {
            return row(line).map(Some);
        }
    }
    Ok(None)
}

fn row(line: &[u8]) -> Result<Row, String> {
    let Fields(fields) = serde_json::from_slice(line).map_err(reason)?;
    let (mut key, mut value, mut expires_at) = (None, None, None);
    for (name, raw) in fields {
        let parsed = match raw.get().starts_with('"') {
            true => serde_json::from_str(raw.get()).map_err(reason)?,
            false => Value::Null,
        };
        let (field, bytes) = match (name.as_str(), parsed) {
            ("key", Value::String(text)) => (&mut key, text.into_bytes()),
            ("key_hex", Value::String(text)) => (&mut key, hex(&text)?),
            ("value", Value::String(text)) => (&mut value, text.into_bytes()),
            ("value", _) => (&mut value, raw.get().as_bytes().to_vec()),
            ("value_hex", Value::String(text)) => (&mut value, hex(&text)?),
            ("expires_at", _) if expires_at.is_none() => {
                let at = raw.get().parse();
                expires_at = Some(at.map_err(|_| "expires_at is not a number of milliseconds")?);
                continue;
            }
            ("expires_at", _) => return Err(duplicate("expires_at")),
            (name, _) => return Err(format!("unknown field or wrong type: '{name}'")),
        };
        if field.replace(bytes).is_some() {
            return Err(duplicate(name.trim_end_matches("_hex")));
        }
    }
    let value = value.ok_or("the line has no value (an empty one is \"value\": \"\")")?;
    Ok((key.ok_or("the line has no key")?, Entry { value, expires_at }))
}

fn duplicate(field: &str) -> String {
    format!("the line has more than one {field}, one of which would be lost")
}

/// The reason of an error with its column; the caller adds the line of the file.
fn reason(error: serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    format!("{} (column {})", text.strip_suffix(&place).unwrap_or(&text), error.column())
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    from_hex(text).ok_or_else(|| format!("'{text}' is not hexadecimal"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::json_row;

    #[test]
    fn rows_round_trip() {
        for (key, value) in [(&b"k"[..], &b"v"[..]), (b"\xff\x00", b"\xfe"), (b"\n", b"\"")] {
            let entry = Entry { value: value.to_vec(), expires_at: Some(5) };
            let line = json_row(key, &entry).to_string();
            assert_eq!(row(line.as_bytes()).unwrap(), (key.to_vec(), entry));
        }
    }

    #[test]
    fn invalid_lines_are_refused() {
        for (bad, why) in [
            ("", "EOF"),
            ("[]", "a JSON object"),
            (r#"["k","v"]"#, "a JSON object"),
            ("{}", "no value"),
            (r#"{"value":"v"}"#, "no key"),
            (r#"{"key":"k"}"#, "no value"),
            (r#"{"kee":"k"}"#, "'kee'"),
            (r#"{"key":1,"value":"v"}"#, "'key'"),
            (r#"{"key_hex":"0","value":"v"}"#, "not hexadecimal"),
            (r#"{"key_hex":"+f","value":"v"}"#, "not hexadecimal"),
            (r#"{"key":"k","value":"v","value":"w"}"#, "more than one value"),
            (r#"{"key":"k","key_hex":"00","value":"v"}"#, "more than one key"),
            (
                r#"{"key":"k","value":"v","expires_at":1,"expires_at":2}"#,
                "more than one expires_at",
            ),
            (r#"{"key":"k","value":"v","expires_at":-1}"#, "milliseconds"),
            (r#"{"key":"k","value":"v","expires_at":1.5}"#, "milliseconds"),
            (r#"{"key":"k","value":"v"} x"#, "trailing"),
        ] {
            let error = row(bad.as_bytes()).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    /// A parsed number would be rounded to 64 bits.
    #[test]
    fn value_that_is_not_a_string_is_kept_as_written() {
        for value in [
            "12345678901234567890123",
            "0.1000000000000000055511151231257827",
            "1.10",
            "1E400",
            "-0",
            "null",
            "true",
            r#"{"b": 1, "a": [1, 2], "b": 3}"#,
        ] {
            let line = format!(r#"{{"key": "k", "value": {value} }}"#);
            assert_eq!(row(line.as_bytes()).unwrap().1.value, value.as_bytes());
        }
    }
}
