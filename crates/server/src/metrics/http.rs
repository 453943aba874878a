//! The port on which Prometheus and browsers ask: GET /metrics, /healthz and /, the web console, over
//! HTTP/1.1, nothing else.
//!
//! One thread serves all connections, none of which it waits for: each has a buffer for its request
//! or for the rest of its response, and is served when its socket is ready.
//!
//! ```text
//! accept ──▶ Reading (up to 8 KiB) ──▶ Writing ──▶ Draining ──▶ closed
//!               └──────────────── 2 seconds ────────────────┘
//! ```
//!
//! A connection has two seconds in all. There are at most [`MAX_CONNECTIONS`]; beyond them the
//! oldest, which is the likeliest to have stalled, makes room for the newest. So clients that stall
//! delay nobody, and hold no more than so many buffers.
//!
//! Where the server has a password, callers from other machines must send
//! it as `Authorization: Bearer PASSWORD`. The console itself tells nothing, so anyone may have it: it asks
//! its user for the password, and then for /metrics.
//!
//! Invariant: a connection is registered with the poll while it stands in `connections`, and leaves
//! it by its deadline.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::text;
use crate::command::is_same;
use crate::shared::Shared;

const MAX_REQUEST_BYTES: usize = 8 << 10;
/// How long a connection may take.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Connections at once.
const MAX_CONNECTIONS: usize = 64;
const ACCEPT: Token = Token(0);
const WAKE: Token = Token(1);
/// Tokens of connections begin here and are never used again, so the least is the oldest.
const FIRST_CONNECTION: usize = 2;
const TEXT: &str = "text/plain; version=0.0.4";
const CONSOLE: &str = include_str!("console.html");
/// The console has its script and style in itself, asks this server alone, and is shown in no frame.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// The port before its thread runs.
pub(crate) struct HttpPort {
    poll: Poll,
    listener: mio::net::TcpListener,
    connections: BTreeMap<usize, Connection>,
    next_token: usize,
}

/// One client.
struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    deadline: Instant,
    phase: Phase,
}

enum Phase {
    /// So much of the request has come.
    Reading(Vec<u8>),
    /// Of the response, so many bytes are sent.
    Writing { response: Vec<u8>, sent: usize },
    /// All is sent. The client closes, or the time is over: to close first, with bytes of the
    /// client unread, would take the response away from it.
    Draining,
}

impl HttpPort {
    /// Gives a listener to the port; what wakes it to see that the server stops.
    pub(crate) fn new(mut listener: mio::net::TcpListener) -> std::io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, ACCEPT, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let (connections, next_token) = (BTreeMap::new(), FIRST_CONNECTION);
        Ok((HttpPort { poll, listener, connections, next_token }, waker))
    }

    /// Answers until the server stops.
    pub(crate) fn run(mut self, shared: &Arc<Shared>) {
        let mut events = Events::with_capacity(MAX_CONNECTIONS);
        while !shared.stop.is_stopping() {
            let deadline = self.connections.values().map(|connection| connection.deadline).min();
            let wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let wait = wait.unwrap_or(MAX_TIME).min(Duration::from_secs(1));
            if self.poll.poll(&mut events, Some(wait)).is_err() {
                continue;
            }
            self.accept_all();
            for event in &events {
                self.serve(event.token(), shared);
            }
            let now = Instant::now();
            let late = self.connections.iter().filter(|(_, connection)| connection.deadline <= now);
            let late: Vec<usize> = late.map(|(token, _)| *token).collect();
            late.into_iter().for_each(|token| self.close(token));
        }
    }

    fn accept_all(&mut self) {
        while let Ok((mut stream, peer)) = self.listener.accept() {
            if self.connections.len() >= MAX_CONNECTIONS
                && let Some(oldest) = self.connections.keys().next().copied()
            {
                self.close(oldest);
            }
            let token = self.next_token;
            self.next_token += 1;
            let interest = Interest::READABLE | Interest::WRITABLE;
            if self.poll.registry().register(&mut stream, Token(token), interest).is_err() {
                continue;
            }
            let deadline = Instant::now() + MAX_TIME;
            let phase = Phase::Reading(Vec::new());
            self.connections.insert(token, Connection { stream, peer, deadline, phase });
        }
    }

    fn serve(&mut self, Token(token): Token, shared: &Shared) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        // Whoever goes away in the middle has no one to tell.
        if connection.advance(shared).is_err() {
            self.close(token);
        }
    }

    fn close(&mut self, token: usize) {
        if let Some(mut connection) = self.connections.remove(&token) {
            // Closing the socket would do it as well.
            let _ = self.poll.registry().deregister(&mut connection.stream);
        }
    }
}

