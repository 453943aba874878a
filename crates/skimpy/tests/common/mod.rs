//! The engine as a subject of the conformance kit, by its mapping.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, Env, Result};
use siltstone_media::Media;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::Subject;

/// What all option sets share: what is fixed when a table is made.
const SMALL: &str = "block=4 buckets=8";
/// So small that a history goes round it.
const CAPACITY: &str = "2MiB";
/// On the machine's disk, where the kit writes for as long as a process lives.
const CAPACITY_ON_DISK: &str = "64MiB";

/// A mapping and its option sets.
pub(crate) struct MappingSubject {
    pub(crate) mapping: &'static str,
    pub(crate) variants: &'static [&'static str],
}

impl MappingSubject {
    fn options(&self, variant: u32, capacity: &str) -> Options {
        let pairs = SMALL.split(' ').chain(self.variants[variant as usize].split(' '));
        let pairs = pairs
            .filter_map(|pair| pair.split_once('='))
            .chain([("mapping", self.mapping), ("capacity", capacity)]);
        let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Options::from_map(&map).expect("option sets are legal")
    }
}

impl Subject for MappingSubject {
    fn name(&self) -> &'static str {
        "skimpy"
    }

    fn variants(&self) -> u32 {
        self.variants.len() as u32
    }

    fn describe(&self, variant: u32) -> String {
        format!("{}, {}", self.mapping, self.variants[variant as usize])
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: true,
            max_value_bytes: self.options(0, CAPACITY).max_value_bytes(),
        }
    }

    fn open(&self, media: Arc<dyn Media>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        let capacity = if media.path().is_some() { CAPACITY_ON_DISK } else { CAPACITY };
        Ok(Box::new(Skimpy::open(media, env, self.options(variant, capacity))?))
    }
}
