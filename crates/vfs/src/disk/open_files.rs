//! The budget of open files of a directory and its subdirectories.
//!
//! ```text
//!   permit: room for one more ── over budget ──▶ clock: a used file gets a second chance,
//!      │                                         an idle, synced one is closed
//!      ▼
//!   open ── EMFILE, ENFILE ──▶ close some more, after a sync where it is needed ──▶ open again
//! ```
//!
//! Every file counts while it is open. A file that is pinned or in use is not closed, so these may
//! exceed the budget. Files with unsynced bytes may exceed it, too, up to twice the budget: beyond
//! that, and where the process has no more descriptors, an idle one is synced and closed.
//!
//! A low limit of the process (RLIMIT_NOFILE) lowers the budget, and the excess of unsynced files:
//! sockets, pipes and other libraries do not try again when they get no descriptor.
//!
//! The set also finds the handles of a name: a file that is removed or renamed cannot be opened
//! again by name, so its handles are pinned before.
//!
//! Locks: a slot of a [`Descriptor`] before the set, and from within the set a slot only by trying.
//! A hit takes no lock of the set. No file is opened, synced or closed under the lock of the set.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::Result;

use super::descriptor::{Descriptor, OpenFile};
use crate::OpenFileCounts;
use crate::system::{is_out_of_files, open_file_limit};

/// Descriptors that the budget leaves of the process's limit.
const UNBUDGETED_DESCRIPTORS: u64 = 32;
/// Descriptors that files with unsynced bytes leave of it, which may exceed the budget.
const RESERVED_DESCRIPTORS: u64 = UNBUDGETED_DESCRIPTORS / 2;
/// The lowest budget that the process's limit leads to.
const MIN_LIMITED_BUDGET: u64 = 16;
/// The number of files that are closed before an open is tried again.
const RETRY_EVICTIONS: usize = 8;
/// The number of times that an open is tried again.
const RETRIES: u32 = 4;
/// The pause before a file is opened again, if no other could be closed; the next ones double.
/// Meanwhile files in use become idle, and those that were removed are closed.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The ring position of a file that is closed.
pub(super) const NOT_IN_RING: usize = usize::MAX;
/// The minimum number of files that one eviction scans before it gives up.
const MIN_SCANNED: usize = 64;

/// The open files of a directory and its subdirectories.
pub(super) struct OpenFiles {
    max_open: usize,
    /// The process's limit of descriptors, less those that are reserved.
    usable: usize,
    /// Open directories, and removed files that are not closed yet.
    held: AtomicUsize,
    state: Mutex<State>,
    evictions: AtomicU64,
    reopens: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Files that are open, and permits.
    open: usize,
    ring: Vec<Arc<Descriptor>>,
    hand: usize,
    /// The handles of each name, open or closed.
    names: HashMap<Arc<Path>, Handles>,
}

#[derive(Default)]
struct Handles {
    handles: Vec<Arc<Descriptor>>,
    /// Removals and renames of the name in progress: new handles are pinned.
    changes: usize,
}

/// Room for files that are about to be opened. Returned on drop, unless a file was admitted.
pub(super) struct Permit<'a> {
    files: &'a OpenFiles,
    descriptors: usize,
}

impl Permit<'_> {
    /// The room is taken by a file that was opened.
    fn take(mut self) {
        self.descriptors = 0;
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        if self.descriptors > 0 {
            self.files.state.lock().open -= self.descriptors;
        }
    }
}

/// An open directory, or a removed file until it is closed. It takes from the budget.
pub(super) struct HeldDescriptor(Arc<OpenFiles>);

impl HeldDescriptor {
    pub(super) fn new(files: &Arc<OpenFiles>) -> Self {
        files.held.fetch_add(1, Relaxed);
        HeldDescriptor(files.clone())
    }
}

impl Drop for HeldDescriptor {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Relaxed);
    }
}

/// A name that is being removed or renamed.
pub(super) struct NameChange<'a> {
    files: &'a OpenFiles,
    path: &'a Path,
    /// A file of one of its handles.
    pub(super) file: Option<Arc<File>>,
}

