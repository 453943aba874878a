//! SILT beyond the conformance kit: statistics, rebuilt files, the limit of index memory, refusals.

#![allow(clippy::unwrap_used)]

#[path = "engine_specific/moments.rs"]
mod moments;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

const KEYS: u32 = 3000;

fn open(vfs: &Arc<dyn Vfs>, options: &str) -> siltstone_engine::Result<Silt> {
    let pairs = options.split(' ').filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 7);
    Silt::open(vfs.clone(), env, Options::from_map(&map)?)
}

fn key(i: u32) -> [u8; 4] {
    i.to_le_bytes()
}

/// A table with every kind of store, on a metered file system.
fn filled(options: &str) -> (Arc<dyn Vfs>, Silt) {
    let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
    let silt = open(&vfs, options).unwrap();
    let mut batch = WriteBatch::new();
    for i in 0..KEYS {
        batch.clear();
        batch.put(&key(i), &[i as u8; 100]);
        silt.write(&batch, Durability::Buffered).unwrap();
    }
    (vfs, silt)
}

fn assert_has_all(silt: &Silt) {
    for i in 0..KEYS {
        assert_eq!(silt.get(&key(i)).unwrap().unwrap().value, [i as u8; 100]);
    }
    assert_eq!(silt.get(b"nothing").unwrap(), None);
}

const SMALL: &str = "log_store_slots=64 merge_trigger=3 stop_trigger=8";

#[test]
fn statistics_cover_every_store_and_its_memory() {
    let (_, silt) = filled(SMALL);
    assert_has_all(&silt);
    let stats = silt.stats();
    assert_eq!(stats.levels.iter().map(|level| level.entries).sum::<u64>(), u64::from(KEYS));
    assert!(stats.levels.iter().all(|level| level.entries > 0 && level.bytes > 0));
    assert!(stats.memory.values().all(|&bytes| bytes > 0), "{:?}", stats.memory);
    let reads = stats.reads_per_lookup().unwrap();
    assert!((0.9..1.1).contains(&reads), "{reads} reads per lookup");
}

#[test]
fn space_is_that_of_all_files_but_the_manifest() {
    let (vfs, silt) = filled(SMALL);
    silt.maintain().unwrap();
    let mut names = vfs.list().unwrap();
    names.retain(|name| name != "CURRENT" && !name.starts_with("MANIFEST"));
    let len = |name: &String| vfs.open(name, siltstone_vfs::Mode::Read).unwrap().len().unwrap();
    assert_eq!(silt.stats().space_bytes, names.iter().map(len).sum::<u64>());
}

#[test]
fn damaged_or_missing_index_is_rebuilt_with_a_warning() {
    let (vfs, silt) = filled(SMALL);
    silt.close().unwrap();
    drop(silt);
    let derived = |name: &&String| name.ends_with(".index") || name.ends_with(".filter");
    let names = vfs.list().unwrap();
    let derived: Vec<&String> = names.iter().filter(derived).collect();
    assert!(derived.len() > 4);
    vfs.remove(derived[0]).unwrap();
    for name in &derived[1..] {
        let file = vfs.open(name, siltstone_vfs::Mode::ReadWrite).unwrap();
        file.write_at(5, &[0xa5; 9], siltstone_engine::Purpose::Maintenance).unwrap();
    }
    let silt = open(&vfs, SMALL).unwrap();
    assert_eq!(silt.warnings().len(), derived.len());
    assert!(silt.warnings().iter().all(|warning| warning.contains("rebuilt from")));
    assert_has_all(&silt);
    assert!(silt.verify(&mut |_, _| ()).unwrap().is_intact());
    drop(silt);
    assert!(open(&vfs, SMALL).unwrap().warnings().is_empty(), "the files are intact again");
}

#[test]
fn missing_data_file_is_refused_by_name() {
    let (vfs, silt) = filled(SMALL);
    silt.close().unwrap();
    for name in vfs.list().unwrap() {
        if name.ends_with(".hash") || name.ends_with(".sorted") {
            let hidden = format!("{name}.hidden");
            vfs.rename(&name, &hidden).unwrap();
            match open(&vfs, SMALL) {
                Err(Error::Corruption { file, reason, .. }) => {
                    assert!(file.contains(&name), "{file}");
                    assert!(reason.contains("missing"));
                }
                other => panic!("{:?}", other.map(drop)),
            }
            vfs.rename(&hidden, &name).unwrap();
        }
    }
    assert_has_all(&open(&vfs, SMALL).unwrap());
}

