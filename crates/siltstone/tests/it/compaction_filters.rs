//! Compaction filters of a store's tables: set at open, by table, on `lsm` alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};

use siltstone::{
    CompactionFilter, Db, DbOptions, Error, Event, EventKind, FilterContent, FilterDecision,
    FilterPass, FilterRow,
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

/// Drops the ten rows `key-0000389x`, and panics at a row or when it begins.
struct PanicsAt(Option<&'static [u8]>);

impl CompactionFilter for PanicsAt {
    fn begin<'a>(&'a self, _content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        // Without the output of the panic hook.
        let panic = || std::panic::resume_unwind(Box::new("a bad row"));
        if self.0.is_none() {
            panic();
        }
        Box::new(move |row: FilterRow<'_>| match row.key {
            key if self.0 == Some(key) => panic(),
            key if key.starts_with(b"key-0000389") => FilterDecision::Drop,
            _ => FilterDecision::Keep,
        })
    }
}

fn table_files(dir: &Path) -> BTreeSet<String> {
    let names = dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.ends_with(".sst") || name.ends_with(".blob")).collect()
}

#[test]
fn filter_that_panics_loses_no_row_and_leaves_no_file_and_a_usable_table() {
    const ROWS: u32 = 4_000;
    for at in [None, Some(&b"key-00003900"[..])] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let errors: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = errors.clone();
        let listener = move |event: &Event| match &event.kind {
            EventKind::BackgroundError { error } => heard.lock().unwrap().push(error.to_string()),
            EventKind::ReadOnly { cause } => heard.lock().unwrap().push(cause.clone()),
            _ => {}
        };
        let filter: Arc<dyn CompactionFilter> = Arc::new(PanicsAt(at));
        let options = DbOptions {
            compaction_filters: BTreeMap::from([("t".to_owned(), filter)]),
            listeners: vec![Arc::new(listener)],
            ..DbOptions::default()
        };
        let db = Db::open_or_create(&dir, options).unwrap();
        let small = [("memtable", "4MiB"), ("l0_capacity", "0"), ("target_file_size", "64KiB")];
        let small = small.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let table = db.table_or_create("t", "lsm", &small).unwrap();
        let (key, value) = (|n: u32| format!("key-{n:08}"), [7; 100]);
        for round in 0..2 {
            for n in 0..ROWS {
                table.put(key(n).as_bytes(), &value).unwrap();
            }
            table.flush().unwrap();
            table.compact_range::<&[u8]>(..).unwrap();
            for n in 0..ROWS {
                let found = table.get(key(n).as_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&value[..]), "{round}: {n}");
            }
        }
        let counters = table.stats().counters;
        assert_eq!((counters["compaction_filter_panics"], counters["read_only"]), (1, 0));
        assert_eq!(counters["compaction_filter_drops"], 0);

        // A filter that is set again is called again.
        table.set_compaction_filter(Some(Arc::new(PanicsAt(Some(b"none"))))).unwrap();
        table.put(key(3_895).as_bytes(), &value).unwrap();
        table.flush().unwrap();
        table.compact_range::<&[u8]>(..).unwrap();
        assert_eq!(table.stats().counters["compaction_filter_drops"], 10);
        db.close().unwrap();
        let errors = errors.lock().unwrap();
        let [error] = &errors[..] else { panic!("{errors:?}") };
        assert!(error.contains("filter panicked") && error.contains("a bad row"), "{error}");
        assert_eq!(error.contains("'key-00003900'"), at.is_some(), "{error}");
        // A recovery removes files that no manifest names.
        let files = table_files(&dir.join("table-t"));
        let db = Db::open(&dir, DbOptions::default()).unwrap();
        drop(db.table("t").unwrap());
        assert_eq!(table_files(&dir.join("table-t")), files);
    }
}
