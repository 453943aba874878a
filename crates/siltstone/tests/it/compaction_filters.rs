//! Compaction filters of a store's tables: set at open, by table, on `lsm` alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone::{
    CompactionFilter, Db, DbOptions, Error, FilterContent, FilterDecision, FilterPass, FilterRow,
};

/// Drops the rows whose value is the name of a key that is missing.
struct DropDangling;

impl CompactionFilter for DropDangling {
    fn begin<'a>(&'a self, content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        Box::new(move |row: FilterRow<'_>| match content.get(row.value) {
            Ok(None) if row.key.starts_with(b"link:") => FilterDecision::Drop,
            _ => FilterDecision::Keep,
        })
    }
}

fn with_filter(table: &str) -> DbOptions {
    let filter: Arc<dyn CompactionFilter> = Arc::new(DropDangling);
    DbOptions {
        compaction_filters: BTreeMap::from([(table.to_owned(), filter)]),
        ..DbOptions::default()
    }
}

#[test]
fn filter_given_at_open_applies_to_its_table_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let small = [("memtable", "4KiB"), ("l0_capacity", "0")].into_iter();
    let small: BTreeMap<String, String> = small
        .chain([("experimental.l0_compaction_trigger", "1"), ("triad.log", "off")])
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    for round in 0..2 {
        let db = Db::open_or_create(&dir, with_filter("filtered")).unwrap();
        for name in ["filtered", "other"] {
            let table = db.table_or_create(name, "lsm", &small).unwrap();
            table.put(b"target", b"1").unwrap();
            for _ in 0..8 {
                table.put(b"link:live", b"target").unwrap();
                table.put(b"link:dangling", b"none").unwrap();
                table.flush().unwrap();
            }
            table.maintain().unwrap();
            assert!(table.contains_key(b"link:live").unwrap());
            assert_eq!(table.contains_key(b"link:dangling").unwrap(), name == "other", "{round}");
            let dropped = table.stats().counters["compaction_filter_drops"];
            assert_eq!(dropped > 0, name == "filtered");
        }
        db.close().unwrap();
    }
}

#[test]
fn engines_without_filters_refuse_them_by_name_and_create_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), with_filter("t")).unwrap();
    for engine in ["trie", "silt", "mica", "skimpy"] {
        let options = match engine {
            "skimpy" => BTreeMap::from([("capacity".to_owned(), "16MiB".to_owned())]),
            _ => BTreeMap::new(),
        };
        let error = db.table_or_create("t", engine, &options).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)));
        let text = error.to_string();
        assert!(text.contains("'t'") && text.contains(engine), "{text}");
        let other = db.table_or_create(&format!("on-{engine}"), engine, &options).unwrap();
        let refused = other.set_compaction_filter(Some(Arc::new(DropDangling)));
        assert!(
            matches!(refused, Err(Error::Unsupported { engine: named, .. }) if named == engine),
            "{refused:?}"
        );
    }
    assert!(!db.table_names().unwrap().contains(&"t".to_owned()));
}
