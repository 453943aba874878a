//! Pieces of growing files made ready on another thread: space, pages, a mapping.
//!
//! One thread of the process does it for all files: it writes zeros, maps them, and has the kernel bring the
//! mapping's pages in. So space is reserved before anything is stored (a full disk is an error instead of a
//! signal), and the page cache takes the zeros in large folios where the file system has them: pages that
//! come one by one, by faults or small writes, cost three times as much to make and to be rid of.
//!
//! ```text
//!   file    ──── written ────┤ claimed ├───────── zeros ────────┤
//!                            ▲ window's start                   ▲ its end
//! ```
//!
//! The file may be written to meanwhile, and faster. Who is about to write *claims* what it writes and all
//! before: zeros go behind that only, and of such a window all space is reserved by itself.
//!
//! The thread also takes mappings down, and has what is behind the end written back, so that a sync finds
//! little to do: of a log of tens of MiB it would take as long as the log took to fill.
//!
//! Most of this is the kernel's work, which many kernels do not interrupt, and who gives a job is a writer
//! about to go on, so the thread never pushes one aside (see [`thread_priority`](siltstone_runtime::thread_priority)), and
//! lets writes pass that it holds up ([`yield_point`]). Each time may cost it some milliseconds
//! until it runs again, so it does not for a window that is wanted soon: without one, writes are slower.
//!
//! Invariant: no zero is written to a byte that was claimed, and none is claimed while zeros are on their
//! way to it.
//!
//! Source: ours.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use siltstone_runtime::{BackgroundScope, yield_point};

use crate::pmem::{MAP_BYTES, Memory};

/// Bytes of a large folio: so many zeros are written at once, and a claim waits for no more.
pub(super) const LARGE_FOLIO_BYTES: u64 = 64 << 10;

/// The folios that the page cache keeps a window in. It makes them as large as the writes that the zeros come by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum FolioSize {
    /// Up to [`LARGE_FOLIO_BYTES`]: a third of the work, and a sync writes all of a folio for one store.
    #[default]
    Large,
    /// One page: a sync writes the pages that were stored to.
    Page,
}

impl FolioSize {
    fn bytes(self) -> u64 {
        match self {
            FolioSize::Large => LARGE_FOLIO_BYTES,
            FolioSize::Page => rustix::param::page_size() as u64,
        }
    }
}

/// A part of a file that is mapped to be stored to.
pub(super) struct Window {
    start: u64,
    memory: Memory,
}

/// A window that is asked for.
#[derive(Default)]
pub(super) struct Ready {
    start: u64,
    bytes: u64,
    folios: FolioSize,
    /// There is no time to let others pass.
    is_wanted_soon: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    claims: Mutex<Claims>,
}

#[derive(Default)]
struct Claims {
    /// Before this offset the file is somebody else's to write.
    to: u64,
    /// The window is being made: the file may change.
    has_begun: bool,
}

#[derive(Default)]
enum State {
    #[default]
    Waiting,
    /// No window: what was to be one was claimed meanwhile.
    Done(io::Result<Option<Window>>),
    Taken,
}

enum Job {
    Prepare { file: Arc<File>, ready: Arc<Ready> },
    TakeDown(Window),
    WriteBack { file: Arc<File>, start: u64, bytes: u64 },
}

impl Window {
    /// Asks for the window of a file that begins at `start`, a multiple of a page. What is written to the
    /// file from there on must be claimed.
    pub(super) fn ask_for(
        file: &Arc<File>,
        start: u64,
        bytes: u64,
        folios: FolioSize,
    ) -> Arc<Ready> {
        let ready = Arc::new(Ready::new(start, bytes, folios));
        let asked = give(Job::Prepare { file: file.clone(), ready: ready.clone() });
        if let Err(error) = asked {
            ready.is_done(Err(error));
        }
        ready
    }

