//! The directory of a node with several groups: each group has a directory of its own in it.
//!
//! ```text
//!   NODE-IDENTITIES   the number of groups, and the id with which the node joins
//!   NODE-LOCK
//!   group-000/        as the directory of a node with one group
//!   group-001/ …
//! ```
//!
//! The file has version 2 of the format that [`crate::identities`] describes, so that a program
//! that knows one group only refuses the directory by name. All integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! file := "SILTPEER"  2:u8  own:u64  groups:u16  is_complete:u8  checksum:u32
// ANCHOR_END: layout
//! ```
//!
//! Groups are created one after the other. Until `is_complete` is written, a group whose file of
//! identities does not say that it was created is created; from then on, one without a log is lost.

use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_table::fixed::take_u64;
use siltstone_vfs::{LockGuard, Vfs};

use crate::group::LOCK_FILE;
use crate::identities::{
    GROUPS_VERSION, Identities, MAGIC, NAME, Stage, VERSIONS_OF_ONE_GROUP, other_version,
    read_body, replace_file, stage_in,
};
use crate::log::{RaftLog, take_bytes, take_u8};

/// The directory of a node with several groups, locked by this process.
pub struct NodeDirectory {
    vfs: Arc<dyn Vfs>,
    own: u64,
    groups: u16,
    is_complete: bool,
    _lock: LockGuard,
}

impl NodeDirectory {
    /// Makes the directory that of a node with this number of groups. A directory that has an id
    /// keeps it.
    ///
    /// # Errors
    /// `Refused` if it has another number; `Locked`; I/O errors.
    pub fn create(vfs: Arc<dyn Vfs>, groups: u16) -> Result<Self> {
        let lock = vfs.lock(LOCK_FILE)?;
        let own = match read(vfs.as_ref())? {
            Some((own, found, is_complete)) if found == groups => {
                return Ok(NodeDirectory { vfs, own, groups, is_complete, _lock: lock });
            }
            Some((_, found, _)) => return Err(other_number(found, groups)),
            None => Identities::create(vfs.clone())?.own(),
        };
        let directory = NodeDirectory { vfs, own, groups, is_complete: false, _lock: lock };
        directory.write()?;
        Ok(directory)
    }

    /// The number of groups of the node in a directory; `None` if there is none, or it has one
    /// group in the directory itself.
    ///
    /// # Errors
    /// `Refused` for a newer version; `Corruption`; I/O errors.
    pub fn groups_in(vfs: &dyn Vfs) -> Result<Option<u16>> {
        Ok(read(vfs)?.map(|(_, groups, _)| groups))
    }

    /// The id of the directory.
    pub fn id(&self) -> u64 {
        self.own
    }

    /// The directory of a group, and whether the group has to be created in it.
    ///
    /// # Errors
    /// I/O errors.
    pub fn group(&self, index: u16) -> Result<(Arc<dyn Vfs>, bool)> {
        let name = Self::group_name(index);
        let exists = self.vfs.has_subdirectory(&name)?;
        let is_new = match (self.is_complete, exists) {
            (true, _) => false,
            (false, false) => true,
            (false, true) => {
                let vfs = self.vfs.subdirectory(&name)?;
                match stage_in(vfs.as_ref())? {
                    Some(stage) => stage == Stage::Creating,
                    None => {
                        let is_new = RaftLog::identity_in(vfs.as_ref())?.is_none();
                        if is_new {
                            // Of an interrupted start.
                            self.vfs.remove_subdirectory(&name)?;
                        }
                        is_new
                    }
                }
            }
        };
        Ok((self.vfs.subdirectory(&name)?, is_new))
    }

    /// As [`group`](Self::group), in a directory that has the restored table of each group
    /// ([`Node::restore`](super::Node::restore)). Nothing is removed.
    ///
    /// # Errors
    /// I/O errors.
    pub fn restored_group(&self, index: u16) -> Result<(Arc<dyn Vfs>, bool)> {
        let vfs = self.vfs.subdirectory(&Self::group_name(index))?;
        let stage = stage_in(vfs.as_ref())?;
        let is_new = !self.is_complete && stage.is_none_or(|stage| stage == Stage::Creating);
        Ok((vfs, is_new))
    }

    /// The name of the directory of a group.
    pub fn group_name(index: u16) -> String {
        format!("group-{index:03}")
    }

    /// Whether all groups have been created.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Notes durably that all groups have been created.
    ///
    /// # Errors
    /// I/O errors.
    pub fn complete(&mut self) -> Result<()> {
        if self.is_complete {
            return Ok(());
        }
        self.is_complete = true;
        self.write()
    }

