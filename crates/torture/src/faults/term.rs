//! `term`: SIGTERM under load.
//!
//! The server finishes what it has begun, syncs and ends with status 0. What it acknowledged is there, and
//! every file of the closed store is sound.

use std::thread;

use super::{Fault, kill::moment};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Manners;

pub(super) struct Term;

impl Fault for Term {
    fn name(&self) -> &'static str {
        "term"
    }

    fn about(&self) -> &'static str {
        "SIGTERM under load: status 0, no acknowledged write is lost, verify finds the closed store sound"
    }

    fn rounds_per_history(&self) -> u64 {
        25
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let moment = moment(&mut history.random);
            history.tell(format!("SIGTERM after {moment:?} of load"));
            history.load(&mut server, Manners::default(), |control, server| {
                thread::sleep(moment);
                control.strike();
                server.stop().map_err(Stop::Wrong)
            })?;
            history.stop_and_verify(&mut server)?;
            let fsync = history.any_fsync();
            server = history.start(fsync)?;
            history.check(&server)?;
        }
        history.stop_and_verify(&mut server)
    }
}
