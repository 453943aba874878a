//! A client of a node: of its port for Redis clients, for nodes that join and for operators.
//!
//! It blocks, sends one command at a time, and speaks RESP2, over TLS if it has certificates. A
//! command for the leader follows redirections and waits for an election.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use siltstone_cluster::transport::Stream;

use crate::tls::{ClientTlsFiles, connect_client};

/// How long connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a reply may take.
const TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest bulk string and array that is read.
const MAX_REPLY_BYTES: usize = 16 << 20;
const MAX_REPLY_PARTS: usize = 1 << 16;

/// How a client authenticates itself, and whether it uses TLS.
#[derive(Debug, Clone, Default)]
pub struct NodeAccess {
    /// The user; `None`: the default one.
    pub user: Option<String>,
    /// The password, if one is needed.
    pub password: Option<String>,
    /// TLS, if the port is served over it.
    pub tls: Option<ClientTlsFiles>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A simple string.
    Simple(String),
    /// An error, with its code.
    Error(String),
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(Vec<u8>),
    /// No value.
    Null,
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// The reply as text.
    pub fn to_text(&self) -> String {
        match self {
            Reply::Simple(text) | Reply::Error(text) => text.clone(),
            Reply::Int(number) => number.to_string(),
            Reply::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Reply::Null => String::new(),
            Reply::Array(parts) => parts.iter().map(Reply::to_text).collect::<Vec<_>>().join("\n"),
        }
    }
}

/// A connection to a node.
///
/// A caller that knows the protocol can also read and write the stream itself.
pub struct NodeClient {
    stream: BufReader<Box<dyn Stream>>,
    /// The socket below it, for timeouts.
    socket: TcpStream,
}

impl NodeClient {
    /// Connects and authenticates.
    ///
    /// # Errors
    /// Why it does not work, for an operator.
    pub fn connect(address: &str, access: &NodeAccess) -> Result<Self, String> {
        let failed = |error: io::Error| format!("{address}: {error}");
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let mut addresses = address.to_socket_addrs().map_err(failed)?;
        let socket = addresses.find_map(|address| {
            TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).map_err(|error| last = error).ok()
        });
        let Some(socket) = socket else { return Err(failed(last)) };
        let prepare = || {
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(TIMEOUT))?;
            socket.set_write_timeout(Some(TIMEOUT))
        };
        prepare().map_err(failed)?;
        let handle = socket.try_clone().map_err(failed)?;
        let stream: Box<dyn Stream> = match &access.tls {
            None => Box::new(socket),
            Some(files) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                connect_client(files, host.trim_matches(['[', ']']), socket)
                    .map_err(|error| format!("{address}: TLS: {error}"))?
            }
        };
        let mut client = NodeClient { stream: BufReader::new(stream), socket: handle };
        if let Some(password) = &access.password {
            let user = access.user.as_deref().unwrap_or("default");
            let reply = client.call(&["AUTH", user, password])?;
            if let Reply::Error(text) = reply {
                return Err(format!("{address}: {text}"));
            }
        }
        Ok(client)
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// If the connection fails: the outcome is unknown.
    pub fn call(&mut self, words: &[&str]) -> Result<Reply, String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        let mut exchange = || {
            let stream = self.stream.get_mut();
            stream.write_all(request.as_bytes())?;
            stream.flush()?;
            self.read_reply()
        };
        exchange().map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => "the node has closed the connection".to_owned(),
            _ => error.to_string(),
        })
    }

    /// Sets how long one read may wait.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        self.socket.set_read_timeout(Some(timeout))
    }

    fn read_reply(&mut self) -> io::Result<Reply> {
        let malformed = || io::Error::new(io::ErrorKind::InvalidData, "this is no Redis protocol");
        let mut line = String::new();
        (&mut self.stream).take(MAX_REPLY_BYTES as u64).read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.strip_suffix("\r\n").ok_or_else(malformed)?;
        let (kind, text) = line.split_at_checked(1).ok_or_else(malformed)?;
        let length = || match text {
            "-1" => Ok(None),
            text => text.parse::<usize>().map(Some).map_err(|_| malformed()),
        };
        Ok(match kind {
            "+" => Reply::Simple(text.to_owned()),
            "-" => Reply::Error(text.to_owned()),
            ":" => Reply::Int(text.parse().map_err(|_| malformed())?),
            "$" => match length()? {
                None => Reply::Null,
                Some(bytes) if bytes > MAX_REPLY_BYTES => return Err(malformed()),
                Some(bytes) => {
                    let mut value = vec![0; bytes + 2];
                    self.stream.read_exact(&mut value)?;
                    value.truncate(bytes);
                    Reply::Bulk(value)
                }
            },
            "*" => match length()? {
                None => Reply::Null,
                Some(parts) if parts > MAX_REPLY_PARTS => return Err(malformed()),
                Some(parts) => {
                    Reply::Array((0..parts).map(|_| self.read_reply()).collect::<io::Result<_>>()?)
                }
            },
            _ => return Err(malformed()),
        })
    }
}

impl Read for NodeClient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer)
    }
}

impl BufRead for NodeClient {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.stream.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.stream.consume(amount);
    }
}

impl Write for NodeClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.get_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.get_mut().flush()
    }
}

impl NodeAccess {
    /// Sends a command to the leader, whichever node that is: it follows redirections, and repeats
    /// the command while no leader is known or a connection fails. So the command must be one that
    /// may be repeated.
    ///
    /// # Errors
    /// If there is no reply in time; the last problem as text.
    pub fn call_leader(
        &self,
        seeds: &[String],
        words: &[&str],
        timeout: Duration,
    ) -> Result<Reply, String> {
        let deadline = Instant::now() + timeout;
        let mut targets = seeds.iter().cycle();
        let mut moved: Option<String> = None;
        loop {
            let target = moved.take().or_else(|| targets.next().cloned()).unwrap_or_default();
            let called = NodeClient::connect(&target, self)
                .and_then(|mut client| client.call(words).map_err(|e| format!("{target}: {e}")));
            let problem = match called {
                Ok(Reply::Error(text)) if text.starts_with("MOVED ") => {
                    moved = text.split(' ').nth(2).map(str::to_owned);
                    text
                }
                Ok(Reply::Error(text)) if text.starts_with("CLUSTERDOWN ") => text,
                // Another password does not help, nor does a retry.
                Err(text) if text.contains("WRONGPASS") => return Err(text),
                Ok(reply) => return Ok(reply),
                Err(text) => text,
            };
            if Instant::now() >= deadline {
                return Err(problem);
            }
            if moved.is_none() {
                std::thread::sleep(RETRY_INTERVAL);
            }
        }
    }
}
