//! `kill`: SIGKILL at a random time under load, many times on one store.
//!
//! Data that the kernel has survives the death of a process, so no acknowledged write may be lost
//! under any `--fsync`. Of the writes in flight a prefix per connection may be visible, and batches
//! are atomic.

use std::thread;
use std::time::Duration;

use super::Fault;
use crate::finding::Result;
use crate::history::History;
use crate::lane::Tolerance;
use crate::random::Random;

pub(super) struct Kill;

impl Fault for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn about(&self) -> &'static str {
        "SIGKILL under load, many times on one store: no acknowledged write is lost, batches are atomic"
    }

    fn rounds_per_history(&self) -> u64 {
        50
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let moment = random_delay(&mut history.random);
            history.note(format!("SIGKILL after {moment:?} of load"));
            history.load(&mut server, Tolerance::default(), |control, server| {
                thread::sleep(moment);
                control.expect_disconnects();
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

/// The time of load before a fault: mostly some milliseconds, in a tenth of the cases up to a
/// quarter of a second.
pub(super) fn random_delay(random: &mut Random) -> Duration {
    let limit = match random.below(10) {
        0..5 => 12,
        5..9 => 50,
        _ => 250,
    };
    random.duration(Duration::from_millis(limit))
}
