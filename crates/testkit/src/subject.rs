//! What an engine tells the kit about itself: how it is opened, and in how many ways.
//!
//! A *variant* is a set of options. Variants should be small in everything (memtables, blocks,
//! tables, levels), so that a few hundred operations reach every part of the engine, and should
//! differ in everything that has a choice.
//!
//! Invariant: opening the same medium with another variant than it was written with is allowed;
//! answers don't hang on variants.
//!
//! Source: ours; one history over many option sets is how Pebble's metamorphic tests work.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::reference::{self, Bug, Reference};

/// An engine under test.
pub trait Subject: Send + Sync {
    /// The engine's name.
    fn name(&self) -> &'static str;

    /// The option sets, in words; at least one.
    fn option_sets(&self) -> &[&'static str];

    /// How many option sets there are.
    fn variants(&self) -> u32 {
        self.option_sets().len() as u32
    }

    /// What the option set is, for reports.
    fn describe(&self, variant: u32) -> String {
        self.option_sets()[variant as usize].to_owned()
    }

    /// What the engine can do.
    fn capabilities(&self) -> Capabilities;

    /// Opens the engine with an option set.
    ///
    /// # Errors
    /// The engine's.
    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, variant: u32) -> Result<Box<dyn Engine>>;

    /// Whether the file is the whole store by itself: an older copy of it is an older store, and
    /// nothing tells it from the newest.
    fn is_whole_store(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// Damage that the engine cannot repair: a file, and a kind of damage as the check names it.
    fn gives_up_on(&self, path: &str, damage: &str) -> bool {
        let _ = (path, damage);
        false
    }

    /// Repairs what is there, which is kept with this option set, if the engine can.
    ///
    /// # Errors
    /// The engine's.
    fn repair(&self, vfs: &Arc<dyn Vfs>, variant: u32) -> Result<RepairReport> {
        let _ = (vfs, variant);
        Ok(RepairReport::default())
    }
}

/// Options from words `name=value` with spaces between them; of two with one name the last counts. Other
/// words are for the test.
pub fn options<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeMap<String, String> {
    let words = texts.into_iter().flat_map(|text| text.split(' '));
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The reference engine as a subject, with a bug planted or not.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceSubject {
    /// What it does wrong.
    pub bug: Option<Bug>,
}

impl Subject for ReferenceSubject {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn option_sets(&self) -> &[&'static str] {
        &["one", "the same"]
    }

    fn describe(&self, _variant: u32) -> String {
        self.bug.map_or("sound".to_owned(), |bug| format!("{bug:?}"))
    }

    fn capabilities(&self) -> Capabilities {
        reference::CAPABILITIES
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, _variant: u32) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Reference::open(vfs, env, self.bug)?))
    }
}
