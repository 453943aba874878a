//! The calls of the library, in the order of the book's page "The library".
// An example prints.
#![allow(clippy::print_stdout)]

use std::collections::BTreeMap;

use std::sync::Arc;

use siltstone::{
    CompactionFilter, Db, DbOptions, Durability, FilterContent, FilterDecision, FilterPass,
    FilterRow, MergeCounter, Retry, Table, WriteBatch,
};

fn main() -> siltstone::Result<()> {
    let scratch = std::env::temp_dir().join(format!("siltstone-library-{}", std::process::id()));
    open(&scratch)?;
    let _ = std::fs::remove_dir_all(scratch);
    Ok(())
}

fn open(scratch: &std::path::Path) -> siltstone::Result<()> {
    let dir = scratch.join("store");
    // ANCHOR: open
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let options = BTreeMap::from([("memtable".to_owned(), "16MiB".to_owned())]);
    let table = db.table_or_create("fruit", "lsm", &options)?;
    // ANCHOR_END: open
    reads_and_writes(&table)?;
    iteration(&table)?;
    updates(&table)?;
    snapshots(&table)?;
    transactions(&table).map_err(|error| match error {
        OrderError::Store(error) => error,
        OrderError::OutOfStock => siltstone::Error::Invalid("out of stock".to_owned()),
    })?;
    merges(&db)?;
    filters(&scratch.join("filtered"))?;
    // ANCHOR: store
    db.sync()?; // every write so far, of every table, survives a power cut
    for (name, bytes) in db.disk_usage()? {
        println!("{name}: {bytes} bytes");
    }
    drop(table);
    db.rename_table("fruit", "stock")?; // refused while handles exist
    assert_eq!(db.table_names()?, ["stock"]);
    db.checkpoint(scratch.join("copy"))?; // while others read and write
    db.drop_table("stock")?;
    db.close()?;
    // ANCHOR_END: store
    Ok(())
}

fn reads_and_writes(table: &Table) -> siltstone::Result<()> {
    // ANCHOR: write
    table.put(b"apples", b"3")?; // survives the process
    table.delete(b"plums")?; // no error if there are none
    let mut batch = WriteBatch::new();
    batch.put(b"pears", b"5").put(b"cherries", b"200");
    table.write(&batch, Durability::Synced)?; // atomic; survives a power cut from here on
    table.delete_range("temporary:".."temporary;")?; // however many keys there are
    // ANCHOR_END: write

    // ANCHOR: read
    assert_eq!(table.get(b"apples")?.as_deref(), Some(&b"3"[..]));
    assert!(table.contains_key(b"pears")?); // copies no value
    let stock = table.multi_get(&["apples", "plums"])?; // in the order of the keys
    assert_eq!(stock, [Some(b"3".to_vec()), None]);
    let mut value = Vec::new(); // one buffer for many reads
    for key in ["apples", "pears"] {
        table.get_into(key.as_bytes(), &mut value)?;
    }
    // ANCHOR_END: read
    Ok(())
}

fn iteration(table: &Table) -> siltstone::Result<()> {
    // ANCHOR: iterate
    for entry in table.range("a".."d")? {
        let (key, entry) = entry?; // copies
        println!("{} {}", key.escape_ascii(), entry.value.escape_ascii());
    }
    let newest = table.prefix("p")?.next_back().transpose()?;
    assert!(newest.is_some_and(|(key, _)| key == b"pears"));
    let keys = table.keys()?.collect::<siltstone::Result<Vec<_>>>()?; // reads no values
    assert_eq!(keys.len() as u64, table.len()?);
    let mut cursor = table.cursor()?;
    while let Some(entry) = cursor.next()? {
        println!("{} bytes", entry.value.len()); // lent until the next move
    }
    assert_eq!(table.first()?.map(|(key, _)| key), Some(b"apples".to_vec()));
    println!("about {:?} keys", table.approximate_len()); // from statistics, at once
    // ANCHOR_END: iterate
    Ok(())
}