#[test]
fn lookups_without_filters_and_indexes_in_memory_are_correct() {
    for block in ["block_size=1", "block_size=4KiB"] {
        let (vfs, silt) = filled(&format!("{SMALL} {block}"));
        silt.close().unwrap();
        let silt = open(&vfs, &format!("{SMALL} index_memory=1")).unwrap();
        assert_eq!(silt.stats().memory["hash_store_filter"], 0);
        assert_eq!(silt.stats().memory["sorted_store_index"], 0);
        assert_has_all(&silt);
        let reads = silt.stats().reads_per_lookup().unwrap();
        // Two reads per HashStore, at most two HashStores, and the search.
        assert!(reads < 2.0 * 2.0 + 8.0, "{reads} reads per lookup");
    }
}

#[test]
fn lookups_before_indexes_are_loaded_are_correct() {
    let (vfs, silt) = filled(SMALL);
    silt.close().unwrap();
    drop(silt);
    let silt = open(&vfs, &format!("{SMALL} load_indexes=background")).unwrap();
    assert_eq!(memory(&silt), (0, 0));
    assert_has_all(&silt);
    assert_eq!(memory(&silt), (0, 0), "a replayable scheduler runs no job on its own");
    silt.maintain().unwrap();
    let (filters, indexes) = memory(&silt);
    assert!(indexes > 0);
    // Maintenance may have merged all HashStores.
    assert_eq!(filters > 0, silt.stats().levels[1].files > 0);
    let gets = silt.stats().io["get"].reads;
    assert_has_all(&silt);
    let reads = silt.stats().io["get"].reads - gets;
    assert!(reads < u64::from(KEYS) * 11 / 10, "{reads} reads of {KEYS} keys");
}

#[test]
fn filters_and_indexes_are_unloaded_under_a_lower_limit_and_reloaded_under_a_higher_one() {
    for options in [SMALL, "log_store_slots=64 merge_trigger=3 stop_trigger=8 block_size=1"] {
        let (_, silt) = filled(options);
        silt.maintain().unwrap();
        let before = memory(&silt);
        silt.table().set_index_memory(1);
        assert_eq!(memory(&silt), (0, 0));
        assert_has_all(&silt);
        // The filters and indexes of new stores are not loaded either.
        let mut batch = WriteBatch::new();
        for i in 0..KEYS {
            batch.clear();
            batch.put(&key(i), &[i as u8; 100]);
            silt.write(&batch, Durability::Buffered).unwrap();
        }
        silt.flush().unwrap();
        assert_eq!(memory(&silt), (0, 0));
        assert_has_all(&silt);
        // Indexes take less memory per entry than filters, so they are loaded first.
        silt.table().set_index_memory(before.1.max(1) * 2 + 4096);
        silt.maintain().unwrap();
        assert!(memory(&silt).1 > 0);
        assert_has_all(&silt);
        silt.table().set_index_memory(0);
        silt.maintain().unwrap();
        assert!(memory(&silt).1 > 0);
        assert_eq!(memory(&silt).0 > 0, silt.stats().levels[1].files > 0);
        assert_has_all(&silt);
    }
}

/// The memory of filters and of indexes, in bytes.
fn memory(silt: &Silt) -> (u64, u64) {
    let memory = silt.stats().memory;
    (memory["hash_store_filter"], memory["sorted_store_index"])
}

#[test]
fn index_memory_stays_within_its_limit_during_writes() {
    for limit in [300, 700, 1500, 4000] {
        let (_, silt) = filled("log_store_slots=64 merge_trigger=8 stop_trigger=20");
        silt.table().set_index_memory(limit);
        let (mut batch, mut max_memory) = (WriteBatch::new(), 0);
        for i in 0..KEYS {
            batch.clear();
            batch.put(&key(i), &[i as u8; 100]);
            silt.write(&batch, Durability::Buffered).unwrap();
            let (filters, indexes) = memory(&silt);
            assert!(filters + indexes <= limit, "{filters} and {indexes} bytes of {limit}");
            max_memory = max_memory.max(filters + indexes);
        }
        assert!(2 * max_memory > limit, "{max_memory} bytes of {limit}");
        assert_has_all(&silt);
    }
}

#[test]
fn indexes_are_loaded_before_filters_within_the_limit() {
    let (_, silt) = filled("log_store_slots=64 merge_trigger=8 stop_trigger=20");
    silt.maintain().unwrap();
    // Too few HashStores for a merge.
    let mut batch = WriteBatch::new();
    (0..400).for_each(|i| {
        batch.put(&key(KEYS + i), &[1; 100]);
    });
    silt.write(&batch, Durability::Buffered).unwrap();
    silt.flush().unwrap();
    silt.maintain().unwrap();
    let (filters, indexes) = memory(&silt);
    assert!(filters > 500 && indexes > 0, "{filters} and {indexes} bytes");
    silt.table().set_index_memory(1);
    // The estimate for four indexes, in blocks of eight entries or more.
    silt.table().set_index_memory(u64::from(KEYS) / 6 + 4 * 256 + 100);
    silt.maintain().unwrap();
    assert_eq!(memory(&silt).1, indexes);
    assert!(memory(&silt).0 < filters);
    silt.table().set_index_memory(0);
    silt.maintain().unwrap();
    assert_eq!(memory(&silt), (filters, indexes));
}

