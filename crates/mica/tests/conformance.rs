//! The conformance kit for in-memory engines, over all option sets.
//!
//! Stores have few buckets, so that chains are long; caches have room for everything that a history
//! writes, so that they may lose nothing either. Evictions have their own tests in
//! `partition::tests`.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{
    Capabilities, Cursor, Durability, Engine, Entry, Result, WriteBatch, forward_engine,
};
use siltstone_mica::{Access, Mica, Options};
use siltstone_runtime::Env;
use siltstone_testkit::{EngineUnderTest, Scale, concurrent, engine_under_test, linear};
use siltstone_vfs::Vfs;

struct MicaUnderTest;

/// Mirrors are for Linux only.
const MIRRORED: [&str; 2] = match cfg!(all(target_os = "linux", not(siltstone_portable))) {
    true => [
        "mode=cache access=crew eviction=approximate partitions=1 mapping=mirrored",
        "mode=cache access=erew eviction=s3-fifo mapping=mirrored cas=on",
    ],
    false => [
        "mode=cache access=crew eviction=approximate partitions=1",
        "mode=cache access=erew eviction=clock cas=on",
    ],
};

/// In the last two, the access mode changes every few operations.
const VARIANTS: [&str; 14] = [
    "mode=store access=erew",
    "mode=store access=crew experimental.buckets=12 overflow_ratio=1 partitions=1",
    "mode=store access=crcw partitions=1",
    "mode=cache access=erew eviction=fifo",
    "mode=cache access=crew eviction=s3-fifo",
    "mode=cache access=crcw eviction=s3-fifo",
    "mode=cache access=erew eviction=lru mapping=plain",
    "mode=cache access=crcw eviction=lru partitions=1",
    MIRRORED[0],
    MIRRORED[1],
    "mode=store access=crcw experimental.buckets=4 overflow_ratio=1 partitions=16 cas=on",
    "mode=store access=crew partitions=8 prefetch_distance=1",
    "mode=store partitions=2 switching",
    "mode=cache partitions=2 switching",
];

fn options(variant: u32) -> Options {
    let text = VARIANTS[variant as usize];
    let memory = if text.contains("cache") { "memory=512MiB" } else { "memory=160MiB" };
    let map = engine_under_test::options([
        text,
        memory,
        "experimental.hash_seed=7 expected_item_bytes=20KiB",
    ]);
    Options::from_map(&map).expect("option sets are legal")
}

impl EngineUnderTest for MicaUnderTest {
    fn name(&self) -> &'static str {
        "mica"
    }

    fn option_sets(&self) -> &[&'static str] {
        &VARIANTS
    }

    fn capabilities(&self) -> Capabilities {
        // The maximum: every option set has enough memory.
        Capabilities {
            ordered: false,
            durable: false,
            versioned: false,
            incremental_gc: false,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: options(0).max_value_bytes(),
        }
    }

    fn open(&self, _media: Arc<dyn Vfs>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        let mica = Mica::open(env, options(variant))?;
        match VARIANTS[variant as usize].contains("switching") {
            true => Ok(Box::new(AccessSwitcher { mica, next_access: AtomicU64::new(0) })),
            false => Ok(Box::new(mica)),
        }
    }
}

/// The engine with an access mode that changes during operation.
struct AccessSwitcher {
    mica: Mica,
    next_access: AtomicU64,
}

impl AccessSwitcher {
    fn next_access(&self) -> &Mica {
        let next_access = self.next_access.fetch_add(1, Relaxed);
        if next_access.is_multiple_of(5) {
            let modes = [Access::Crew, Access::Erew, Access::Crcw, Access::Crew, Access::Crcw];
            self.mica.store().set_access(modes[(next_access / 5) as usize % modes.len()]);
        }
        &self.mica
    }
}

impl Engine for AccessSwitcher {
    forward_engine!(mica: name capabilities sync flush maintain checkpoint verify stats close);

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.next_access().get(key)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.next_access().write(batch, durability)
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.next_access().iter()
    }
}

/// The kit cycles through the option sets, one per round; this runs every one, so that operations
/// are linearizable in each access mode, and while it changes.
#[test]
fn operations_are_linearizable_in_every_mode() {
    let rounds = u64::from(MicaUnderTest.option_set_count());
    let scale = Scale { rounds: Scale::from_env().rounds.max(rounds), ..Scale::from_env() };
    linear::linearizable(&MicaUnderTest, &scale).unwrap();
    concurrent::threads(&MicaUnderTest, &scale).unwrap();
}

siltstone_testkit::conformance!(in_memory MicaUnderTest);
