//! Address space of a store is released. A separate program, because the kernel counts per process.

#![cfg(all(target_os = "linux", not(siltstone_portable)))]
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::ManualClock;
use siltstone_mica::{Options, Store};
use siltstone_runtime::Env;

/// Size of the address space, and number of mappings.
fn address_space() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmSize:")).unwrap().to_owned();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (kib << 10, std::fs::read_to_string("/proc/self/maps").unwrap().lines().count())
}

/// For a mirrored log: both halves, the reservation around them, and the probe for huge pages.
#[test]
fn dropped_store_releases_address_space() {
    for text in ["mode=cache mapping=mirrored", "mode=cache mapping=plain", "mode=store"] {
        let pairs = [text, "memory=9MiB partitions=2"].join(" ");
        let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
        let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let options = Options::from_map(&map).unwrap();
        let open =
            || Store::new(&Env::replayable(Arc::new(ManualClock::at(1)), 1), options.clone());
        drop(open().unwrap());
        let before = address_space();
        for _ in 0..100 {
            drop(open().unwrap());
        }
        let after = address_space();
        // A store has 9 MiB, twice that with a mirror.
        assert!(after.0 < before.0 + (16 << 20), "{text}: {before:?} {after:?}");
        assert!(after.1 < before.1 + 20, "{text}: {before:?} {after:?}");
    }
}
