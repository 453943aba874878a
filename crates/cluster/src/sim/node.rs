//! A simulated node: its disk, its power, and the operations that clients have pending at it.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Engine, ManualClock, Result};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;
use siltstone_vfs::Vfs;
use siltstone_vfs::encrypted::{EncryptedVfs, KeyRing, MasterKey};

use super::clients::Operation;
use crate::group::is_new;
use crate::identities::{self, Identities};
use crate::log::is_lost;
use crate::{Group, GroupOptions, OpenTable, RequestId};

/// The header of an encrypted file.
const ENCRYPTED_HEADER_BYTES: u64 = 4096;

pub(super) struct Node {
    pub(super) id: u64,
    seed: u64,
    vfs: FaultyVfs,
    /// `None` while it is down.
    pub(super) group: Option<Group>,
    /// How often it was started.
    pub(super) starts: u64,
    /// When a node that is down starts again.
    pub(super) starts_at: u64,
    /// A stopped process neither ticks nor receives until then.
    pub(super) stopped_until: u64,
    /// Ticks of ten steps.
    pub(super) tick_rate: u64,
    /// A request to its disk was made to fail, so that it may report an error.
    pub(super) may_report_error: bool,
    /// Its log was damaged.
    is_damaged: bool,
    /// The voters with which it is created.
    voters: Vec<u64>,
    /// Its directory was emptied, and it was created again.
    pub(super) is_recreated: bool,
    /// It took part in its group when it last ran.
    pub(super) is_registered: bool,
    /// A copy of its disk.
    pub(super) copy: Option<DiskCopy>,
    /// The copy was put back.
    pub(super) is_copy: bool,
    /// It will never start again.
    pub(super) is_gone: bool,
    /// What clients wait for.
    pub(super) pending: BTreeMap<RequestId, Operation>,
    /// The keys of pending operations.
    pub(super) locked: BTreeSet<u64>,
    /// The length of the log's file, and before its last growth: what is below has a later record.
    log_bytes: (u64, u64),
}

/// A copy of a node's disk.
pub(super) struct DiskCopy {
    vfs: FaultyVfs,
    /// The number of the node's start.
    pub(super) start: u64,
    /// How often each node had been started.
    pub(super) starts: BTreeMap<u64, u64>,
    /// The node has led since.
    pub(super) has_led: bool,
    /// The voters as of the copy.
    voters: Vec<u64>,
}

impl DiskCopy {
    /// Whether the node asks this other one when it starts from the copy.
    pub(super) fn asks(&self, other: &Node) -> bool {
        other.is_first() && self.voters.contains(&other.id)
    }
}

fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let options = [("memtable", "8KiB"), ("cache", "64KiB")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let options = Options::from_map(&options.into()).expect("the options are legal");
        Ok(Arc::new(Lsm::open(vfs, env, options)?) as Arc<dyn Engine>)
    })
}

impl Node {
    /// A new node with a disk of its own; one that joins later has no voters.
    pub(super) fn create(id: u64, seed: u64, voters: &[u64], tick_rate: u64) -> Result<Self> {
        let vfs = FaultyVfs::new(seed ^ id);
        let group = create(files_of(&vfs), id, seed, voters)?;
        Ok(Node {
            id,
            seed,
            vfs,
            group: Some(group),
            starts: 1,
            starts_at: 0,
            stopped_until: 0,
            tick_rate,
            may_report_error: false,
            is_damaged: false,
            voters: voters.to_vec(),
            is_recreated: false,
            is_registered: false,
            copy: None,
            is_copy: false,
            is_gone: false,
            pending: BTreeMap::new(),
            locked: BTreeSet::new(),
            log_bytes: (0, 0),
        })
    }

    /// Whether it is one of the first nodes of the group.
    pub(super) fn is_first(&self) -> bool {
        !self.voters.is_empty()
    }

    pub(super) fn runs(&self, now: u64) -> bool {
        self.group.is_some() && self.stopped_until <= now
    }

    /// Notes how far the log has grown.
    pub(super) fn note_log(&mut self) {
        let Some(group) = &self.group else { return };
        let len = group.log().bytes();
        if len < self.log_bytes.0 {
            self.log_bytes = (len, 0);
        } else if len > self.log_bytes.0 {
            self.log_bytes = (len, self.log_bytes.0);
        }
    }

