//! `file-size`: RLIMIT_FSIZE lowered under load, and raised again.
//!
//! A write beyond the limit fails with EFBIG, and the kernel sends SIGXFSZ, whose default action
//! ends the process. The server must keep running, refuse writes, and accept them again when the
//! limit is raised.

use std::time::Duration;

use rustix::process::Resource;

use super::fault::Fault;
use super::steps::{limit_under_load, random_delay, recover_and_restart, run_rounds};
use crate::finding::Result;
use crate::history::History;

pub(super) struct FileSize;

impl Fault for FileSize {
    fn name(&self) -> &'static str {
        "file-size"
    }

    fn about(&self) -> &'static str {
        "RLIMIT_FSIZE lowered, then raised: the server keeps running, writes work again, none is lost"
    }

    fn rounds_per_history(&self) -> u64 {
        8
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        run_rounds(history, |history, mut server| {
            let delay = random_delay(&mut history.random);
            let bytes = 4096 << history.random.below(8);
            let duration = history.random.duration(Duration::from_millis(300));
            history
                .note(format!("files limited to {bytes} bytes after {delay:?}, for {duration:?}"));
            let limit = |_: &_| bytes;
            limit_under_load(history, &mut server, Resource::Fsize, limit, delay, duration)?;
            recover_and_restart(history, server)
        })
    }
}
