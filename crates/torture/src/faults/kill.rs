//! `kill`: SIGKILL at a random time under load, many times on one store.
//!
//! The kernel keeps written data after a process crash, so no acknowledged write may be lost under
//! any `--fsync`. Of the writes in flight a prefix per connection may be visible, and batches are
//! atomic.

use super::fault::Fault;
use super::steps::{StopSignal, end_under_load, random_delay, restart, run_rounds};
use crate::finding::Result;
use crate::history::History;

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
        run_rounds(history, |history, mut server| {
            let delay = random_delay(&mut history.random);
            end_under_load(history, &mut server, StopSignal::Kill, delay)?;
            restart(history)
        })
    }
}