    fn write(&self) -> Result<()> {
        let mut out = MAGIC.to_vec();
        out.push(GROUPS_VERSION);
        out.extend_from_slice(&self.own.to_le_bytes());
        out.extend_from_slice(&self.groups.to_le_bytes());
        out.push(u8::from(self.is_complete));
        replace_file(self.vfs.as_ref(), out)
    }
}

fn other_number(found: u16, wanted: u16) -> Error {
    let reason = format!(
        "the node has {found} groups, not {wanted}: the number is fixed when a cluster is made"
    );
    Error::Refused { path: NAME.into(), reason }
}

/// Id, number of groups, and whether all have been created; `None` for no file, or one of a node
/// with one group.
fn read(vfs: &dyn Vfs) -> Result<Option<(u64, u16, bool)>> {
    if !vfs.exists(NAME)? {
        return Ok(None);
    }
    let body = read_body(vfs)?;
    let at = &mut &*body;
    let mut decode = || {
        (take_bytes(at, 8)? == MAGIC).then_some(())?;
        match take_u8(at)? {
            version if VERSIONS_OF_ONE_GROUP.contains(&version) => return Some(Ok(None)),
            GROUPS_VERSION => {}
            version => return Some(Err(version)),
        }
        let own = take_u64(at)?;
        let groups = u16::from_le_bytes(*take_bytes(at, 2)?.first_chunk()?);
        let is_complete = take_u8(at)? != 0;
        at.is_empty().then_some(Ok(Some((own, groups, is_complete))))
    };
    let decoded = decode().ok_or_else(|| Error::corruption(NAME, 0, "it is malformed"))?;
    decoded.map_err(other_version)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use siltstone_faults::FaultyVfs;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::log::{LogIdentity, Marker};

    #[test]
    fn number_of_groups_is_fixed_and_one_group_is_refused_by_name() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        assert_eq!(NodeDirectory::groups_in(vfs.as_ref()).unwrap(), None);
        let id = Identities::create(vfs.clone()).unwrap().own();
        assert_eq!(NodeDirectory::groups_in(vfs.as_ref()).unwrap(), None);
        let mut directory = NodeDirectory::create(vfs.clone(), 4).unwrap();
        assert_eq!((directory.id(), directory.is_complete()), (id, false));
        directory.complete().unwrap();
        drop(directory);
        assert!(NodeDirectory::create(vfs.clone(), 4).unwrap().is_complete());
        assert_eq!(NodeDirectory::groups_in(vfs.as_ref()).unwrap(), Some(4));
        let refused = NodeDirectory::create(vfs.clone(), 5).err().unwrap().to_string();
        assert!(refused.contains("the node has 4 groups, not 5"), "{refused}");
        let refused = Identities::open(vfs).err().unwrap().to_string();
        assert!(refused.contains("a node with several groups"), "{refused}");
    }

    #[test]
    fn group_that_was_created_is_not_created_again_without_its_log() {
        let directory = NodeDirectory::create(Arc::new(Ram::new()), 2).unwrap();
        let (vfs, is_new) = directory.group(0).unwrap();
        assert!(is_new);
        let mut identities = Identities::create(vfs).unwrap();
        let own = identities.own();
        let (vfs, is_new) = directory.group(0).unwrap();
        // It keeps its id, by which others may know it.
        assert!(is_new && Identities::open(vfs).unwrap().own() == own);
        identities.set_stage(Stage::Created).unwrap();
        assert!(!directory.group(0).unwrap().1);
    }

    #[test]
    fn group_is_created_once_over_power_cuts() {
        for cut in 0.. {
            let vfs = FaultyVfs::new(cut);
            vfs.cut_power_at(cut);
            let start = |vfs: Arc<dyn Vfs>| -> Result<()> {
                let mut directory = NodeDirectory::create(vfs, 2)?;
                for index in 0..2 {
                    let (vfs, is_new) = directory.group(index)?;
                    let identity = LogIdentity { group: 7 + u64::from(index), node: 1 };
                    match is_new {
                        true => RaftLog::create(vfs, identity, Marker::default(), 1)?,
                        false => RaftLog::open(vfs, identity)?,
                    };
                }
                directory.complete()
            };
            let is_done = start(Arc::new(vfs.clone())).is_ok();
            vfs.cut_power();
            let vfs = Arc::new(vfs.survivors(cut));
            if is_done {
                let directory = NodeDirectory::create(vfs, 2).unwrap();
                assert!(directory.is_complete());
                // A group that has gone is not created again.
                assert!((0..2).all(|index| !directory.group(index).unwrap().1));
                break;
            }
            start(vfs.clone()).unwrap();
            start(vfs).unwrap();
        }
    }
}
