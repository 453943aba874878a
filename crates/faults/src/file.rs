//! The state of a file: current bytes, durable bytes, and every change between.
//!
//! All changes have the same form, a range with new content (or zeros) and the length afterwards,
//! so writes, truncations, extensions and holes are kept, dropped or torn in the same way.
//!
//! ```text
//! current = durable + pending[0] + pending[1] + … + the stores to its mapping
//! ```
//!
//! Invariant: the equation above, except for *poisoned* changes: those that were pending when a
//! sync failed. The kernel marks their pages clean, so a later sync succeeds without writing them.
//! They stay pending: readers see them, and a power cut may lose them.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?", ATC 2020, section 3.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use siltstone_vfs::backend::{SECTOR_BYTES, SparseBytes};

use super::stores::Store;

pub(super) type SharedFile = Arc<Mutex<FileState>>;

pub(super) struct FileState {
    pub(super) id: u64,
    pub(super) current: SparseBytes,
    pub(super) durable: SparseBytes,
    pub(super) pending: Vec<Change>,
    /// Stores to the mapping that are not persisted; later than all pending changes.
    pub(super) stores: Vec<Store>,
    /// Upgradable while a mapping of the file exists.
    pub(super) mapped: Weak<()>,
    pub(super) preallocation: Preallocation,
}

/// Whether there may be zeros past the end of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preallocation {
    None,
    /// An append file with preallocated space.
    Present,
    /// The preallocation was trimmed, but not durably yet.
    Trimmed,
}

/// A range with new bytes or zeros, and the length of the file afterwards.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) sequence: u64,
    /// Whether a failed sync covered the change.
    pub(super) poisoned: bool,
    offset: u64,
    len: u64,
    /// None for zeros.
    bytes: Option<Box<[u8]>>,
    pub(super) length_after: u64,
}

impl FileState {
    pub(super) fn new(id: u64) -> Self {
        Self::new_durable(id, SparseBytes::default())
    }

    /// A file whose bytes are all durable.
    pub(super) fn new_durable(id: u64, bytes: SparseBytes) -> Self {
        FileState {
            id,
            current: bytes.clone(),
            durable: bytes,
            pending: Vec::new(),
            stores: Vec::new(),
            mapped: Weak::new(),
            preallocation: Preallocation::None,
        }
    }

    /// The same file for another process, which has not mapped it.
    pub(super) fn copy_for_next_process(&self) -> Self {
        FileState {
            id: self.id,
            current: self.current.clone(),
            durable: self.durable.clone(),
            pending: self.pending.clone(),
            stores: self.stores.clone(),
            mapped: Weak::new(),
            preallocation: self.preallocation,
        }
    }

    pub(super) fn write(&mut self, sequence: u64, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let length_after = self.current.len().max(offset + bytes.len() as u64);
        self.current.write(offset, bytes);
        self.note(sequence, offset, bytes.len() as u64, Some(bytes.into()), length_after);
    }

    pub(super) fn set_len(&mut self, sequence: u64, len: u64) {
        let cut_off = self.current.len().saturating_sub(len);
        self.current.set_len(len);
        self.note(sequence, len, cut_off, None, len);
    }

    /// Trims the preallocation.
    pub(super) fn trim_preallocation(&mut self) {
        if self.preallocation == Preallocation::Present {
            self.preallocation = Preallocation::Trimmed;
        }
    }

    pub(super) fn punch_hole(&mut self, sequence: u64, offset: u64, len: u64) {
        let len = len.min(self.current.len().saturating_sub(offset));
        self.current.zero(offset, len);
        self.note(sequence, offset, len, None, self.current.len());
    }

    fn note(
        &mut self,
        sequence: u64,
        offset: u64,
        len: u64,
        bytes: Option<Box<[u8]>>,
        length_after: u64,
    ) {
        let poisoned = false;
        self.pending.push(Change { sequence, poisoned, offset, len, bytes, length_after });
    }

    /// Makes everything durable that is not poisoned.
    pub(super) fn sync(&mut self) {
        if self.preallocation == Preallocation::Trimmed {
            self.preallocation = Preallocation::None;
        }
        self.sync_changes();
        if !self.stores.is_empty() {
            let all = 0..self.current.len();
            self.persist(std::slice::from_ref(&all));
        }
    }

