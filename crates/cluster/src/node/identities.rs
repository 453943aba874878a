//! The directories behind node ids: this node's own, and those of the nodes that it has heard of.
//!
//! A node whose directory was emptied and created again under its old id has forgotten what it has
//! acknowledged and voted for. So each directory has a random id, which is in every frame. A node
//! remembers the directory of each other node, durably, before it handles its first packet, and
//! drops the packets of any other directory: such a node neither votes nor counts.
//!
//! The file `NODE-IDENTITIES` is replaced as a whole. All integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! file := "SILTPEER"  version:u8  own:u64  count:u32  peer[count]  checksum:u32
//! peer := node:u64  directory:u64
// ANCHOR_END: layout
//! ```
//!
//! The checksum is a CRC-32C of all before it. A reader refuses a newer version.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::fixed::{take_u32, take_u64};
use siltstone_vfs::{Mode, Vfs};

use crate::log::{lost, take_bytes, take_u8};

pub(super) const NAME: &str = "NODE-IDENTITIES";
pub(super) const DRAFT_NAME: &str = "NODE-IDENTITIES.new";
pub(super) const MAGIC: &[u8; 8] = b"SILTPEER";
pub(super) const VERSION: u8 = 1;
/// The version of the file in the directory of a node with several groups
/// ([`super::directory`]).
pub(super) const GROUPS_VERSION: u8 = 2;
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The directories of nodes.
pub(super) struct Identities {
    vfs: Arc<dyn Vfs>,
    own: u64,
    known: BTreeMap<u64, u64>,
    /// Nodes that have sent from another directory than the known one.
    refused: BTreeSet<u64>,
}

impl Identities {
    /// Gives a new directory its id. One that has an id keeps it.
    pub(super) fn create(vfs: Arc<dyn Vfs>) -> Result<Self> {
        if vfs.exists(NAME)? {
            return Self::open(vfs);
        }
        let own = RandomState::new().build_hasher().finish();
        let identities = Identities { vfs, own, known: BTreeMap::new(), refused: BTreeSet::new() };
        identities.write()?;
        Ok(identities)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// `Refused` if it is missing, or of a newer version; `Corruption`; I/O errors.
    pub(super) fn open(vfs: Arc<dyn Vfs>) -> Result<Self> {
        if !vfs.exists(NAME)? {
            return Err(lost(vfs.name(), &format!("the file {NAME} is missing")));
        }
        let body = read_body(vfs.as_ref())?;
        let at = &mut &*body;
        let mut decode = || {
            (take_bytes(at, 8)? == MAGIC).then_some(())?;
            let version = take_u8(at)?;
            if version > VERSION {
                return Some(Err(version));
            }
            let (own, count) = (take_u64(at)?, take_u32(at)?);
            let peers = (0..count).map(|_| Some((take_u64(at)?, take_u64(at)?)));
            Some(Ok((own, peers.collect::<Option<BTreeMap<_, _>>>()?)))
        };
        let malformed = || Error::corruption(NAME, 0, "it is malformed");
        match decode().ok_or_else(malformed)? {
            Ok((own, known)) => Ok(Identities { vfs, own, known, refused: BTreeSet::new() }),
            Err(version) => Err(other_version(version)),
        }
    }

    fn write(&self) -> Result<()> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&self.own.to_le_bytes());
        out.extend_from_slice(&(self.known.len() as u32).to_le_bytes());
        for (node, directory) in &self.known {
            out.extend_from_slice(&node.to_le_bytes());
            out.extend_from_slice(&directory.to_le_bytes());
        }
        replace_file(self.vfs.as_ref(), out)
    }

    /// The id of this node's directory.
    pub(super) fn own(&self) -> u64 {
        self.own
    }

    /// Whether a packet of this node and directory may be handled. What is new is durable once this
    /// returns.
    pub(super) fn accept(&mut self, node: u64, directory: u64) -> Result<bool> {
        match self.known.get(&node) {
            Some(known) if *known == directory => Ok(true),
            Some(_) => {
                self.refused.insert(node);
                Ok(false)
            }
            None => {
                self.known.insert(node, directory);
                self.write()?;
                Ok(true)
            }
        }
    }

    /// The nodes that have sent from another directory than before.
    pub(super) fn refused(&self) -> Vec<u64> {
        self.refused.iter().copied().collect()
    }
}

