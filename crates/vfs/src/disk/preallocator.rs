//! Prepares windows of append files on a background thread: space, pages, mapping.
//!
//! One thread of the process writes zeros, maps them, and has the kernel populate the mapping. So
//! space is allocated before anything is stored (a full disk is an error instead of a signal), and
//! the page cache stores the zeros in large folios if the file system supports them. Pages that are
//! created one by one, by faults or small writes, cost three times as much to create and to free.
//!
//! Populating a mapping for stores dirties all its pages. While syncs are frequent, which the pages
//! of single-page folios are for, that would have the next sync write the window again, and gain
//! nothing: a sync protects the pages that it writes, so the first store to each faults anyway.
//!
//! ```text
//!   file    ──── written ────┤ reserved ├──────── zeros ────────┤
//!                            ▲ start of the window              ▲ its end
//! ```
//!
//! The file may be written to at the same time, past the thread's position. A writer first
//! *reserves* everything before the end of its write. Zeros are written only after the reserved
//! prefix, and all space of such a window is reserved explicitly.
//!
//! The thread also unmaps windows and starts writeback, so that a sync has little to do: the sync
//! of a log of tens of MiB would take as long as the log took to fill.
//!
//! Most of this is kernel work that many kernels do not preempt, and the thread is woken by a
//! writer. It therefore does not preempt other threads on wake-up (see
//! [`thread_priority`](siltstone_runtime::thread_priority)).
//!
//! Invariant: no zero is written to a reserved byte, and no byte is reserved while zeros are being
//! written to it.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use siltstone_runtime::thread_priority;

use crate::pmem::Memory;
use crate::system::{self, MAP_BYTES, start_write_back};

/// The size of a large folio. Zeros are written in pieces of this size, so a reservation waits for
/// one of them at most.
pub(super) const LARGE_FOLIO_BYTES: u64 = 64 << 10;

/// The size of the folios of a window. The page cache makes them as large as the writes of zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FolioSize {
    /// Up to [`LARGE_FOLIO_BYTES`]: a third of the work, but a sync writes a whole folio per store.
    #[default]
    Large,
    /// Single pages: a sync writes only pages that were stored to.
    Page,
}

impl FolioSize {
    fn bytes(self) -> u64 {
        match self {
            FolioSize::Large => LARGE_FOLIO_BYTES,
            FolioSize::Page => system::page_bytes(),
        }
    }
}

/// A mapped part of a file.
pub(super) struct Window {
    start: u64,
    memory: Memory,
}

/// A requested window.
#[derive(Default)]
pub(super) struct PendingWindow {
    start: u64,
    bytes: u64,
    folios: FolioSize,
    state: Mutex<State>,
    changed: Condvar,
    reservation: Mutex<Reservation>,
}

#[derive(Default)]
struct Reservation {
    /// Bytes of the file before this offset belong to the writer.
    end: u64,
    /// The preparation has started, so the file may be changing.
    has_started: bool,
}

#[derive(Default)]
enum State {
    #[default]
    Waiting,
    /// No window if all of it was reserved meanwhile.
    Done(io::Result<Option<Window>>),
    Consumed,
}

enum Job {
    Prepare { file: Arc<File>, pending: Arc<PendingWindow> },
    Unmap(Window),
    WriteBack { file: Arc<File>, start: u64, bytes: u64 },
}

impl Window {
    /// Requests the window of a file at `start`, which is page-aligned. Later writes to the file at
    /// or after `start` must be reserved first.
    pub(super) fn request(
        file: &Arc<File>,
        start: u64,
        bytes: u64,
        folios: FolioSize,
    ) -> Arc<PendingWindow> {
        let pending = Arc::new(PendingWindow::new(start, bytes, folios));
        let job = Job::Prepare { file: file.clone(), pending: pending.clone() };
        if let Err(error) = enqueue(job) {
            pending.complete(Err(error));
        }
        pending
    }

    /// Prepares the first window of an empty file on this thread. Also starts the preallocator
    /// thread, which will be needed soon: a new thread may start to run only after the window is
    /// full.
    pub(super) fn make(file: &File, bytes: u64, folios: FolioSize) -> io::Result<Option<Window>> {
        let _ = worker();
        Self::prepare(file, &PendingWindow::new(0, bytes, folios))
    }

    /// The start offset in the file.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The end offset in the file.
    pub(super) fn end(&self) -> u64 {
        self.start + self.memory.len() as u64
    }

    /// Stores bytes at an offset of the file; `false` if they do not fit the window.
    pub(super) fn store(&self, offset: u64, bytes: &[u8]) -> bool {
        let is_inside = offset >= self.start && offset + bytes.len() as u64 <= self.end();
        if is_inside {
            self.memory.store((offset - self.start) as usize, bytes);
        }
        is_inside
    }

    /// Unmaps the window on the preallocator thread.
    pub(super) fn discard(self) {
        // Without the thread it is unmapped here.
        let _ = enqueue(Job::Unmap(self));
    }

