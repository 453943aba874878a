//! A small RESP2 client with pipelining.
//!
//! ```text
//!   request  *2 CRLF $3 CRLF GET CRLF $4 CRLF k0:7 CRLF
//!   reply    +text CRLF | -error CRLF | :number CRLF
//!            | $length CRLF bytes CRLF | *count CRLF replies
//! ```
//!
//! It never reconnects by itself: the caller decides what a lost connection means.

use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Maximum length of a bulk string and an array.
const MAX_REPLY: i64 = 64 << 20;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status, such as `OK`.
    Simple(String),
    /// An error, with its code.
    Error(String),
    /// A number.
    Integer(i64),
    /// A string of bytes; `None` for no such key.
    Bulk(Option<Vec<u8>>),
    /// An array; `None` for an aborted transaction.
    Array(Option<Vec<Reply>>),
}

/// A connection to a server.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Connection {
    /// Connects. A reply that takes longer than `timeout` is an error of kind `TimedOut`.
    ///
    /// # Errors
    /// The server does not accept the connection.
    pub fn open(address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Connection { stream: BufReader::with_capacity(64 << 10, stream), request: Vec::new() })
    }

    /// Adds a command to the pipeline.
    pub fn push<W: AsRef<[u8]>>(&mut self, words: &[W]) {
        push(&mut self.request, words);
    }

    /// Sends the pipeline.
    ///
    /// # Errors
    /// The connection is lost; the server may have received any prefix of the pipeline.
    pub fn send(&mut self) -> io::Result<()> {
        let sent = self.stream.get_mut().write_all(&self.request);
        self.request.clear();
        sent.map_err(map_timeout)
    }

    /// The next reply.
    ///
    /// # Errors
    /// The connection is lost, the reply is late (`TimedOut`) or malformed (`InvalidData`).
    pub fn receive(&mut self) -> io::Result<Reply> {
        read(&mut self.stream).map_err(map_timeout)
    }

    /// Sends one command and returns its reply.
    ///
    /// # Errors
    /// Those of [`Connection::send`] and [`Connection::receive`].
    pub fn command<W: AsRef<[u8]>>(&mut self, words: &[W]) -> io::Result<Reply> {
        self.push(words);
        self.send()?;
        self.receive()
    }
}

/// Appends a command to a request.
pub fn push<W: AsRef<[u8]>>(request: &mut Vec<u8>, words: &[W]) {
    request.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        let word = word.as_ref();
        request.extend(format!("${}\r\n", word.len()).bytes());
        request.extend(word);
        request.extend(b"\r\n");
    }
}

/// Maps `WouldBlock`, the system's error for a timeout, to `TimedOut`.
fn map_timeout(error: io::Error) -> io::Error {
    match error.kind() {
        ErrorKind::WouldBlock => io::Error::new(ErrorKind::TimedOut, "no reply in time"),
        _ => error,
    }
}

fn malformed(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

fn read(stream: &mut impl BufRead) -> io::Result<Reply> {
    let mut line = Vec::new();
    stream.read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(ErrorKind::UnexpectedEof.into());
    };
    let text = String::from_utf8_lossy(line).into_owned();
    let Some(kind) = line.first() else { return Err(malformed("an empty line for a reply")) };
    let rest = text.get(1..).unwrap_or_default();
    let number = || rest.parse::<i64>().map_err(|_| malformed(format!("reply {text:?}")));
    match kind {
        b'+' => Ok(Reply::Simple(rest.to_owned())),
        b'-' => Ok(Reply::Error(rest.to_owned())),
        b':' => Ok(Reply::Integer(number()?)),
        b'$' | b'*' => {
            let count = number()?;
            match (kind, count) {
                (b'$', -1) => Ok(Reply::Bulk(None)),
                (_, -1) => Ok(Reply::Array(None)),
                (_, count) if !(0..=MAX_REPLY).contains(&count) => {
                    Err(malformed(format!("reply {text:?}")))
                }
                (b'$', count) => {
                    let mut bytes = vec![0; count as usize + 2];
                    stream.read_exact(&mut bytes)?;
                    if !bytes.ends_with(b"\r\n") {
                        return Err(malformed("a bulk string that does not end with CRLF"));
                    }
                    bytes.truncate(count as usize);
                    Ok(Reply::Bulk(Some(bytes)))
                }
                (_, count) => {
                    let replies = (0..count).map(|_| read(stream)).collect::<io::Result<_>>()?;
                    Ok(Reply::Array(Some(replies)))
                }
            }
        }
        _ => Err(malformed(format!("reply {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_of_every_kind_is_parsed() {
        let mut bytes: &[u8] =
            b"+OK\r\n-ERR no\r\n:-7\r\n$2\r\n\r\n\r\n$-1\r\n*2\r\n:1\r\n$1\r\na\r\n";
        let bulk = |text: &[u8]| Reply::Bulk(Some(text.to_vec()));
        for expected in [
            Reply::Simple("OK".into()),
            Reply::Error("ERR no".into()),
            Reply::Integer(-7),
            bulk(b"\r\n"),
            Reply::Bulk(None),
            Reply::Array(Some(vec![Reply::Integer(1), bulk(b"a")])),
        ] {
            assert_eq!(read(&mut bytes).unwrap(), expected);
        }
        assert_eq!(read(&mut bytes).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn malformed_reply_is_refused() {
        for bad in ["?\r\n", ":x\r\n", "$-2\r\n", "*99999999999\r\n", "\r\n", "$1\r\nabc\r\n"] {
            let error = read(&mut bad.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{bad:?}");
        }
    }
}
