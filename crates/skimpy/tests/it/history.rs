//! Time travel: every version above the watermark is readable, and times below it are refused.
//!
//! An oracle keeps all versions with their times. The device is small, so chains are collected
//! permanently.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, ReadPoint, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::TestRng;
use siltstone_vfs::{Ram, Vfs};

fn options(more: &[(&str, &str)]) -> Options {
    let base = [("capacity", "1MiB"), ("block", "4"), ("buckets", "4"), ("reserved_space", "0.6")];
    let map: BTreeMap<String, String> =
        base.iter().chain(more).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    Options::from_map(&map).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>, clock: &Arc<ManualClock>, more: &[(&str, &str)]) -> Skimpy {
    let env = Env::replayable(clock.clone(), 1);
    Skimpy::open(vfs.clone(), env, options(more))
        .unwrap_or_else(|error| panic!("{more:?}: {error}"))
}

fn fresh() -> (Arc<dyn Vfs>, Arc<ManualClock>) {
    (Arc::new(Ram::new()), Arc::new(ManualClock::at(10_000)))
}

fn put(engine: &Skimpy, key: &[u8], value: &[u8]) -> Result<(), Error> {
    engine.write(WriteBatch::new().put(key, value), Durability::Buffered)
}

/// By key: the time and value of each write.
type History = BTreeMap<Vec<u8>, Vec<(u64, Option<Vec<u8>>)>>;

fn then(history: &History, key: &[u8], time: u64) -> Option<Vec<u8>> {
    let versions = history.get(key)?;
    versions.iter().rev().find(|(at, _)| *at <= time)?.1.clone()
}

fn check_at(engine: &Skimpy, history: &History, point: &ReadPoint, time: u64) {
    for key in history.keys() {
        let found = engine.get_at(key, point).unwrap().map(|entry| entry.value);
        assert_eq!(found, then(history, key, time), "{:?} at {time}", key.escape_ascii());
    }
}

#[test]
fn versions_above_the_watermark_are_readable() {
    for (mapping, cache) in [("skimpy", "0"), ("skimpy", "1000"), ("semel", "0"), ("vftl", "0")] {
        let seeds = std::env::var("SILTSTONE_HISTORIES").map_or(6, |text| text.parse().unwrap());
        for seed in 0..seeds {
            let more = [("retention", "300ms"), ("mapping", mapping), ("cache", cache)];
            let (vfs, clock) = fresh();
            let mut engine = open(&vfs, &clock, &more);
            let mut rng = TestRng::of(seed, 77);
            let mut history = History::new();
            let mut now = 10_000;
            let mut held: Vec<(ReadPoint, u64)> = Vec::new();
            for _ in 0..900 {
                // One version per millisecond, so that times identify versions.
                now += 1;
                clock.set(now);
                let key = vec![b'k', rng.below(12) as u8];
                let versions = history.entry(key.clone()).or_default();
                if rng.one_in(6) {
                    engine.write(WriteBatch::new().delete(&key), Durability::Buffered).unwrap();
                    versions.push((now, None));
                } else {
                    let value = {
                        let len = rng.index(700);
                        rng.bytes(len)
                    };
                    put(&engine, &key, &value).unwrap();
                    versions.push((now, Some(value)));
                }
                match rng.below(40) {
                    0 => engine.maintain().unwrap(),
                    1 => {
                        let back = rng.below(300);
                        let time = now - back;
                        if let Ok(point) = engine.at(time) {
                            check_at(&engine, &history, &point, time);
                            held.push((point, time));
                        }
                    }
                    2 if !held.is_empty() => drop(held.remove(0)),
                    3 => {
                        for (point, time) in &held {
                            check_at(&engine, &history, point, *time);
                        }
                    }
                    4 => {
                        held.clear();
                        if rng.one_in(2) {
                            engine.close().unwrap();
                        }
                        drop(engine);
                        engine = open(&vfs, &clock, &more);
                    }
                    _ => {}
                }
                if held.len() > 3 {
                    held.remove(0);
                }
            }
            // Every time within the retention.
            for time in (now - 299..=now).step_by(13) {
                let point = engine.at(time).unwrap();
                check_at(&engine, &history, &point, time);
            }
        }
    }
}

#[test]
fn times_below_the_watermark_and_in_the_future_are_refused() {
    let (vfs, clock) = fresh();
    let engine = open(&vfs, &clock, &[("retention", "100ms")]);
    put(&engine, b"k", b"1").unwrap();
    clock.set(10_500);
    put(&engine, b"k", b"2").unwrap();
    let early = engine.at(10_000).unwrap();
    // More than a block, so that a collection has something to do.
    let fill = |engine: &Skimpy| {
        for _ in 0..10 {
            put(engine, b"large", &[1; 3000]).unwrap();
        }
        engine.maintain().unwrap();
    };
    fill(&engine);
    assert_eq!(engine.get_at(b"k", &early).unwrap().unwrap().value, b"1");
    drop(early);
    fill(&engine);
    let Err(Error::BelowWatermark { watermark }) = engine.at(10_000) else { panic!() };
    assert!((10_001..=10_500).contains(&watermark), "{watermark}");
    assert!(matches!(engine.at(10_501), Err(Error::Invalid(_))));
    // The present is readable, and later writes of this millisecond are not visible in it.
    let now = engine.at(10_500).unwrap();
    put(&engine, b"k", b"3").unwrap();
    assert_eq!(engine.get_at(b"k", &now).unwrap().unwrap().value, b"2");
    assert_eq!(engine.get(b"k").unwrap().unwrap().value, b"3");
    // The watermark is durable.
    drop((now, engine));
    let engine = open(&vfs, &clock, &[("retention", "100ms")]);
    assert!(matches!(engine.at(10_000), Err(Error::BelowWatermark { .. })));
}

