//! Tests that run on this server and, if it is installed, on Redis, which validates them.

use crate::support::{Client, Peer, TestServer, eventually};

/// Runs a test on both; its argument connects a client.
pub(crate) fn on_both(test: impl Fn(&mut dyn FnMut() -> Client)) {
    let options = ["--save", "", "--port"];
    if let Some(peer) = Peer::start("redis-server", &options) {
        test(&mut || Client::connect(peer.address));
    }
    let server = TestServer::start();
    test(&mut || server.client());
}

/// Sends a command that blocks, and waits until this number of clients are blocked.
pub(crate) fn park(client: &mut Client, observer: &mut Client, line: &str, blocked: usize) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    client.send(&words);
    eventually("the command is parked", || {
        observer.call("INFO clients").contains(&format!("blocked_clients:{blocked}\r\n"))
    });
}
