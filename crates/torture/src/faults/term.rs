//! `term`: SIGTERM under load.
//!
//! The server finishes the commands in progress, syncs and exits with status 0. No acknowledged
//! write is lost, and every file of the closed store passes verification.

use super::fault::Fault;
use super::steps::{StopSignal, end_under_load, random_delay, restart, run_rounds};
use crate::finding::Result;
use crate::history::History;

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
        run_rounds(history, |history, mut server| {
            let delay = random_delay(&mut history.random);
            end_under_load(history, &mut server, StopSignal::Terminate, delay)?;
            history.stop_and_verify(&mut server)?;
            restart(history)
        })
    }
}
