//! The directories behind node ids: this node's own, and those of the other members.
//!
//! A node whose directory was emptied and created again under its old id has forgotten what it has
//! acknowledged and voted for. So each directory has a random id, which is in every packet. A node
//! remembers the directory of each other member, durably, before it handles its first packet, and
//! drops the packets of any other directory: such a node neither votes nor counts. What the group
//! has committed about a directory takes the place of what a node has heard first
//! ([`crate::directory_rows`]).
//!
//! The file `NODE-IDENTITIES` is replaced as a whole. All integers are little endian.
//!
//! ```text
// ANCHOR: layout
//! file  := "SILTPEER"  version:u8  own:u64  stage:u8  count:u32  peer[count]
//!          start  takes_part:u8  count:u32  noted[count]  checksum:u32
//! stage := 0 the node is being created   1 created   2 registered   3 known to be an older copy
//! peer  := node:u64  directory:u64
//! start := number:u64  random:u64                  0 0 of a node that has not been started again
//! noted := node:u64  directory:u64  start          the last start of another node
// ANCHOR_END: layout
//! ```
//!
//! The checksum is a CRC-32C of all before it. The version is 4. Version 3 has no starts: such a
//! node begins its first one. Version 1 has no stage either: such a node is registered, unless there
//! is nothing else in the directory. Version 2 is another file ([`crate::node::NodeDirectory`]). A
//! reader refuses a newer version.
//!
//! A directory in stage 0 has never run a node: what is in it is removed, and the node is created.
//! From stage 1 on a missing log or table is a loss.
//!
//! Starts: a process begins a start with the next number, unless an earlier one has begun it and
//! has not taken part in the group ([`Identities::begin_start`]). So a directory's number grows only
//! when the others may rely on what the node has done, and crashes while it starts do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::fixed::{take_u32, take_u64};
use siltstone_vfs::{Mode, Vfs};

use crate::log::{lost, take_bytes, take_u8};
use crate::packet::StartId;

pub(crate) const NAME: &str = "NODE-IDENTITIES";
pub(crate) const DRAFT_NAME: &str = "NODE-IDENTITIES.new";
pub(crate) const MAGIC: &[u8; 8] = b"SILTPEER";
/// The version without a stage.
const FIRST_VERSION: u8 = 1;
/// The version of the file in the directory of a node with several groups.
pub(crate) const GROUPS_VERSION: u8 = 2;
/// The version without starts.
const STAGES_VERSION: u8 = 3;
const VERSION: u8 = 4;
/// The versions of the file in the directory of a node with one group, or of one group.
pub(crate) const VERSIONS_OF_ONE_GROUP: [u8; 3] = [FIRST_VERSION, STAGES_VERSION, VERSION];
/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// How far a node is with its first start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// Table and log are being created.
    Creating,
    /// Table and log are there. The node has sent nothing but its directory's id.
    Created,
    /// The node takes part in its group.
    Registered,
    /// Another node has recognized the directory as an older copy of itself.
    Superseded,
}

/// The directories of nodes.
pub(crate) struct Identities {
    vfs: Arc<dyn Vfs>,
    own: u64,
    stage: Stage,
    known: BTreeMap<u64, u64>,
    starts: Starts,
    /// Nodes that have sent from another directory than the known one.
    refused: BTreeSet<u64>,
}

/// A decoded file.
struct Content {
    own: u64,
    /// `None`: version 1.
    stage: Option<Stage>,
    known: BTreeMap<u64, u64>,
    starts: Starts,
}

/// The starts of nodes.
struct Starts {
    own: StartId,
    /// Others may rely on what the node has done since this start.
    takes_part: bool,
    /// By node: its directory, and the last start of it that was noted here.
    noted: BTreeMap<u64, (u64, StartId)>,
}

impl Starts {
    /// Those of a node that has not been started again, and has noted none.
    fn first() -> Self {
        Starts { own: StartId::default(), takes_part: true, noted: BTreeMap::new() }
    }
}

impl Identities {
    /// Gives a new directory its id; the node is yet to be created. One that has an id keeps it.
    pub(crate) fn create(vfs: Arc<dyn Vfs>) -> Result<Self> {
        match vfs.exists(NAME)? {
            true => Self::open(vfs),
            false => Self::create_with(vfs, RandomState::new().build_hasher().finish()),
        }
    }

