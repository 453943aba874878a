//! Steps that several fault classes share.

use std::thread;
use std::time::Duration;

use rustix::process::Resource;

use crate::finding::{Result, Stop};
use crate::history::History;
use crate::lane::Tolerance;
use crate::process::Server;
use crate::random::Random;

/// Time limit until writes work again after a fault.
pub(super) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(20);

/// How a server is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopSignal {
    /// SIGKILL.
    Kill,
    /// SIGTERM, after which the exit status must be 0.
    Terminate,
}

impl StopSignal {
    /// SIGKILL in 60 percent of the cases.
    pub(super) fn draw(random: &mut Random) -> Self {
        if random.percent(60) { StopSignal::Kill } else { StopSignal::Terminate }
    }

    /// The name of the signal.
    pub(super) fn signal(self) -> &'static str {
        match self {
            StopSignal::Kill => "SIGKILL",
            StopSignal::Terminate => "SIGTERM",
        }
    }
}

/// The time of load before a fault: mostly some milliseconds, in a tenth of the cases up to a
/// quarter of a second.
pub(super) fn random_delay(random: &mut Random) -> Duration {
    let limit = match random.below(10) {
        0..5 => 12,
        5..9 => 50,
        _ => 250,
    };
    random.duration(Duration::from_millis(limit))
}

/// Starts a server and runs the rounds of a history, each of which returns the server of the next.
/// At the end the server is stopped and the store verified.
///
/// # Errors
/// A finding, or another reason to stop.
pub(super) fn run_rounds(
    history: &mut History<'_>,
    mut round: impl FnMut(&mut History<'_>, Server) -> Result<Server>,
) -> Result<()> {
    let fsync = history.any_fsync();
    let mut server = history.start(fsync)?;
    while history.next_round()? {
        server = round(history, server)?;
    }
    history.stop_and_verify(&mut server)
}

/// Ends the server after `delay` of load.
///
/// # Errors
/// A finding of the lanes, or an exit status other than 0 after SIGTERM.
pub(super) fn end_under_load(
    history: &mut History<'_>,
    server: &mut Server,
    ending: StopSignal,
    delay: Duration,
) -> Result<()> {
    history.note(format!("{} after {delay:?} of load", ending.signal()));
    history.load(server, Tolerance::default(), |control, server| {
        thread::sleep(delay);
        control.expect_disconnects();
        match ending {
            StopSignal::Kill => {
                server.kill();
                Ok(())
            }
            StopSignal::Terminate => server.stop().map_err(Stop::Finding),
        }
    })
}

/// Lowers a resource limit of the server after `delay` of load, and raises it again after
/// `duration`. The server must keep running.
///
/// # Errors
/// A finding of the lanes, or the server has exited.
pub(super) fn limit_under_load(
    history: &mut History<'_>,
    server: &mut Server,
    resource: Resource,
    limit: impl FnOnce(&Server) -> u64,
    delay: Duration,
    duration: Duration,
) -> Result<()> {
    let tolerance = Tolerance { refusals: true, closes: true };
    history.load(server, tolerance, |_, server| {
        thread::sleep(delay);
        let limit = limit(server);
        server.limit(resource, Some(limit))?;
        thread::sleep(duration);
        match server.ended() {
            Some(status) => Err(Stop::Finding(format!(
                "the server exits with {status} under a limit of {limit} for {resource:?}; {}",
                server.stderr_tail()
            ))),
            None => Ok(server.limit(resource, None).map(drop)?),
        }
    })
}

/// Waits until the server accepts writes, ends it under load, restarts it and checks all keys.
///
/// # Errors
/// A finding.
pub(super) fn recover_and_restart(history: &mut History<'_>, mut server: Server) -> Result<Server> {
    history.await_writes(&mut server, RECOVERY_TIMEOUT)?;
    history.note("writes work again");
    let delay = random_delay(&mut history.random);
    let ending = StopSignal::draw(&mut history.random);
    end_under_load(history, &mut server, ending, delay)?;
    restart(history)
}

/// Restarts the server and checks all keys.
///
/// # Errors
/// The server does not start, or a finding.
pub(super) fn restart(history: &mut History<'_>) -> Result<Server> {
    let fsync = history.any_fsync();
    let server = history.start(fsync)?;
    history.check(&server)?;
    Ok(server)
}