    /// Power will fail in one of the next operations of the disk.
    pub(super) fn cut_power_soon(&self, within: u64) {
        self.vfs.cut_power_at(self.vfs.operations() + within);
    }

    pub(super) fn power_is_off(&self) -> bool {
        self.vfs.power_is_off()
    }

    /// Ends the process by a power cut; the disk keeps what a power cut may leave.
    pub(super) fn fail_power(
        &mut self,
        seed: u64,
        starts_at: u64,
    ) -> BTreeMap<RequestId, Operation> {
        self.vfs.cut_power();
        self.go_down(starts_at, |vfs| vfs.survivors(seed))
    }

    /// Ends the process; what it has written stays, but is not durable by that.
    pub(super) fn kill(&mut self, seed: u64, starts_at: u64) -> BTreeMap<RequestId, Operation> {
        self.go_down(starts_at, |vfs| vfs.after_crash(seed))
    }

    /// Ends the process in good order: any damage of its log will show.
    pub(super) fn close(
        &mut self,
        seed: u64,
        starts_at: u64,
    ) -> Result<BTreeMap<RequestId, Operation>> {
        if let Some(group) = self.group.take() {
            group.close()?;
            self.log_bytes.1 = self.log_bytes.0;
        }
        Ok(self.kill(seed, starts_at))
    }

    /// One of the next requests to the disk will fail.
    pub(super) fn fail_io_soon(&mut self, rng: &mut TestRng) {
        let kinds = [FaultKind::Write, FaultKind::Sync, FaultKind::DirSync, FaultKind::Names];
        self.vfs.fail_next(*rng.pick(&kinds), 1);
        self.may_report_error = true;
    }

    fn go_down(
        &mut self,
        starts_at: u64,
        disk: impl FnOnce(&FaultyVfs) -> FaultyVfs,
    ) -> BTreeMap<RequestId, Operation> {
        let after = disk(&self.vfs);
        self.group = None;
        self.vfs = after;
        self.starts_at = starts_at;
        self.may_report_error = false;
        self.locked.clear();
        std::mem::take(&mut self.pending)
    }

    /// Empties the directory of a node, which is created again under its old id when it starts.
    pub(super) fn wipe(&mut self, seed: u64, starts_at: u64) -> BTreeMap<RequestId, Operation> {
        let pending = self.go_down(starts_at, |_| FaultyVfs::new(seed));
        self.seed ^= seed;
        self.is_recreated = true;
        self.log_bytes = (0, 0);
        pending
    }

    /// Copies the disk of a running node, as a power cut would leave it.
    pub(super) fn copy_disk(&mut self, seed: u64, starts: BTreeMap<u64, u64>) {
        let Some(group) = &self.group else { return };
        let (start, has_led) = (group.start_number(), group.leads());
        let (vfs, voters) = (self.vfs.survivors(seed), group.applied().members.voters.clone());
        self.copy = Some(DiskCopy { vfs, start, starts, has_led, voters });
    }

    /// Puts the copy of its disk back, with which it starts.
    pub(super) fn put_back(&mut self, seed: u64, starts_at: u64) -> BTreeMap<RequestId, Operation> {
        let copy = self.copy.take().map(|copy| copy.vfs);
        self.seed ^= seed;
        self.is_copy = true;
        self.log_bytes = (0, 0);
        self.go_down(starts_at, |vfs| copy.unwrap_or_else(|| vfs.after_crash(seed)))
    }

    /// Flips a bit of the log of a killed node where later records show it; `false` if there is no
    /// such place.
    pub(super) fn damage_log(&mut self, rng: &mut TestRng) -> bool {
        let logs: Vec<_> =
            self.vfs.files().into_iter().filter(|file| file.path.ends_with(".log")).collect();
        let logs: Vec<_> = logs.iter().filter(|file| file.path.starts_with("raft-")).collect();
        let ([log], end) = (&logs[..], self.log_bytes.1) else { return false };
        // The last bytes of a block may be unused.
        if end == 0 || end > 32_000 {
            return false;
        }
        let within = if rng.one_in(2) { end } else { end.min(200) };
        // Of an encrypted file there are a header and earlier bytes at that place.
        let header = if IS_ENCRYPTED.get() { ENCRYPTED_HEADER_BYTES } else { 0 };
        let offset = header + end - 1 - rng.below(within);
        self.is_damaged = self.vfs.flip_bit(&log.path, offset, rng.below(8) as u8).is_ok();
        self.is_damaged
    }