#[test]
fn conversion_on_a_full_disk_leaves_no_partial_stores() {
    let faulty = FaultyVfs::new(7);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let options = "partitions=4 log_store_slots=64 merge_trigger=30 stop_trigger=90";
    let silt = open(&vfs, options).unwrap();
    let mut batch = WriteBatch::new();
    (0..1000).for_each(|i| {
        batch.put(&key(i), &[i as u8; 100]);
    });
    silt.write(&batch, Durability::Synced).unwrap();
    // Space for some of the HashStores.
    faulty.set_capacity(faulty.space_used() + (40 << 10));
    assert!(silt.flush().is_err());
    let names = vfs.list().unwrap();
    let left: Vec<_> =
        names.iter().filter(|name| name.ends_with(".hash") || name.ends_with(".filter")).collect();
    assert!(left.is_empty(), "{left:?}");
    faulty.set_capacity(1 << 30);
    silt.flush().unwrap();
    (0..1000).for_each(|i| assert!(silt.get(&key(i)).unwrap().is_some()));
}

#[test]
fn batch_with_an_oversized_item_is_refused_without_effect() {
    let (_, silt) = filled(SMALL);
    let writes = silt.stats().writes;
    let value = vec![0; siltstone_engine::MAX_VALUE_BYTES + 1];
    let mut batch = WriteBatch::new();
    batch.put(b"small", b"1").put(b"large", &value);
    let refused = silt.write(&batch, Durability::Synced);
    assert!(matches!(refused, Err(Error::TooLarge { what: "value", .. })), "{refused:?}");
    batch.clear();
    batch.put(&vec![7; siltstone_engine::MAX_KEY_BYTES + 1], b"1");
    let refused = silt.write(&batch, Durability::Synced);
    assert!(matches!(refused, Err(Error::TooLarge { what: "key", .. })), "{refused:?}");
    assert_eq!(silt.get(b"small").unwrap(), None);
    assert_eq!(silt.stats().writes, writes);
    assert_has_all(&silt);
}

#[test]
fn deleted_key_stays_deleted_in_every_kind_of_store() {
    // Each round ends with the deletion in another kind of store, over entries in all older ones.
    for stores in ["all", "log", "log-hash", "log-sorted"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let options = format!(
            "partitions=2 log_store_slots=64 merge_trigger=3 stop_trigger=20 \
             experimental.stores={stores}"
        );
        let mut silt = open(&vfs, &options).unwrap();
        let write = |silt: &Silt, range: std::ops::Range<u32>, is_put: bool| {
            for i in range {
                let mut batch = WriteBatch::new();
                if is_put {
                    batch.put(&key(i), b"value")
                } else {
                    batch.delete(&key(i))
                };
                silt.write(&batch, Durability::Synced).unwrap();
            }
        };
        for round in 0..12 {
            write(&silt, 0..200, true);
            (round % 3 == 1).then(|| silt.flush().unwrap());
            (round % 3 == 2).then(|| silt.maintain().unwrap());
            write(&silt, 0..100, false);
            for step in 0..5 {
                for i in 0..200 {
                    let found = silt.get(&key(i)).unwrap().is_some();
                    assert_eq!(found, i >= 100, "key {i}, {stores}, round {round}, step {step}");
                }
                let (mut cursor, mut walked) = (silt.iter().unwrap(), 0);
                let mut is_there = cursor.first().unwrap();
                while is_there {
                    walked += u32::from(cursor.key() < &key(200)[..]);
                    assert!(!(0..100).any(|i| cursor.key() == key(i)), "{stores} {round} {step}");
                    is_there = cursor.next().unwrap();
                }
                assert!(walked > 0);
                match step {
                    0 => silt.flush().unwrap(),
                    1 => silt.maintain().unwrap(),
                    // Convert and merge other entries.
                    2 => write(&silt, 1000..1200, true),
                    _ => {
                        if step == 3 {
                            silt.close().unwrap();
                        }
                        drop(silt);
                        silt = open(&vfs, &options).unwrap();
                    }
                }
            }
        }
    }
}

