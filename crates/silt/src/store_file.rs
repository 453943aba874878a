//! The files of an open store: its data, and a filter or index derived from them.
//!
//! Invariant: the files of a retired store are removed when the last version that names it is
//! dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::FileSum;
use siltstone_vfs::{File, Mode, Vfs};

use crate::file::{Footer, read_derived};
use crate::names::Kind;
use crate::store_entry::StoreEntry;

/// The open data file of a store, and the state of its derived file.
pub(crate) struct StoreFile {
    pub(crate) vfs: Arc<dyn Vfs>,
    pub(crate) file: Arc<dyn File>,
    pub(crate) name: String,
    pub(crate) sum: FileSum,
    entry: StoreEntry,
    /// The kinds of the data file and of the derived file.
    kinds: [Kind; 2],
    /// Bytes of the derived file; 0: unknown.
    derived_bytes: AtomicU64,
    /// The reason why the derived file was rebuilt, if it was.
    warning: OnceLock<String>,
    obsolete: AtomicBool,
}

impl StoreFile {
    pub(crate) fn open(vfs: &Arc<dyn Vfs>, kinds: [Kind; 2], entry: StoreEntry) -> Result<Self> {
        let name = kinds[0].name(entry.number);
        Ok(StoreFile {
            vfs: vfs.clone(),
            file: vfs.open(&name, Mode::Read)?,
            name,
            sum: FileSum::new(entry.number),
            entry,
            kinds,
            derived_bytes: AtomicU64::new(0),
            warning: OnceLock::new(),
            obsolete: AtomicBool::new(false),
        })
    }

    /// The fields of the footer, and its offset.
    pub(crate) fn read_footer(&self, footer: &Footer, purpose: Purpose) -> Result<(Vec<u8>, u64)> {
        footer.read(self.file.as_ref(), &self.name, self.sum, purpose)
    }

    pub(crate) fn entry(&self) -> &StoreEntry {
        &self.entry
    }

    pub(crate) fn derived_name(&self) -> String {
        self.kinds[1].name(self.entry.number)
    }

    pub(crate) fn read_derived(&self, purpose: Purpose) -> Result<Vec<u8>> {
        read_derived(self.vfs.as_ref(), &self.derived_name(), self.entry.number, purpose)
    }

    /// Bytes of the data file and the derived file, if that is there. Cost: opens the derived file
    /// at the first call.
    pub(crate) fn bytes(&self) -> u64 {
        if self.derived_bytes.load(Ordering::Relaxed) == 0 {
            let file = self.vfs.open(&self.derived_name(), Mode::Read);
            let bytes = file.and_then(|file| file.len()).unwrap_or(0);
            self.derived_bytes.store(bytes, Ordering::Relaxed);
        }
        self.entry.bytes + self.derived_bytes.load(Ordering::Relaxed)
    }

    /// Records that the derived file was rebuilt because of `error`.
    pub(crate) fn warn(&self, error: &Error) {
        let _ = self.warning.set(format!("{error}: rebuilt from {}", self.name));
    }

    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.get().map(String::as_str)
    }

    /// The names of the store's files.
    pub(crate) fn names(&self) -> [String; 2] {
        self.kinds.map(|kind| kind.name(self.entry.number))
    }

    /// Marks the store as obsolete: no later version names it.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    pub(crate) fn corruption(&self, at: u64, reason: &str) -> Error {
        Error::corruption(&self.name, at, reason)
    }
}

impl Drop for StoreFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            discard(self.vfs.as_ref(), self.entry.number);
        }
    }
}

/// Removes the files of a store that no manifest names; the next open removes what remains.
pub(crate) fn discard(vfs: &dyn Vfs, number: u64) {
    for kind in [Kind::HashStore, Kind::Tails, Kind::Filter, Kind::SortedStore, Kind::Index] {
        let _ = vfs.remove(&kind.name(number));
    }
}
