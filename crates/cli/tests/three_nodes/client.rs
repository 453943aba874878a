//! A client of a replicated table that follows redirections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than the outcome of any command takes.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An impatient client gives up a connection without an answer after this time.
const SHORT_TIMEOUT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);
/// Of nodes that others than this machine can reach.
pub const PASSWORD: &str = "three nodes";

/// A connection to one node.
pub struct Connection {
    address: SocketAddr,
    timeout: Duration,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        Self::with_timeout(address, TIMEOUT)
    }

    fn with_timeout(address: SocketAddr, timeout: Duration) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        let mut connection = Connection { address, timeout, reader: BufReader::new(stream) };
        if !address.ip().is_loopback() {
            let reply = connection.call(&["AUTH", PASSWORD]);
            if reply.as_deref() != Some("+OK") {
                return Err(std::io::Error::other(format!("AUTH: {reply:?}")));
            }
        }
        Ok(connection)
    }

    pub fn reconnect(&mut self) -> std::io::Result<()> {
        *self = Self::with_timeout(self.address, self.timeout)?;
        Ok(())
    }

    /// The reply, the value of a bulk string, or the elements of an array with commas between them;
    /// `None` if the connection has ended.
    pub fn call(&mut self, words: &[&str]) -> Option<String> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.reader.get_mut().write_all(request.as_bytes()).ok()?;
        self.reply()
    }

    /// The next reply or message, as [`call`](Self::call) shows it.
    pub fn reply(&mut self) -> Option<String> {
        let reply = self.line()?;
        if let Some(count) = reply.strip_prefix('*').filter(|count| *count != "-1") {
            let elements: Option<Vec<_>> =
                (0..count.parse::<usize>().unwrap()).map(|_| self.reply()).collect();
            return elements.map(|elements| elements.join(","));
        }
        let Some(length) = reply.strip_prefix('$').filter(|length| *length != "-1") else {
            return Some(reply);
        };
        let mut bytes = vec![0; length.parse::<usize>().unwrap() + 2];
        self.reader.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        Some(String::from_utf8(bytes).unwrap())
    }

    fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => None,
            Ok(_) => line.strip_suffix("\r\n").map(str::to_owned),
            Err(error)
                if error.kind() == std::io::ErrorKind::WouldBlock && self.timeout == TIMEOUT =>
            {
                panic!("no answer within {TIMEOUT:?}, and the connection is open")
            }
            Err(_) => None,
        }
    }
}

/// What is known of a command.
#[derive(Debug)]
pub enum Answer {
    Reply(String),
    /// It certainly had no effect.
    Refused,
    /// It may have had one, or not.
    Unknown,
}

/// A client that looks for the leader.
pub struct ClusterClient {
    nodes: Vec<SocketAddr>,
    next: usize,
    timeout: Duration,
    connection: Option<Connection>,
    avoided: Option<SocketAddr>,
}

impl ClusterClient {
    pub fn new(nodes: &[SocketAddr]) -> Self {
        Self::with_timeout(nodes, TIMEOUT)
    }

    /// A client that goes to another node if one does not answer for some time.
    pub fn with_timeout(nodes: &[SocketAddr], timeout: Duration) -> Self {
        ClusterClient { nodes: nodes.to_vec(), next: 0, timeout, connection: None, avoided: None }
    }

    /// A client that goes to another node if one does not answer soon.
    pub fn impatient(nodes: &[SocketAddr]) -> Self {
        Self::with_timeout(nodes, SHORT_TIMEOUT)
    }

    /// Sends nothing more to a node, if one is given, until this is called again.
    pub fn avoid(&mut self, node: Option<SocketAddr>) {
        self.avoided = node;
        self.connection.take_if(|connection| Some(connection.address) == node);
    }

    /// Sends a command once.
    pub fn call(&mut self, words: &[&str]) -> Answer {
        let Some(connection) = self.connect() else {
            std::thread::sleep(PAUSE);
            return Answer::Refused;
        };
        match connection.call(words) {
            None => {
                self.connection = None;
                Answer::Unknown
            }
            Some(reply) => self.judge(reply),
        }
    }

    /// Sends commands as one transaction.
    pub fn transaction(&mut self, commands: &[&[&str]]) -> Answer {
        for words in [&["MULTI"][..]].iter().chain(commands) {
            // Nothing runs before EXEC.
            match self.call(words) {
                Answer::Reply(reply) => assert!(["+OK", "+QUEUED"].contains(&&*reply), "{reply}"),
                Answer::Refused | Answer::Unknown => return Answer::Refused,
            }
        }
        self.call(&["EXEC"])
    }

    fn connect(&mut self) -> Option<&mut Connection> {
        if self.connection.is_none() {
            let address = self.nodes[self.next];
            self.next = (self.next + 1) % self.nodes.len();
            if Some(address) == self.avoided {
                return None;
            }
            self.connection = Connection::with_timeout(address, self.timeout).ok();
        }
        self.connection.as_mut()
    }

    fn judge(&mut self, reply: String) -> Answer {
        if let Some(moved) = reply.strip_prefix("-MOVED ") {
            let address = moved.split_once(' ').unwrap().1.parse().unwrap();
            let is_avoided = Some(address) == self.avoided;
            let open = || Connection::with_timeout(address, self.timeout).ok();
            self.connection = if is_avoided { None } else { open() };
            if self.connection.is_none() {
                // The leader is dead, and its followers do not know it yet.
                std::thread::sleep(PAUSE);
            }
            return Answer::Refused;
        }
        if reply.starts_with("-CLUSTERDOWN ") {
            self.connection = None;
            std::thread::sleep(PAUSE);
            return Answer::Refused;
        }
        assert!(!reply.starts_with('-'), "{reply}");
        Answer::Reply(reply)
    }
}
