//! `full-disk`: the store on a small tmpfs that a ballast file fills under load.
//!
//! ```text
//!   load ── ballast ── writes are refused ─┬─ ballast removed ── writes work ─┐
//!                                          └─ server ends while full ─────────┴─ restart
//! ```
//!
//! A refused write is never visible, an acknowledged one always. When there is space, writes work
//! again without a restart. On a full disk the server may fail to start, with an error that names
//! the reason.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::fault::Fault;
use super::steps::{
    RECOVERY_TIMEOUT, StopSignal, end_under_load, random_delay, restart, run_rounds,
};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::{Tolerance, Workload};
use crate::process::Server;
use crate::tmpfs::{self, Tmpfs};
use crate::tree;

pub(super) struct FullDisk;

/// The initial size of the file system.
const DISK_BYTES: u64 = 40 << 20;
/// The file system grows if less than this is free without the ballast: more than a store uses in a
/// round.
const MIN_FREE_BYTES: u64 = 48 << 20;
/// The maximum free space beside the ballast.
const MAX_SLACK_BYTES: u64 = 256 << 10;
/// Time limit for the first refused write. A store may have enough free space in its files.
const FULL_TIMEOUT: Duration = Duration::from_secs(1);

impl Fault for FullDisk {
    fn name(&self) -> &'static str {
        "full-disk"
    }

    fn about(&self) -> &'static str {
        "a full tmpfs: no refused write is visible, no acknowledged one is lost, writes work again"
    }

    fn rounds_per_history(&self) -> u64 {
        5
    }

    fn obstacle(&self) -> Option<String> {
        tmpfs::obstacle()
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        let disk = Tmpfs::mount(history.root.join("disk"), DISK_BYTES)?;
        history.store = disk.path().join("store");
        history.use_growing_options();
        history.set_workload(Workload { removals: 20, max_bytes: 5000, ..Workload::default() });
        let ended = rounds(history, &disk);
        if let Err(Stop::Finding(_)) = ended {
            // The tmpfs is unmounted with this history.
            tree::copy(&history.store, &history.root.join("store"))?;
        }
        history.store = PathBuf::new();
        ended
    }
}

fn rounds(history: &mut History<'_>, disk: &Tmpfs) -> Result<()> {
    run_rounds(history, |history, mut server| {
        let delay = random_delay(&mut history.random);
        let slack = history.random.below(MAX_SLACK_BYTES);
        let while_full = history.random.duration(Duration::from_millis(250));
        let ends_full = history.random.percent(40);
        let ending = StopSignal::draw(&mut history.random);
        history.note(format!(
            "disk full except for {slack} bytes after {delay:?}, for {while_full:?}; {} {}",
            ending.signal(),
            if ends_full { "while it is full" } else { "when there is space again" }
        ));
        let tolerance = Tolerance { refusals: true, closes: true };
        history.load(&mut server, tolerance, |control, server| {
            thread::sleep(delay);
            disk.fill_with_ballast(slack)?;
            control.wait_until(FULL_TIMEOUT, |control| control.refused() > 0);
            // Compactions may have freed space.
            disk.fill_with_ballast(slack / 8)?;
            thread::sleep(while_full);
            if ends_full { end_while_full(server, ending) } else { free(disk) }
        })?;
        if ends_full {
            if history.random.percent(30) {
                start_on_full_disk(history)?;
            }
            free(disk)?;
        } else {
            history.await_writes(&mut server, RECOVERY_TIMEOUT)?;
            let delay = random_delay(&mut history.random);
            end_under_load(history, &mut server, ending, delay)?;
        }
        restart(history)
    })
}

/// Frees space. The file system grows, because the store may still use some of it.
fn free(disk: &Tmpfs) -> Result<()> {
    disk.remove_ballast()?;
    if disk.free_bytes() < MIN_FREE_BYTES {
        disk.grow(disk.bytes() + MIN_FREE_BYTES)?;
    }
    Ok(())
}

/// Ends the server on the full disk, where any exit status is valid after SIGTERM.
fn end_while_full(server: &mut Server, ending: StopSignal) -> Result<()> {
    match ending {
        StopSignal::Kill => server.kill(),
        StopSignal::Terminate => {
            if let Err(what) = server.stop()
                && server.ended().is_none()
            {
                return Err(Stop::Finding(what));
            }
        }
    }
    Ok(())
}

/// Starts the server on the full disk; if it fails, its error must name the reason.
fn start_on_full_disk(history: &mut History<'_>) -> Result<()> {
    let fsync = history.any_fsync();
    match history.start(fsync) {
        Ok(mut server) => {
            history.note("the server starts on the full disk; SIGKILL");
            server.kill();
            Ok(())
        }
        Err(Stop::Finding(what)) if what.contains("No space") || what.contains("full") => {
            history.note("the server does not start on the full disk");
            Ok(())
        }
        Err(other) => Err(other),
    }
}
