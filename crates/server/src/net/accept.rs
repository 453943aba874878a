//! Accepts clients, up to the limit, and assigns them to workers round robin.

use std::io::{ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::inbox::{Arrival, Inbox};
use super::protocol::{Endpoint, Protocol};
use super::unix_socket::UnixSocket;
use crate::clients::Address;
use crate::shared::Shared;

const WAKE: Token = Token(usize::MAX);
/// Retry interval while the system is out of file descriptors.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Accepts clients.
pub(crate) struct Acceptor {
    poll: Poll,
    /// Indexed by token.
    listeners: Vec<(Listener, Endpoint)>,
    /// Registered in the poll.
    _unix: Option<mio::net::UnixListener>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixSocket, Address),
}

impl Listener {
    fn accept(&self) -> std::io::Result<(TcpStream, Address)> {
        match self {
            Listener::Tcp(listener) => {
                listener.accept().map(|(stream, peer)| (stream, Address::Ip(peer)))
            }
            Listener::Unix(socket, address) => {
                socket.accept().map(|stream| (stream, address.clone()))
            }
        }
    }
}

impl Acceptor {
    /// An acceptor for `listeners`, and the waker that makes it notice a stop.
    pub(crate) fn new(
        mut listeners: Vec<(TcpListener, Endpoint)>,
        unix: Option<UnixSocket>,
    ) -> std::io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        for (token, (listener, _)) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(token), Interest::READABLE)?;
        }
        let mut polled = unix.as_ref().map(UnixSocket::pollable).transpose()?;
        if let Some(listener) = &mut polled {
            poll.registry().register(listener, Token(listeners.len()), Interest::READABLE)?;
        }
        let waker = Waker::new(poll.registry(), WAKE)?;
        let tcp = listeners.into_iter().map(|(it, endpoint)| (Listener::Tcp(it), endpoint));
        let unix = unix.map(|socket| {
            let address = Address::Unix(socket.path().to_string_lossy().into());
            let endpoint = Endpoint { protocol: Protocol::Resp, is_tls: false };
            (Listener::Unix(socket, address), endpoint)
        });
        Ok((Acceptor { poll, listeners: tcp.chain(unix).collect(), _unix: polled }, waker))
    }

    /// Accepts clients until the server stops.
    pub(crate) fn run(mut self, shared: &Shared, inboxes: &[Arc<Inbox>]) -> std::io::Result<()> {
        let mut events = Events::with_capacity(8);
        let mut next = 0;
        let mut pause = None;
        while !shared.stop.is_stopping() {
            match self.poll.poll(&mut events, pause) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            pause = None;
            // The poll is edge-triggered, so all pending clients are accepted.
            for (listener, endpoint) in &self.listeners {
                if !accept_all(shared, inboxes, &mut next, listener, *endpoint) {
                    pause = Some(ACCEPT_RETRY_INTERVAL);
                }
            }
        }
        Ok(())
    }
}

/// Accepts all pending clients of a listener. Returns false if the system is out of file
/// descriptors.
fn accept_all(
    shared: &Shared,
    inboxes: &[Arc<Inbox>],
    next: &mut usize,
    listener: &Listener,
    endpoint: Endpoint,
) -> bool {
    while !shared.stop.is_stopping() {
        match listener.accept() {
            Ok((stream, peer)) => {
                shared.metrics.accepted.fetch_add(1, Relaxed);
                if shared.clients.reserve_connection(shared.settings.max_clients.load(Relaxed)) {
                    inboxes[*next % inboxes.len()].put(Arrival { stream, peer, endpoint });
                    *next += 1;
                } else {
                    reject(shared, stream, endpoint);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // The client has disconnected.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Rejects a client above the limit. Its socket is new, so the message fits without blocking.
fn reject(shared: &Shared, mut stream: TcpStream, endpoint: Endpoint) {
    shared.metrics.rejected_clients.fetch_add(1, Relaxed);
    // A client of TLS would not understand it.
    if !endpoint.is_tls {
        let _ = stream.write(endpoint.protocol.rejection());
    }
}
