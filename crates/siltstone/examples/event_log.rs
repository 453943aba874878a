//! An event log by time: batches of events that expire, the newest first, a page at a time.
// An example prints.
#![allow(clippy::print_stdout)]

use siltstone::{Clock, Db, DbOptions, Durability, SystemClock, Table, WriteBatch};

const DAY_MS: u64 = 86_400_000;

// ANCHOR: log
/// The key: milliseconds since 1970, then a number for events of one millisecond.
fn key(time: u64, number: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&time.to_be_bytes());
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Appends events in one batch. They expire after a day; compaction removes them.
fn append(table: &Table, time: u64, events: &[&str]) -> siltstone::Result<()> {
    let mut batch = WriteBatch::new();
    for (number, event) in events.iter().enumerate() {
        batch.put_until(&key(time, number as u32), event.as_bytes(), time + DAY_MS);
    }
    table.write(&batch, Durability::Synced)
}

/// Up to `limit` events before `end`, the newest first. The cursor lends keys and values.
fn newest_before(table: &Table, end: u64, limit: usize) -> siltstone::Result<Vec<String>> {
    let mut events = Vec::new();
    let mut cursor = table.cursor_range(..key(end, 0))?;
    while let Some(event) = cursor.prev()? {
        events.push(String::from_utf8_lossy(event.value).into_owned());
        if events.len() == limit {
            break;
        }
    }
    Ok(events)
}
// ANCHOR_END: log

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-events-{}", std::process::id()));
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let table = db.table_or_create("events", "lsm", &Default::default())?;
    let now = SystemClock.now();
    append(&table, now - 2 * DAY_MS, &["expired"])?;
    append(&table, now - 2000, &["start", "open"])?;
    append(&table, now - 1000, &["write"])?;
    append(&table, now, &["close"])?;
    assert_eq!(newest_before(&table, now, 2)?, ["write", "open"]);
    assert_eq!(newest_before(&table, now + 1, 9)?, ["close", "write", "open", "start"]);
    println!("{:?}", newest_before(&table, now + 1, 9)?);
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
