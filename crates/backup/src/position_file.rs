//! The file `ARCHIVE` in the directory of a store: the series to which its changes go.
//!
//! ```text
// ANCHOR: layout
//!   {"version":1,"series":"20261129T150400Z-0f3a96c1","number":12,"hash":…,"previous":…}\n  HASH\n
// ANCHOR_END: layout
//! ```
//!
//! It is replaced, durably, before segment `number` with that hash is written, and names the hash
//! of the segment before. So after a crash the last segment is `number`, or the one before, and has
//! the hash that is stated here. Otherwise the store or the repository was replaced by another copy
//! of itself, and the two have different histories: then the series is not continued.
//!
//! Checkpoints and backups leave the file out, so that a restored store begins a series of its own.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use siltstone_engine::Result;
use siltstone_vfs::Vfs;

use crate::sealed;
use crate::segment::{Hash, NO_SEGMENT};
use crate::storage::{Directory, Storage};

const NAME: &str = "ARCHIVE";
const VERSION: u32 = 1;

/// The content of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PositionFile {
    version: u32,
    pub(crate) series: String,
    /// The last segment, which may not be written.
    pub(crate) number: u64,
    hash: String,
    previous: String,
}

impl PositionFile {
    pub(crate) fn new(series: String, number: u64, hash: Hash, previous: Hash) -> Self {
        let (hash, previous) = (hash.to_hex().to_string(), previous.to_hex().to_string());
        PositionFile { version: VERSION, series, number, hash, previous }
    }

    /// The position of a store; `None` if it has none, or if the file is damaged.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn read(store: &Arc<dyn Vfs>) -> Result<Option<Self>> {
        let Some(bytes) = Directory::new(store.clone()).read(NAME)? else { return Ok(None) };
        let position = sealed::parse::<Self>(NAME, &bytes).ok();
        Ok(position.filter(|position| position.version == VERSION))
    }

    /// Replaces the file, durably.
    pub(crate) fn write(&self, store: &Arc<dyn Vfs>) -> Result<()> {
        let store = Directory::new(store.clone());
        store.write(NAME, &sealed::seal(self)?)?;
        store.sync()
    }

    /// Whether segment `number` has this hash, as 64 hex digits.
    pub(crate) fn is_hash_of_last(&self, hash: &str) -> bool {
        self.hash == hash
    }

    /// The hash of the last segment of the series, if it is `number`; `None` if it cannot be that.
    pub(crate) fn hash_of(&self, number: u64) -> Option<Hash> {
        let hash = match self.number.checked_sub(number)? {
            0 => &self.hash,
            1 => &self.previous,
            _ => return None,
        };
        Hash::from_hex(hash).ok().filter(|hash| *hash != NO_SEGMENT)
    }
}