    /// Makes the first window of a file without a byte, here and now. The next will be asked for soon, of a
    /// thread that waits for it: a new one may wait for its first turn for longer than the window lasts.
    pub(super) fn make(file: &File, bytes: u64, folios: FolioSize) -> io::Result<Option<Window>> {
        let _ = worker();
        Self::prepare(file, &Ready::new(0, bytes, folios))
    }

    /// Where it begins in the file.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Where it ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.start + self.memory.len() as u64
    }

    /// Stores bytes at an offset of the file; `false` if they are not all in the window.
    pub(super) fn store(&self, offset: u64, bytes: &[u8]) -> bool {
        let is_inside = offset >= self.start && offset + bytes.len() as u64 <= self.end();
        if is_inside {
            self.memory.store((offset - self.start) as usize, bytes);
        }
        is_inside
    }

    /// Has it taken down by the other thread.
    pub(super) fn discard(self) {
        // If there is none, it is taken down here and now.
        let _ = give(Job::TakeDown(self));
    }

    fn prepare(file: &File, ready: &Ready) -> io::Result<Option<Window>> {
        static ZEROS: [u8; LARGE_FOLIO_BYTES as usize] = [0; LARGE_FOLIO_BYTES as usize];
        let (start, end) = (ready.start, ready.end());
        let folio = ready.folios.bytes().min(LARGE_FOLIO_BYTES);
        let mut at = start;
        while at < end {
            let mut claims = ready.claims.lock();
            if claims.to >= end {
                return Ok(None);
            }
            claims.has_begun = true;
            at = at.max(claims.to.next_multiple_of(MAP_BYTES as u64));
            let len = (folio - at % folio).min(end - at);
            file.write_all_at(&ZEROS[..len as usize], at)?;
            at += len;
            drop(claims);
            if !ready.is_wanted_soon.load(Relaxed) {
                yield_point();
            }
        }
        if ready.claims.lock().to > start {
            // What was claimed may not have been written, as on a full disk.
            reserve(file, start, ready.bytes)?;
        }
        Ok(Some(Window { start, memory: Memory::window(file, start, ready.bytes as usize)? }))
    }
}

fn reserve(file: &File, start: u64, bytes: u64) -> io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), start, bytes) {
            Err(Errno::INTR) => {}
            done => return Ok(done?),
        }
    }
}

impl Ready {
    fn new(start: u64, bytes: u64, folios: FolioSize) -> Self {
        Ready { start, bytes, folios, ..Ready::default() }
    }

    /// Where it ends in the file.
    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }

    /// The file's end comes to it next.
    pub(super) fn hurry(&self) {
        self.is_wanted_soon.store(true, Relaxed);
    }

    /// Claims what lies before `end`, to be written now. It may last as long as a write.
    pub(super) fn claim(&self, end: u64) {
        if end <= self.start {
            return;
        }
        self.hurry();
        let mut claims = self.claims.lock();
        claims.to = end.max(claims.to);
    }

    /// Claims everything, and waits until nobody works on the window any more if it was begun.
    pub(super) fn cancel(&self) {
        self.claim(u64::MAX);
        if self.claims.lock().has_begun {
            self.wait();
        }
    }

    /// The window, or why there is none; `None` while it is being made.
    pub(super) fn take(&self) -> Option<io::Result<Option<Window>>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
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
        *state = State::Taken;
    }

    #[cfg(test)]
    pub(super) fn wait_until_ready(&self) {
        let mut state = self.state.lock();
        while matches!(*state, State::Waiting) {
            self.changed.wait(&mut state);
        }
    }

    fn is_done(&self, done: io::Result<Option<Window>>) {
        *self.state.lock() = State::Done(done);
        self.changed.notify_all();
    }
}

/// Has the kernel begin to write a part of a file to the medium, without waiting for it. Nothing depends on
/// it: a sync finds out what failed.
pub(super) fn write_back(file: &Arc<File>, start: u64, bytes: u64) {
    let _ = give(Job::WriteBack { file: file.clone(), start, bytes });
}

