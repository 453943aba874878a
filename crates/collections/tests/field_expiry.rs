//! Fields that expire: the count, the end of the hash, its rows, and the format of the table.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use siltstone::{Durability, ManualClock};
use siltstone_collections::field_expiry::MAX_REMOVED_TIMES;
use siltstone_collections::{Collections, EngineRows, Hash, Result, UserKeys, WriteSet};
use siltstone_engine::Cursor;
use siltstone_faults::FaultyVfs;
use support::{live_rows, open};

const B: Durability = Durability::Buffered;

fn table() -> (FaultyVfs, Arc<ManualClock>, Collections) {
    let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::at(1000)));
    let collections = open(&disk, &clock, 1).unwrap();
    (disk, clock, collections)
}

fn with<T>(collections: &Collections, operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T>) -> T {
    collections.with(&[b"h", b"g"], B, operation).unwrap()
}

/// Sets fields with their expiries.
fn fill(collections: &Collections, fields: impl Iterator<Item = (u32, Option<u64>)>) {
    with(collections, |writes| {
        let mut hash = Hash::open(writes, b"h")?;
        for (field, expires_at) in fields {
            hash.insert(&field.to_be_bytes(), b"value")?;
            hash.set_expiry(&field.to_be_bytes(), expires_at, |_| true)?;
        }
        Ok(())
    });
}

fn len(collections: &Collections, key: &[u8]) -> u64 {
    with(collections, |writes| Ok(Hash::open(writes, key)?.len()))
}

/// Rows of the table that are no user's keys.
fn reserved_rows(collections: &Collections) -> usize {
    let keys = collections.table().keys().unwrap().map(|key| key.unwrap());
    keys.filter(|key| siltstone_collections::user_key(key).is_none()).count()
}

#[test]
fn hash_whose_last_field_has_expired_is_missing_and_its_rows_are_dead() {
    let (_disk, clock, collections) = table();
    fill(&collections, (0..100).map(|field| (field, Some(2000 + u64::from(field)))));
    let row = |collections: &Collections| collections.table().engine().get(b"h").unwrap();
    assert_eq!(row(&collections).unwrap().expires_at, Some(2099));
    clock.set(2098);
    assert_eq!(len(&collections, b"h"), 1);
    clock.set(2099);
    assert_eq!(row(&collections), None);
    let mut cursor = UserKeys::new(collections.table().engine().iter().unwrap());
    assert!(!cursor.first().unwrap());
    drop(cursor);
    // Nobody has opened it since; the owner row and that of the last time are dead.
    assert_eq!(live_rows(&collections), (1, 2));
    fill(&collections, [(7, None)].into_iter());
    assert_eq!(len(&collections, b"h"), 1);
}

#[test]
fn field_without_expiry_keeps_the_hash_and_the_expiry_of_the_key_is_its_own() {
    let (_disk, clock, collections) = table();
    let expiry = |collections: &Collections| {
        with(collections, |writes| Ok(writes.stored(b"h")?.map(|stored| stored.entry.expires_at)))
    };
    fill(&collections, [(1, Some(2000)), (2, Some(3000))].into_iter());
    assert_eq!(expiry(&collections), Some(None));
    with(&collections, |writes| Ok(writes.set_expiry(b"h", Some(9000))?));
    assert_eq!(expiry(&collections), Some(Some(9000)));
    // The row would expire with the last field otherwise.
    fill(&collections, [(3, None)].into_iter());
    clock.set(3000);
    assert_eq!(len(&collections, b"h"), 1);
    assert_eq!(expiry(&collections), Some(Some(9000)));
    with(&collections, |writes| Ok(writes.set_expiry(b"h", None)?));
    clock.set(10_000);
    assert_eq!(len(&collections, b"h"), 1);
}

#[test]
fn copy_and_renamed_hash_expire_like_the_original() {
    let (_disk, clock, collections) = table();
    fill(&collections, [(1, Some(2000)), (2, Some(3000)), (3, Some(4000))].into_iter());
    clock.set(2000);
    // Before the field is taken out of the count.
    let engine = collections.table().engine().clone();
    let rows = EngineRows::newest(engine.as_ref());
    with(&collections, |writes| Ok(writes.copy_from(&rows, b"h", b"g")?));
    with(&collections, |writes| {
        assert_eq!(Hash::open(writes, b"g")?.expiry(&2u32.to_be_bytes())?, Some(Some(3000)));
        Ok(())
    });
    clock.set(3000);
    assert_eq!(len(&collections, b"g"), 1);
    with(&collections, |writes| Ok(writes.rename(b"h", b"g")?));
    assert_eq!((len(&collections, b"h"), len(&collections, b"g")), (0, 1));
    clock.set(4000);
    assert_eq!(engine.get(b"g").unwrap(), None);
}

