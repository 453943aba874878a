//! What the conformance kit does not ask: statistics, what is made again, what is refused.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_faults::Faulty;
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_vfs::{Metered, Ram, Vfs};

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

/// A table with every kind of store, on a medium that counts.
fn filled(options: &str) -> (Arc<dyn Vfs>, Silt) {
    let vfs: Arc<dyn Vfs> = Arc::new(Metered::new(Arc::new(Ram::new())));
    let silt = open(&vfs, options).unwrap();
    let mut batch = WriteBatch::new();
    for i in 0..KEYS {
        batch.clear();
        batch.put(&key(i), &[i as u8; 100]);
        silt.write(&batch, Durability::Buffered).unwrap();
    }
    (vfs, silt)
}

fn has_all(silt: &Silt) {
    for i in 0..KEYS {
        assert_eq!(silt.get(&key(i)).unwrap().unwrap().value, [i as u8; 100]);
    }
    assert_eq!(silt.get(b"nothing").unwrap(), None);
}

const SMALL: &str = "slots=64 hash_stores=3 stop=8";

#[test]
fn do_statistics_tell_every_store_and_what_it_takes() {
    let (_, silt) = filled(SMALL);
    has_all(&silt);
    let stats = silt.stats();
    assert_eq!(stats.levels.iter().map(|level| level.entries).sum::<u64>(), u64::from(KEYS));
    assert!(stats.levels.iter().all(|level| level.entries > 0 && level.bytes > 0));
    assert!(stats.memory.values().all(|&bytes| bytes > 0), "{:?}", stats.memory);
    let reads = stats.reads_per_lookup().unwrap();
    assert!((0.9..1.1).contains(&reads), "{reads} reads a lookup");
}

#[test]
fn is_a_damaged_or_missing_index_made_again_with_a_warning() {
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
    assert!(silt.warnings().iter().all(|warning| warning.contains("made again")));
    has_all(&silt);
    assert!(silt.verify(&mut |_, _| ()).unwrap().is_sound());
    drop(silt);
    assert!(open(&vfs, SMALL).unwrap().warnings().is_empty(), "they are whole again");
}

#[test]
fn is_a_missing_data_file_refused_by_name() {
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
    has_all(&open(&vfs, SMALL).unwrap());
}

#[test]
fn are_lookups_right_without_filters_and_indexes_in_memory() {
    for block in ["block=1", "block=4KiB"] {
        let (vfs, silt) = filled(&format!("{SMALL} {block}"));
        silt.close().unwrap();
        let silt = open(&vfs, &format!("{SMALL} index_memory=1")).unwrap();
        assert_eq!(silt.stats().memory["hash_store_filter"], 0);
        assert_eq!(silt.stats().memory["sorted_store_index"], 0);
        has_all(&silt);
        let reads = silt.stats().reads_per_lookup().unwrap();
        // Two reads a HashStore, of which there are two at most, and the search.
        assert!(reads < 2.0 * 2.0 + 8.0, "{reads} reads a lookup");
    }
}

#[test]
fn does_the_table_answer_before_its_indexes_are_loaded() {
    let (vfs, silt) = filled(SMALL);
    silt.close().unwrap();
    drop(silt);
    let silt = open(&vfs, &format!("{SMALL} load_indexes=background")).unwrap();
    assert_eq!(memory(&silt), (0, 0));
    has_all(&silt);
    assert_eq!(memory(&silt), (0, 0), "the jobs of a manual scheduler wait for us");
    silt.maintain().unwrap();
    let (filters, indexes) = memory(&silt);
    assert!(indexes > 0);
    // Maintenance may have merged all HashStores.
    assert_eq!(filters > 0, silt.stats().levels[1].files > 0);
    let gets = silt.stats().io["get"].reads;
    has_all(&silt);
    let reads = silt.stats().io["get"].reads - gets;
    assert!(reads < u64::from(KEYS) * 11 / 10, "{reads} reads of {KEYS} keys");
}

#[test]
fn are_filters_and_indexes_dropped_under_pressure_and_loaded_when_it_is_over() {
    for options in [SMALL, "slots=64 hash_stores=3 stop=8 block=1"] {
        let (_, silt) = filled(options);
        silt.maintain().unwrap();
        let before = memory(&silt);
        silt.set_index_memory(1);
        assert_eq!(memory(&silt), (0, 0));
        has_all(&silt);
        // New stores do not come into memory either.
        let mut batch = WriteBatch::new();
        for i in 0..KEYS {
            batch.clear();
            batch.put(&key(i), &[i as u8; 100]);
            silt.write(&batch, Durability::Buffered).unwrap();
        }
        silt.flush().unwrap();
        assert_eq!(memory(&silt), (0, 0));
        has_all(&silt);
        // Indexes are cheaper an entry than filters: they come first.
        silt.set_index_memory(before.1.max(1) * 2 + 4096);
        silt.maintain().unwrap();
        assert!(memory(&silt).1 > 0);
        has_all(&silt);
        silt.set_index_memory(0);
        silt.maintain().unwrap();
        assert!(memory(&silt).1 > 0);
        assert_eq!(memory(&silt).0 > 0, silt.stats().levels[1].files > 0);
        has_all(&silt);
    }
}

