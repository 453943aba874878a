//! Does a walk that is taken up again show what is true at that moment?
//!
//! The conformance kit checks walks in pages of small tables. Here are the cases by themselves: an overwritten
//! entry is shown with its newest value, one that was deleted since is not shown, and nothing is missed.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::subject;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::{Ram, Vfs};

const KEYS: u32 = 2000;

fn open(vfs: &Arc<dyn Vfs>) -> Trie {
    open_as(vfs, "table=4KiB", 3)
}

fn open_as(vfs: &Arc<dyn Vfs>, more: &str, seed: u64) -> Trie {
    let options = "bucket=512 fanout_bits=1 levels=3 slow=8 garbage=1";
    let options = Options::from_map(&subject::options([options, more])).unwrap();
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

/// Keys and values, and where the next page begins.
type Page = (Vec<(u32, Vec<u8>)>, Option<Vec<u8>>);

/// The next page of at most a hundred entries.
fn page(trie: &Trie, from: Option<&[u8]>) -> Page {
    let mut cursor = trie.iter().unwrap();
    let mut is_there = match from {
        None => cursor.first().unwrap(),
        Some(position) => cursor.resume(position).unwrap(),
    };
    let mut entries = Vec::new();
    while is_there {
        entries
            .push((u32::from_le_bytes(cursor.key().try_into().unwrap()), cursor.value().to_vec()));
        if entries.len() == 100 {
            return (entries, Some(cursor.position()));
        }
        is_there = cursor.next().unwrap();
    }
    (entries, None)
}

#[test]
fn is_what_changed_behind_the_walk_shown_as_it_is() {
    for flushes in [false, true] {
        let trie = open(&(Arc::new(Ram::new()) as Arc<dyn Vfs>));
        (0..KEYS).for_each(|key| write(&trie, key, Some(b"old")));
        trie.maintain().unwrap();
        let (first, mut from) = page(&trie, None);
        // A third of the keys is overwritten, and another one deleted.
        (0..KEYS).filter(|key| key % 3 == 1).for_each(|key| write(&trie, key, Some(b"new")));
        (0..KEYS).filter(|key| key % 3 == 2).for_each(|key| write(&trie, key, None));
        if flushes {
            trie.flush().unwrap();
            trie.maintain().unwrap();
        }
        let mut seen = vec![0; KEYS as usize];
        first.iter().for_each(|(key, _)| seen[*key as usize] += 1);
        while let Some(position) = from.take() {
            let (entries, next) = page(&trie, Some(&position));
            for (key, value) in entries {
                let expected: &[u8] = if key % 3 == 1 { b"new" } else { b"old" };
                assert!(value == expected && key % 3 != 2, "key {key} is shown with {value:?}");
                seen[key as usize] += 1;
            }
            from = next;
        }
        let is_right = |key: &u32| match key % 3 {
            // What moved from behind the walk to places ahead of it comes twice.
            0 if !flushes => seen[*key as usize] == 1,
            0 | 1 => seen[*key as usize] >= 1,
            _ => true,
        };
        let wrong: Vec<_> =
            (0..KEYS).filter(|key| !is_right(key)).map(|key| (key, seen[key as usize])).collect();
        assert!(
            wrong.is_empty(),
            "flushed: {flushes}; keys and how often they are shown: {wrong:?}"
        );
    }
}

#[test]
fn is_a_walk_taken_up_after_the_table_was_opened_anew() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let trie = open(&vfs);
    (0..KEYS).for_each(|key| write(&trie, key, Some(b"old")));
    let (mut shown, mut from) = page(&trie, None);
    trie.close().unwrap();
    let trie = open(&vfs);
    // Behind the walk, in a table that may have taken the numbers of writes that were lost.
    (0..KEYS).for_each(|key| write(&trie, key, Some(b"new")));
    while let Some(position) = from.take() {
        let (entries, next) = page(&trie, Some(&position));
        shown.extend(entries);
        from = next;
    }
    let keys: std::collections::BTreeSet<u32> = shown.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys.len() as u32, KEYS);
}

/// Another process hashes with seeds of its own.
#[test]
fn is_a_walk_in_a_memtable_taken_up_by_another_process() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    for flushes in [false, true] {
        let trie = open_as(&vfs, "table=1MiB", 3);
        if flushes {
            // Not the first memtable of an opening.
            trie.flush().unwrap();
        }
        (0..KEYS).for_each(|key| write(&trie, key, Some(b"value")));
        let (mut shown, mut from) = page(&trie, None);
        trie.close().unwrap();
        let trie = open_as(&vfs, "table=1MiB", 4);
        while let Some(position) = from.take() {
            let (entries, next) = page(&trie, Some(&position));
            shown.extend(entries);
            from = next;
        }
        let keys: std::collections::BTreeSet<u32> = shown.iter().map(|&(key, _)| key).collect();
        assert_eq!(keys.len() as u32, KEYS, "flushed: {flushes}");
        trie.close().unwrap();
    }
}
