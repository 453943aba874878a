//! The engine under test: how to open it, with which options.
//!
//! An *option set* should be small in everything (memtables, blocks, tables, levels), so that a few
//! hundred operations reach every part of the engine. Together the option sets should cover every
//! choice.
//!
//! Invariant: a table may be opened with another option set than it was written with; results do
//! not depend on the option set.
//!
//! Source: one history over many option sets, after Pebble's metamorphic tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, Error, RepairReport, Result, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::reference::{self, Bug, Reference};

/// An engine under test.
pub trait EngineUnderTest: Send + Sync {
    /// The engine's name.
    fn name(&self) -> &'static str;

    /// The option sets as text; at least one.
    fn option_sets(&self) -> &[&'static str];

    /// The number of option sets.
    fn option_set_count(&self) -> u32 {
        self.option_sets().len() as u32
    }

    /// A description of the option set, for reports.
    fn describe(&self, option_set: u32) -> String {
        self.option_sets()[option_set as usize].to_owned()
    }

    /// The capabilities of the engine.
    fn capabilities(&self) -> Capabilities;

    /// Opens the engine with an option set.
    ///
    /// # Errors
    /// The engine's.
    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, option_set: u32) -> Result<Box<dyn Engine>>;

    /// The files of a table as the engine reads and writes them, e.g. decrypted.
    fn view(&self, vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        vfs
    }

    /// Whether the file is the whole store: an older copy of it is an older store, and cannot be
    /// distinguished from the newest.
    fn is_whole_store(&self, path: &str) -> bool {
        let _ = path;
        false
    }

    /// Whether the engine cannot repair this kind of damage to this file.
    fn is_unrepairable(&self, path: &str, damage: &str) -> bool {
        let _ = (path, damage);
        false
    }

    /// Whether tables with this option set ingest sorted files.
    fn ingests(&self, option_set: u32) -> bool {
        let _ = option_set;
        false
    }

    /// Writes the puts and deletes of `batch`, whose keys ascend, to the sorted file `name` in
    /// `vfs`.
    ///
    /// # Errors
    /// The engine's.
    fn write_sorted_file(
        &self,
        vfs: Arc<dyn Vfs>,
        name: &str,
        batch: &WriteBatch,
        option_set: u32,
    ) -> Result<()> {
        let _ = (vfs, name, batch, option_set);
        Err(Error::Unsupported { engine: self.name(), operation: "sorted files" })
    }

    /// Repairs a table with this option set, if the engine can.
    ///
    /// # Errors
    /// The engine's.
    fn repair(&self, vfs: &Arc<dyn Vfs>, option_set: u32) -> Result<RepairReport> {
        let _ = (vfs, option_set);
        Ok(RepairReport::default())
    }
}

/// Parses options `name=value`, separated by spaces; of two with one name the last counts. Other
/// words are for the test.
pub fn options<'t>(texts: impl IntoIterator<Item = &'t str>) -> BTreeMap<String, String> {
    let words = texts.into_iter().flat_map(|text| text.split(' '));
    let pairs = words.filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The reference engine under test, with or without a planted bug.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReferenceUnderTest {
    /// The planted bug.
    pub bug: Option<Bug>,
}

impl EngineUnderTest for ReferenceUnderTest {
    fn name(&self) -> &'static str {
        "reference"
    }

    fn option_sets(&self) -> &[&'static str] {
        &["first", "same as the first"]
    }

    fn describe(&self, _variant: u32) -> String {
        self.bug.map_or("no bug".to_owned(), |bug| format!("{bug:?}"))
    }

    fn capabilities(&self) -> Capabilities {
        reference::CAPABILITIES
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, _variant: u32) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Reference::open(vfs, env, self.bug)?))
    }
}
