//! The body of the catalogue as JSON, read and written field by field: without the derive macros of
//! `serde`, which would be five more crates below every program.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Catalogue, TableSpec};

const TABLES: &str = "tables";
const PENDING: &str = "pending";
const IDS: &str = "ids";
const NEXT_ID: &str = "next_id";
const PLACES: &str = "places";
const DIRECTORIES: &str = "directories";
const ENGINE: &str = "engine";
const OPTIONS: &str = "options";

/// The catalogue in JSON, tables first. Empty fields other than these are left out.
pub(super) fn format(catalogue: &Catalogue) -> String {
    let Catalogue { tables, pending, ids, next_id, places, directories } = catalogue;
    let mut fields = vec![(TABLES, object(tables, spec))];
    if !pending.is_empty() {
        fields.push((PENDING, pending.iter().cloned().collect()));
    }
    if !ids.is_empty() {
        fields.push((IDS, object(ids, |&id| id.into())));
    }
    if *next_id != 0 {
        fields.push((NEXT_ID, (*next_id).into()));
    }
    if !places.is_empty() {
        fields.push((PLACES, object(places, |table| table.clone().into())));
    }
    if !directories.is_empty() {
        fields.push((DIRECTORIES, object(directories, |directory| directory.clone().into())));
    }
    // Line breaks within strings are escaped.
    let indented = |value: &Value| format!("{value:#}").replace('\n', "\n  ");
    let fields: Vec<_> =
        fields.iter().map(|(name, value)| format!("  \"{name}\": {}", indented(value))).collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}

fn spec(spec: &TableSpec) -> Value {
    let options = object(&spec.options, |value| value.clone().into());
    let fields = [(ENGINE, spec.engine.clone().into()), (OPTIONS, options)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn object<T>(map: &BTreeMap<String, T>, value: impl Fn(&T) -> Value) -> Value {
    map.iter().map(|(name, of)| (name.clone(), value(of))).collect()
}

/// The catalogue in this JSON.
///
/// # Errors
/// What is wrong: no field is unknown or missing, and all have their types.
pub(super) fn parse(body: &[u8]) -> Result<Catalogue, String> {
    from_value(serde_json::from_slice(body).map_err(|error| error.to_string())?)
}

/// The catalogue in the first JSON value of these bytes, whatever follows it.
pub(super) fn parse_first(body: &[u8]) -> Option<Catalogue> {
    let first = serde_json::Deserializer::from_slice(body).into_iter().next()?;
    from_value(first.ok()?).ok()
}

fn from_value(value: Value) -> Result<Catalogue, String> {
    let mut catalogue = Catalogue::default();
    let mut has_tables = false;
    for (name, value) in fields("the catalogue", value)? {
        match &*name {
            TABLES => {
                catalogue.tables = map(TABLES, value, table_spec)?;
                has_tables = true;
            }
            PENDING => catalogue.pending = names(value)?,
            IDS => catalogue.ids = map(IDS, value, number)?,
            NEXT_ID => catalogue.next_id = number(value)?,
            PLACES => catalogue.places = map(PLACES, value, text)?,
            DIRECTORIES => catalogue.directories = map(DIRECTORIES, value, text)?,
            _ => return Err(format!("unknown field '{name}'")),
        }
    }
    if has_tables { Ok(catalogue) } else { Err(format!("no field '{TABLES}'")) }
}

fn table_spec(value: Value) -> Result<TableSpec, String> {
    let (mut engine, mut options) = (None, None);
    for (name, value) in fields("a table", value)? {
        match &*name {
            ENGINE => engine = Some(text(value)?),
            OPTIONS => options = Some(map(OPTIONS, value, text)?),
            _ => return Err(format!("unknown field '{name}' of a table")),
        }
    }
    match (engine, options) {
        (Some(engine), Some(options)) => Ok(TableSpec { engine, options }),
        _ => Err(format!("a table without '{ENGINE}' or '{OPTIONS}'")),
    }
}

fn fields(what: &str, value: Value) -> Result<Map<String, Value>, String> {
    match value {
        Value::Object(fields) => Ok(fields),
        _ => Err(format!("{what} is not an object")),
    }
}

fn map<T>(
    what: &str,
    value: Value,
    parse: fn(Value) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    fields(what, value)?.into_iter().map(|(name, value)| Ok((name, parse(value)?))).collect()
}

fn names(value: Value) -> Result<BTreeSet<String>, String> {
    match value {
        Value::Array(names) => names.into_iter().map(text).collect(),
        _ => Err(format!("'{PENDING}' is not a list")),
    }
}

fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("{other} is not a string")),
    }
}

fn number(value: Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("{value} is not a number of 64 bits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_body_is_rejected_with_its_mistake() {
        for (body, mistake) in [
            ("[]", "not an object"),
            ("{}", "no field 'tables'"),
            (r#"{"tables": {}, "more": 1}"#, "unknown field 'more'"),
            (r#"{"tables": {"t": {"engine": "lsm"}}}"#, "without"),
            (r#"{"tables": {"t": {"engine": 1, "options": {}}}}"#, "not a string"),
            (r#"{"tables": {"t": {"engine": "lsm", "options": {}, "x": 1}}}"#, "'x'"),
            (r#"{"tables": {}, "pending": {}}"#, "not a list"),
            (r#"{"tables": {}, "next_id": -1}"#, "64 bits"),
            (r#"{"tables": {}} {}"#, "trailing"),
        ] {
            let error = parse(body.as_bytes()).unwrap_err();
            assert!(error.contains(mistake), "{body}: {error}");
        }
    }

    #[test]
    fn body_has_the_form_that_earlier_versions_wrote() {
        let body = r#"{
  "tables": {
    "t": {
      "engine": "lsm",
      "options": {
        "memtable": "8MiB",
        "path": "a\"\n"
      }
    },
    "u": {
      "engine": "mica",
      "options": {}
    }
  },
  "pending": [
    "old"
  ],
  "ids": {
    "t": 18446744073709551615
  },
  "next_id": 8,
  "places": {
    "t": "u"
  }
}"#;
        assert_eq!(format(&parse(body.as_bytes()).unwrap()), body);
    }
}
