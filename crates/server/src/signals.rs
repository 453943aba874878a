//! Signals: SIGTERM and SIGINT stop a server, SIGHUP makes it read its certificates again.

use std::sync::Arc;
use std::thread::JoinHandle;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use siltstone_engine::{Error, Result};

use crate::process;
use crate::shared::Shared;
use crate::tls::NodeTls;

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
    let has_certificates = shared.tls.is_some() || node_tls(shared).is_some();
    wanted.extend(has_certificates.then_some(SIGHUP));
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
    let of_clients = shared.tls.as_ref().map(|tls| ("", tls.reload()));
    let of_nodes = node_tls(shared).map(|tls| (" for other nodes", tls.reload()));
    for (which, reloaded) in of_clients.into_iter().chain(of_nodes) {
        process::log(&match reloaded {
            Ok(()) => format!("certificates{which} were read again"),
            Err(reason) => format!("the certificates{which} are not changed: {reason}"),
        });
    }
}

/// TLS between the nodes of a replicated table.
fn node_tls(shared: &Shared) -> Option<&NodeTls> {
    shared.replication.as_ref()?.first().tls.as_deref()
}
