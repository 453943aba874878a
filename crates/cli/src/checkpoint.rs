//! `checkpoint`: a fast copy of a whole store; `rekey`: another master key.

use std::path::PathBuf;

use clap::Args;
use siltstone::Db;
use siltstone::encryption::Keys;
use siltstone::maintenance;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::{keys, read_key_file, read_only, refuse_node};

/// Copy a store into a new directory
///
/// The copy opens as a store. Immutable files are linked, not copied, if both directories are on
/// one file system: so it is fast, and takes space only as the two diverge. For a backup, copy the
/// copy to another disk. The libraries of functions of a server are copied, too.
#[derive(Args)]
pub(crate) struct Checkpoint {
    /// The directory of the store
    dir: PathBuf,
    /// The directory of the copy, which must not exist
    target: PathBuf,
    /// Encrypt the copy with the first key of this file, and copy all files. Each file gets a new
    /// key
    #[arg(long, value_name = "FILE")]
    target_key_file: Option<PathBuf>,
    /// Do not encrypt the copy of an encrypted store
    #[arg(long, conflicts_with = "target_key_file")]
    decrypt: bool,
}

impl Checkpoint {
    pub(crate) fn run(self) -> CommandResult {
        refuse_node(&self.dir)?;
        let db = Db::open(&self.dir, read_only())?;
        let keys = match &self.target_key_file {
            Some(path) => read_key_file(path)?,
            None if self.decrypt => Keys::default(),
            None => keys(),
        };
        db.checkpoint_with_keys(&self.target, &keys)?;
        db.close()?;
        Ok(Outcome::Done)
    }
}

/// Wrap the keys of all files of an encrypted store with the first key of --key-file
///
/// Put the new key in front of the old one in the key file, run this, and remove the old key. Only
/// the headers of the files are written. Whoever knows the old key and has an old copy of a file
/// can still read it; `checkpoint --target-key-file` gives all files new keys. The store must be
/// closed. Exit status 1 if headers are damaged and were left as they are.
#[derive(Args)]
pub(crate) struct Rekey {
    /// The directory of the store
    dir: PathBuf,
}

impl Rekey {
    pub(crate) fn run(self) -> CommandResult {
        let keys = keys();
        if keys.is_none() {
            let reason = "rekey needs --key-file, with the new key first and the old one after it";
            return Err(Failure::Usage(reason.into()));
        }
        let report = maintenance::rewrap(&self.dir, &keys)?;
        println!("{} files, {} rewrapped", report.files, report.rewrapped);
        for damage in &report.damaged {
            println!("  {} at byte {}: {}", damage.file, damage.offset, damage.reason);
        }
        Ok(if report.damaged.is_empty() { Outcome::Done } else { Outcome::No })
    }
}