/// Memory of filters and of indexes.
fn memory(silt: &Silt) -> (u64, u64) {
    let memory = silt.stats().memory;
    (memory["hash_store_filter"], memory["sorted_store_index"])
}

#[test]
fn is_the_limit_of_memory_kept_while_stores_come_and_go() {
    for limit in [300, 700, 1500, 4000] {
        let (_, silt) = filled("slots=64 hash_stores=8 stop=20");
        silt.set_index_memory(limit);
        let (mut batch, mut most) = (WriteBatch::new(), 0);
        for i in 0..KEYS {
            batch.clear();
            batch.put(&key(i), &[i as u8; 100]);
            silt.write(&batch, Durability::Buffered).unwrap();
            let (filters, indexes) = memory(&silt);
            assert!(filters + indexes <= limit, "{filters} and {indexes} bytes of {limit}");
            most = most.max(filters + indexes);
        }
        assert!(2 * most > limit, "{most} bytes of {limit}");
        has_all(&silt);
    }
}

#[test]
fn are_indexes_loaded_before_filters_and_all_of_what_fits() {
    let (_, silt) = filled("slots=64 hash_stores=8 stop=20");
    silt.maintain().unwrap();
    // HashStores too few to be merged.
    let mut batch = WriteBatch::new();
    (0..400).for_each(|i| {
        batch.put(&key(KEYS + i), &[1; 100]);
    });
    silt.write(&batch, Durability::Buffered).unwrap();
    silt.flush().unwrap();
    silt.maintain().unwrap();
    let (filters, indexes) = memory(&silt);
    assert!(filters > 500 && indexes > 0, "{filters} and {indexes} bytes");
    silt.set_index_memory(1);
    // What four indexes are reckoned at, in blocks of eight entries or more.
    silt.set_index_memory(u64::from(KEYS) / 6 + 4 * 256 + 100);
    silt.maintain().unwrap();
    assert_eq!(memory(&silt).1, indexes);
    assert!(memory(&silt).0 < filters);
    silt.set_index_memory(0);
    silt.maintain().unwrap();
    assert_eq!(memory(&silt), (filters, indexes));
}

#[test]
fn does_a_full_medium_keep_nothing_of_what_could_not_be_finished() {
    let faulty = Faulty::new(7);
    let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
    let silt = open(&vfs, "partitions=4 slots=64 hash_stores=30 stop=90").unwrap();
    let mut batch = WriteBatch::new();
    (0..1000).for_each(|i| {
        batch.put(&key(i), &[i as u8; 100]);
    });
    silt.write(&batch, Durability::Synced).unwrap();
    // Room for some of the HashStores.
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
fn are_items_over_the_limit_refused_and_nothing_changed() {
    let (_, silt) = filled(SMALL);
    let writes = silt.stats().writes;
    let value = vec![0; siltstone_silt::MAX_VALUE_BYTES + 1];
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
    has_all(&silt);
}

#[test]
fn does_a_deleted_key_stay_deleted_wherever_its_entries_lie() {
    // Each round ends with the deletion in another kind of store, over entries in all older ones.
    for stores in ["all", "log", "log-hash", "log-sorted"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let options = format!("partitions=2 slots=64 hash_stores=3 stop=20 stores={stores}");
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
                    // Conversions and merges of others' entries.
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
fn do_values_of_any_length_come_back_from_every_store() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let options = "partitions=1 slots=64 hash_stores=2 stop=4 sort=4KiB";
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
        assert!(silt.verify(&mut |_, _| ()).unwrap().is_sound());
        silt.close().unwrap();
    }
}

/// Takes all files, and copies them in vain.
struct Elsewhere;

impl siltstone_engine::CheckpointSink for Elsewhere {
    fn link(&mut self, _name: &str) -> siltstone_engine::Result<bool> {
        Ok(false)
    }

    fn create(&mut self, _name: &str) -> siltstone_engine::Result<()> {
        Ok(())
    }

    fn write(&mut self, _bytes: &[u8]) -> siltstone_engine::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> siltstone_engine::Result<()> {
        Ok(())
    }
}

/// The open table reads on in a file whose name is gone. A copy without it would be found to be none when it is needed.
#[test]
fn does_a_copy_fail_when_a_store_is_gone_and_not_when_it_can_be_made_again() {
    for (ending, is_there) in
        [(".filter", true), (".index", true), (".hash", false), (".sorted", false)]
    {
        let (vfs, silt) = filled(SMALL);
        let gone = vfs.list().unwrap().into_iter().find(|name| name.ends_with(ending)).unwrap();
        silt.checkpoint(&mut Elsewhere).unwrap();
        let gone = match vfs.exists(&gone).unwrap() {
            true => gone,
            false => vfs.list().unwrap().into_iter().find(|n| n.ends_with(ending)).unwrap(),
        };
        vfs.remove(&gone).unwrap();
        let copied = silt.checkpoint(&mut Elsewhere);
        assert_eq!(copied.is_ok(), is_there, "{gone}: {copied:?}");
    }
}
