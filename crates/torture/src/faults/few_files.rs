//! `few-files`: RLIMIT_NOFILE lowered under load to what is open or less, and raised again.
//!
//! Flushes, compactions and new logs fail with EMFILE, and writes may be refused. When the limit is
//! raised, the table accepts writes without a restart. No acknowledged write is lost, no refused
//! one is visible.

use std::thread;
use std::time::Duration;

use rustix::process::Resource;

use super::{Fault, kill::random_delay, limit};
use crate::finding::Result;
use crate::history::History;
use crate::lane::Tolerance;

pub(super) struct FewFiles;

/// How far above the highest descriptor the limit may be. Closed files leave lower descriptors
/// free.
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
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let before = random_delay(&mut history.random);
            let share = history.random.between(10, 100);
            let spare = history.random.below(MAX_SPARE + 1);
            let limited = history.random.duration(Duration::from_millis(400));
            history.note(format!(
                "files limited to {share} % of the highest number and {spare} after {before:?}, for {limited:?}"
            ));
            let tolerance = Tolerance { refusals: true, closes: true };
            history.load(&mut server, tolerance, |_, server| {
                thread::sleep(before);
                let files = server.highest_file() * share / 100 + 1 + spare;
                server.limit(Resource::Nofile, Some(files))?;
                thread::sleep(limited);
                server.limit(Resource::Nofile, None)?;
                Ok(())
            })?;
            server = limit::recover_and_restart(history, server)?;
        }
        history.stop_and_verify(&mut server)
    }
}
