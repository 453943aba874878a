//! The target: batches of commands and their replies.
//!
//! A batch is written, and then all its replies are read. It is small, or a single command: so the
//! sockets take all of it while the server waits for its replies to be read.

use std::io::{self, BufRead, Read, Write};
use std::time::Duration;

use siltstone_server::{NodeAccess, NodeClient, Reply};

use super::request::Request;
use super::source::parse_time;
use crate::outcome::Failure;

/// Commands of a batch, if it is more than one.
const BATCH_BYTES: usize = 32 << 10;
/// How long the reply to a batch may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_LINE_BYTES: u64 = 64 << 10;

/// A connection to the target.
pub(super) struct Target {
    address: String,
    client: NodeClient,
    batch: Vec<u8>,
    /// What each command of the batch is, for an error.
    commands: Vec<String>,
    /// The selected database.
    database: u64,
}

impl Target {
    pub(super) fn connect(address: &str, access: &NodeAccess) -> Result<Self, Failure> {
        let client = NodeClient::connect(address, access).map_err(Failure::Store)?;
        let failed = |error| Failure::Store(format!("{address}: {error}"));
        client.set_read_timeout(REPLY_TIMEOUT).map_err(failed)?;
        Ok(Target {
            address: address.to_owned(),
            client,
            batch: Vec::new(),
            commands: Vec::new(),
            database: 0,
        })
    }

    /// Checks that no database has keys.
    pub(super) fn check_empty(&mut self) -> Result<(), Failure> {
        let text = self.ask(&["INFO", "keyspace"])?.to_text();
        match text.lines().find(|line| line.starts_with("db")) {
            None => Ok(()),
            Some(line) => Err(Failure::Usage(format!(
                "{} has keys ({line}): a run begins with a full copy into an empty server; \
                 --replace removes them first",
                self.address
            ))),
        }
    }

    /// Whether a database exists.
    pub(super) fn has_database(&mut self, database: u64) -> Result<bool, Failure> {
        let reply = self.call(&["SELECT", &database.to_string()])?;
        let is_selected = !matches!(reply, Reply::Error(_));
        if is_selected {
            self.database = database;
        }
        Ok(is_selected)
    }

    /// Holds the clock at `time`, or at the target's own if that is earlier: keys that expire later
    /// live until the source removes them.
    pub(super) fn hold_expiry(&mut self, time: u64) -> Result<(), Failure> {
        let own = parse_time(&self.ask(&["TIME"])?).unwrap_or(time);
        self.ask(&["CLIENT", "HOLD-EXPIRY", &time.min(own).to_string()]).map(drop)
    }

    /// Removes everything.
    pub(super) fn clear(&mut self) -> Result<(), Failure> {
        self.ask(&["FLUSHALL"])?;
        self.ask(&["FUNCTION", "FLUSH"]).map(drop)
    }

    /// Adds a command on a database to the batch; `what` names it in an error.
    pub(super) fn add(
        &mut self,
        database: u64,
        request: &Request,
        what: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        if database != self.database {
            let select = Request::of(&[b"SELECT", database.to_string().as_bytes()]);
            self.append(&select.bytes, format!("SELECT {database}"))?;
            self.database = database;
        }
        self.append(&request.bytes, what())
    }

    fn append(&mut self, request: &[u8], what: String) -> Result<(), Failure> {
        if self.batch.len() + request.len() > BATCH_BYTES {
            self.flush()?;
        }
        self.batch.extend_from_slice(request);
        self.commands.push(what);
        Ok(())
    }

    /// Sends the batch, and reads its replies.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        if self.commands.is_empty() {
            return Ok(());
        }
        let lost = |error: io::Error, address: &str| {
            Failure::Store(format!(
                "{address}: {error}: which of the last commands were run is unknown, so a new run \
                 must copy everything again"
            ))
        };
        let address = &self.address;
        let sent = self.client.write_all(&self.batch).and_then(|()| self.client.flush());
        sent.map_err(|error| lost(error, address))?;
        for command in &self.commands {
            let error = read_error(&mut self.client).map_err(|error| lost(error, address))?;
            if let Some(text) = error {
                return Err(Failure::Store(format!("{address} refuses {command}: {text}")));
            }
        }
        self.batch.clear();
        self.batch.shrink_to(4 * BATCH_BYTES);
        self.commands.clear();
        Ok(())
    }

    fn call(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        self.flush()?;
        let reply = self.client.call(words);
        reply.map_err(|text| Failure::Store(format!("{}: {text}", self.address)))
    }

    /// [`call`](Self::call), with an error as a failure.
    fn ask(&mut self, words: &[&str]) -> Result<Reply, Failure> {
        match self.call(words)? {
            Reply::Error(text) => {
                let (address, command) = (&self.address, words[..words.len().min(2)].join(" "));
                Err(Failure::Store(format!("{address} refuses {command}: {text}")))
            }
            reply => Ok(reply),
        }
    }
}

/// Reads a reply of any size. Returns the first error in it, at any depth.
fn read_error(input: &mut impl BufRead) -> io::Result<Option<String>> {
    let malformed = || io::Error::new(io::ErrorKind::InvalidData, "this is no Redis protocol");
    let (mut left, mut error) = (1_u64, None);
    while left > 0 {
        left -= 1;
        let mut line = Vec::new();
        input.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
        }
        let line = line.strip_suffix(b"\r\n").ok_or_else(malformed)?;
        let (kind, text) = line.split_first().ok_or_else(malformed)?;
        let text = String::from_utf8_lossy(text);
        let count = || text.parse::<i64>().map(|n| u64::try_from(n).ok()).map_err(|_| malformed());
        match kind {
            b'+' | b':' => {}
            b'-' => error = error.or_else(|| Some(text.into_owned())),
            b'$' => {
                if let Some(length) = count()? {
                    let skipped = io::copy(&mut input.by_ref().take(length + 2), &mut io::sink())?;
                    if skipped < length + 2 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
            b'*' => left += count()?.unwrap_or(0),
            _ => return Err(malformed()),
        }
    }
    Ok(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_is_found_at_any_depth_and_the_rest_is_skipped() {
        let read = |bytes: &[u8]| {
            let mut input = bytes;
            read_error(&mut input).map(|error| (error, input.len()))
        };
        let ok = |bytes: &[u8]| read(bytes).unwrap();
        assert_eq!(ok(b"+OK\r\n+OK\r\n"), (None, 5));
        assert_eq!(ok(b"$4\r\n-a\r\n\r\n:1\r\n"), (None, 4));
        assert_eq!(ok(b"*3\r\n$-1\r\n*-1\r\n*0\r\n"), (None, 0));
        let nested = b"*3\r\n:1\r\n*2\r\n-ERR a\r\n-ERR b\r\n+x\r\n:5\r\n";
        assert_eq!(ok(nested), (Some("ERR a".to_owned()), 4));
        for bytes in [&b""[..], b"*1\r\n", b"$5\r\nab", b"?\r\n", b"+OK"] {
            assert!(read(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }
}
