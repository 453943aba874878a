//! `full-disk`: the store on a small tmpfs that a ballast file fills under load.
//!
//! ```text
//!   load ── ballast: full ── refusals, removals, overwrites go on ─┬─ ballast gone ── writes work again ─┐
//!                                                                  └─ killed while full ─────────────────┴─ restart
//! ```
//!
//! A refused write is never visible, an acknowledged one always. With space, writes work again by themselves;
//! so does a start, which may fail for want of space before.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use super::{Fault, kill::moment};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::{Manners, Mix};
use crate::process::Server;
use crate::tmpfs::{self, Tmpfs};
use crate::tree;

pub(super) struct FullDisk;

/// The file system's size.
const DISK_BYTES: u64 = 40 << 20;
/// The file system grows if less than this is free without the ballast: more than a store takes in a round.
const MIN_FREE: u64 = 48 << 20;
/// What the ballast leaves free at most.
const MAX_SLACK: u64 = 256 << 10;
/// How long it may take until writes are refused; where they are not, the store made do with the rest.
const FILLED_WITHIN: Duration = Duration::from_secs(1);
/// How long it may take until writes work again.
const BACK_WITHIN: Duration = Duration::from_secs(20);

impl Fault for FullDisk {
    fn name(&self) -> &'static str {
        "full-disk"
    }

    fn about(&self) -> &'static str {
        "a full tmpfs: refused writes never show, none acknowledged is lost, writes work again with space"
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
        history.set_mix(Mix { removals: 20, max_bytes: 5000, ..Mix::default() });
        let ended = rounds(history, &disk);
        if let Err(Stop::Wrong(_)) = ended {
            // The disk goes with this history.
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
        let before = moment(&mut history.random);
        let slack = history.random.below(MAX_SLACK);
        let while_full = history.random.duration(Duration::from_millis(250));
        let ends_full = history.random.percent(40);
        let is_killed = history.random.percent(60);
        let end = if is_killed { "SIGKILL" } else { "SIGTERM" };
        history.tell(format!(
            "disk full but for {slack} bytes after {before:?}, for {while_full:?}; {end} {}",
            if ends_full { "while it is full" } else { "when there is space again" }
        ));
        let manners = Manners { refusals: true, closes: true };
        history.load(&mut server, manners, |control, server| {
            thread::sleep(before);
            disk.load_ballast(slack)?;
            control.wait_until(FILLED_WITHIN, |control| control.refused() > 0);
            // What compactions have freed meanwhile.
            disk.load_ballast(slack / 8)?;
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
            let after = moment(&mut history.random);
            history.load(&mut server, Manners::default(), |control, server| {
                thread::sleep(after);
                control.strike();
                end_by(server, is_killed, true)
            })?;
        }
        let fsync = history.any_fsync();
        server = history.start(fsync)?;
        history.check(&server)?;
    }
    history.stop_and_verify(&mut server)
}

/// Makes space again, of which the store may have taken some for good.
fn free(disk: &Tmpfs) -> Result<()> {
    disk.drop_ballast()?;
    if disk.free_bytes() < MIN_FREE {
        disk.grow(disk.bytes() + MIN_FREE)?;
    }
    Ok(())
}

/// Ends the server. A server that SIGTERM ends must say by its status that it closed the store, if it `can`.
fn end_by(server: &mut Server, is_killed: bool, can: bool) -> Result<()> {
    if is_killed {
        server.kill();
        return Ok(());
    }
    match (server.stop(), can) {
        (Err(what), true) => Err(Stop::Wrong(what)),
        (Err(what), false) if server.ended().is_none() => Err(Stop::Wrong(what)),
        _ => Ok(()),
    }
}

/// A start may fail for want of space, and says so then.
fn start_on_full_disk(history: &mut History<'_>) -> Result<()> {
    let fsync = history.any_fsync();
    match history.start(fsync) {
        Ok(mut server) => {
            history.tell("it opens on the full disk; SIGKILL");
            server.kill();
            Ok(())
        }
        Err(Stop::Wrong(what)) if what.contains("No space") || what.contains("full") => {
            history.tell("it does not open on the full disk, and says so");
            Ok(())
        }
        Err(other) => Err(other),
    }
}