/// The same here and now; with 0 bytes up to the end of the file.
pub(super) fn begin_to_write_back(file: &File, start: u64, bytes: u64) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        let (start, bytes) = (start as libc::off64_t, bytes as libc::off64_t);
        // SAFETY: the descriptor is open while `file` lives, and the call takes no pointer.
        let _ = unsafe {
            libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE)
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, start, bytes);
}

/// Gives the thread a job.
fn give(job: Job) -> io::Result<()> {
    let given = worker().and_then(|worker| worker.send(job).ok());
    given.ok_or_else(|| io::Error::other("there is no thread to make it ready"))
}

/// The thread's jobs; who asks first begins it.
fn worker() -> Option<&'static Sender<Job>> {
    static WORKER: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let worker = WORKER.get_or_init(|| {
        let (give, jobs) = channel();
        let work = move || {
            siltstone_runtime::thread_priority::set_batch_policy();
            let _scope = BackgroundScope::enter_shared();
            for job in jobs {
                match job {
                    Job::Prepare { file, ready } => {
                        ready.is_done(Window::prepare(&file, &ready));
                    }
                    Job::TakeDown(window) => drop(window),
                    Job::WriteBack { file, start, bytes } => {
                        begin_to_write_back(&file, start, bytes)
                    }
                }
            }
        };
        std::thread::Builder::new().name("siltstone-ahead".to_owned()).spawn(work).ok()?;
        Some(give)
    });
    worker.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 256 << 10;

    /// A file with a window over what is not yet there of it: its first bytes were claimed and written.
    fn prepare(claimed: u64) -> (File, Option<Window>) {
        let file = tempfile::tempfile().unwrap();
        let ready = Ready::new(0, WINDOW, FolioSize::Large);
        ready.claim(claimed);
        file.write_all_at(&vec![7; claimed as usize], 0).unwrap();
        let window = Window::prepare(&file, &ready).unwrap();
        (file, window)
    }

    #[test]
    fn is_what_was_claimed_left_alone_and_all_else_of_the_window_part_of_the_file() {
        for claimed in [0, 1, 5000, LARGE_FOLIO_BYTES, WINDOW - 4096, WINDOW - 4095, WINDOW - 1] {
            let (file, window) = prepare(claimed);
            assert_eq!(file.metadata().unwrap().len(), WINDOW, "{claimed}");
            assert!(window.unwrap().store(WINDOW - 1, b"!"));
            let mut all = vec![1; WINDOW as usize];
            file.read_exact_at(&mut all, 0).unwrap();
            assert!(all[..claimed as usize].iter().all(|&byte| byte == 7), "{claimed}");
            assert!(all[claimed as usize..WINDOW as usize - 1].iter().all(|&byte| byte == 0));
            assert_eq!(all.last(), Some(&b'!'), "{claimed}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn do_writes_pass_unless_the_window_is_wanted_soon() {
        use std::time::{Duration, Instant};

        use rustix::thread::{CpuSet, sched_setaffinity};
        use siltstone_runtime::write_activity;

        let mut here = CpuSet::new();
        here.set(rustix::thread::sched_getcpu());
        sched_setaffinity(None, &here).expect("a thread may stay where it runs");
        let _scope = BackgroundScope::enter_shared();
        for is_wanted_soon in [false, true] {
            let ready = Ready::new(0, WINDOW, FolioSize::Large);
            if is_wanted_soon {
                ready.hurry();
            }
            let _write = write_activity::begin();
            Window::prepare(&tempfile::tempfile().unwrap(), &ready).unwrap();
            // A write is waited for once, for ten milliseconds.
            let began = Instant::now();
            write_activity::let_pass();
            assert_eq!(began.elapsed() > Duration::from_millis(5), is_wanted_soon);
        }
    }

    #[test]
    fn is_there_no_window_where_all_was_claimed() {
        let (file, window) = prepare(WINDOW);
        assert!(window.is_none());
        assert_eq!(file.metadata().unwrap().len(), WINDOW);
    }
}
