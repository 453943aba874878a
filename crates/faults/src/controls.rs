//! Fault injection: plans power cuts and errors, and reports what happened.
//!
//! Invariant: these methods are not counted, do not fail, and work while power is off.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_vfs::backend::Node;

use super::directory::{Directory, SharedDirectory};
use super::file::SharedFile;
use super::file_system::FileSystem;
use super::{FaultError, FaultKind, FaultyVfs};

impl FaultyVfs {
    /// Operations so far: requests that changed or synced something, in all directories. A run
    /// without faults shows how many places there are to cut power.
    pub fn operations(&self) -> u64 {
        self.fs.lock().plan.operations
    }

    /// Requests so far: operations and reads.
    pub fn requests(&self) -> u64 {
        self.fs.lock().plan.requests
    }

    /// Requests of a kind so far; the kind is neither `Any` nor `Descriptors`.
    pub fn requests_of(&self, kind: FaultKind) -> u64 {
        self.fs.lock().plan.requests_by_kind.get(&kind).copied().unwrap_or(0)
    }

    /// Cuts power during the operation with this number; the first is 0.
    pub fn cut_power_at(&self, operation: u64) {
        self.fs.lock().plan.cut_at = Some(operation);
    }

    /// Cuts power now, between two operations.
    pub fn cut_power(&self) {
        self.fs.lock().plan.power_is_off = true;
    }

    /// Whether power is off.
    pub fn power_is_off(&self) -> bool {
        self.fs.lock().plan.power_is_off
    }

    /// Fails the request with this number (the first is 0) if it is of this kind.
    pub fn fail_at(&self, request: u64, kind: FaultKind) {
        self.fs.lock().plan.fail_at.push((request, kind));
    }

    /// Fails the request with this number among those of its kind, which is neither `Any` nor
    /// `Descriptors`; the first is 0.
    pub fn fail_nth(&self, kind: FaultKind, number: u64) {
        self.fs.lock().plan.fail_nth.push((kind, number));
    }

    /// Fails the next `count` requests of a kind. Several such plans are used one after the other.
    pub fn fail_next(&self, kind: FaultKind, count: u64) {
        if count > 0 {
            self.fs.lock().plan.fail_next.push((kind, count));
        }
    }

    /// The error of planned faults from now on. The default is `EIO`.
    pub fn set_error(&self, error: FaultError) {
        self.fs.lock().plan.error = error;
    }

    /// Sets the error of planned faults to a full disk, which syncs and renames may report, too.
    pub fn set_errors_full(&self, full: bool) {
        self.set_error(if full { FaultError::DiskFull } else { FaultError::Io });
    }

    /// Fails each read, write and sync with this probability, drawn from the seed. Changes of names
    /// do not fail.
    pub fn set_error_rate(&self, probability: f64) {
        self.fs.lock().plan.error_rate = probability;
    }

    /// Calls `pause` inside every failed sync of a file or directory, when its effect is complete
    /// and before it returns the error. Other threads can use the file system meanwhile.
    pub fn before_sync_error(&self, pause: impl Fn() + Send + Sync + 'static) {
        self.fs.lock().plan.before_sync_error = Some(Arc::new(pause));
    }

    /// Removes all planned errors and power cuts. Power that is off stays off.
    pub fn clear_faults(&self) {
        let plan = &mut self.fs.lock().plan;
        plan.cut_at = None;
        plan.fail_at.clear();
        plan.fail_nth.clear();
        plan.fail_next.clear();
        plan.error_rate = 0.0;
    }

    /// Sets the capacity in bytes for all named files; `u64::MAX` is unlimited. If more is in use
    /// already, no file can grow.
    pub fn set_capacity(&self, bytes: u64) {
        self.fs.lock().plan.capacity_bytes = bytes;
    }

    /// Whether a write that does not fit leaves the sectors that fit.
    pub fn set_torn_on_full(&self, torn: bool) {
        self.fs.lock().plan.torn_on_full = torn;
    }

    /// The space of all named files in bytes: whole sectors, without holes.
    pub fn space_used(&self) -> u64 {
        self.fs.lock().space_used()
    }
}

impl FileSystem {
    /// Computed for each call: cheap for the few files of a test, and never stale.
    pub(super) fn space_used(&self) -> u64 {
        fn walk(directory: &Directory, seen: &mut BTreeSet<u64>) -> u64 {
            let space = |node: &Node<SharedFile, SharedDirectory>| match node {
                Node::Directory(directory) => walk(&directory.lock(), seen),
                Node::File(file) => {
                    let file = file.lock();
                    if seen.insert(file.id) { file.current.allocated_bytes() } else { 0 }
                }
            };
            directory.current.iter().map(|(_, node)| node).map(space).sum()
        }
        walk(&self.root.lock(), &mut BTreeSet::new())
    }

    /// The free space in bytes.
    pub(super) fn room(&self) -> u64 {
        match self.plan.capacity_bytes {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(self.space_used()),
        }
    }
}
