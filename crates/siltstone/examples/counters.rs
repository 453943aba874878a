//! Counters that many threads raise: one value each, updated atomically.
// An example prints.
#![allow(clippy::print_stdout)]

use siltstone::{Db, DbOptions, Table};

// ANCHOR: counters
/// Adds to a counter and returns its new value. Works on every engine.
fn add(table: &Table, name: &str, amount: u64) -> siltstone::Result<u64> {
    let new = table.update_and_fetch(name.as_bytes(), |old| {
        Some((old.map_or(0, number) + amount).to_le_bytes())
    })?;
    Ok(new.map_or(0, |value| number(&value)))
}

fn number(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}
// ANCHOR_END: counters

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-counters-{}", std::process::id()));
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let table = db.table_or_create("counters", "lsm", &Default::default())?;
    let outcomes: Vec<siltstone::Result<u64>> = std::thread::scope(|scope| {
        let visit = || (0..100).try_fold(0, |_, _| add(&table, "visits", 1));
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(visit)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    for outcome in outcomes {
        println!("a thread ended at {}", outcome?);
    }
    let visits = add(&table, "visits", 0)?;
    assert_eq!(visits, 400);

    // Insert if absent.
    assert!(table.compare_and_swap(b"since", None, Some(b"2026"))?.is_ok());
    assert!(table.compare_and_swap(b"since", None, Some(b"2027"))?.is_err());
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