impl OpenFiles {
    /// A budget of `max_open` files, lowered to what the process's limit leaves.
    pub(super) fn new(max_open: usize) -> Self {
        let limit = open_file_limit().unwrap_or(u64::MAX);
        let limited = limit.saturating_sub(UNBUDGETED_DESCRIPTORS).max(MIN_LIMITED_BUDGET);
        let usable = limit.saturating_sub(RESERVED_DESCRIPTORS);
        OpenFiles {
            max_open: max_open.clamp(1, usize::try_from(limited).unwrap_or(usize::MAX)),
            usable: usize::try_from(usable).unwrap_or(usize::MAX),
            held: AtomicUsize::new(0),
            state: Mutex::default(),
            evictions: AtomicU64::new(0),
            reopens: AtomicU64::new(0),
        }
    }

    /// The budget that directories and removed files leave, at least half of it.
    fn file_budget(&self) -> usize {
        let left = self.max_open.saturating_sub(self.held.load(Relaxed));
        left.max(self.max_open / 2).max(1)
    }

    /// The number of open files from which on those with unsynced bytes are closed as well.
    fn unsynced_budget(&self) -> usize {
        let usable = self.usable.saturating_sub(self.held.load(Relaxed));
        usable.min(2 * self.max_open).max(self.file_budget())
    }

    /// Whether a removed file may stay open for a while.
    pub(super) fn may_hold_one(&self) -> bool {
        let open = self.state.lock().open + self.held.load(Relaxed);
        open < self.usable.min(2 * self.max_open)
    }

    pub(super) fn counts(&self) -> OpenFileCounts {
        OpenFileCounts {
            open: self.state.lock().open as u64,
            max_open: self.max_open as u64,
            evictions: self.evictions.load(Relaxed),
            reopens: self.reopens.load(Relaxed),
        }
    }

    /// Makes room for `descriptors` more, if files can be closed.
    pub(super) fn permit(&self, descriptors: usize) -> Permit<'_> {
        let mut closed = Vec::new();
        let mut unsynced = Vec::new();
        let mut state = self.state.lock();
        state.open += descriptors;
        let excess = state.open.saturating_sub(self.file_budget());
        if excess > 0 {
            let max_scanned = 2 * state.ring.len().min(self.max_open).max(MIN_SCANNED);
            state.close_idle(excess, max_scanned, &mut closed);
        }
        if state.open > self.unsynced_budget() {
            unsynced = state.idle(MIN_SCANNED);
        }
        drop(state);
        // One per file that is opened, so that the excess does not grow and nobody waits for many.
        closed.extend(unsynced.iter().find_map(|file| file.sync_and_close()));
        self.evictions.fetch_add(closed.len() as u64, Relaxed);
        Permit { files: self, descriptors }
    }

    /// Calls `open`, and again after closing files if the process or the system has too many.
    pub(super) fn retry<T>(&self, mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        for _ in 0..RETRIES {
            match open() {
                Err(error) if is_out_of_files(&error) && self.close_some() => {}
                done => return done,
            }
        }
        open()
    }

    /// The same for a file that was closed for room: with pauses, since nobody repeats the read or
    /// write that needs it. It gives up after some milliseconds.
    pub(super) fn retry_with_pauses<T>(
        &self,
        mut open: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        for attempt in 0..RETRIES {
            match self.retry(&mut open) {
                Err(error) if is_out_of_files(&error) => {
                    std::thread::sleep(FIRST_PAUSE * 2_u32.pow(attempt));
                }
                done => return done,
            }
        }
        open()
    }

    /// Closes a few files, after a sync if no synced one is idle; whether it closed any.
    fn close_some(&self) -> bool {
        let mut closed = Vec::new();
        let mut state = self.state.lock();
        let max_scanned = 2 * state.ring.len();
        state.close_idle(RETRY_EVICTIONS, max_scanned, &mut closed);
        let unsynced = if closed.is_empty() { state.idle(max_scanned) } else { Vec::new() };
        drop(state);
        let synced = unsynced.iter().filter_map(|file| file.sync_and_close());
        closed.extend(synced.take(RETRY_EVICTIONS));
        self.evictions.fetch_add(closed.len() as u64, Relaxed);
        !closed.is_empty()
    }

    /// Adds a new handle, whose file is open.
    pub(super) fn register(&self, descriptor: &Arc<Descriptor>, permit: Permit<'_>) {
        let mut state = self.state.lock();
        state.push(descriptor);
        let handles = state.names.entry(descriptor.path().clone()).or_default();
        handles.handles.push(descriptor.clone());
        if handles.changes > 0 {
            descriptor.pin_new();
        }
        permit.take();
    }

    /// Adds a file that was opened again.
    pub(super) fn admit(&self, descriptor: &Arc<Descriptor>, permit: Permit<'_>) {
        self.state.lock().push(descriptor);
        permit.take();
        self.reopens.fetch_add(1, Relaxed);
    }

    /// Takes a file out of the ring that is about to be closed, if it is there.
    pub(super) fn take_out(&self, descriptor: &Descriptor) {
        self.state.lock().take_out(descriptor);
    }

    /// Removes a handle that is being dropped.
    pub(super) fn unregister(&self, descriptor: &Arc<Descriptor>) {
        let mut state = self.state.lock();
        state.take_out(descriptor);
        if let Some(handles) = state.names.get_mut(descriptor.path()) {
            handles.handles.retain(|handle| !Arc::ptr_eq(handle, descriptor));
            if handles.handles.is_empty() && handles.changes == 0 {
                state.names.remove(descriptor.path());
            }
        }
    }

    /// Pins the handles of a name that is about to be removed or renamed, and those that are opened
    /// before the change is dropped.
    ///
    /// # Errors
    /// `Io` if a handle's file cannot be opened again, unless it is missing.
    pub(super) fn begin_change<'a>(&'a self, path: &'a Path) -> Result<NameChange<'a>> {
        let mut state = self.state.lock();
        let handles = state.names.entry(path.into()).or_default();
        handles.changes += 1;
        let handles = handles.handles.clone();
        drop(state);
        let mut change = NameChange { files: self, path, file: None };
        for handle in handles {
            match handle.pin() {
                Ok(file) => change.file = file,
                Err(error) if error.is_not_found() || error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(change)
    }

    /// Pins the open files below a directory that is about to be removed. Reads of the others fail
    /// from then on.
    pub(super) fn pin_below(&self, directory: &Path) {
        let state = self.state.lock();
        let below = state.names.iter().filter(|(path, _)| path.starts_with(directory));
        let handles: Vec<_> = below.flat_map(|(_, handles)| handles.handles.clone()).collect();
        drop(state);
        handles.iter().for_each(|handle| handle.pin_if_open());
    }
}

impl Drop for NameChange<'_> {
    fn drop(&mut self) {
        let mut state = self.files.state.lock();
        if let Some(handles) = state.names.get_mut(self.path) {
            handles.changes -= 1;
            if handles.handles.is_empty() && handles.changes == 0 {
                state.names.remove(self.path);
            }
        }
    }
}

