//! Clients for Redis and memcached that render replies as text.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A client that renders replies as text: `+OK`, `:1`, `"bulk"`, `nil`, `[a, b]`, `-ERR …`.
pub struct Client {
    pub reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream().write_all(bytes).unwrap();
    }

    /// Sends a command without waiting for the reply.
    pub fn send(&mut self, args: &[&[u8]]) {
        let bytes = encode(args);
        self.send_raw(&bytes);
    }

    /// Sends words and returns the reply.
    pub fn call(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call_bytes(&words)
    }

    pub fn call_bytes(&mut self, args: &[&[u8]]) -> String {
        self.send(args);
        self.read()
    }

    /// The bulk string of a reply; `None` for null.
    pub fn call_for_bulk(&mut self, args: &[&[u8]]) -> Option<Vec<u8>> {
        self.send(args);
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let len = line.strip_prefix('$').unwrap_or_else(|| panic!("no bulk: {line}"));
        let len = usize::try_from(len.trim().parse::<i64>().unwrap()).ok()?;
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes.truncate(len);
        Some(bytes)
    }

    /// Asserts the replies to a sequence of commands.
    pub fn expect(&mut self, steps: &[(&str, &str)]) {
        for (command, expected) in steps {
            assert_eq!(&self.call(command), expected, "{command}");
        }
    }

    pub fn read(&mut self) -> String {
        self.try_read().expect("a reply")
    }

    /// The next reply; `None` once the server has closed.
    pub fn try_read(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no reply: {error}"),
        }
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r\n").unwrap()).into_owned();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        Some(match kind {
            "+" | "-" | ":" | "," | "#" | "(" => line,
            "_" => "nil".into(),
            "$" | "=" if count() < 0 => "nil".into(),
            "$" | "=" => {
                let mut bytes = vec![0; count() as usize + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                format!("\"{}\"", String::from_utf8_lossy(&bytes))
            }
            "*" | "~" if count() < 0 => "nil".into(),
            "*" | "~" | "%" | ">" => {
                let count = count() * if kind == "%" { 2 } else { 1 };
                let items: Vec<_> = (0..count).map(|_| self.read()).collect();
                format!("[{}]", items.join(", "))
            }
            other => panic!("reply of kind {other:?}: {line}"),
        })
    }

    /// Whether the server closes the connection, after any replies.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A memcached client.
pub struct MemcachedClient {
    pub stream: TcpStream,
}

impl MemcachedClient {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        MemcachedClient { stream }
    }

    /// Sends bytes and an `mn`, and returns the response before that of `mn`.
    pub fn request(&mut self, bytes: &[u8]) -> String {
        self.stream.write_all(bytes).unwrap();
        self.stream.write_all(b"mn\r\n").unwrap();
        let mut all = Vec::new();
        while !all.ends_with(b"MN\r\n") {
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed after {}", all.escape_ascii());
            all.extend_from_slice(&buffer[..count]);
        }
        all.truncate(all.len() - 4);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Asserts the responses to commands; `|` stands for a line end in both.
    pub fn expect(&mut self, steps: &[(&str, &str)]) {
        for (sent, received) in steps {
            let [sent, received] = [sent, received].map(|text| text.replace('|', "\r\n"));
            assert_eq!(self.request(sent.as_bytes()), received, "{sent}");
        }
    }

    /// The cas of a key.
    pub fn cas(&mut self, key: &str) -> u64 {
        let answer = self.request(format!("gets {key}\r\n").as_bytes());
        let first = answer.lines().next().unwrap();
        first.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Bytes received until the server closes.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// Encodes a command as an array of bulk strings.
pub fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}
