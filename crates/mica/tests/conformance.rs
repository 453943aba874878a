//! The mica engine passes the part of the conformance kit that is for engines in memory.
//!
//! Stores have so few buckets that chains are long; caches have room for all that a history writes,
//! so that they may lose nothing either. Evictions have tests of their own, where what is gone is
//! allowed to be (`cache.rs`).

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, Env, Result};
use siltstone_media::Media;
use siltstone_mica::{Mica, Options};
use siltstone_testkit::Subject;

struct MicaSubject;

const VARIANTS: [&str; 12] = [
    "mode=store access=erew",
    "mode=store access=crew buckets=12 spare=1 partitions=1",
    "mode=store access=crcw partitions=1",
    "mode=cache access=erew eviction=fifo",
    "mode=cache access=crew eviction=clock",
    "mode=cache access=crcw eviction=clock",
    "mode=cache access=erew eviction=lru mapping=plain",
    "mode=cache access=crcw eviction=lru partitions=1",
    "mode=cache access=crew eviction=approximate partitions=1 mapping=mirrored",
    "mode=cache access=erew eviction=clock mapping=mirrored stamps=on",
    "mode=store access=crcw buckets=4 spare=1 partitions=16 stamps=on",
    "mode=store access=crew partitions=8 gap=1",
];

fn options(variant: u32) -> Options {
    let text = VARIANTS[variant as usize];
    let memory = if text.contains("cache") { "memory=512MiB" } else { "memory=160MiB" };
    let pairs = text.split(' ').chain([memory, "hash_seed=7", "item=20KiB"]);
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Options::from_map(&map).expect("option sets are legal")
}

impl Subject for MicaSubject {
    fn name(&self) -> &'static str {
        "mica"
    }

    fn variants(&self) -> u32 {
        VARIANTS.len() as u32
    }

    fn describe(&self, variant: u32) -> String {
        VARIANTS[variant as usize].to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        // The most that there is: every option set has room enough.
        Capabilities {
            ordered: false,
            durable: false,
            versioned: false,
            max_value_bytes: options(0).max_value_bytes(),
        }
    }

    fn open(&self, _media: Arc<dyn Media>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Mica::open(env, options(variant))?))
    }
}

siltstone_testkit::conformance!(in_memory MicaSubject);