    fn sync_changes(&mut self) {
        if self.pending.iter().any(|change| change.poisoned) {
            return self.sync_around_poison();
        }
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// Excludes the pending changes from later syncs.
    pub(super) fn poison(&mut self) {
        self.pending.iter_mut().for_each(|change| change.poisoned = true);
        let all = 0..self.current.len();
        self.poison_stores(std::slice::from_ref(&all));
    }

    /// Makes the current bytes durable, poisoned or not.
    pub(super) fn make_durable(&mut self) {
        self.pending.clear();
        self.stores.clear();
        self.durable = self.current.clone();
    }

    /// Makes the sectors durable that were written since the failed sync, with all their current
    /// bytes. The poisoned changes of all other sectors stay pending.
    fn sync_around_poison(&mut self) {
        let fresh = || self.pending.iter().filter(|change| !change.poisoned);
        if fresh().next().is_none() {
            return;
        }
        let written: BTreeSet<u64> = fresh().flat_map(|c| c.parts().map(|p| p.sector)).collect();
        let length = self.current.len();
        for sector in &written {
            let offset = sector * SECTOR_BYTES;
            let mut bytes = vec![0; length.saturating_sub(offset).min(SECTOR_BYTES) as usize];
            if self.current.read(offset, &mut bytes) {
                self.durable.write(offset, &bytes);
            }
        }
        self.durable.set_len(length);
        let poisoned = self.pending.drain(..).filter(|change| change.poisoned);
        let poisoned = poisoned.flat_map(|change| change.without(&written, length));
        self.pending = poisoned.collect();
    }
}

/// The part of a change in one sector.
pub(super) struct Part {
    pub(super) sector: u64,
    offset: u64,
    len: u64,
}

impl Change {
    /// The parts of the change by sector.
    pub(super) fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        parts(self.offset, self.len)
    }

    /// Applies the change.
    pub(super) fn apply(&self, to: &mut SparseBytes) {
        match &self.bytes {
            Some(bytes) => to.write(self.offset, bytes),
            None => to.zero(self.offset, self.len),
        }
        to.set_len(self.length_after);
    }

    /// Applies one part of the change. Grows `to` if necessary, but does not set its length.
    pub(super) fn apply_part(&self, part: &Part, to: &mut SparseBytes) {
        match self.bytes_of(part) {
            Some(bytes) => to.write(part.offset, bytes),
            None => to.zero(part.offset, part.len),
        }
    }

    fn bytes_of(&self, part: &Part) -> Option<&[u8]> {
        let start = (part.offset - self.offset) as usize;
        self.bytes.as_ref().map(|bytes| &bytes[start..start + part.len as usize])
    }

    /// The parts of the change outside of `durable_sectors`; `length` is the file's durable length.
    fn without(self, durable_sectors: &BTreeSet<u64>, length: u64) -> Vec<Change> {
        let outside = self.parts().filter(|part| !durable_sectors.contains(&part.sector));
        let remain = |part: Part| Change {
            sequence: self.sequence,
            poisoned: self.poisoned,
            offset: part.offset,
            len: part.len,
            bytes: self.bytes_of(&part).map(Into::into),
            length_after: length,
        };
        outside.map(remain).collect()
    }
}

/// The parts of a range by sector.
pub(super) fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        let sector = at / SECTOR_BYTES;
        let stop = end.min((sector + 1) * SECTOR_BYTES);
        let part = Part { sector, offset: at, len: stop - at };
        at = stop;
        (part.len > 0).then_some(part)
    })
}

impl Part {
    /// The range in the bytes of a write that begins at `start`.
    pub(super) fn within(&self, start: u64) -> std::ops::Range<usize> {
        let from = (self.offset - start) as usize;
        from..from + self.len as usize
    }

    /// The offset in the file.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The number of bytes.
    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &SparseBytes) -> Vec<u8> {
        let mut out = vec![0; bytes.len() as usize];
        assert!(bytes.read(0, &mut out));
        out
    }

    #[test]
    fn sync_makes_current_bytes_durable() {
        let mut file = FileState::new(1);
        file.write(1, 0, &[1; 2000]);
        file.set_len(2, 700);
        file.write(3, 1500, &[2; 10]);
        file.punch_hole(4, 100, 500);
        assert_eq!(file.durable.len(), 0);
        file.sync();
        assert!(file.pending.is_empty());
        assert_eq!(read(&file.durable), read(&file.current));
        assert_eq!(file.durable.len(), 1510);
    }

    #[test]
    fn sync_skips_poisoned_sectors_unless_they_were_rewritten() {
        let mut file = FileState::new(1);
        file.write(1, 0, &[1; 1024]);
        file.poison();
        file.sync();
        assert_eq!(file.durable.len(), 0, "a second sync must not repair the first");
        file.write(2, 600, b"new");
        file.sync();
        let durable = read(&file.durable);
        assert_eq!(durable[..512], [0; 512], "still in doubt");
        assert_eq!(durable[512..], read(&file.current)[512..], "written back whole");
        assert_eq!(file.pending.len(), 1);
    }
}
