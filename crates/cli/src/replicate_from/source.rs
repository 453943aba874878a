//! The source: handshake, dump file, stream of commands, acknowledgements.
//!
//! ```text
//!   PING   AUTH   REPLCONF listening-port   REPLCONF capa eof capa psync2
//!   PSYNC id offset ──▶ +CONTINUE [id]                      the stream goes on
//!                   └─▶ +FULLRESYNC id offset               a dump file, then the stream
//!                          $length\r\n bytes                   of a file
//!                          $EOF:mark\r\n bytes mark            without one; the mark has 40 bytes
//! ```
//!
//! Empty lines mean that the source is alive. While a dump file is copied the stream waits in the
//! source's memory, which is limited (`client-output-buffer-limit replica`), so some of it is read
//! ahead.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use siltstone_server::{NodeAccess, NodeClient, Reply};

use super::request::Request;
use crate::interrupt::Interrupt;
use crate::outcome::Failure;
use crate::progress;

/// The time between two acknowledgements.
const ACK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a read waits, so that signals and acknowledgements are not late.
const WAIT: Duration = Duration::from_millis(100);
/// How long a read waits that takes only the bytes that have arrived.
const NO_WAIT: Duration = Duration::from_millis(1);
/// How long the source may be silent, as Redis's `repl-timeout`.
const MAX_SILENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 256 << 10;
/// The maximum readahead of the stream while a dump file is copied.
const MAX_AHEAD_BYTES: usize = 256 << 20;
const MARK_BYTES: usize = 40;
const MAX_LINE_BYTES: usize = 1024;

/// Why a session with the source ends.
#[derive(Debug)]
pub(super) enum Problem {
    /// The connection; another one may work.
    Broken(String),
    /// It makes no sense to try again.
    Ended(Failure),
}

impl Problem {
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Problem::Broken(text) => Failure::Store(text),
            Problem::Ended(failure) => failure,
        }
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Problem::Ended(failure)
    }
}

/// A place in the stream.
#[derive(Debug, Clone)]
pub(super) struct Position {
    /// The id of the source's history.
    pub(super) id: String,
    /// Bytes before it.
    pub(super) offset: u64,
    /// The selected database.
    pub(super) database: u64,
}

/// The answer to PSYNC.
pub(super) enum Answer {
    /// The stream goes on, under a new id if there is one.
    Continue(Option<String>),
    /// A dump file comes, and then the stream from this offset on.
    Full { id: String, offset: u64 },
}

/// A connection to the source.
pub(super) struct Source {
    address: String,
    client: NodeClient,
    /// Received bytes, of which `taken` were taken.
    buffer: Vec<u8>,
    taken: usize,
    timeout: Duration,
    acknowledged_at: Instant,
    received_at: Instant,
    /// The source has closed the connection; what has come before is still to be taken.
    is_ended: bool,
    interrupt: Interrupt,
}

impl Source {
    pub(super) fn connect(
        address: &str,
        access: &NodeAccess,
        listening_port: u16,
        interrupt: &Interrupt,
    ) -> Result<Self, Problem> {
        let mut client = NodeClient::connect(address, access).map_err(|text| {
            let is_final =
                ["WRONGPASS", "NOAUTH", "ERR AUTH"].iter().any(|word| text.contains(word));
            if is_final { Failure::Store(text).into() } else { Problem::Broken(text) }
        })?;
        let port = listening_port.to_string();
        for words in [
            &["PING"][..],
            &["REPLCONF", "listening-port", &port],
            &["REPLCONF", "capa", "eof", "capa", "psync2"],
        ] {
            let reply = client.call(words);
            let reply = reply.map_err(|text| Problem::Broken(format!("{address}: {text}")))?;
            if let Reply::Error(text) = reply {
                return Err(refusal(address, words[0], &text));
            }
        }
        let now = Instant::now();
        let source = Source {
            address: address.to_owned(),
            client,
            buffer: Vec::new(),
            taken: 0,
            timeout: Duration::ZERO,
            acknowledged_at: now,
            received_at: now,
            is_ended: false,
            interrupt: interrupt.clone(),
        };
        Ok(source)
    }

