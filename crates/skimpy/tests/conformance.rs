//! The engine passes the conformance kit with every option set.
//!
//! The device is small and most of it is kept free, so that a few hundred writes go round it several
//! times: blocks are collected, erased and used again within a history.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, Env, Result};
use siltstone_media::Media;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::Subject;

struct SkimpySubject;

/// What all option sets share: what is fixed when a table is made.
const SMALL: &str = "capacity=2MiB block=4 buckets=8";

const VARIANTS: [&str; 6] = [
    "free=0.9",
    "free=0.5 cache=16",
    "free=0.9 lanes=3 pack=5ms",
    "free=0.1 cache=1000",
    "free=0.9 retention=100ms",
    "free=0.9 pack=0s lanes=2",
];

fn options(variant: u32) -> Options {
    let pairs = SMALL.split(' ').chain(VARIANTS[variant as usize].split(' '));
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Options::from_map(&map).expect("option sets are legal")
}

impl Subject for SkimpySubject {
    fn name(&self) -> &'static str {
        "skimpy"
    }

    fn variants(&self) -> u32 {
        VARIANTS.len() as u32
    }

    fn describe(&self, variant: u32) -> String {
        VARIANTS[variant as usize].to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: true,
            max_value_bytes: options(0).max_value_bytes(),
        }
    }

    fn open(&self, media: Arc<dyn Media>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Skimpy::open(media, env, options(variant))?))
    }
}

siltstone_testkit::conformance!(SkimpySubject);
