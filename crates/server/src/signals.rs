//! Signals: SIGTERM and SIGINT stop a server, SIGHUP makes it read its certificates again.

use std::io::Write;
use std::sync::Arc;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use siltstone_engine::{Error, Result};

use crate::shared::Shared;

/// Signals stop the server while it lives: see
/// [`Server::stop_on_signal`](crate::Server::stop_on_signal).
pub struct SignalGuard {
    handle: Handle,
    listener: Option<JoinHandle<()>>,
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

/// Listens for signals. SIGHUP keeps its usual effect if there are no certificates.
pub(crate) fn listen(shared: &Arc<Shared>) -> Result<SignalGuard> {
    let mut wanted = vec![SIGTERM, SIGINT];
    wanted.extend(shared.tls.is_some().then_some(SIGHUP));
    let mut signals =
        Signals::new(wanted).map_err(|error| Error::io("listen for", "signals", &error))?;
    // The guard may outlive the server, whose tables must then be free.
    let (handle, stop, shared) = (signals.handle(), shared.stop.clone(), Arc::downgrade(shared));
    let name = "siltstone-signal";
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        for signal in signals.forever() {
            if signal != SIGHUP {
                stop.stop();
                break;
            }
            if let Some(shared) = shared.upgrade() {
                reload_certificates(&shared);
            }
        }
    });
    let listener = thread.map_err(|error| Error::io("start thread", name, &error))?;
    Ok(SignalGuard { handle, listener: Some(listener) })
}

/// Reads the certificates again, and writes the result to standard error, where the log is.
fn reload_certificates(shared: &Shared) {
    let Some(tls) = &shared.tls else { return };
    let text = match tls.reload() {
        Ok(()) => "certificates were read again".to_owned(),
        Err(reason) => format!("the certificates are not changed: {reason}"),
    };
    // Nobody may read the log.
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