#[test]
fn values_of_any_length_round_trip_through_every_store() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let options = "partitions=1 log_store_slots=64 merge_trigger=2 stop_trigger=4 sort_memory=4KiB";
    let mut silt = Some(open(&vfs, options).unwrap());
    let value = |i: u32| vec![i as u8; (i * i % 7919) as usize];
    let mut batch = WriteBatch::new();
    for i in 0..KEYS {
        batch.put(&key(i), &value(i));
        if i % 3 == 0 {
            silt.as_ref().unwrap().write(&batch, Durability::Buffered).unwrap();
            batch.clear();
        }
    }
    silt.as_ref().unwrap().write(&batch, Durability::Synced).unwrap();
    for round in 0..2 {
        let silt = if round == 0 { silt.take().unwrap() } else { open(&vfs, options).unwrap() };
        for i in 0..KEYS {
            assert_eq!(silt.get(&key(i)).unwrap().unwrap().value, value(i));
        }
        assert!(silt.verify(&mut |_, _| ()).unwrap().is_intact());
        silt.close().unwrap();
    }
}

/// A sink that discards all files and copies the bytes.
struct DiscardingSink;

impl siltstone_engine::CheckpointSink for DiscardingSink {
    fn link(&mut self, _name: &str) -> siltstone_engine::Result<bool> {
        Ok(false)
    }

    fn create(&mut self, _name: &str) -> siltstone_engine::Result<()> {
        Ok(())
    }

    fn write(&mut self, _bytes: &[u8]) -> siltstone_engine::Result<()> {
        Ok(())
    }

    fn skip(&mut self, _bytes: u64) -> siltstone_engine::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> siltstone_engine::Result<()> {
        Ok(())
    }
}

/// The open table can still read a store whose file was removed. A checkpoint without that store
/// would not open.
#[test]
fn checkpoint_fails_without_a_store_but_not_without_a_filter_or_index() {
    for (ending, succeeds) in
        [(".filter", true), (".index", true), (".hash", false), (".sorted", false)]
    {
        let (vfs, silt) = filled(SMALL);
        let gone = vfs.list().unwrap().into_iter().find(|name| name.ends_with(ending)).unwrap();
        silt.checkpoint(&mut DiscardingSink).unwrap();
        let gone = match vfs.exists(&gone).unwrap() {
            true => gone,
            false => vfs.list().unwrap().into_iter().find(|n| n.ends_with(ending)).unwrap(),
        };
        vfs.remove(&gone).unwrap();
        let copied = silt.checkpoint(&mut DiscardingSink);
        assert_eq!(copied.is_ok(), succeeds, "{gone}: {copied:?}");
    }
}

#[test]
fn table_created_with_old_option_names_opens_with_old_and_new_names() {
    let old = "slots=64 load=0.9 hash_stores=3 stop=8 block=1KiB sort=1MiB stores=log-hash";
    let new = "log_store_slots=64 max_load_factor=0.9 merge_trigger=3 stop_trigger=8 \
               block_size=1KiB sort_memory=1MiB experimental.stores=log-hash";
    let (vfs, silt) = filled(old);
    silt.close().unwrap();
    drop(silt);
    for options in [old, new] {
        let silt = open(&vfs, options).unwrap();
        assert_has_all(&silt);
        silt.close().unwrap();
    }
    assert!(matches!(open(&vfs, "slots=64 log_store_slots=64"), Err(Error::InvalidOptions(_))));
}

/// With LogStores alone only a flush converts them, and writers do not stall otherwise.
#[test]
fn flush_among_writers_ends_with_log_stores_alone() {
    const FLUSHES: u32 = 100;
    let options = "partitions=1 log_store_slots=16 max_log_size=4KiB experimental.stores=log";
    let pairs = options.split(' ').filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = Options::from_map(&map).unwrap();
    let silt = Arc::new(Silt::open(Arc::new(Ram::new()), Env::system(1), options).unwrap());
    let is_over = Arc::new(AtomicBool::new(false));
    for writer in 0..2 {
        let (silt, is_over) = (silt.clone(), is_over.clone());
        std::thread::spawn(move || {
            let mut batch = WriteBatch::new();
            for i in (0..).take_while(|_| !is_over.load(Relaxed)) {
                batch.clear();
                batch.put(&key(i % 64 + 64 * writer), &[0; 100]);
                silt.write(&batch, Durability::Buffered).unwrap();
            }
        });
    }
    let (ended, wait) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        (0..FLUSHES).for_each(|_| silt.flush().unwrap());
        ended.send(()).unwrap();
    });
    // A flush that never ends must not keep the test from ending.
    let outcome = wait.recv_timeout(Duration::from_secs(60));
    is_over.store(true, Relaxed);
    outcome.expect("a flush waits without end");
}
