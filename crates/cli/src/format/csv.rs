//! CSV: the first column is the key.
//!
//! With two columns the second is the value. With more, the value is a JSON object of the other
//! columns by their names in the header line, or a JSON array of them without a header.

use serde_json::{Map, Value, json};
use siltstone::Entry;

use super::Row;

/// Converts a record to a row.
pub(crate) fn row(
    record: &csv::ByteRecord,
    header: Option<&csv::ByteRecord>,
) -> Result<Row, String> {
    let key = record.get(0).unwrap_or_default().to_vec();
    let value = match record.len() {
        0 | 1 => return Err(one_column(&key)),
        2 => record.get(1).unwrap_or_default().to_vec(),
        _ => columns(record, header)?.to_string().into_bytes(),
    };
    Ok((key, Entry::new(value)))
}

/// The error of a row with a single column, with advice on the likely separator.
fn one_column(row: &[u8]) -> String {
    let advice = if row.contains(&b'\t') {
        "are columns separated by tabs? --format tsv"
    } else if row.contains(&b';') {
        "are columns separated by ';'? write ',' between them"
    } else {
        "write 'key,' for an empty value"
    };
    format!("one column only, but a key and a value are expected ({advice})")
}

/// The reason of an error, without its position in the file.
pub(crate) fn reason(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            let s = if *len == 1 { "" } else { "s" };
            format!("{len} column{s}, but the first row has {expected_len}")
        }
        _ => error.to_string(),
    }
}

fn columns(record: &csv::ByteRecord, header: Option<&csv::ByteRecord>) -> Result<Value, String> {
    let text = |field: &[u8]| {
        std::str::from_utf8(field)
            .map(str::to_owned)
            .map_err(|_| "a column is not UTF-8, so it has no JSON form".to_owned())
    };
    let fields = record.iter().skip(1);
    match header {
        None => Ok(json!(fields.map(text).collect::<Result<Vec<_>, _>>()?)),
        Some(header) => {
            let mut object = Map::new();
            for (name, field) in header.iter().skip(1).zip(fields) {
                let (name, field) = (text(name)?, text(field)?);
                if object.insert(name.clone(), json!(field)).is_some() {
                    return Err(format!(
                        "the header has two columns '{name}', one of which would be lost; rename one of them"
                    ));
                }
            }
            Ok(Value::Object(object))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_converted_to_a_value() {
        let record = |fields: &[&str]| csv::ByteRecord::from(fields.to_vec());
        let value = |fields: &[&str], header: Option<&[&str]>| {
            let (key, entry) = row(&record(fields), header.map(record).as_ref()).unwrap();
            assert_eq!(key, b"k");
            String::from_utf8(entry.value).unwrap()
        };
        assert_eq!(value(&["k", ""], None), "");
        assert_eq!(value(&["k", "v"], Some(&["id", "name"])), "v");
        assert_eq!(value(&["k", "v", "w"], None), r#"["v","w"]"#);
        assert_eq!(
            value(&["k", "v", "w"], Some(&["id", "b", "a"])),
            json!({"b": "v", "a": "w"}).to_string()
        );
    }

    #[test]
    fn single_column_is_refused_with_the_likely_separator() {
        for (text, advice) in [("a;1", "';'"), ("a\t1", "--format tsv"), ("a", "'key,'")] {
            let error = row(&csv::ByteRecord::from(vec![text]), None).unwrap_err();
            assert!(error.contains(advice), "{error}");
            assert!(error.contains("one column only"), "{error}");
        }
    }
}
