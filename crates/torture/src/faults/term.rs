//! `term`: SIGTERM under load.
//!
//! The server finishes the commands that it has begun, syncs and exits with status 0. No
//! acknowledged write is lost, and every file of the closed store is sound.

use std::thread;

use super::{Fault, kill::random_delay};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Tolerance;

pub(super) struct Term;

impl Fault for Term {
    fn name(&self) -> &'static str {
        "term"
    }

    fn about(&self) -> &'static str {
        "SIGTERM under load: status 0, no acknowledged write is lost, verify finds no damage"
    }

    fn rounds_per_history(&self) -> u64 {
        25
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let moment = random_delay(&mut history.random);
            history.note(format!("SIGTERM after {moment:?} of load"));
            history.load(&mut server, Tolerance::default(), |control, server| {
                thread::sleep(moment);
                control.expect_disconnects();
                server.stop().map_err(Stop::Finding)
            })?;
            history.stop_and_verify(&mut server)?;
            let fsync = history.any_fsync();
            server = history.start(fsync)?;
            history.check(&server)?;
        }
        history.stop_and_verify(&mut server)
    }
}
