//! A program of its own, because the kernel counts addresses by process.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::ManualClock;
use siltstone_mica::{Options, Store};
use siltstone_runtime::Env;

/// Addresses that are taken, and mappings.
fn taken() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap().to_owned();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (kib << 10, std::fs::read_to_string("/proc/self/maps").unwrap().lines().count())
}

/// Of a mirrored log both halves, what was reserved around them, and the first look for huge pages.
#[test]
fn is_all_given_back_when_a_store_is_dropped() {
    for text in ["mode=cache mapping=mirrored", "mode=cache mapping=plain", "mode=store"] {
        let pairs = [text, "memory=9MiB partitions=2"].join(" ");
        let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
        let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = Options::from_map(&map).unwrap();
        let open =
            || Store::new(&Env::replayable(Arc::new(ManualClock::at(1)), 1), options.clone());
        drop(open().unwrap());
        let before = taken();
        for _ in 0..100 {
            drop(open().unwrap());
        }
        let after = taken();
        // A store is 9 MiB, twice that with a mirror.
        assert!(after.0 < before.0 + (16 << 20), "{text}: {before:?} {after:?}");
        assert!(after.1 < before.1 + 20, "{text}: {before:?} {after:?}");
    }
}
