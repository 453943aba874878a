//! The body of the catalogue as JSON, written and read field by field.

use std::collections::BTreeMap;

use super::json_text::{Reader, list, object, string};
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
    let mut fields = vec![(TABLES, map(1, tables, spec))];
    if !pending.is_empty() {
        fields.push((PENDING, list(1, pending.iter().map(|table| string(table)))));
    }
    if !ids.is_empty() {
        fields.push((IDS, map(1, ids, u64::to_string)));
    }
    if *next_id != 0 {
        fields.push((NEXT_ID, next_id.to_string()));
    }
    if !places.is_empty() {
        fields.push((PLACES, map(1, places, |table| string(table))));
    }
    if !directories.is_empty() {
        fields.push((DIRECTORIES, map(1, directories, |directory| string(directory))));
    }
    object(0, fields)
}

fn spec(spec: &TableSpec) -> String {
    let options = map(3, &spec.options, |value| string(value));
    object(2, [(ENGINE, string(&spec.engine)), (OPTIONS, options)])
}

fn map<T>(level: usize, map: &BTreeMap<String, T>, value: impl Fn(&T) -> String) -> String {
    object(level, map.iter().map(|(name, of)| (name.as_str(), value(of))))
}

/// The catalogue in this JSON.
///
/// # Errors
/// What is wrong: no field is unknown or missing, and all have their types.
pub(super) fn parse(body: &[u8]) -> Result<Catalogue, String> {
    let mut reader = Reader::new(body);
    let catalogue = read(&mut reader)?;
    reader.end().map(|()| catalogue)
}

/// The catalogue in the first JSON value of these bytes, whatever follows it.
pub(super) fn parse_first(body: &[u8]) -> Option<Catalogue> {
    read(&mut Reader::new(body)).ok()
}

fn read(reader: &mut Reader<'_>) -> Result<Catalogue, String> {
    let mut catalogue = Catalogue::default();
    let mut has_tables = false;
    reader.object("the catalogue", |reader, name| {
        match &*name {
            TABLES => {
                catalogue.tables = read_map(reader, TABLES, read_spec)?;
                has_tables = true;
            }
            PENDING => {
                let pending = &mut catalogue.pending;
                let read =
                    |reader: &mut Reader<'_>| reader.string().map(|it| _ = pending.insert(it));
                reader.list(PENDING, read)?;
            }
            IDS => catalogue.ids = read_map(reader, IDS, Reader::number)?,
            NEXT_ID => catalogue.next_id = reader.number()?,
            PLACES => catalogue.places = read_map(reader, PLACES, Reader::string)?,
            DIRECTORIES => catalogue.directories = read_map(reader, DIRECTORIES, Reader::string)?,
            _ => return Err(format!("unknown field '{name}'")),
        }
        Ok(())
    })?;
    if has_tables { Ok(catalogue) } else { Err(format!("no field '{TABLES}'")) }
}

fn read_spec(reader: &mut Reader<'_>) -> Result<TableSpec, String> {
    let (mut engine, mut options) = (None, None);
    reader.object("a table", |reader, name| {
        match &*name {
            ENGINE => engine = Some(reader.string()?),
            OPTIONS => options = Some(read_map(reader, OPTIONS, Reader::string)?),
            _ => return Err(format!("unknown field '{name}' of a table")),
        }
        Ok(())
    })?;
    match (engine, options) {
        (Some(engine), Some(options)) => Ok(TableSpec { engine, options }),
        _ => Err(format!("a table without '{ENGINE}' or '{OPTIONS}'")),
    }
}

fn read_map<'a, T>(
    reader: &mut Reader<'a>,
    what: &str,
    value: fn(&mut Reader<'a>) -> Result<T, String>,
) -> Result<BTreeMap<String, T>, String> {
    let mut map = BTreeMap::new();
    reader.object(what, |reader, name| value(reader).map(|value| _ = map.insert(name, value)))?;
    Ok(map)
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
            (r#"{"tables": {"t": {"engine": 1, "options": {}}}}"#, "no string"),
            (r#"{"tables": {"t": {"engine": "lsm", "options": {}, "x": 1}}}"#, "'x'"),
            (r#"{"tables": {}, "pending": {}}"#, "not a list"),
            (r#"{"tables": {}, "next_id": -1}"#, "64 bits"),
            (r#"{"tables": {}, "next_id": 18446744073709551616}"#, "64 bits"),
            (r#"{"tables": {}, "next_id": 1.5}"#, "no ','"),
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