    /// Gives a new directory this id.
    pub(crate) fn create_with(vfs: Arc<dyn Vfs>, own: u64) -> Result<Self> {
        let (stage, known, starts) = (Stage::Creating, BTreeMap::new(), Starts::first());
        let identities = Identities { vfs, own, stage, known, starts, refused: BTreeSet::new() };
        identities.write()?;
        Ok(identities)
    }

    /// Reads the file, and writes it again: if an earlier process has failed to sync it, it may never
    /// have become durable, and a node acts by it from now on.
    ///
    /// # Errors
    /// `Refused` if it is missing, or of a newer version; `Corruption`; I/O errors.
    pub(crate) fn open(vfs: Arc<dyn Vfs>) -> Result<Self> {
        let Some(Content { own, stage, known, starts }) = read(vfs.as_ref())? else {
            return Err(lost(vfs.name(), &format!("the file {NAME} is missing")));
        };
        let stage = stage.unwrap_or(Stage::Registered);
        let identities = Identities { vfs, own, stage, known, starts, refused: BTreeSet::new() };
        identities.write()?;
        Ok(identities)
    }

    fn write(&self) -> Result<()> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&self.own.to_le_bytes());
        out.push(self.stage as u8);
        out.extend_from_slice(&(self.known.len() as u32).to_le_bytes());
        for (node, directory) in &self.known {
            out.extend_from_slice(&node.to_le_bytes());
            out.extend_from_slice(&directory.to_le_bytes());
        }
        let push = |out: &mut Vec<u8>, StartId { number, random }: StartId| {
            out.extend_from_slice(&number.to_le_bytes());
            out.extend_from_slice(&random.to_le_bytes());
        };
        push(&mut out, self.starts.own);
        out.push(u8::from(self.starts.takes_part));
        out.extend_from_slice(&(self.starts.noted.len() as u32).to_le_bytes());
        for (node, (directory, start)) in &self.starts.noted {
            out.extend_from_slice(&node.to_le_bytes());
            out.extend_from_slice(&directory.to_le_bytes());
            push(&mut out, *start);
        }
        replace_file(self.vfs.as_ref(), out)
    }

    /// The id of this node's directory.
    pub(crate) fn own(&self) -> u64 {
        self.own
    }

    /// How far the node is with its first start.
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Sets the stage durably.
    pub(crate) fn set_stage(&mut self, stage: Stage) -> Result<()> {
        self.stage = stage;
        self.write()
    }

    /// Begins a start, durably; or goes on with one that no process has taken part in. `random` is
    /// a new random number.
    pub(crate) fn begin_start(&mut self, random: u64) -> Result<()> {
        if !self.starts.takes_part {
            return Ok(());
        }
        self.starts.own = StartId { number: self.starts.own.number + 1, random };
        self.starts.takes_part = false;
        self.write()
    }

    /// The present start.
    pub(crate) fn start(&self) -> StartId {
        self.starts.own
    }

    /// Whether the others may rely on what this node does.
    pub(crate) fn takes_part(&self) -> bool {
        self.starts.takes_part
    }

    /// From now on the others may rely on what this node does. It is durable once this returns.
    pub(crate) fn take_part(&mut self) -> Result<()> {
        self.starts.takes_part = true;
        self.write()
    }

    /// The last start of another node's directory that was noted here.
    pub(crate) fn noted_start(&self, node: u64, directory: u64) -> Option<StartId> {
        let (of, start) = self.starts.noted.get(&node)?;
        (*of == directory).then_some(*start)
    }

    /// Notes a start of another node durably.
    pub(crate) fn note_start(&mut self, node: u64, directory: u64, start: StartId) -> Result<()> {
        self.starts.noted.insert(node, (directory, start));
        self.write()
    }

    /// The directory of another node, if it is known.
    pub(crate) fn known(&self, node: u64) -> Option<u64> {
        self.known.get(&node).copied()
    }

    /// Whether a packet of this node and directory may be handled. The first directory of a member
    /// is remembered; it is durable once this returns.
    pub(crate) fn accept(&mut self, node: u64, directory: u64, is_member: bool) -> Result<bool> {
        match self.known.get(&node) {
            Some(known) if *known == directory => Ok(true),
            Some(_) => {
                self.refused.insert(node);
                Ok(false)
            }
            None if is_member => {
                self.known.insert(node, directory);
                self.write()?;
                Ok(true)
            }
            None => Ok(true),
        }
    }

    /// Takes over what the group has committed, durably. Other directories of these nodes are
    /// refused from now on.
    pub(crate) fn learn(&mut self, committed: &BTreeMap<u64, u64>) -> Result<()> {
        let is_new = |(node, directory): &(&u64, &u64)| self.known(**node) != Some(**directory);
        let new: Vec<_> = committed.iter().filter(is_new).map(|(n, d)| (*n, *d)).collect();
        if new.is_empty() {
            return Ok(());
        }
        for (node, directory) in new {
            self.known.insert(node, directory);
            self.refused.remove(&node);
        }
        self.write()
    }

    /// The nodes that have sent from another directory than before.
    pub(crate) fn refused(&self) -> Vec<u64> {
        self.refused.iter().copied().collect()
    }
}