fn updates(table: &Table) -> siltstone::Result<()> {
    // ANCHOR: update
    // Insert if absent: the inner result says whether the value was swapped.
    assert!(table.compare_and_swap(b"figs", None, Some(b"1"))?.is_ok());
    let refused = table.compare_and_swap(b"figs", Some(b"7"), Some(b"8"))?;
    assert!(refused.is_err_and(|mismatch| mismatch.current.as_deref() == Some(b"1")));
    // A closure, repeated until no other write comes in between.
    table.fetch_and_update(b"figs", |old| old.map(|old| [old, b"0"].concat()))?;
    assert_eq!(table.get(b"figs")?.as_deref(), Some(&b"10"[..]));
    let popped = table.pop_last()?; // of several threads each gets another entry
    assert!(popped.is_some_and(|(key, _)| key == b"pears"));
    // ANCHOR_END: update
    Ok(())
}

fn snapshots(table: &Table) -> siltstone::Result<()> {
    // ANCHOR: snapshot
    let snapshot = table.snapshot()?; // has all reads of a table
    table.put(b"apples", b"0")?;
    assert_eq!(snapshot.get(b"apples")?.as_deref(), Some(&b"3"[..]));
    assert_eq!(snapshot.keys_prefix("a")?.count(), 1);
    // ANCHOR_END: snapshot
    Ok(())
}

// ANCHOR: transact
/// The application's errors; those of the store convert.
#[derive(Debug)]
enum OrderError {
    OutOfStock,
    Store(siltstone::Error),
}

impl From<siltstone::Error> for OrderError {
    fn from(error: siltstone::Error) -> Self {
        OrderError::Store(error)
    }
}

fn transactions(table: &Table) -> Result<(), OrderError> {
    // Retried after a conflict; an error of the closure is returned, and nothing is written.
    table.transact(|tx| {
        let apples = tx.get(b"apples")?.unwrap_or_default();
        tx.put(b"apples-before", &apples)
    })?;
    let order = |tx: &mut siltstone::Transaction| {
        if tx.get(b"apples")?.as_deref() == Some(b"0") {
            return Err(OrderError::OutOfStock);
        }
        Ok(tx.delete(b"apples")?)
    };
    let refused = table.try_transact_with(Retry::default(), Durability::Synced, order);
    assert!(matches!(refused, Err(OrderError::OutOfStock)));
    Ok(())
}
// ANCHOR_END: transact

fn merges(db: &Db) -> siltstone::Result<()> {
    // ANCHOR: merge
    let clicks = db.table_or_create("clicks", "lsm", &BTreeMap::new())?;
    clicks.set_merge_operator(Some(Arc::new(MergeCounter)))?; // recorded: once is enough
    clicks.merge(b"home", &1i64.to_le_bytes())?; // reads nothing
    clicks.merge(b"home", &41i64.to_le_bytes())?;
    assert_eq!(clicks.get(b"home")?.as_deref(), Some(&42i64.to_le_bytes()[..]));
    // ANCHOR_END: merge
    drop(clicks);
    db.drop_table("clicks")
}

// ANCHOR: filter
/// Drops the orders of customers that are gone: `order/CUSTOMER/…` without `customer/CUSTOMER`.
struct DropOrphans;

impl CompactionFilter for DropOrphans {
    fn begin<'a>(&'a self, content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a> {
        Box::new(|row: FilterRow<'_>| {
            let Some(order) = row.key.strip_prefix(b"order/") else { return FilterDecision::Keep };
            let customer = order.split(|byte| *byte == b'/').next().unwrap_or_default();
            match content.get(&[b"customer/", customer].concat()) {
                Ok(None) => FilterDecision::Drop, // final: customers do not come back
                _ => FilterDecision::Keep,
            }
        })
    }
}

fn filters(dir: &std::path::Path) -> siltstone::Result<()> {
    let filter: Arc<dyn CompactionFilter> = Arc::new(DropOrphans);
    let compaction_filters = BTreeMap::from([("shop".to_owned(), filter)]);
    let db = Db::open_or_create(dir, DbOptions { compaction_filters, ..DbOptions::default() })?;
    let shop = db.table_or_create("shop", "lsm", &BTreeMap::new())?;
    shop.put(b"order/ann/1", b"3 apples")?;
    println!("{:?} rows dropped", shop.stats().counters.get("compaction_filter_drops"));
    db.close()
}
// ANCHOR_END: filter

#[test]
fn example_runs() {
    main().unwrap();
}