#[test]
fn rows_of_many_expired_times_are_removed_in_parts() {
    let (_disk, clock, collections) = table();
    const TIMES: usize = 2 * MAX_REMOVED_TIMES + 7;
    let fields = 0..TIMES as u32;
    fill(&collections, fields.map(|field| (field, Some(2000 + u64::from(field)))));
    fill(&collections, [(u32::MAX, None)].into_iter());
    // Fields, times, the field that stays, the owner and the marker.
    assert_eq!(reserved_rows(&collections), 2 * TIMES + 3);
    clock.set(100_000);
    for left in [MAX_REMOVED_TIMES + 7, 7, 0, 0] {
        assert_eq!(len(&collections, b"h"), 1);
        assert_eq!(reserved_rows(&collections), left + 3);
    }
    // What is left of earlier times counts no more.
    fill(&collections, [(1, Some(100_001))].into_iter());
    assert_eq!(len(&collections, b"h"), 2);
    clock.set(100_001);
    assert_eq!(len(&collections, b"h"), 1);
}

#[test]
fn field_that_has_expired_stays_so_when_the_clock_is_set_back() {
    let (_disk, clock, collections) = table();
    fill(&collections, [(1, Some(2000)), (2, None)].into_iter());
    clock.set(2000);
    assert_eq!(len(&collections, b"h"), 1);
    clock.set(1500);
    with(&collections, |writes| {
        let mut hash = Hash::open(writes, b"h")?;
        assert_eq!(hash.get(&1u32.to_be_bytes())?, None);
        let mut found = 0;
        hash.for_each(&mut |_, _| {
            found += 1;
            true
        })?;
        assert_eq!((hash.len(), found), (1, 1));
        assert!(hash.insert(&1u32.to_be_bytes(), b"new")?);
        Ok(())
    });
    assert_eq!(len(&collections, b"h"), 2);
    clock.set(5000);
    assert_eq!(len(&collections, b"h"), 2);
}

#[test]
fn read_reports_what_has_expired_and_changes_nothing_else() {
    let (_disk, clock, collections) = table();
    fill(&collections, [(1, Some(2000)), (2, Some(2000)), (3, None)].into_iter());
    clock.set(2000);
    let read = |writes: &mut WriteSet<'_>| {
        let len = Hash::open(writes, b"h")?.len();
        Ok((len, writes.is_changed(), writes.take_expired()))
    };
    let (found, is_changed, expired) = with(&collections, read);
    assert_eq!((found, is_changed, expired.len()), (1, false, 1));
    assert_eq!((expired[0].count, expired[0].is_removed), (2, false));
    let (found, is_changed, expired) = with(&collections, read);
    assert_eq!((found, is_changed, expired.len()), (1, false, 0));
}

#[test]
fn compactions_drop_expired_fields_that_nobody_reads() {
    let (disk, clock, collections) = table();
    fill(&collections, (0..500).map(|field| (field, (field > 0).then_some(2000))));
    clock.set(3000);
    collections.table().compact_range::<&[u8]>(..).unwrap();
    let dropped = collections.table().engine().stats().expired_entries_dropped;
    assert!(dropped >= 499, "only {dropped} rows were dropped");
    assert_eq!(len(&collections, b"h"), 1);
    collections.table().engine().close().unwrap();
    let collections = open(&disk, &clock, 1).unwrap();
    assert_eq!(len(&collections, b"h"), 1);
}

#[test]
fn marker_of_the_format_without_field_expiry_is_replaced_by_the_first_hash_that_needs_it() {
    let (disk, clock, collections) = table();
    let marker = |collections: &Collections| {
        let row = collections.table().engine().get(b"\xff\xc0\x03").unwrap();
        row.unwrap().value
    };
    fill(&collections, [(1, None)].into_iter());
    assert_eq!(marker(&collections), b"siltstone collections 3\n");
    // As a table of before.
    collections.table().put(b"\xff\xc0\x03", b"siltstone collections 2\n").unwrap();
    collections.table().engine().close().unwrap();
    let collections = open(&disk, &clock, 1).unwrap();
    fill(&collections, [(2, None)].into_iter());
    assert_eq!(marker(&collections), b"siltstone collections 2\n");
    fill(&collections, [(2, Some(5000))].into_iter());
    assert_eq!(marker(&collections), b"siltstone collections 3\n");
}
