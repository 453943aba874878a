//! Ctrl-C and SIGTERM, for commands that clean up before they end.
//!
//! The exit status is 128 plus the signal's number, as in a shell. A command that works row by row
//! polls for signals ([`Interrupt::check`]); for others a thread cleans up
//! ([`clean_up_on_signal`]). A second signal ends the process at once.

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::outcome::Failure;

const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// The maximum delay until a signal that comes just before a wait for input is noticed.
const POLL_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Records the first signal.
#[derive(Clone)]
pub(crate) struct Interrupt {
    /// Its number, or 0.
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Records signals from now on; a second one ends the process.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let (seen, signal) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for number in SIGNALS {
            // In this order, so that the first signal finds `seen` unset.
            flag::register_conditional_default(number, seen.clone())
                .and_then(|_| flag::register(number, seen.clone()))
                .and_then(|_| flag::register_usize(number, signal.clone(), number as usize))
                .map_err(|e| Failure::file("listen for", "signals", &e))?;
        }
        Ok(Interrupt { signal })
    }

    /// Fails if a signal has come.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Failure::Interrupted { signal: signal as u8, text: String::new() }),
        }
    }

    /// Standard input, whose blocked reads fail once a signal has come.
    pub(crate) fn stdin(&self) -> std::io::Result<impl Read + use<>> {
        // Without the standard library's buffer, which `poll` does not see.
        let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        Ok(self.interruptible(input))
    }

    /// [`stdin`](Self::stdin) for another file whose reads may block.
    pub(crate) fn interruptible(&self, input: File) -> impl Read + use<> {
        InterruptibleReader { input, interrupt: self.clone() }
    }
}

struct InterruptibleReader {
    input: File,
    interrupt: Interrupt,
}

impl Read for InterruptibleReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        loop {
            if self.interrupt.check().is_err() {
                // Not `ErrorKind::Interrupted`, after which readers retry.
                return Err(std::io::Error::other("interrupted"));
            }
            match poll(&mut [PollFd::new(&self.input, PollFlags::IN)], Some(&POLL_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.input.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Starts a thread that removes the stores of a measurement and ends the process on a signal.
pub(crate) fn clean_up_on_signal() -> Result<(), Failure> {
    let mut signals =
        Signals::new(SIGNALS).map_err(|e| Failure::file("listen for", "signals", &e))?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            let seen = Arc::new(AtomicBool::new(true));
            for number in SIGNALS {
                let _ = flag::register_conditional_default(number, seen.clone());
            }
            let removed = siltstone_bench::engines::remove_unfinished();
            let removed: Vec<_> = removed.iter().map(|path| path.display().to_string()).collect();
            match removed.is_empty() {
                true => eprintln!("siltstone: interrupted"),
                false => eprintln!("siltstone: interrupted; removed {}", removed.join(", ")),
            }
            // At once, since other threads are using the removed stores.
            signal_hook::low_level::exit(128 + signal);
        }
    });
    Ok(())
}
