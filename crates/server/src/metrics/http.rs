//! The metrics port: GET /metrics, /healthz and / (the web console) over HTTP/1.1.
//!
//! One thread serves all connections without blocking; each has a buffer for its request or the
//! rest of its response.
//!
//! ```text
//! accept ──▶ Reading (up to 8 KiB) ──▶ Writing ──▶ Draining ──▶ closed
//!               └──────────────── 2 seconds ────────────────┘
//! ```
//!
//! A connection is closed after two seconds. There are up to [`MAX_CONNECTIONS`]; a further one
//! replaces the oldest, which is the likeliest to have stalled. So stalled clients delay nobody,
//! and memory is bounded.
//!
//! Callers from other machines must send the password of the user `default`, as `Authorization:
//! Bearer PASSWORD`, or another user with the right to call INFO, as `Authorization: Basic`. The
//! console page holds no data and needs no password: it asks its user for the password, and
//! requests /metrics with it.
//!
//! Invariant: a connection is registered with the poll while it is in `connections`, and removed by
//! its deadline.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};

use super::text;
use crate::acl::user::DEFAULT_USER;
use crate::memcached::base64;
use crate::net::transport::Transport;
use crate::resp::{Args, Span};
use crate::shared::Shared;

const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Maximum duration of a connection.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(2);
/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 64;
const ACCEPT: Token = Token(0);
const WAKE: Token = Token(1);
/// First token of a connection; tokens are not reused, so the smallest is the oldest.
const FIRST_CONNECTION: usize = 2;
const TEXT: &str = "text/plain; version=0.0.4";
const CONSOLE: &str = include_str!("console.html");
/// The console contains its script and style, requests this server only, and is not shown in
/// frames.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// Whether a listener is for TLS.
pub(crate) type IsTls = bool;

/// The metrics port before its thread runs.
pub(crate) struct HttpPort {
    poll: Poll,
    /// Without TLS and with it.
    listeners: Vec<(mio::net::TcpListener, IsTls)>,
    connections: BTreeMap<usize, Connection>,
    next_token: usize,
}

/// A client connection.
struct Connection {
    stream: Transport,
    peer: SocketAddr,
    deadline: Instant,
    phase: Phase,
}

enum Phase {
    /// The request so far.
    Reading(Vec<u8>),
    /// The response, and how many bytes of it are sent.
    Writing { response: Vec<u8>, sent: usize },
    /// Everything is sent; waiting for the client to close. Closing first, with unread bytes of the
    /// client, would reset the connection and discard the response.
    Draining,
}

impl HttpPort {
    /// A port for listeners, and the waker that makes it notice a stop.
    pub(crate) fn new(
        mut listeners: Vec<(mio::net::TcpListener, IsTls)>,
    ) -> std::io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        for (listener, _) in &mut listeners {
            poll.registry().register(listener, ACCEPT, Interest::READABLE)?;
        }
        let waker = Waker::new(poll.registry(), WAKE)?;
        let (connections, next_token) = (BTreeMap::new(), FIRST_CONNECTION);
        Ok((HttpPort { poll, listeners, connections, next_token }, waker))
    }

    /// Serves until the server stops.
    pub(crate) fn run(mut self, shared: &Arc<Shared>) {
        let mut events = Events::with_capacity(MAX_CONNECTIONS);
        while !shared.stop.is_stopping() {
            let deadline = self.connections.values().map(|connection| connection.deadline).min();
            let wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let wait = wait.unwrap_or(MAX_CONNECTION_TIME).min(Duration::from_secs(1));
            if self.poll.poll(&mut events, Some(wait)).is_err() {
                continue;
            }
            for place in 0..self.listeners.len() {
                self.accept_all(place, shared);
            }
            for event in &events {
                self.serve(event.token(), shared);
            }
            let now = Instant::now();
            let expired =
                self.connections.iter().filter(|(_, connection)| connection.deadline <= now);
            let expired: Vec<usize> = expired.map(|(token, _)| *token).collect();
            expired.into_iter().for_each(|token| self.close(token));
        }
    }

    fn accept_all(&mut self, place: usize, shared: &Shared) {
        let is_tls = self.listeners[place].1;
        while let Ok((mut stream, peer)) = self.listeners[place].0.accept() {
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
            let tls = shared.tls.as_ref().filter(|_| is_tls).map(|tls| tls.accept());
            let Ok(tls) = tls.transpose() else { continue };
            let stream = Transport::new(stream, tls);
            let deadline = Instant::now() + MAX_CONNECTION_TIME;
            let phase = Phase::Reading(Vec::new());
            self.connections.insert(token, Connection { stream, peer, deadline, phase });
        }
    }

    fn serve(&mut self, Token(token): Token, shared: &Shared) {
        let Some(connection) = self.connections.get_mut(&token) else { return };
        // A disconnected client needs no response.
        if connection.advance(shared).is_err() {
            self.close(token);
        }
    }

    fn close(&mut self, token: usize) {
        if let Some(mut connection) = self.connections.remove(&token) {
            // Closing the socket would deregister it as well.
            let _ = self.poll.registry().deregister(&mut connection.stream.socket);
        }
    }
}

