//! `deleted-directory`: the store's directory is removed under the running server.
//!
//! All later writes are lost with the process. Under `--fsync always` an acknowledgement means that
//! the file system has the write, so the server must stop acknowledging within some seconds, and
//! its exit status must not be 0.

use std::fs::remove_dir_all;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::fault::Fault;
use super::steps::random_delay;
use crate::client::{Connection, Reply};
use crate::finding::{Result, Stop};
use crate::history::{History, REPLY_TIMEOUT};
use crate::lane::{Tolerance, Workload};
use crate::load::Control;
use crate::process::Server;

pub(super) struct DeletedDirectory;

/// Time limit for the last acknowledgement.
const DETECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// After this time without an acknowledgement the class assumes that there will be none.
const QUIET_TIME: Duration = Duration::from_millis(300);

impl Fault for DeletedDirectory {
    fn name(&self) -> &'static str {
        "deleted-directory"
    }

    fn about(&self) -> &'static str {
        "rm -rf of the store of a running server: no more acknowledged writes, exit status not 0"
    }

    fn rounds_per_history(&self) -> u64 {
        1
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        // No DEL: that of an absent key writes nothing, and may be acknowledged.
        history.set_workload(Workload { removals: 0, ..Workload::default() });
        while history.next_round()? {
            let mut server = history.start("always")?;
            let delay = random_delay(&mut history.random);
            history.note(format!("rm -rf after {delay:?}"));
            let store = history.store.clone();
            let tolerance = Tolerance { refusals: true, closes: true };
            history.load(&mut server, tolerance, |control, server| {
                await_write(control, server);
                thread::sleep(delay);
                control.expect_disconnects();
                remove(&store)?;
                await_silence(control, server)
            })?;
            if server.ended().is_none() && acknowledges(&server) {
                return Err(Stop::Finding(format!(
                    "a synced write to a deleted store is acknowledged; {}",
                    server.stderr_tail()
                )));
            }
            server.terminate();
            let status = server.wait(REPLY_TIMEOUT).map_err(Stop::Finding)?;
            if status.success() {
                return Err(Stop::Finding(format!(
                    "the server exits with status 0 although its store was deleted; {}",
                    server.stderr_tail()
                )));
            }
        }
        Ok(())
    }
}

/// Waits until the store has something to lose.
fn await_write(control: &Control, server: &mut Server) {
    let until = Instant::now() + DETECTION_TIMEOUT;
    while control.acknowledged() == 0 && server.ended().is_none() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Removes a directory while the server creates files in it.
fn remove(dir: &Path) -> Result<()> {
    let mut tries = 0;
    while dir.exists() {
        tries += 1;
        match remove_dir_all(dir) {
            Err(error) if tries > 1000 => {
                return Err(Stop::HarnessError(format!(
                    "cannot remove {}: {error}",
                    dir.display()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Waits until the server stops acknowledging writes.
fn await_silence(control: &Control, server: &mut Server) -> Result<()> {
    let until = Instant::now() + DETECTION_TIMEOUT;
    let mut last = (control.acknowledged(), Instant::now());
    while server.ended().is_none() && last.1.elapsed() < QUIET_TIME {
        if Instant::now() > until {
            return Err(Stop::Finding(format!(
                "synced writes are still acknowledged {DETECTION_TIMEOUT:?} after the store was deleted; {}",
                server.stderr_tail()
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
    Connection::open(server.address(), REPLY_TIMEOUT)
        .and_then(|mut connection| connection.command(&["SET", "probe", "1"]))
        .is_ok_and(|reply| reply == Reply::Simple("OK".into()))
}
