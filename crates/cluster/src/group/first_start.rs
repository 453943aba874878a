//! The first start of a node: in which directories it is created, and whom it waits for then.

use std::collections::{BTreeMap, BTreeSet};

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::Vfs;

use crate::identities::{DRAFT_NAME, NAME, Stage, stage_in};
use crate::log::remove_logs;
use crate::planted::{Fault, is_planted};
use crate::stream::is_table_name;

/// The lock file of a running node.
pub(crate) const LOCK_FILE: &str = "NODE-LOCK";

/// The files that a directory may have before a node is created in it.
const START_FILES: [&str; 3] = [LOCK_FILE, NAME, DRAFT_NAME];

/// The part of a node's state that is about directories, besides [`crate::identities::Identities`].
#[derive(Default)]
pub(super) struct Registration {
    /// The other first nodes that have not answered yet, of a node that is not registered.
    pub(super) missing: BTreeSet<u64>,
    pub(super) ticks: u64,
    /// The directories that the group has committed.
    pub(super) committed: BTreeMap<u64, u64>,
    /// The term and the index of a proposal of directories.
    pub(super) proposed: Option<(u64, u64)>,
    /// Nodes that know this node by another directory.
    pub(super) refused_by: BTreeSet<u64>,
}

/// Whether a node has still to be created in a directory: there is nothing in it, or a creation was
/// interrupted.
///
/// # Errors
/// `Refused` and `Corruption` for a file of identities that cannot be read; I/O errors.
pub fn is_new(vfs: &dyn Vfs) -> Result<bool> {
    if let Some(stage) = stage_in(vfs)? {
        return Ok(stage == Stage::Creating);
    }
    let is_empty = vfs.list()?.iter().all(|name| START_FILES.contains(&name.as_str()));
    Ok(is_empty && vfs.subdirectories()?.is_empty())
}

/// Removes what an interrupted creation has left.
pub(super) fn remove_remains(vfs: &dyn Vfs) -> Result<()> {
    let mut is_removed = remove_logs(vfs)?;
    for name in vfs.subdirectories()?.iter().filter(|name| is_table_name(name)) {
        vfs.remove_subdirectory(name)?;
        is_removed = true;
    }
    if is_removed { vfs.sync_dir(Purpose::Log) } else { Ok(()) }
}

/// The stage of a node whose log and table have just been created.
pub(super) fn first_stage(node: u64, voters: &[u64]) -> Stage {
    let has_others = voters.iter().any(|voter| *voter != node);
    if has_others && !is_skipped() && !accepts_all() { Stage::Created } else { Stage::Registered }
}

/// Nodes know of directories what they have heard, and nothing else.
pub(super) fn is_skipped() -> bool {
    is_planted(Fault::SkippedRegistration)
}

/// Nodes that were created again are taken for the earlier ones.
pub(super) fn accepts_all() -> bool {
    is_planted(Fault::AcceptedRecreation)
}