    /// The source's time, in milliseconds since 1970.
    pub(super) fn time(&mut self) -> Result<u64, Problem> {
        let reply = self.client.call(&["TIME"]).map_err(Problem::Broken)?;
        if let Reply::Error(text) = &reply {
            return Err(refusal(&self.address, "TIME", text));
        }
        parse_time(&reply).ok_or_else(|| self.malformed("the reply to TIME is not two numbers"))
    }

    /// Asks for the stream from a position on, or for everything.
    pub(super) fn psync(&mut self, position: Option<&Position>) -> Result<Answer, Problem> {
        let offset = position.map(|position| (position.offset + 1).to_string());
        let id = position.map_or("?", |position| &position.id);
        let request =
            Request::of(&[b"PSYNC", id.as_bytes(), offset.as_deref().unwrap_or("-1").as_bytes()]);
        self.send(&request.bytes)?;
        let line = self.line()?;
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["+CONTINUE"] => Ok(Answer::Continue(None)),
            ["+CONTINUE", id] => Ok(Answer::Continue(Some(id.to_owned()))),
            ["+FULLRESYNC", id, offset] => {
                let offset = offset.parse();
                let offset = offset.map_err(|_| self.malformed("an offset is no number"))?;
                Ok(Answer::Full { id: id.to_owned(), offset })
            }
            _ => match line.strip_prefix('-') {
                Some(text) => Err(refusal(&self.address, "PSYNC", text)),
                None => Err(self.malformed("the reply to PSYNC is unknown")),
            },
        }
    }

    /// Receives a dump file. It is kept in a file without a name.
    pub(super) fn receive_dump(
        &mut self,
        directory: Option<&Path>,
        offset: u64,
    ) -> Result<File, Problem> {
        let temporary = std::env::temp_dir();
        let directory = directory.unwrap_or(&temporary);
        let failed = |error: io::Error| {
            let name = format!("the dump file in {}", directory.display());
            Problem::Ended(Failure::file("write", &name, &error))
        };
        let mut spool = tempfile::tempfile_in(directory).map_err(failed)?;
        let header = self.line()?;
        let mark = header.strip_prefix("$EOF:").filter(|mark| mark.len() == MARK_BYTES);
        let length = header.strip_prefix('$').and_then(|text| text.parse::<u64>().ok());
        if mark.is_none() && length.is_none() {
            return Err(self.malformed("no dump file follows"));
        }
        let bar = match length {
            Some(length) => progress::bytes("receiving", length),
            None => progress::spinner("receiving"),
        };
        // The end of what has come, where the mark is looked for.
        let (mut received, mut tail) = (0, Vec::new());
        while length.is_none_or(|length| received < length) {
            self.interrupt.check()?;
            if self.pending().is_empty() {
                self.wait(offset)?;
                continue;
            }
            let left = length.map_or(u64::MAX, |length| length - received);
            let count = self.pending().len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let chunk = &self.pending()[..count];
            spool.write_all(chunk).map_err(failed)?;
            received += count as u64;
            bar.set_position(received);
            if let Some(mark) = mark {
                tail.extend_from_slice(&chunk[count.saturating_sub(MARK_BYTES)..]);
                tail.drain(..tail.len().saturating_sub(MARK_BYTES));
                // Nothing follows the mark until this side has acknowledged the dump.
                if tail == mark.as_bytes() {
                    spool.set_len(received - MARK_BYTES as u64).map_err(failed)?;
                    self.taken += count;
                    break;
                }
            }
            self.taken += count;
        }
        bar.finish_and_clear();
        spool.rewind().map_err(failed)?;
        self.acknowledge(offset)?;
        Ok(spool)
    }

    /// Keeps the connection alive while a dump file is copied, and reads the stream ahead.
    pub(super) fn keep_alive(&mut self, offset: u64) -> Result<(), Failure> {
        self.interrupt.check()?;
        if self.is_ended || self.acknowledged_at.elapsed() < WAIT {
            return Ok(());
        }
        // If the connection breaks, the copy is completed, and goes on from its offset.
        while self.pending().len() < MAX_AHEAD_BYTES {
            match self.read(NO_WAIT) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => {
                    self.is_ended = true;
                    return Ok(());
                }
            }
        }
        self.is_ended = self.acknowledge(offset).is_err();
        Ok(())
    }

    /// The next command of the stream that has come.
    pub(super) fn next_request(&mut self) -> Result<Option<Request>, Problem> {
        let parsed = Request::parse(self.pending());
        let request = parsed.map_err(|_| self.malformed("the stream has bytes of no command"))?;
        if let Some(request) = &request {
            self.taken += request.bytes.len();
        }
        Ok(request)
    }

    /// Waits a moment for more of the stream, and acknowledges `offset` once per second.
    pub(super) fn wait(&mut self, offset: u64) -> Result<(), Problem> {
        if self.is_ended {
            return Err(self.broken(&ErrorKind::UnexpectedEof.into()));
        }
        if self.acknowledged_at.elapsed() >= ACK_INTERVAL {
            self.acknowledge(offset)?;
        }
        self.read(WAIT).map_err(|error| self.broken(&error))?;
        if self.received_at.elapsed() > MAX_SILENCE {
            return Err(self.broken(&ErrorKind::TimedOut.into()));
        }
        Ok(())
    }

    /// Acknowledges an offset.
    pub(super) fn acknowledge(&mut self, offset: u64) -> Result<(), Problem> {
        self.acknowledged_at = Instant::now();
        let request = Request::of(&[b"REPLCONF", b"ACK", offset.to_string().as_bytes()]);
        self.send(&request.bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let sent = self.client.write_all(bytes).and_then(|()| self.client.flush());
        sent.map_err(|error| self.broken(&error))
    }

    /// The next line that is not empty.
    fn line(&mut self) -> Result<String, Problem> {
        loop {
            while let Some(end) = self.pending().iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(self.pending()[..end].trim_ascii_end());
                let line = line.into_owned();
                self.taken += end + 1;
                if !line.is_empty() {
                    return Ok(line);
                }
            }
            if self.pending().len() > MAX_LINE_BYTES {
                return Err(self.malformed("a line is too long"));
            }
            self.interrupt.check()?;
            self.read(WAIT).map_err(|error| self.broken(&error))?;
            if self.received_at.elapsed() > MAX_SILENCE {
                return Err(self.broken(&ErrorKind::TimedOut.into()));
            }
        }
    }

    /// The bytes that were received and not taken.
    fn pending(&self) -> &[u8] {
        &self.buffer[self.taken..]
    }

    /// Reads once. Returns false if nothing has come in time.
    fn read(&mut self, timeout: Duration) -> io::Result<bool> {
        if self.timeout != timeout {
            self.client.set_read_timeout(timeout)?;
            self.timeout = timeout;
        }
        // Moves at most as much as was taken.
        if 2 * self.taken >= self.buffer.len() {
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        let old = self.buffer.len();
        self.buffer.resize(old + READ_BYTES, 0);
        let read = self.client.read(&mut self.buffer[old..]);
        self.buffer.truncate(old + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                self.received_at = Instant::now();
                Ok(true)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => Ok(false),
                _ => Err(error),
            },
        }
    }

    fn broken(&self, error: &io::Error) -> Problem {
        let address = &self.address;
        Problem::Broken(match error.kind() {
            ErrorKind::UnexpectedEof => format!("{address} has closed the connection"),
            ErrorKind::TimedOut => format!("{address} has been silent for a minute"),
            _ => format!("{address}: {error}"),
        })
    }

    fn malformed(&self, what: &str) -> Problem {
        Problem::Ended(Failure::Store(format!("{}: {what}", self.address)))
    }
}

/// The reply to TIME, in milliseconds since 1970.
pub(super) fn parse_time(reply: &Reply) -> Option<u64> {
    let Reply::Array(parts) = reply else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let number = |reply: &Reply| reply.to_text().parse::<u64>().ok();
    Some(number(seconds)? * 1000 + number(micros)? / 1000)
}

/// A command that the source refuses: for the moment, or for good.
fn refusal(address: &str, command: &str, text: &str) -> Problem {
    let text = format!("{address} refuses {command}: {text}");
    let is_passing = ["LOADING", "NOMASTERLINK", "MASTERDOWN", "BUSY"];
    match is_passing.iter().any(|word| text.contains(word)) {
        true => Problem::Broken(text),
        false => Failure::Store(text).into(),
    }
}