impl Connection {
    /// Reads and writes while the socket is ready.
    ///
    /// # Errors
    /// Any error ends the connection; `UnexpectedEof` is its normal end.
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
                let _ = self.stream.shut_down();
                Phase::Draining
            }
        };
    }
}

/// Reads once. Returns whether the request head is complete.
fn read_some(stream: &mut Transport, request: &mut Vec<u8>) -> std::io::Result<bool> {
    if request.len() > MAX_REQUEST_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut chunk = [0; 1024];
    match stream.read_some(&mut chunk)?.0 {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        count => {
            // The end may be split over two reads.
            let searched = request.len().saturating_sub(3);
            request.extend_from_slice(&chunk[..count]);
            Ok(request[searched..].windows(4).any(|window| window == b"\r\n\r\n"))
        }
    }
}

/// Writes once. Returns whether everything is written.
fn write_some(stream: &mut Transport, response: &[u8], sent: &mut usize) -> std::io::Result<bool> {
    if *sent < response.len() {
        match stream.write(&response[*sent..])? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => *sent += count,
        }
    }
    if *sent < response.len() {
        return Ok(false);
    }
    stream.flush()?;
    Ok(true)
}

/// Reads once and discards.
fn drain_some(stream: &mut Transport) -> std::io::Result<bool> {
    match stream.read_some(&mut [0; 1024])?.0 {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(false),
    }
}

/// Whether an authorization is that of a user who may call INFO: `Bearer` and the password of the
/// user `default`, or `Basic` and base64 of `user:password`.
fn is_authorized(shared: &Shared, authorization: &str) -> bool {
    let acl = &shared.acl;
    let (scheme, value) = authorization.split_once(' ').unwrap_or_default();
    let user = if scheme.eq_ignore_ascii_case("bearer") {
        acl.authenticate(DEFAULT_USER, value.as_bytes())
    } else if scheme.eq_ignore_ascii_case("basic") {
        let decoded = base64(value.trim().as_bytes()).unwrap_or_default();
        let colon = decoded.iter().position(|byte| *byte == b':');
        colon.and_then(|colon| acl.authenticate(&decoded[..colon], &decoded[colon + 1..]))
    } else {
        None
    };
    let (word, spans) = (b"info", [Span { start: 0, end: 4 }]);
    let info = shared.commands.find(word);
    user.zip(info)
        .is_some_and(|(user, info)| user.check(&acl.names, info, Args::new(word, &spans)).is_ok())
}

/// Status, content type and body of the response.
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
    let authorization = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("authorization").then(|| value.trim())
    });
    if !peer.ip().is_loopback() && !is_authorized(shared, authorization.unwrap_or_default()) {
        if authorization.is_some() {
            shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
        }
        let body = "send Authorization: Bearer PASSWORD, or Basic with a user\n".to_owned();
        return ("401 Unauthorized", TEXT, body);
    }
    if method != "GET" {
        return ("405 Method Not Allowed", TEXT, "only GET is allowed\n".to_owned());
    }
    match path {
        "/metrics" => ("200 OK", TEXT, text::page(shared)),
        "/healthz" => ("200 OK", TEXT, "ok\n".to_owned()),
        _ => ("404 Not Found", TEXT, "available: /, /metrics and /healthz\n".to_owned()),
    }
}
