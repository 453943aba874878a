//! `kill-at-open`: SIGKILL under load, then SIGKILL of servers that are recovering the store.
//!
//! Recovery writes manifests and tables of replayed logs, and removes obsolete files. An
//! interruption at any time, any number of times, must not lose a write.

use std::thread;

use super::fault::Fault;
use super::steps::{StopSignal, end_under_load, random_delay, restart, run_rounds};
use crate::finding::Result;
use crate::history::History;
use crate::process::Server;

pub(super) struct KillAtOpen;

/// Maximum number of interrupted recoveries per round.
const MAX_KILLS: u64 = 4;

impl Fault for KillAtOpen {
    fn name(&self) -> &'static str {
        "kill-at-open"
    }

    fn about(&self) -> &'static str {
        "SIGKILL under load, then SIGKILL while the store recovers, up to 4 times: as kill"
    }

    fn rounds_per_history(&self) -> u64 {
        25
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        run_rounds(history, |history, mut server| {
            let delay = random_delay(&mut history.random);
            end_under_load(history, &mut server, StopSignal::Kill, delay)?;
            for _ in 0..history.random.between(1, MAX_KILLS) {
                let fsync = history.any_fsync();
                // Most of them before the server is ready.
                let limit = history.open_time.mul_f64(1.2);
                let delay = history.random.duration(limit);
                history.note(format!("serve --fsync {fsync}, SIGKILL after {delay:?}"));
                let mut recovering = Server::spawn(&history.launch(fsync))?;
                thread::sleep(delay);
                recovering.kill();
            }
            restart(history)
        })
    }
}
