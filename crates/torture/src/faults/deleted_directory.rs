//! `deleted-directory`: the store's directory is removed under the running server.
//!
//! Whatever is written then is lost with the process. Under `--fsync always` an acknowledgement says that the medium
//! has the write, so the server must soon stop giving any, and its exit status must say that not all is well.

use std::fs::remove_dir_all;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::{Fault, kill::moment};
use crate::client::{Connection, Reply};
use crate::finding::{Result, Stop};
use crate::history::{History, PATIENCE};
use crate::lane::{Manners, Mix};
use crate::load::Control;
use crate::process::Server;

pub(super) struct DeletedDirectory;

/// How long synced writes may still be acknowledged.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);
/// Without an acknowledgement for so long there will be none.
const QUIET: Duration = Duration::from_millis(300);

impl Fault for DeletedDirectory {
    fn name(&self) -> &'static str {
        "deleted-directory"
    }

    fn about(&self) -> &'static str {
        "rm -rf of the running store: synced writes are no longer acknowledged, the exit status is not 0"
    }

    fn rounds_per_history(&self) -> u64 {
        1
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        // A removal of what is not there writes nothing, and may be acknowledged.
        history.set_mix(Mix { removals: 0, ..Mix::default() });
        while history.next_round()? {
            let mut server = history.start("always")?;
            let before = moment(&mut history.random);
            history.tell(format!("rm -rf after {before:?}"));
            let store = history.store.clone();
            let manners = Manners { refusals: true, closes: true };
            history.load(&mut server, manners, |control, server| {
                thread::sleep(before);
                control.strike();
                remove(&store)?;
                await_silence(control, server)
            })?;
            if server.ended().is_none() && acknowledges(&server) {
                return Err(Stop::Wrong(format!(
                    "a synced write to a deleted store is acknowledged; {}",
                    server.told()
                )));
            }
            server.terminate();
            let status = server.wait(PATIENCE).map_err(Stop::Wrong)?;
            if status.success() {
                return Err(Stop::Wrong(format!(
                    "the server ends with status 0, and its store is deleted; {}",
                    server.told()
                )));
            }
        }
        Ok(())
    }
}

/// Removes a directory into which somebody else writes.
fn remove(dir: &Path) -> Result<()> {
    let mut tries = 0;
    while dir.exists() {
        tries += 1;
        match remove_dir_all(dir) {
            Err(error) if tries > 1000 => {
                return Err(Stop::Trouble(format!("cannot remove {}: {error}", dir.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Waits until no write is acknowledged any more.
fn await_silence(control: &Control, server: &mut Server) -> Result<()> {
    let until = Instant::now() + NOTICED_WITHIN;
    let mut last = (control.acknowledged(), Instant::now());
    while server.ended().is_none() && last.1.elapsed() < QUIET {
        if Instant::now() > until {
            return Err(Stop::Wrong(format!(
                "synced writes are still acknowledged {NOTICED_WITHIN:?} after the store was deleted; {}",
                server.told()
            )));
        }
        thread::sleep(Duration::from_millis(5));
        let now = control.acknowledged();
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    Ok(())
}

fn acknowledges(server: &Server) -> bool {
    Connection::open(server.address(), PATIENCE)
        .and_then(|mut connection| connection.ask(&["SET", "probe", "1"]))
        .is_ok_and(|reply| reply == Reply::Simple("OK".into()))
}
