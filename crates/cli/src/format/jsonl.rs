//! JSON lines: `{"key": "…", "value": "…", "expires_at": 1767225600000}`, one object a line.
//!
//! `key_hex` and `value_hex` hold bytes that are not UTF-8. A value that is not a string is kept as
//! its JSON text. Unknown fields are refused: a misspelt one would lose data.

use std::io::BufRead;

use serde_json::Value;
use siltstone::Entry;

use super::{Row, from_hex, read_line};

/// Reads the next row; `None` at the end. Empty lines are passed over.
pub(crate) fn read(input: &mut dyn BufRead, line: &mut Vec<u8>) -> Result<Option<Row>, String> {
    while read_line(input, line)? {
        if !line.iter().all(u8::is_ascii_whitespace) {
            return row(line).map(Some);
        }
    }
    Ok(None)
}

fn row(line: &[u8]) -> Result<Row, String> {
    let Value::Object(object) = serde_json::from_slice(line).map_err(reason)? else {
        return Err("the line is not a JSON object".to_owned());
    };
    let (mut key, mut entry) = (None, Entry::default());
    for (name, value) in object {
        match (name.as_str(), value) {
            ("key", Value::String(text)) => key = Some(text.into_bytes()),
            ("key_hex", Value::String(text)) => key = Some(hex(&text)?),
            ("value", Value::String(text)) => entry.value = text.into_bytes(),
            ("value", other) => entry.value = other.to_string().into_bytes(),
            ("value_hex", Value::String(text)) => entry.value = hex(&text)?,
            ("expires_at", value) => {
                let at = value.as_u64().ok_or("expires_at is not a number of milliseconds")?;
                entry.expires_at = Some(at);
            }
            (name, _) => return Err(format!("unknown field or wrong type: '{name}'")),
        }
    }
    Ok((key.ok_or("the line has no key")?, entry))
}

/// What is wrong with a line, and where in it: the caller knows which line of the file it is.
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
    fn any_row_comes_back() {
        for (key, value) in [(&b"k"[..], &b"v"[..]), (b"\xff\x00", b"\xfe"), (b"\n", b"\"")] {
            let entry = Entry { value: value.to_vec(), expires_at: Some(5) };
            let line = json_row(key, &entry).to_string();
            assert_eq!(row(line.as_bytes()).unwrap(), (key.to_vec(), entry));
        }
    }

    #[test]
    fn bad_lines_are_refused() {
        for bad in ["", "[]", "{}", r#"{"kee":"k"}"#, r#"{"key":1}"#, r#"{"key_hex":"0"}"#] {
            assert!(row(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