    fn prepare(file: &File, pending: &PendingWindow) -> io::Result<Option<Window>> {
        static ZEROS: [u8; LARGE_FOLIO_BYTES as usize] = [0; LARGE_FOLIO_BYTES as usize];
        let (start, end) = (pending.start, pending.end());
        let folio = pending.folios.bytes().min(LARGE_FOLIO_BYTES);
        let mut at = start;
        while at < end {
            let mut reservation = pending.reservation.lock();
            if reservation.end >= end {
                return Ok(None);
            }
            reservation.has_started = true;
            at = at.max(reservation.end.next_multiple_of(MAP_BYTES as u64));
            let len = (folio - at % folio).min(end - at);
            system::write_all_at(file, &ZEROS[..len as usize], at)?;
            at += len;
        }
        if pending.reservation.lock().end > start {
            // The write of the reserved bytes may have failed, e.g. on a full disk.
            system::allocate(file, start, pending.bytes)?;
        }
        let is_populated = pending.folios == FolioSize::Large;
        let memory = Memory::window(file, start, pending.bytes as usize, is_populated)?;
        Ok(Some(Window { start, memory }))
    }
}

impl PendingWindow {
    fn new(start: u64, bytes: u64, folios: FolioSize) -> Self {
        PendingWindow { start, bytes, folios, ..PendingWindow::default() }
    }

    /// The end offset in the file.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// Reserves the bytes before `end` for a write. May wait for one write of zeros.
    pub(super) fn reserve_prefix(&self, end: u64) {
        if end <= self.start {
            return;
        }
        let mut reservation = self.reservation.lock();
        reservation.end = end.max(reservation.end);
    }

    /// Reserves everything. Waits for the end of the preparation if it has started.
    pub(super) fn cancel(&self) {
        self.reserve_prefix(u64::MAX);
        if self.reservation.lock().has_started {
            self.wait();
        }
    }

    /// The window or the error, once the preparation has ended.
    pub(super) fn take(&self) -> Option<io::Result<Option<Window>>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Consumed) {
            State::Done(done) => Some(done),
            other => {
                *state = other;
                None
            }
        }
    }

    fn wait(&self) {
        let mut state = self.state.lock();
        while matches!(*state, State::Waiting) {
            self.changed.wait(&mut state);
        }
        *state = State::Consumed;
    }

    #[cfg(test)]
    pub(super) fn wait_until_ready(&self) {
        let mut state = self.state.lock();
        while matches!(*state, State::Waiting) {
            self.changed.wait(&mut state);
        }
    }

    fn complete(&self, done: io::Result<Option<Window>>) {
        *self.state.lock() = State::Done(done);
        self.changed.notify_all();
    }
}

/// Starts writeback of a part of a file on the preallocator thread. Errors are ignored: a later
/// sync reports them.
pub(super) fn write_back(file: &Arc<File>, start: u64, bytes: u64) {
    let _ = enqueue(Job::WriteBack { file: file.clone(), start, bytes });
}

/// Queues a job for the preallocator thread.
fn enqueue(job: Job) -> io::Result<()> {
    let queued = worker().and_then(|worker| worker.send(job).ok());
    queued.ok_or_else(|| io::Error::other("there is no preallocator thread"))
}

/// The job queue of the preallocator thread, which the first caller starts.
fn worker() -> Option<&'static Sender<Job>> {
    static WORKER: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let worker = WORKER.get_or_init(|| {
        let (sender, jobs) = channel();
        let work = move || {
            thread_priority::set_batch_policy();
            for job in jobs {
                match job {
                    Job::Prepare { file, pending } => {
                        pending.complete(Window::prepare(&file, &pending));
                    }
                    Job::Unmap(window) => drop(window),
                    Job::WriteBack { file, start, bytes } => start_write_back(&file, start, bytes),
                }
            }
        };
        std::thread::Builder::new().name("siltstone-ahead".to_owned()).spawn(work).ok()?;
        Some(sender)
    });
    worker.as_ref()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const WINDOW: u64 = 256 << 10;

    /// Prepares a window whose first bytes are reserved and written.
    fn prepare(reserved: u64) -> (File, Option<Window>) {
        let file = tempfile::tempfile().unwrap();
        let pending = PendingWindow::new(0, WINDOW, FolioSize::Large);
        pending.reserve_prefix(reserved);
        file.write_all_at(&vec![7; reserved as usize], 0).unwrap();
        let window = Window::prepare(&file, &pending).unwrap();
        (file, window)
    }

    #[test]
    fn reserved_bytes_are_kept_and_the_rest_of_the_window_is_zeros() {
        for reserved in [0, 1, 5000, LARGE_FOLIO_BYTES, WINDOW - 4096, WINDOW - 4095, WINDOW - 1] {
            let (file, window) = prepare(reserved);
            assert_eq!(file.metadata().unwrap().len(), WINDOW, "{reserved}");
            assert!(window.unwrap().store(WINDOW - 1, b"!"));
            let mut all = vec![1; WINDOW as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            assert!(all[..reserved as usize].iter().all(|&byte| byte == 7), "{reserved}");
            assert!(all[reserved as usize..WINDOW as usize - 1].iter().all(|&byte| byte == 0));
            assert_eq!(all.last(), Some(&b'!'), "{reserved}");
        }
    }

    #[test]
    fn fully_reserved_window_is_not_mapped() {
        let (file, window) = prepare(WINDOW);
        assert!(window.is_none());
        assert_eq!(file.metadata().unwrap().len(), WINDOW);
    }
}
