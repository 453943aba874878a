//! Pieces of growing files made ready on another thread: space, pages, a mapping.
//!
//! One thread of the process does it for all files: it reserves the space (so that a store finds it,
//! and a full disk is an error instead of a signal), maps it, and has the kernel bring its pages in.
//! It also takes mappings down, which takes as long, and has what is behind the end written back, so that
//! a sync finds little to do: of a log of tens of MiB it would take as long as the log took to fill.
//!
//! Source: ours.

use std::fs::File;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::pmem::Memory;

/// A part of a file that is mapped to be stored to.
pub(super) struct Window {
    start: u64,
    memory: Memory,
}

/// A window that is asked for.
#[derive(Default)]
pub(super) struct Ready {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Waiting,
    Done(io::Result<Window>),
    Taken,
}

enum Job {
    Prepare { file: File, start: u64, ready: Arc<Ready> },
    TakeDown(Window),
    WriteBack { file: File, start: u64, bytes: u64 },
}

impl Window {
    /// Bytes of a window. The larger, the more space a log has that it does not use; the smaller, the
    /// more often one is made.
    pub(super) const BYTES: u64 = 1 << 20;

    /// Asks for the window of a file that begins at `start`, a multiple of a page.
    pub(super) fn ask_for(file: &File, start: u64) -> Arc<Ready> {
        let ready = Arc::new(Ready::default());
        let asked = file
            .try_clone()
            .and_then(|file| worker(Job::Prepare { file, start, ready: ready.clone() }));
        if let Err(error) = asked {
            ready.is_done(Err(error));
        }
        ready
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
        let _ = worker(Job::TakeDown(self));
    }

    fn prepare(file: &File, start: u64) -> io::Result<Window> {
        loop {
            match fallocate(file, FallocateFlags::empty(), start, Window::BYTES) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Window { start, memory: Memory::window(file, start, Window::BYTES as usize)? })
    }
}

impl Ready {
    /// The window, or why there is none; `None` while it is being made.
    pub(super) fn take(&self) -> Option<io::Result<Window>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Done(done) => Some(done),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Waits until nobody works on it any more.
    pub(super) fn wait(&self) {
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

    fn is_done(&self, done: io::Result<Window>) {
        *self.state.lock() = State::Done(done);
        self.changed.notify_all();
    }
}

/// Has the kernel begin to write a part of a file to the medium, without waiting for it. Nothing depends on
/// it: a sync finds out what failed.
pub(super) fn write_back(file: &File, start: u64, bytes: u64) {
    let _ = file.try_clone().and_then(|file| worker(Job::WriteBack { file, start, bytes }));
}

fn begin_to_write_back(file: &File, start: u64, bytes: u64) {
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

/// Gives the thread a job; the first begins it.
fn worker(job: Job) -> io::Result<()> {
    static WORKER: OnceLock<Option<Sender<Job>>> = OnceLock::new();
    let worker = WORKER.get_or_init(|| {
        let (give, jobs) = channel();
        let work = move || {
            for job in jobs {
                match job {
                    Job::Prepare { file, start, ready } => {
                        ready.is_done(Window::prepare(&file, start));
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
    let given = worker.as_ref().and_then(|worker| worker.send(job).ok());
    given.ok_or_else(|| io::Error::other("there is no thread to make it ready"))
}
