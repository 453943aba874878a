//! What follows when a limit of the process is lifted again, whichever it was.

use std::thread;
use std::time::Duration;

use super::kill::moment;
use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Manners;
use crate::process::Server;

/// How long it may take until writes work again.
const BACK_WITHIN: Duration = Duration::from_secs(20);

/// The server takes writes again by itself; then it is ended under load, and what it kept is checked.
pub(super) fn recover_and_restart(history: &mut History<'_>, mut server: Server) -> Result<Server> {
    history.await_writes(&mut server, BACK_WITHIN)?;
    let moment = moment(&mut history.random);
    let is_killed = history.random.percent(60);
    let end = if is_killed { "SIGKILL" } else { "SIGTERM" };
    history.tell(format!("writes work again; {end} after {moment:?}"));
    history.load(&mut server, Manners::default(), |control, server| {
        thread::sleep(moment);
        control.strike();
        if is_killed {
            server.kill();
            return Ok(());
        }
        server.stop().map_err(Stop::Wrong)
    })?;
    let fsync = history.any_fsync();
    let server = history.start(fsync)?;
    history.check(&server)?;
    Ok(server)
}
