//! The port on which Prometheus and browsers ask: GET /metrics, /healthz and /, the web console, over
//! HTTP/1.1, nothing else.
//!
//! One thread serves one request at a time and closes; a request has 8 KiB and two seconds, so that
//! no one can hold the port. Where the server has a password, callers from other machines must send
//! it as `Authorization: Bearer PASSWORD`. The console itself tells nothing, so anyone may have it: it asks
//! its user for the password, and then for /metrics.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token, Waker};

use super::text;
use crate::command::is_same;
use crate::shared::Shared;

const MAX_REQUEST_BYTES: usize = 8 << 10;
const PATIENCE: Duration = Duration::from_secs(2);
const ACCEPT: Token = Token(0);
const WAKE: Token = Token(1);
const TEXT: &str = "text/plain; version=0.0.4";
const CONSOLE: &str = include_str!("console.html");
/// The console has its script and style in itself, asks this server alone, and is shown in no frame.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                      connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

/// The port before its thread runs.
pub(crate) struct HttpPort {
    poll: Poll,
    listener: mio::net::TcpListener,
}

impl HttpPort {
    /// Gives a listener to the port; what wakes it to see that the server stops.
    pub(crate) fn new(mut listener: mio::net::TcpListener) -> std::io::Result<(Self, Waker)> {
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, ACCEPT, Interest::READABLE)?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        Ok((HttpPort { poll, listener }, waker))
    }

    /// Answers until the server stops.
    pub(crate) fn run(mut self, shared: &Arc<Shared>) {
        let mut events = Events::with_capacity(8);
        while !shared.stop.is_stopping() {
            if self.poll.poll(&mut events, Some(Duration::from_secs(1))).is_err() {
                continue;
            }
            while let Ok((stream, peer)) = self.listener.accept() {
                // Whoever goes away in the middle has no one to tell.
                let _ = answer(TcpStream::from(stream), peer, shared);
                if shared.stop.is_stopping() {
                    break;
                }
            }
        }
    }
}

fn answer(mut stream: TcpStream, peer: SocketAddr, shared: &Shared) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read_request(&mut stream)?;
    let (status, content, body) = respond(&request, peer, shared);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Reads up to the empty line that ends a request's head.
fn read_request(stream: &mut TcpStream) -> std::io::Result<String> {
    let deadline = Instant::now() + PATIENCE;
    let (mut request, mut chunk) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|window| window == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || request.len() > MAX_REQUEST_BYTES {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut chunk)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => request.extend_from_slice(&chunk[..count]),
        }
    }
    Ok(String::from_utf8_lossy(&request).into_owned())
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