/// How far the node of a directory is with its first start; `None` if the directory has no file
/// that says so: there is none, or it is of version 1.
pub(crate) fn stage_in(vfs: &dyn Vfs) -> Result<Option<Stage>> {
    Ok(read(vfs)?.and_then(|content| content.stage))
}

/// Reads the file, if there is one.
fn read(vfs: &dyn Vfs) -> Result<Option<Content>> {
    if !vfs.exists(NAME)? {
        return Ok(None);
    }
    let body = read_body(vfs)?;
    let at = &mut &*body;
    let mut decode = || {
        (take_bytes(at, 8)? == MAGIC).then_some(())?;
        let version = take_u8(at)?;
        if !VERSIONS_OF_ONE_GROUP.contains(&version) {
            return Some(Err(version));
        }
        let own = take_u64(at)?;
        let stage = match version {
            FIRST_VERSION => None,
            _ => Some(match take_u8(at)? {
                0 => Stage::Creating,
                1 => Stage::Created,
                2 => Stage::Registered,
                3 => Stage::Superseded,
                _ => return None,
            }),
        };
        let count = take_u32(at)?;
        let peers = (0..count).map(|_| Some((take_u64(at)?, take_u64(at)?)));
        let known = peers.collect::<Option<BTreeMap<_, _>>>()?;
        let starts = match version {
            VERSION => take_starts(at)?,
            _ => Starts::first(),
        };
        at.is_empty().then_some(Ok(Content { own, stage, known, starts }))
    };
    match decode().ok_or_else(|| Error::corruption(NAME, 0, "it is malformed"))? {
        Ok(content) => Ok(Some(content)),
        Err(version) => Err(other_version(version)),
    }
}

fn take_starts(at: &mut &[u8]) -> Option<Starts> {
    let own = take_start(at)?;
    let takes_part = match take_u8(at)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let count = take_u32(at)?;
    let noted = (0..count).map(|_| Some((take_u64(at)?, (take_u64(at)?, take_start(at)?))));
    Some(Starts { own, takes_part, noted: noted.collect::<Option<_>>()? })
}

fn take_start(at: &mut &[u8]) -> Option<StartId> {
    Some(StartId { number: take_u64(at)?, random: take_u64(at)? })
}