    /// Starts a node that is down, and creates it if it has no directory yet. Power may fail
    /// meanwhile.
    pub(super) fn start(&mut self, seed: u64, now: u64, may_fail: bool) -> Result<(), String> {
        let mut rng = TestRng::new(seed);
        if may_fail && rng.one_in(4) {
            self.vfs.cut_power_at(rng.below(30));
        }
        match self.create_or_open() {
            Ok(_) if self.is_damaged => Err(format!("node {} has opened a damaged log", self.id)),
            Ok(group) => {
                self.log_bytes = (group.log().bytes(), 0);
                self.group = Some(group);
                self.starts += 1;
                Ok(())
            }
            Err(_) if self.vfs.power_is_off() => {
                self.vfs = self.vfs.survivors(rng.draw());
                self.starts_at = now + 5;
                Ok(())
            }
            Err(error) if self.may_be_lost() && is_lost(&error) => {
                self.is_gone = true;
                Ok(())
            }
            Err(_) if self.may_report_error => {
                self.vfs = self.vfs.after_crash(rng.draw());
                self.may_report_error = false;
                self.starts_at = now + 5;
                Ok(())
            }
            Err(error) => Err(format!("node {} does not start: {error}", self.id)),
        }
    }

    /// Whether it may learn that it has forgotten something.
    pub(super) fn may_be_lost(&self) -> bool {
        self.is_damaged || self.is_recreated || self.is_copy
    }

    fn create_or_open(&self) -> Result<Group> {
        let files = files_of(&self.vfs);
        match is_new(files.as_ref())? {
            true => create(files, self.id, self.seed, &self.voters),
            false => Group::open(files, open_table(), options(self.id, self.seed)),
        }
    }

    /// Removes planned power cuts.
    pub(super) fn heal(&mut self) {
        self.resume();
        self.tick_rate = 10;
    }

    /// As [`heal`](Self::heal), but its clock stays as it is.
    pub(super) fn resume(&mut self) {
        self.vfs.clear_faults();
        self.may_report_error = false;
        self.stopped_until = 0;
    }
}

thread_local! {
    static IS_ENCRYPTED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` with nodes whose files are encrypted.
pub(super) fn with_encryption<T>(work: impl FnOnce() -> T) -> T {
    IS_ENCRYPTED.set(true);
    let outcome = work();
    IS_ENCRYPTED.set(false);
    outcome
}

/// The files on a disk, as a node reads and writes them.
fn files_of(disk: &FaultyVfs) -> Arc<dyn Vfs> {
    let disk: Arc<dyn Vfs> = Arc::new(disk.clone());
    if !IS_ENCRYPTED.get() {
        return disk;
    }
    let keys = KeyRing::new(MasterKey::new(&[7; 32]), Vec::new());
    Arc::new(EncryptedVfs::new(disk, Arc::new(keys)))
}

fn create(vfs: Arc<dyn Vfs>, id: u64, seed: u64, voters: &[u64]) -> Result<Group> {
    if !vfs.exists(identities::NAME)? {
        // It depends on the seed.
        Identities::create_with(vfs.clone(), TestRng::of(seed ^ id, 98).draw())?;
    }
    Group::create(vfs, open_table(), options(id, seed), voters)
}

fn options(node: u64, seed: u64) -> GroupOptions {
    let mut rng = TestRng::of(seed, 99);
    GroupOptions {
        max_log_bytes: *rng.pick(&[500, 2000, 20_000]),
        retained_entries: *rng.pick(&[0, 3, 20]),
        max_retained_log_bytes: *rng.pick(&[1000, 5000, 1 << 30]),
        max_chunk_bytes: *rng.pick(&[50, 200, 5000]),
        ..GroupOptions::new(7, node, seed ^ node)
    }
}
