//! `checkpoint`: a copy of a whole store, quickly.

use std::path::PathBuf;

use clap::Args;
use siltstone::Db;

use crate::store::to_read;
use crate::{CommandResult, Outcome};

/// Copy a store into a new directory
///
/// The copy opens as a store. Files that will not change any more are linked, not copied, if both
/// directories are on one file system: so it is quick, and takes space only as the two grow apart. For
/// a backup, copy the copy to another disk.
#[derive(Args)]
pub(crate) struct Checkpoint {
    /// The directory of the store
    dir: PathBuf,
    /// The directory of the copy, which must not be there
    target: PathBuf,
}

impl Checkpoint {
    pub(crate) fn run(self) -> CommandResult {
        let db = Db::open(&self.dir, to_read())?;
        db.checkpoint(&self.target)?;
        db.close()?;
        Ok(Outcome::Done)
    }
}
