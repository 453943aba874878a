//! Resumed scans return present entries: an overwritten entry has its newest value, a deleted one
//! is missing, and no key is missed. The conformance kit checks scans in pages of small tables.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::engine_under_test;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::{Ram, Vfs};

const KEYS: u32 = 2000;

fn open(vfs: &Arc<dyn Vfs>) -> Trie {
    open_as(vfs, "htable_size=4KiB", 3)
}

fn open_as(vfs: &Arc<dyn Vfs>, more: &str, seed: u64) -> Trie {
    let options = "bucket_size=512 fanout_bits=1 levels=3 slowdown_trigger=8 gc_garbage_ratio=1";
    let options = Options::from_map(&engine_under_test::options([options, more])).unwrap();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), seed);
    Trie::open(vfs.clone(), env, options).unwrap()
}

fn write(trie: &Trie, key: u32, value: Option<&[u8]>) {
    let mut batch = WriteBatch::new();
    match value {
        Some(value) => batch.put(&key.to_le_bytes(), value),
        None => batch.delete(&key.to_le_bytes()),
    };
    trie.write(&batch, Durability::Buffered).unwrap();
}

/// Keys and values, and the position of the next page.
type Page = (Vec<(u32, Vec<u8>)>, Option<Vec<u8>>);

/// The next page of up to a hundred entries.
fn page(trie: &Trie, from: Option<&[u8]>) -> Page {
    let mut cursor = trie.iter().unwrap();
    let mut is_valid = match from {
        None => cursor.first().unwrap(),
        Some(position) => cursor.resume(position).unwrap(),
    };
    let mut entries = Vec::new();
    while is_valid {
        entries
            .push((u32::from_le_bytes(cursor.key().try_into().unwrap()), cursor.value().to_vec()));
        if entries.len() == 100 {
            return (entries, Some(cursor.position()));
        }
        is_valid = cursor.next().unwrap();
    }
    (entries, None)
}

#[test]
fn resumed_scan_returns_changes_behind_it_correctly() {
    for flushes in [false, true] {
        let trie = open(&(Arc::new(Ram::new()) as Arc<dyn Vfs>));
        (0..KEYS).for_each(|key| write(&trie, key, Some(b"old")));
        trie.maintain().unwrap();
        let (first, mut from) = page(&trie, None);
        // A third of the keys is overwritten, and another third deleted.
        (0..KEYS).filter(|key| key % 3 == 1).for_each(|key| write(&trie, key, Some(b"new")));
        (0..KEYS).filter(|key| key % 3 == 2).for_each(|key| write(&trie, key, None));
        if flushes {
            trie.flush().unwrap();
            trie.maintain().unwrap();
        }
        let mut returned = vec![0; KEYS as usize];
        first.iter().for_each(|(key, _)| returned[*key as usize] += 1);
        while let Some(position) = from.take() {
            let (entries, next) = page(&trie, Some(&position));
            for (key, value) in entries {
                let expected: &[u8] = if key % 3 == 1 { b"new" } else { b"old" };
                assert!(value == expected && key % 3 != 2, "key {key} is returned with {value:?}");
                returned[key as usize] += 1;
            }
            from = next;
        }
        let is_right = |key: &u32| match key % 3 {
            // A flush moves items from behind the scan to sources ahead, so they are returned
            // twice.
            0 if !flushes => returned[*key as usize] == 1,
            0 | 1 => returned[*key as usize] >= 1,
            _ => true,
        };
        let wrong: Vec<_> = (0..KEYS)
            .filter(|key| !is_right(key))
            .map(|key| (key, returned[key as usize]))
            .collect();
        assert!(
            wrong.is_empty(),
            "flushed: {flushes}; keys and how often they are returned: {wrong:?}"
        );
    }
}

#[test]
fn scan_resumes_after_the_table_was_reopened() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let trie = open(&vfs);
    (0..KEYS).for_each(|key| write(&trie, key, Some(b"old")));
    let (mut returned, mut from) = page(&trie, None);
    trie.close().unwrap();
    let trie = open(&vfs);
    // Written behind the scan, in a table that may reuse the sequence numbers of lost writes.
    (0..KEYS).for_each(|key| write(&trie, key, Some(b"new")));
    while let Some(position) = from.take() {
        let (entries, next) = page(&trie, Some(&position));
        returned.extend(entries);
        from = next;
    }
    let keys: std::collections::BTreeSet<u32> = returned.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len() as u32, KEYS);
}

/// Another process has other hash seeds.
#[test]
fn scan_in_a_memtable_resumes_in_another_process() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    for flushes in [false, true] {
        let trie = open_as(&vfs, "htable_size=1MiB", 3);
        if flushes {
            // Not the first memtable after an open.
            trie.flush().unwrap();
        }
        (0..KEYS).for_each(|key| write(&trie, key, Some(b"value")));
        let (mut returned, mut from) = page(&trie, None);
        trie.close().unwrap();
        let trie = open_as(&vfs, "htable_size=1MiB", 4);
        while let Some(position) = from.take() {
            let (entries, next) = page(&trie, Some(&position));
            returned.extend(entries);
            from = next;
        }
        let keys: std::collections::BTreeSet<u32> = returned.iter().map(|&(key, _)| key).collect();
        assert_eq!(keys.len() as u32, KEYS, "flushed: {flushes}");
        trie.close().unwrap();
    }
}
