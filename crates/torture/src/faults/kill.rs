//! `kill`: SIGKILL at a random moment under load, again and again, of one store.
//!
//! What the system has survives the death of a process, so nothing that was acknowledged may be lost, under any
//! `--fsync`. Whatever was in flight is there or not, in the order of sending, and batches whole.

use std::thread;
use std::time::Duration;

use super::Fault;
use crate::finding::Result;
use crate::history::History;
use crate::lane::Manners;
use crate::random::Random;

pub(super) struct Kill;

impl Fault for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn about(&self) -> &'static str {
        "SIGKILL under load, many times over one store: no acknowledged write is lost, batches are whole"
    }

    fn rounds_per_history(&self) -> u64 {
        50
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
            let fsync = history.any_fsync();
            server = history.start(fsync)?;
            history.check(&server)?;
        }
        history.stop_and_verify(&mut server)
    }
}

/// How long the load lasts until a fault strikes: mostly some milliseconds, at times a quarter of a second.
pub(super) fn moment(random: &mut Random) -> Duration {
    let limit = match random.below(10) {
        0..5 => 12,
        5..9 => 50,
        _ => 250,
    };
    random.duration(Duration::from_millis(limit))
}
