//! How a test plans faults and asks what happened.
//!
//! Thin methods over the [`Plan`](super::plan::Plan) of the whole medium.
//!
//! Invariant: nothing here is counted or fails, and all of it works while power is off.
//!
//! Source: ours.

use std::collections::BTreeSet;

use siltstone_vfs::backend::Node;

use super::directory::{Directory, SharedDirectory};
use super::file::SharedFile;
use super::{FaultError, FaultKind, Faulty, World};

impl Faulty {
    /// Operations so far: all that changed or synced something, over all directories. A run without
    /// faults tells by this how many places there are to cut power.
    pub fn operations(&self) -> u64 {
        self.world.lock().plan.operations
    }

    /// Requests so far: operations and reads.
    pub fn requests(&self) -> u64 {
        self.world.lock().plan.requests
    }

    /// Cuts power in the middle of the operation with this number; the first is 0.
    pub fn cut_power_at(&self, operation: u64) {
        self.world.lock().plan.cut_at = Some(operation);
    }

    /// Cuts power now, between two operations.
    pub fn cut_power(&self) {
        self.world.lock().plan.power_is_off = true;
    }

    /// Whether power was cut.
    pub fn power_is_off(&self) -> bool {
        self.world.lock().plan.power_is_off
    }

    /// Fails the request with this number, the first being 0, if it is of this kind.
    pub fn fail_at(&self, request: u64, kind: FaultKind) {
        self.world.lock().plan.fail_at.push((request, kind));
    }

    /// Fails the next `count` requests of a kind. Several such plans are used up in turn.
    pub fn fail_next(&self, kind: FaultKind, count: u64) {
        if count > 0 {
            self.world.lock().plan.fail_next.push((kind, count));
        }
    }

    /// What planned errors say from now on: `EIO` unless this is called.
    pub fn set_error(&self, error: FaultError) {
        self.world.lock().plan.error = error;
    }

    /// Whether planned errors say that the disk is full, as a sync or a rename may, too.
    pub fn set_errors_full(&self, full: bool) {
        self.set_error(if full { FaultError::DiskFull } else { FaultError::Io });
    }

    /// Fails each read, write and sync from now on with this probability, drawn from the medium's
    /// seed. Changes of names are spared.
    pub fn set_error_rate(&self, probability: f64) {
        self.world.lock().plan.error_rate = probability;
    }

    /// Forgets every planned error and power cut. Power that is off stays off.
    pub fn clear_faults(&self) {
        let plan = &mut self.world.lock().plan;
        plan.cut_at = None;
        plan.fail_at.clear();
        plan.fail_next.clear();
        plan.error_rate = 0.0;
    }

    /// How much named files can take, in bytes; `u64::MAX` is no limit. With less than is taken
    /// already, nothing can grow.
    pub fn set_capacity(&self, bytes: u64) {
        self.world.lock().plan.capacity_bytes = bytes;
    }

    /// Whether a write that doesn't fit leaves the sectors that did.
    pub fn set_torn_on_full(&self, torn: bool) {
        self.world.lock().plan.torn_on_full = torn;
    }

    /// What all named files take, in bytes: whole sectors, holes not counted.
    pub fn space_used(&self) -> u64 {
        self.world.lock().space_used()
    }
}

impl World {
    /// Counted anew each time: cheap for the few files of a test, and never out of step.
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

    /// What is free, in bytes.
    pub(super) fn room(&self) -> u64 {
        match self.plan.capacity_bytes {
            u64::MAX => u64::MAX,
            capacity => capacity.saturating_sub(self.space_used()),
        }
    }
}
