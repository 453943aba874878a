//! `kill-at-open`: SIGKILL under load, then SIGKILL of each server that recovers, and at last a look.
//!
//! Recovery writes: manifests, tables of replayed logs, removals of files that nothing names. It must be
//! possible to interrupt it at any moment, any number of times.

use std::thread;

use super::{Fault, kill::moment};
use crate::finding::Result;
use crate::history::History;
use crate::lane::Manners;
use crate::process::Server;

pub(super) struct KillAtOpen;

/// Recoveries that are interrupted in one round, at most.
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
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let moment = moment(&mut history.random);
            history.tell(format!("SIGKILL after {moment:?} of load"));
            history.load(&mut server, Manners::default(), |control, server| {
                thread::sleep(moment);
                control.strike();
                server.kill();
                Ok(())
            })?;
            for _ in 0..history.random.between(1, MAX_KILLS) {
                let fsync = history.any_fsync();
                // Some until it listens, few behind that.
                let limit = history.open_time.mul_f64(1.2);
                let moment = history.random.duration(limit);
                history.tell(format!("serve --fsync {fsync}, SIGKILL after {moment:?}"));
                let mut recovering = Server::spawn(&history.launch(fsync))?;
                thread::sleep(moment);
                recovering.kill();
            }
            let fsync = history.any_fsync();
            server = history.start(fsync)?;
            history.check(&server)?;
        }
        history.stop_and_verify(&mut server)
    }
}
