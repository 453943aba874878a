//! The steps after a resource limit was raised again.

use std::thread;
use std::time::Duration;

use super::kill::random_delay;
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Tolerance;
use crate::process::Server;

/// Time limit until writes work again.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// Waits until the server accepts writes, ends it under load, restarts it and checks all keys.
pub(super) fn recover_and_restart(history: &mut History<'_>, mut server: Server) -> Result<Server> {
    history.await_writes(&mut server, BACK_WITHIN)?;
    let moment = random_delay(&mut history.random);
    let is_killed = history.random.percent(60);
    let end = if is_killed { "SIGKILL" } else { "SIGTERM" };
    history.note(format!("writes work again; {end} after {moment:?}"));
    history.load(&mut server, Tolerance::default(), |control, server| {
        thread::sleep(moment);
        control.expect_disconnects();
        if is_killed {
            server.kill();
            return Ok(());
        }
        server.stop().map_err(Stop::Finding)
    })?;
    let fsync = history.any_fsync();
    let server = history.start(fsync)?;
    history.check(&server)?;
    Ok(server)
}