impl State {
    /// Closes up to `wanted` files that are idle and synced, and scans at most `max_scanned`.
    fn close_idle(&mut self, wanted: usize, max_scanned: usize, closed: &mut Vec<OpenFile>) {
        let mut freed = 0;
        for _ in 0..max_scanned {
            if freed >= wanted || self.ring.is_empty() {
                return;
            }
            self.hand %= self.ring.len();
            let descriptor = &self.ring[self.hand];
            if descriptor.take_reference() {
                self.hand += 1;
                continue;
            }
            match descriptor.try_close() {
                Some(file) => {
                    freed += descriptor.access().descriptors();
                    let descriptor = descriptor.clone();
                    self.take_out(&descriptor);
                    closed.push(file);
                }
                None => self.hand += 1,
            }
        }
    }

    /// Idle files among the next `max_scanned` of the clock. They may have unsynced bytes.
    fn idle(&mut self, max_scanned: usize) -> Vec<Arc<Descriptor>> {
        let mut idle = Vec::new();
        for _ in 0..max_scanned.min(2 * self.ring.len()) {
            self.hand %= self.ring.len();
            let descriptor = &self.ring[self.hand];
            if descriptor.is_closable() && !descriptor.take_reference() {
                idle.push(descriptor.clone());
            }
            self.hand += 1;
        }
        idle
    }

    fn push(&mut self, descriptor: &Arc<Descriptor>) {
        descriptor.ring_position.store(self.ring.len(), Relaxed);
        self.ring.push(descriptor.clone());
    }

    /// Takes a file out of the ring, if it is there. The last one takes its position.
    fn take_out(&mut self, descriptor: &Descriptor) {
        let at = descriptor.ring_position.swap(NOT_IN_RING, Relaxed);
        if at == NOT_IN_RING {
            return;
        }
        self.ring.swap_remove(at);
        if let Some(moved) = self.ring.get(at) {
            moved.ring_position.store(at, Relaxed);
        }
        self.open -= descriptor.access().descriptors();
    }
}
