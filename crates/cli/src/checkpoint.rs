//! `checkpoint`: a fast copy of a whole store.

use std::path::PathBuf;

use clap::Args;
use siltstone::Db;

use crate::outcome::{CommandResult, Outcome};
use crate::store::read_only;

/// Copy a store into a new directory
///
/// The copy opens as a store. Immutable files are linked, not copied, if both directories are on
/// one file system: so it is fast, and takes space only as the two diverge. For a backup, copy the
/// copy to another disk.
#[derive(Args)]
pub(crate) struct Checkpoint {
    /// The directory of the store
    dir: PathBuf,
    /// The directory of the copy, which must not exist
    target: PathBuf,
}

impl Checkpoint {
    pub(crate) fn run(self) -> CommandResult {
        let db = Db::open(&self.dir, read_only())?;
        db.checkpoint(&self.target)?;
        db.close()?;
        Ok(Outcome::Done)
    }
}
