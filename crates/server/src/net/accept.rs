//! Taking clients in, up to the limit, and dealing them to the workers in turn.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};

use super::dialect::Language;
use super::worker::Inbox;
use crate::shared::Shared;

const WAKE: Token = Token(usize::MAX);
/// How long to leave it when the system has no more sockets to give.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes clients in.
pub(crate) struct Acceptor {
    poll: Poll,
    /// By token.
    listeners: Vec<(TcpListener, Language)>,
}

impl Acceptor {
    /// Takes clients from `listeners`; what wakes it to see that the server stops.
    pub(crate) fn new(
        mut listeners: Vec<(TcpListener, Language)>,
    ) -> std::io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        for (token, (listener, _)) in listeners.iter_mut().enumerate() {
            poll.registry().register(listener, Token(token), Interest::READABLE)?;
        }
        let waker = Waker::new(poll.registry(), WAKE)?;
        Ok((Acceptor { poll, listeners }, waker))
    }

    /// Takes clients in until the server stops.
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
            // The poll tells of a change once, so all that wait are taken.
            for (listener, language) in &self.listeners {
                if !take_all(shared, inboxes, &mut next, listener, *language) {
                    pause = Some(PAUSE);
                }
            }
        }
        Ok(())
    }
}

/// Takes in all who wait at a listener; false if the system has no more file descriptors: those who
/// wait may be lucky later.
fn take_all(
    shared: &Shared,
    inboxes: &[Arc<Inbox>],
    next: &mut usize,
    listener: &TcpListener,
    language: Language,
) -> bool {
    while !shared.stop.is_stopping() {
        match listener.accept() {
            Ok((stream, peer)) => {
                shared.metrics.accepted.fetch_add(1, Relaxed);
                if shared.clients.enter(shared.options.max_clients) {
                    inboxes[*next % inboxes.len()].put(Arrival { stream, peer, language });
                    *next += 1;
                } else {
                    refuse(shared, stream, language);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            // The client has gone again.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return false,
        }
    }
    true
}

/// Tells a client that there is no room. Its socket is new, so the words fit without waiting.
fn refuse(shared: &Shared, mut stream: TcpStream, language: Language) {
    shared.metrics.rejected_clients.fetch_add(1, Relaxed);
    let _ = stream.write(language.refusal());
}

/// A client on its way from the acceptor to a worker.
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    pub(crate) peer: SocketAddr,
    pub(crate) language: Language,
}