#[test]
fn read_point_at_the_present_does_not_lose_buffered_writes() {
    let (vfs, clock) = fresh();
    let engine = open(&vfs, &clock, &[]);
    put(&engine, b"a", b"1").unwrap();
    drop(engine.at(10_000).unwrap());
    put(&engine, b"b", b"2").unwrap();
    drop(engine);
    let engine = open(&vfs, &clock, &[]);
    assert_eq!(engine.get(b"a").unwrap().unwrap().value, b"1");
    assert_eq!(engine.get(b"b").unwrap().unwrap().value, b"2");
    // Also if the last discard is later than the last batch.
    engine.at(10_000).unwrap();
    engine.maintain().unwrap();
    drop(engine);
    let engine = open(&vfs, &clock, &[]);
    let point = engine.snapshot().unwrap();
    put(&engine, b"a", b"3").unwrap();
    assert_eq!(engine.get_at(b"a", &point).unwrap().unwrap().value, b"1");
}

#[test]
fn records_that_just_fit_a_page_are_relocated() {
    for mapping in ["skimpy", "semel"] {
        let (vfs, clock) = fresh();
        let more = [("mapping", mapping), ("reserved_space", "0.9")];
        let engine = open(&vfs, &clock, &more);
        // Sizes around the largest that fits a page with its key; at least one per bucket.
        for size in 3980..4060u32 {
            put(&engine, &size.to_be_bytes(), &vec![7; size as usize]).unwrap();
            engine.maintain().unwrap();
        }
        engine.close().unwrap();
        let engine = open(&vfs, &clock, &more);
        for size in 3980..4060u32 {
            let found = engine.get(&size.to_be_bytes()).unwrap().map(|entry| entry.value.len());
            assert_eq!(found, Some(size as usize), "{mapping}");
        }
    }
}

#[test]
fn space_of_old_versions_is_freed() {
    for mapping in ["skimpy", "semel"] {
        let (vfs, clock) = fresh();
        let engine = open(&vfs, &clock, &[("mapping", mapping)]);
        let write_all = |value: u8| {
            for key in 0..20u8 {
                put(&engine, &[key], &[value; 900]).unwrap();
            }
        };
        write_all(0);
        engine.maintain().unwrap();
        engine.maintain().unwrap();
        let floor = engine.stats().space_bytes;
        let point = engine.snapshot().unwrap();
        for round in 1..12 {
            let other = engine.snapshot().unwrap();
            write_all(round);
            std::mem::forget(other);
        }
        engine.maintain().unwrap();
        assert!(engine.stats().space_bytes > 2 * floor, "{mapping}: nothing was kept");
        assert_eq!(engine.get_at(&[3], &point).unwrap().unwrap().value, [0; 900]);
        // Leaked snapshots stay pinned until the table is reopened.
        drop((point, engine));
        let engine = open(&vfs, &clock, &[("mapping", mapping)]);
        for _ in 0..3 {
            engine.maintain().unwrap();
        }
        let now = engine.stats().space_bytes;
        assert!(now <= floor + 6 * 4 * 4096, "{mapping}: {now} of {floor} bytes");
        assert_eq!(engine.get(&[3]).unwrap().unwrap().value, [11; 900]);
    }
}

#[test]
fn full_device_refuses_writes_and_serves_reads() {
    for mapping in ["skimpy", "semel", "vftl"] {
        let (vfs, clock) = fresh();
        let engine = open(&vfs, &clock, &[("mapping", mapping)]);
        let mut written = 0u32;
        let error = loop {
            match put(&engine, &written.to_be_bytes(), &[7; 1500]) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 10_000);
        };
        assert!(error.is_disk_full(), "{error}");
        assert!(written > 100, "{mapping}: {written}");
        for key in 0..written {
            let found = engine.get(&key.to_be_bytes()).unwrap();
            assert_eq!(found.unwrap().value, [7; 1500], "{mapping}: {key} of {written}");
        }
        drop(engine);
        let engine = open(&vfs, &clock, &[("mapping", mapping)]);
        assert!(engine.get(&(written / 2).to_be_bytes()).unwrap().is_some());
    }
}

#[test]
fn device_of_another_geometry_or_mapping_is_refused_by_name() {
    let (vfs, clock) = fresh();
    open(&vfs, &clock, &[]).close().unwrap();
    for (more, words) in
        [([("block", "8")], "another geometry"), ([("mapping", "semel")], "mapping=skimpy")]
    {
        let env = Env::replayable(clock.clone(), 1);
        let Err(Error::Refused { path, reason }) = Skimpy::open(vfs.clone(), env, options(&more))
        else {
            panic!("{more:?} is not refused");
        };
        assert!(path.contains("flash") && reason.contains(words), "{path}: {reason}");
    }
}
