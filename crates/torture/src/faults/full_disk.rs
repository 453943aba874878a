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

use super::{Fault, kill::random_delay};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::{Tolerance, Workload};
use crate::process::Server;
use crate::tmpfs::{self, Tmpfs};
use crate::tree;

pub(super) struct FullDisk;

/// The initial size of the file system.
const DISK_BYTES: u64 = 40 << 20;
/// The file system grows if less than this is free without the ballast: more than a store takes in
/// a round.
const MIN_FREE: u64 = 48 << 20;
/// Maximum free space beside the ballast.
const MAX_SLACK: u64 = 256 << 10;
/// How long the class waits for the first refused write. A store may have enough free space in its
/// files.
const FILLED_WITHIN: Duration = Duration::from_secs(1);
/// Time limit until writes work again.
const BACK_WITHIN: Duration = Duration::from_secs(20);

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
        history.grow();
        history.set_workload(Workload { removals: 20, max_bytes: 5000, ..Workload::default() });
        let ended = rounds(history, &disk);
        if let Err(Stop::Finding(_)) = ended {
            // The tmpfs ends with this history.
            tree::copy(&history.store, &history.root.join("store"))?;
        }
        history.store = PathBuf::new();
        ended
    }
}

fn rounds(history: &mut History<'_>, disk: &Tmpfs) -> Result<()> {
    let fsync = history.any_fsync();
    let mut server = history.start(fsync)?;
    while history.next_round()? {
        let before = random_delay(&mut history.random);
        let slack = history.random.below(MAX_SLACK);
        let while_full = history.random.duration(Duration::from_millis(250));
        let ends_full = history.random.percent(40);
        let is_killed = history.random.percent(60);
        let end = if is_killed { "SIGKILL" } else { "SIGTERM" };
        history.note(format!(
            "disk full but for {slack} bytes after {before:?}, for {while_full:?}; {end} {}",
            if ends_full { "while it is full" } else { "when there is space again" }
        ));
        let tolerance = Tolerance { refusals: true, closes: true };
        history.load(&mut server, tolerance, |control, server| {
            thread::sleep(before);
            disk.fill_with_ballast(slack)?;
            control.wait_until(FILLED_WITHIN, |control| control.refused() > 0);
            // The space that compactions have freed since.
            disk.fill_with_ballast(slack / 8)?;
            thread::sleep(while_full);
            if ends_full { end_by(server, is_killed, false) } else { free(disk) }
        })?;
        if ends_full {
            if history.random.percent(30) {
                start_on_full_disk(history)?;
            }
            free(disk)?;
        } else {
            history.await_writes(&mut server, BACK_WITHIN)?;
            let after = random_delay(&mut history.random);
            history.load(&mut server, Tolerance::default(), |control, server| {
                thread::sleep(after);
                control.expect_disconnects();
                end_by(server, is_killed, true)
            })?;
        }
        let fsync = history.any_fsync();
        server = history.start(fsync)?;
        history.check(&server)?;
    }
    history.stop_and_verify(&mut server)
}

/// Frees space. The file system grows, because the store may have kept some of it.
fn free(disk: &Tmpfs) -> Result<()> {
    disk.remove_ballast()?;
    if disk.free_bytes() < MIN_FREE {
        disk.grow(disk.bytes() + MIN_FREE)?;
    }
    Ok(())
}

/// Ends the server. After SIGTERM its status must be 0 if it `can` write.
fn end_by(server: &mut Server, is_killed: bool, can: bool) -> Result<()> {
    if is_killed {
        server.kill();
        return Ok(());
    }
    match (server.stop(), can) {
        (Err(what), true) => Err(Stop::Finding(what)),
        (Err(what), false) if server.ended().is_none() => Err(Stop::Finding(what)),
        _ => Ok(()),
    }
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
