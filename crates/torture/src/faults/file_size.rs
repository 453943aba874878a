//! `file-size`: RLIMIT_FSIZE lowered under load, and raised again.
//!
//! A write beyond the limit fails with EFBIG, and the system sends SIGXFSZ, which ends a process that does not
//! care for it. The server must live, refuse what it cannot write, and take writes again afterwards.

use std::thread;
use std::time::Duration;

use rustix::process::Resource;

use super::{Fault, kill::moment, limit};
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Manners;

pub(super) struct FileSize;

impl Fault for FileSize {
    fn name(&self) -> &'static str {
        "file-size"
    }

    fn about(&self) -> &'static str {
        "RLIMIT_FSIZE lowered under load, then raised: the server lives on, refuses, comes back by itself"
    }

    fn rounds_per_history(&self) -> u64 {
        8
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        let fsync = history.any_fsync();
        let mut server = history.start(fsync)?;
        while history.next_round()? {
            let before = moment(&mut history.random);
            let bytes = 4096 << history.random.below(8);
            let limited = history.random.duration(Duration::from_millis(300));
            history
                .tell(format!("files limited to {bytes} bytes after {before:?}, for {limited:?}"));
            let manners = Manners { refusals: true, closes: true };
            history.load(&mut server, manners, |_, server| {
                thread::sleep(before);
                server.limit(Resource::Fsize, Some(bytes))?;
                thread::sleep(limited);
                match server.ended() {
                    Some(status) => Err(Stop::Wrong(format!(
                        "the server ends with {status} when a file reaches its limit of {bytes} bytes; {}",
                        server.told()
                    ))),
                    None => Ok(server.limit(Resource::Fsize, None).map(drop)?),
                }
            })?;
            server = limit::recover_and_restart(history, server)?;
        }
        history.stop_and_verify(&mut server)
    }
}