impl Connection {
    /// Reads and writes as far as the socket is ready.
    ///
    /// # Errors
    /// Any error ends the connection; `UnexpectedEof` is its ordinary end.
    fn advance(&mut self, shared: &Shared) -> std::io::Result<()> {
        loop {
            let step = match &mut self.phase {
                Phase::Reading(request) => read_some(&mut self.stream, request),
                Phase::Writing { response, sent } => write_some(&mut self.stream, response, sent),
                Phase::Draining => drain_some(&mut self.stream),
            };
            match step {
                Ok(false) => {}
                Ok(true) => self.enter_next_phase(shared),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    fn enter_next_phase(&mut self, shared: &Shared) {
        self.phase = match &self.phase {
            Phase::Reading(request) => {
                let request = String::from_utf8_lossy(request);
                let (status, content, body) = respond(&request, self.peer, shared);
                let head = format!(
                    "HTTP/1.1 {status}\r\nContent-Type: {content}; charset=utf-8\r\n\
                     Content-Length: {}\r\nContent-Security-Policy: {POLICY}\r\n\
                     X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                Phase::Writing { response: (head + &body).into_bytes(), sent: 0 }
            }
            Phase::Writing { .. } | Phase::Draining => {
                // The client sees the end of the response whether or not this succeeds.
                let _ = self.stream.shutdown(Shutdown::Write);
                Phase::Draining
            }
        };
    }
}

/// Reads once; whether the empty line that ends a request's head is there.
fn read_some(stream: &mut TcpStream, request: &mut Vec<u8>) -> std::io::Result<bool> {
    if request.len() > MAX_REQUEST_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut chunk = [0; 1024];
    match stream.read(&mut chunk)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            // The end may have come in two parts.
            let searched = request.len().saturating_sub(3);
            request.extend_from_slice(&chunk[..count]);
            Ok(request[searched..].windows(4).any(|window| window == b"\r\n\r\n"))
        }
    }
}

/// Writes once; whether all is written.
fn write_some(stream: &mut TcpStream, response: &[u8], sent: &mut usize) -> std::io::Result<bool> {
    match stream.write(&response[*sent..])? {
        0 => Err(ErrorKind::WriteZero.into()),
        count => {
            *sent += count;
            Ok(*sent == response.len())
        }
    }
}

/// Reads once what nobody wants any more.
fn drain_some(stream: &mut TcpStream) -> std::io::Result<bool> {
    match stream.read(&mut [0; 1024])? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(false),
    }
}

/// The status, the type of the content, and the body for a request.
fn respond(
    request: &str,
    peer: SocketAddr,
    shared: &Shared,
) -> (&'static str, &'static str, String) {
    let mut lines = request.lines();
    let mut first = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (first.next().unwrap_or_default(), first.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    if method == "GET" && path == "/" {
        return ("200 OK", "text/html", CONSOLE.to_owned());
    }
    let bearer = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim().strip_prefix("Bearer "))?
    });
    let is_known = shared.options.password.as_ref().is_some_and(|password| {
        is_same(password.as_bytes(), bearer.unwrap_or_default().as_bytes())
    });
    if !peer.ip().is_loopback() && !is_known {
        let body = "send Authorization: Bearer PASSWORD\n".to_owned();
        return ("401 Unauthorized", TEXT, body);
    }
    if method != "GET" {
        return ("405 Method Not Allowed", TEXT, "only GET is allowed\n".to_owned());
    }
    match path {
        "/metrics" => ("200 OK", TEXT, text::page(shared)),
        "/healthz" => ("200 OK", TEXT, "ok\n".to_owned()),
        _ => ("404 Not Found", TEXT, "there are /, /metrics and /healthz\n".to_owned()),
    }
}
