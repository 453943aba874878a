//! `file-size`: RLIMIT_FSIZE lowered under load, and raised again.
//!
//! A write beyond the limit fails with EFBIG, and the kernel sends SIGXFSZ, whose default action
//! ends the process. The server must keep running, refuse writes, and accept them again when the
//! limit is raised.

use std::thread;
use std::time::Duration;

use rustix::process::Resource;

use super::{Fault, kill::random_delay, limit};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Tolerance;

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
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let before = random_delay(&mut history.random);
            let bytes = 4096 << history.random.below(8);
            let limited = history.random.duration(Duration::from_millis(300));
            history
                .note(format!("files limited to {bytes} bytes after {before:?}, for {limited:?}"));
            let tolerance = Tolerance { refusals: true, closes: true };
            history.load(&mut server, tolerance, |_, server| {
                thread::sleep(before);
                server.limit(Resource::Fsize, Some(bytes))?;
                thread::sleep(limited);
                match server.ended() {
                    Some(status) => Err(Stop::Finding(format!(
                        "the server exits with {status} when a file reaches its limit of {bytes} bytes; {}",
                        server.stderr_tail()
                    ))),
                    None => Ok(server.limit(Resource::Fsize, None).map(drop)?),
                }
            })?;
            server = limit::recover_and_restart(history, server)?;
        }
        history.stop_and_verify(&mut server)
    }
}
