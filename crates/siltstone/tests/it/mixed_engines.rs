//! A `mica` table and an `lsm` table in one store: their contents after a reopen and in a
//! checkpoint.

use siltstone::{Db, DbOptions, Durability, WriteBatch};

#[test]
fn cache_is_empty_after_reopening_and_the_durable_table_is_not() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, copy) = (scratch.path().join("s"), scratch.path().join("copy"));
    let options = [("mode", "cache"), ("memory", "16MiB")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    let cache = db.table_or_create("cache", "mica", &options).unwrap();
    let durable = db.table_or_create("durable", "lsm", &Default::default()).unwrap();
    for table in [&cache, &durable] {
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"1").put(b"b", b"2");
        table.write(&batch, Durability::Synced).unwrap();
        assert_eq!(table.get(b"b").unwrap().unwrap(), b"2");
        assert_eq!(table.iter().unwrap().count(), 2);
    }
    assert!(cache.stats().memory_bytes() <= 16 << 20);
    assert!(cache.range("a"..).is_err());
    db.checkpoint(&copy).unwrap();
    db.close().unwrap();
    for dir in [dir, copy] {
        let db = Db::open(&dir, DbOptions::default()).unwrap();
        assert_eq!(db.table("cache").unwrap().get(b"a").unwrap(), None);
        assert_eq!(db.table("durable").unwrap().get(b"a").unwrap().unwrap(), b"1");
        let cache = db.table("cache").unwrap();
        cache.put(b"c", b"3").unwrap();
        assert_eq!(cache.get(b"c").unwrap().unwrap(), b"3");
    }
}
