//! The connection of MIGRATE to its target.
//!
//! It gives up after the time limit without progress, and soon after the server stops: the socket's
//! timeouts are short, and each of them looks at both.
//!
//! Only replies of one line are expected: those of AUTH, SELECT and RESTORE.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::failure::{Failure, reply_error};
use crate::StopHandle;

/// Delay until a waiting read or write looks whether it must give up.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest that connecting to one address may take: meanwhile nobody sees that the server
/// stops.
const MAX_CONNECT_TIME: Duration = Duration::from_secs(5);
/// The longest line of a reply.
const MAX_LINE_BYTES: usize = 64 << 10;

/// A connection to the server that gets the keys.
pub(super) struct Target<'a> {
    stream: TcpStream,
    received: Vec<u8>,
    time_limit: Duration,
    stop: &'a StopHandle,
}

impl<'a> Target<'a> {
    /// Connects to the first address of `host` that answers.
    pub(super) fn connect(
        host: &str,
        port: u16,
        time_limit: Duration,
        stop: &'a StopHandle,
    ) -> Result<Self, Failure> {
        let failed = |error: io::Error| {
            let text = "IOERR error or timeout connecting to the target instance";
            Failure::from(format!("{text} {host}:{port}: {error}"))
        };
        let mut last = io::Error::from(ErrorKind::AddrNotAvailable);
        let timeout = time_limit.min(MAX_CONNECT_TIME);
        let stream = (host, port).to_socket_addrs().map_err(failed)?.find_map(|address| {
            TcpStream::connect_timeout(&address, timeout).map_err(|error| last = error).ok()
        });
        let Some(stream) = stream else { return Err(failed(last)) };
        let prepare = || {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(POLL_INTERVAL))?;
            stream.set_write_timeout(Some(POLL_INTERVAL))
        };
        prepare().map_err(failed)?;
        Ok(Target { stream, received: Vec::new(), time_limit, stop })
    }

    /// Sends bytes.
    pub(super) fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        let mut progress_at = Instant::now();
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(0) => return Err(broken("writing")),
                Ok(written) => {
                    bytes = &bytes[written..];
                    progress_at = Instant::now();
                }
                Err(error) => self.check(&error, progress_at, "writing")?,
            }
        }
        Ok(())
    }

    /// Reads a reply; its text if it is an error.
    pub(super) fn status(&mut self) -> Result<Result<(), String>, Failure> {
        let line = self.line()?;
        match line.split_first() {
            Some((b'+', _)) => Ok(Ok(())),
            Some((b'-', text)) => Ok(Err(String::from_utf8_lossy(text).into_owned())),
            _ => Err(reply_error("IOERR the target instance does not speak Redis's protocol")),
        }
    }

    /// A line without its end.
    fn line(&mut self) -> Result<Vec<u8>, Failure> {
        let mut progress_at = Instant::now();
        let mut chunk = [0; 4096];
        loop {
            if let Some(end) = self.received.windows(2).position(|pair| pair == b"\r\n") {
                let mut line: Vec<u8> = self.received.drain(..end + 2).collect();
                line.truncate(end);
                return Ok(line);
            }
            if self.received.len() > MAX_LINE_BYTES {
                return Err(reply_error("IOERR a reply of the target instance is too long"));
            }
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(broken("reading")),
                Ok(read) => {
                    self.received.extend_from_slice(&chunk[..read]);
                    progress_at = Instant::now();
                }
                Err(error) => self.check(&error, progress_at, "reading")?,
            }
        }
    }

    /// Whether to try again after an error.
    fn check(&self, error: &io::Error, progress_at: Instant, doing: &str) -> Result<(), Failure> {
        match error.kind() {
            ErrorKind::Interrupted => Ok(()),
            // The socket's timeout.
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                if self.stop.is_stopping() {
                    return Err(reply_error("ERR the server stops"));
                }
                match progress_at.elapsed() < self.time_limit {
                    true => Ok(()),
                    false => Err(broken(doing)),
                }
            }
            _ => Err(broken(doing)),
        }
    }
}

/// Redis's error for a connection that broke, or for a passed time limit.
fn broken(doing: &str) -> Failure {
    format!("IOERR error or timeout {doing} to target instance").into()
}

/// Appends a command.
pub(super) fn append_request(request: &mut Vec<u8>, words: &[&[u8]]) {
    request.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        request.extend_from_slice(word);
        request.extend_from_slice(b"\r\n");
    }
}
