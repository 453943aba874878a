//! Ctrl-C and SIGTERM, for commands that have something to put in order before they end.
//!
//! Their exit status is 128 and the signal's number, as a shell has it. A command that works row by row
//! asks now and then ([`Interrupt::check`]); one whose work cannot be left halfway has its things put in
//! order by another thread ([`tidy_up`]). A second signal ends the process at once.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::Failure;

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// How long a signal may go unnoticed that comes just before a wait for input.
const STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Whether a signal has come.
#[derive(Clone)]
pub(crate) struct Interrupt {
    /// Its number; 0 for none.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// From now on signals are noticed here, and end nothing until a second one comes.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let (seen, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for number in SIGNALS {
            // In this order: the first signal finds that none was seen.
            flag::register_conditional_default(number, seen.clone())
                .and_then(|_| flag::register(number, seen.clone()))
                .and_then(|_| flag::register_usize(number, signal.clone(), number as usize))
                .map_err(|e| Failure::file("listen for", "signals", &e))?;
        }
        Ok(Interrupt { signal })
    }

    /// Fails if one has come.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Failure::Interrupted { signal: signal as u8, text: String::new() }),
        }
    }

    /// Standard input, whose reads fail once a signal has come, though nothing can be read.
    pub(crate) fn stdin(&self) -> std::io::Result<impl Read + use<>> {
        // Past the standard library's buffer, which a poll knows nothing of.
        let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        Ok(self.patient(input))
    }

    /// As [`stdin`](Self::stdin), of another file that may keep its reader waiting.
    pub(crate) fn patient(&self, input: File) -> impl Read + use<> {
        Patient { input, interrupt: self.clone() }
    }
}

struct Patient {
    input: File,
    interrupt: Interrupt,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.interrupt.check().is_err() {
                // Of no kind: readers try again after `ErrorKind::Interrupted`.
                return Err(std::io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&self.input, PollFlags::IN)], Some(&STEP)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.input.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Has a measurement's stores removed when a signal comes, and the process ended.
pub(crate) fn tidy_up() -> Result<(), Failure> {
    let mut signals =
        Signals::new(SIGNALS).map_err(|e| Failure::file("listen for", "signals", &e))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let seen = Arc::new(AtomicBool::new(true));
            for number in SIGNALS {
                let _ = flag::register_conditional_default(number, seen.clone());
            }
            let removed = siltstone_lab::engines::remove_unfinished();
            let removed: Vec<_> = removed.iter().map(|path| path.display().to_string()).collect();
            match removed.is_empty() {
                true => eprintln!("siltstone: interrupted"),
                false => eprintln!("siltstone: interrupted; removed {}", removed.join(", ")),
            }
            // At once: other threads are amid their work on what is gone.
            signal_hook::low_level::exit(128 + signal);
        }
    });
    Ok(())
}