/// Reads the file without its checksum, which is right.
pub(super) fn read_body(vfs: &dyn Vfs) -> Result<Vec<u8>> {
    let file = vfs.open(NAME, Mode::Read)?;
    let malformed = |reason| Error::corruption(NAME, 0, reason);
    let len = file.len()?;
    if len > MAX_BYTES {
        return Err(malformed("it is too long"));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    let Some((body, checksum)) = bytes.split_last_chunk() else {
        return Err(malformed("it is too short"));
    };
    if crc32c::crc32c(body) != u32::from_le_bytes(*checksum) {
        return Err(malformed("checksum mismatch"));
    }
    Ok(body.to_vec())
}

/// Replaces the file durably, with a checksum behind the body.
pub(super) fn replace_file(vfs: &dyn Vfs, mut body: Vec<u8>) -> Result<()> {
    body.extend_from_slice(&crc32c::crc32c(&body).to_le_bytes());
    if vfs.exists(DRAFT_NAME)? {
        vfs.remove(DRAFT_NAME)?;
    }
    let file = vfs.create(DRAFT_NAME)?;
    file.write_at(0, &body, Purpose::Manifest)?;
    file.sync(Purpose::Manifest)?;
    vfs.rename(DRAFT_NAME, NAME)?;
    vfs.sync_dir(Purpose::Manifest)
}

/// The refusal of a file that this reader does not understand.
pub(super) fn other_version(version: u8) -> Error {
    let reason = match version {
        GROUPS_VERSION => "the directory is that of a node with several groups".to_owned(),
        _ => format!("it has format version {version}; run a newer program"),
    };
    Error::Refused { path: NAME.into(), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use siltstone_faults::FaultyVfs;
    use siltstone_vfs::Ram;

    use super::*;

    #[test]
    fn directory_of_a_node_is_remembered_over_power_cuts() {
        for cut in 0.. {
            let vfs = FaultyVfs::new(cut);
            let mut identities = Identities::create(Arc::new(vfs.clone())).unwrap();
            let own = identities.own();
            assert!(identities.accept(2, 20).unwrap());
            vfs.cut_power_at(vfs.operations() + cut);
            let accepted = identities.accept(3, 30);
            vfs.cut_power();
            let mut identities = Identities::open(Arc::new(vfs.survivors(cut))).unwrap();
            assert_eq!(identities.own(), own);
            assert!(!identities.accept(2, 21).unwrap() && identities.accept(2, 20).unwrap());
            if let Ok(accepted) = accepted {
                assert!(accepted && !identities.accept(3, 31).unwrap());
                assert_eq!(identities.refused(), [2, 3]);
                break;
            }
        }
    }

    #[test]
    fn damaged_missing_and_newer_files_are_refused() {
        let vfs = Arc::new(Ram::new());
        let missing = Identities::open(vfs.clone()).err().unwrap();
        assert!(crate::log::is_lost(&missing), "{missing}");
        let mut identities = Identities::create(vfs.clone()).unwrap();
        identities.accept(2, 20).unwrap();
        let own = identities.own();
        assert_eq!(Identities::create(vfs.clone()).unwrap().own(), own);
        let file = vfs.open(NAME, Mode::ReadWrite).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, Purpose::Recovery).unwrap();
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            file.write_at(0, &damaged, Purpose::Manifest).unwrap();
            assert!(Identities::open(vfs.clone()).is_err_and(|error| error.is_corruption()));
        }
        let body = bytes.len() - 4;
        bytes[8] = GROUPS_VERSION + 1;
        let checksum = crc32c::crc32c(&bytes[..body]).to_le_bytes();
        bytes[body..].copy_from_slice(&checksum);
        file.write_at(0, &bytes, Purpose::Manifest).unwrap();
        let newer = Identities::open(vfs).err().unwrap().to_string();
        assert!(newer.contains("format version 3"), "{newer}");
    }
}
