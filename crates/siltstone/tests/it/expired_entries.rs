//! `expired_entries_dropped` counts each entry that expiry removed once, on every engine, and no
//! entry that was overwritten or deleted before it expired.

use std::sync::Arc;

use siltstone::{Durability, Engine, Env, ManualClock, WriteBatch, engines};
use siltstone_vfs::Ram;

/// The number of entries that expire.
const EXPIRING: u64 = 20;
/// When they expire.
const EXPIRY: u64 = 2_000;

fn open(name: &str, options: &str, clock: &Arc<ManualClock>) -> Arc<dyn Engine> {
    let pairs = options.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    let options = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let env = Env::replayable(clock.clone(), 1);
    engines::open(name, Arc::new(Ram::new()), &env, &options).unwrap()
}

fn write(engine: &dyn Engine, fill: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    fill(&mut batch);
    engine.write(&batch, Durability::Buffered).unwrap();
}

fn expiring_key(number: u64) -> Vec<u8> {
    format!("expires {number:02}").into_bytes()
}

fn dropped(engine: &dyn Engine) -> u64 {
    engine.stats().expired_entries_dropped
}

/// Writes entries that expire, and others; then the time comes.
fn expire(engine: &dyn Engine, clock: &ManualClock) {
    for number in 0..EXPIRING {
        write(engine, |batch| {
            batch.put_until(&expiring_key(number), &[7; 300], EXPIRY).put(b"stays", b"v");
            for key in [b"overwritten", b"deleted    "] {
                batch.put_until(key, b"v", EXPIRY);
            }
        });
        if number == EXPIRING / 2 {
            engine.flush().unwrap();
        }
    }
    write(engine, |batch| {
        batch.put(b"overwritten", b"new").delete(b"deleted    ");
    });
    clock.set(EXPIRY);
    for number in 0..EXPIRING {
        assert_eq!(engine.get(&expiring_key(number)).unwrap(), None);
    }
    assert_eq!(dropped(engine), 0, "nothing is dropped yet");
}

/// Entries are dropped by background work.
fn check_durable(name: &str, options: &str) {
    let clock = Arc::new(ManualClock::at(1_000));
    let engine = open(name, options, &clock);
    expire(engine.as_ref(), &clock);
    let round = |round: u64| {
        for number in 0..60 {
            let key = (number * 7 + round).to_be_bytes();
            write(engine.as_ref(), |batch| _ = batch.put(&key, &[round as u8; 300]));
        }
        engine.flush().unwrap();
        engine.maintain().unwrap();
    };
    let mut rounds = 0;
    while dropped(engine.as_ref()) < EXPIRING && rounds < 40 {
        round(rounds);
        rounds += 1;
    }
    assert_eq!(dropped(engine.as_ref()), EXPIRING, "{name} {options}");
    (rounds..rounds + 4).for_each(round);
    assert_eq!(dropped(engine.as_ref()), EXPIRING, "{name} {options}: each once");
    assert_eq!(engine.get(b"overwritten").unwrap().unwrap().value, b"new");
    engine.close().unwrap();
}

#[test]
fn lsm_counts_entries_that_a_compaction_drops() {
    check_durable("lsm", "l0_capacity=0 triad.log=off experimental.l0_compaction_trigger=2");
    check_durable("lsm", "l0_capacity=64KiB memtable=16KiB");
}

#[test]
fn trie_counts_entries_that_a_flush_or_a_spill_drops() {
    check_durable("trie", "htable_size=16KiB bucket_size=512 levels=3");
}

#[test]
fn silt_counts_entries_that_a_merge_drops() {
    check_durable("silt", "slots=64 hash_stores=1 stop=4 partitions=2");
}

#[test]
fn skimpy_counts_entries_that_collection_drops() {
    for mapping in ["skimpy", "semel", "vftl"] {
        check_durable("skimpy", &format!("capacity=1MiB block=4 buckets=8 mapping={mapping}"));
    }
}

/// `mica` drops an expired entry for a later write of its key, or evicts it.
#[test]
fn mica_counts_entries_that_a_write_or_an_eviction_drops() {
    for mode in ["store", "cache"] {
        let clock = Arc::new(ManualClock::at(1_000));
        let engine = open("mica", &format!("mode={mode} memory=32MiB partitions=1"), &clock);
        let engine = engine.as_ref();
        expire(engine, &clock);
        for (number, is_counted) in (0..EXPIRING).map(expiring_key).zip([true, false].repeat(10)) {
            let before = dropped(engine);
            match is_counted {
                true => write(engine, |batch| _ = batch.put(&number, b"again")),
                false => write(engine, |batch| _ = batch.delete(&number).put(b"stays", b"w")),
            }
            assert_eq!(dropped(engine), before + 1, "{mode}");
            write(engine, |batch| _ = batch.delete(&number));
            assert_eq!(dropped(engine), before + 1, "{mode}: once");
        }
    }
    let clock = Arc::new(ManualClock::at(1_000));
    let engine = open("mica", "mode=cache memory=32MiB partitions=1", &clock);
    expire(engine.as_ref(), &clock);
    for number in 0..400_000u64 {
        write(engine.as_ref(), |batch| _ = batch.put(&number.to_be_bytes(), &[7; 100]));
    }
    assert_eq!(dropped(engine.as_ref()), EXPIRING);
    assert!(engine.stats().counters["evictions"] > 0);
}