/// Reads the file without its checksum, which is right.
pub(crate) fn read_body(vfs: &dyn Vfs) -> Result<Vec<u8>> {
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
pub(crate) fn replace_file(vfs: &dyn Vfs, mut body: Vec<u8>) -> Result<()> {
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
pub(crate) fn other_version(version: u8) -> Error {
    let reason = match version {
        GROUPS_VERSION => "the directory is that of a node with several groups".to_owned(),
        _ => format!("it has format version {version}; run a newer program"),
    };
    Error::Refused { path: NAME.into(), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use siltstone_faults::{FaultKind, FaultyVfs};
    use siltstone_vfs::Ram;

    use super::*;

    #[test]
    fn directory_of_a_node_is_remembered_over_power_cuts() {
        for cut in 0.. {
            let vfs = FaultyVfs::new(cut);
            let mut identities = Identities::create(Arc::new(vfs.clone())).unwrap();
            let own = identities.own();
            assert!(identities.accept(2, 20, true).unwrap());
            vfs.cut_power_at(vfs.operations() + cut);
            let accepted = identities.accept(3, 30, true);
            vfs.cut_power();
            let mut identities = Identities::open(Arc::new(vfs.survivors(cut))).unwrap();
            assert_eq!(identities.own(), own);
            assert!(!identities.accept(2, 21, true).unwrap());
            assert!(identities.accept(2, 20, true).unwrap());
            if let Ok(accepted) = accepted {
                assert!(accepted && !identities.accept(3, 31, true).unwrap());
                assert_eq!(identities.refused(), [2, 3]);
                break;
            }
        }
    }

    #[test]
    fn what_is_read_after_a_failed_sync_survives_a_power_cut() {
        for seed in 0..20 {
            let vfs = FaultyVfs::new(seed);
            let mut identities = Identities::create(Arc::new(vfs.clone())).unwrap();
            vfs.fail_next(FaultKind::DirSync, 1);
            assert!(identities.set_stage(Stage::Registered).is_err());
            // The process ends, and is started again.
            let vfs = vfs.after_crash(seed);
            let stage = Identities::open(Arc::new(vfs.clone())).unwrap().stage();
            vfs.cut_power();
            let after = Identities::open(Arc::new(vfs.survivors(seed))).unwrap().stage();
            assert_eq!(after, stage, "seed {seed}");
        }
    }

    #[test]
    fn directory_of_a_stranger_is_not_remembered_and_a_committed_one_replaces_what_was_heard() {
        let vfs = Arc::new(Ram::new());
        let mut identities = Identities::create(vfs.clone()).unwrap();
        assert!(identities.accept(2, 20, false).unwrap());
        assert!(identities.accept(2, 21, true).unwrap());
        assert!(!identities.accept(2, 22, true).unwrap());
        identities.learn(&BTreeMap::from([(2, 22), (3, 30)])).unwrap();
        assert!(identities.refused().is_empty());
        let mut identities = Identities::open(vfs).unwrap();
        assert!(identities.accept(2, 22, true).unwrap());
        assert!(!identities.accept(2, 21, true).unwrap());
        assert!(!identities.accept(3, 31, true).unwrap());
    }

    /// Puts a checksum behind the body of a file.
    fn write_body(vfs: &Ram, body: &[u8]) {
        replace_file(vfs, body.to_vec()).unwrap();
    }

    #[test]
    fn file_of_the_first_version_is_that_of_a_registered_node() {
        let vfs = Arc::new(Ram::new());
        let mut body = MAGIC.to_vec();
        body.push(FIRST_VERSION);
        body.extend_from_slice(&7u64.to_le_bytes());
        body.extend_from_slice(&1u32.to_le_bytes());
        [2u64, 20].iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
        write_body(&vfs, &body);
        assert_eq!(stage_in(vfs.as_ref()).unwrap(), None);
        let mut identities = Identities::open(vfs.clone()).unwrap();
        assert_eq!((identities.own(), identities.stage()), (7, Stage::Registered));
        assert!(!identities.accept(2, 21, true).unwrap());
        assert!(identities.accept(3, 30, true).unwrap());
        assert_eq!(stage_in(vfs.as_ref()).unwrap(), Some(Stage::Registered));
        let identities = Identities::open(vfs).unwrap();
        assert_eq!((identities.own(), identities.known(2)), (7, Some(20)));
    }

    #[test]
    fn damaged_missing_and_newer_files_are_refused() {
        let vfs = Arc::new(Ram::new());
        let missing = Identities::open(vfs.clone()).err().unwrap();
        assert!(crate::log::is_lost(&missing), "{missing}");
        let mut identities = Identities::create(vfs.clone()).unwrap();
        identities.accept(2, 20, true).unwrap();
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
        let mut body = bytes[..bytes.len() - 4].to_vec();
        for wrong in [4, 9] {
            body[17] = wrong;
            write_body(&vfs, &body);
            assert!(Identities::open(vfs.clone()).is_err_and(|error| error.is_corruption()));
        }
        body[8] = VERSION + 1;
        write_body(&vfs, &body);
        let newer = Identities::open(vfs).err().unwrap().to_string();
        assert!(newer.contains("format version 5"), "{newer}");
    }
}
