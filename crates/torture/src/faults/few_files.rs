//! `few-files`: RLIMIT_NOFILE lowered under load to the open files or less, and raised again.
//!
//! Flushes, compactions and new logs fail with EMFILE, and writes may be refused. When the limit is
//! raised, the table accepts writes without a restart. No acknowledged write is lost, no refused
//! one is visible.

use std::time::Duration;

use rustix::process::Resource;

use super::fault::Fault;
use super::steps::{limit_under_load, random_delay, recover_and_restart, run_rounds};
use crate::finding::Result;
use crate::history::History;
use crate::process::Server;

pub(super) struct FewFiles;

/// The maximum distance of the limit from the highest descriptor. Closed files leave lower
/// descriptors free.
const MAX_SPARE: u64 = 2;

impl Fault for FewFiles {
    fn name(&self) -> &'static str {
        "few-files"
    }

    fn about(&self) -> &'static str {
        "RLIMIT_NOFILE lowered, then raised: writes work again without a restart, none is lost"
    }

    fn rounds_per_history(&self) -> u64 {
        8
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        run_rounds(history, |history, mut server| {
            let delay = random_delay(&mut history.random);
            let percent = history.random.between(10, 100);
            let spare = history.random.below(MAX_SPARE + 1);
            let duration = history.random.duration(Duration::from_millis(400));
            history.note(format!(
                "files limited to {percent} % of the highest descriptor and {spare} after {delay:?}, for {duration:?}"
            ));
            let limit = |server: &Server| server.highest_file() * percent / 100 + 1 + spare;
            limit_under_load(history, &mut server, Resource::Nofile, limit, delay, duration)?;
            recover_and_restart(history, server)
        })
    }
}
