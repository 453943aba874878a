//! Writes replies, in RESP2 or RESP3.
//!
//! Replies gather in one buffer until the connection sends them. The buffer has a limit: what would
//! go beyond it is not stored, and [`Replies::has_overflowed`] has the command answered by an error
//! instead. So the answer to a request is bounded however large the data are.
//!
//! Invariant: unless it has overflowed, the buffer holds whole replies after each command.
//!
//! Source: the Redis serialization protocol specification.

use super::number::Digits;

/// Which form of the protocol a client reads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What every client starts with.
    #[default]
    Resp2,
    /// After `HELLO 3`: maps, booleans, doubles and a null of their own.
    Resp3,
}

/// Replies on their way to a client.
#[derive(Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    /// How much of `bytes` has been sent.
    sent: usize,
    limit: usize,
    overflowed: bool,
    /// What the client reads.
    pub protocol: Protocol,
}

impl Replies {
    /// An empty buffer that takes up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let protocol = Protocol::default();
        Replies { bytes: Vec::new(), sent: 0, limit, overflowed: false, protocol }
    }

    /// Bytes that wait to be sent.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a reply did not fit.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// What waits to be sent.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Notes that `count` bytes were sent. A buffer that is empty and was large is given back.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.bytes.len() {
            self.sent = 0;
            self.bytes.clear();
            self.bytes.shrink_to(64 << 10);
        } else if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// A mark to come back to with [`rewind`](Self::rewind), as long as nothing is sent.
    pub fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Forgets what was written after `mark`, and that it did not fit.
    pub fn rewind(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.overflowed = false;
    }

    /// Bytes in the form of the protocol already.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8]) {
        if self.len() + bytes.len() > self.limit {
            self.overflowed = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// `+OK`.
    #[inline]
    pub fn ok(&mut self) {
        self.raw(b"+OK\r\n");
    }

    /// A status; it must not hold a line break.
    pub fn simple(&mut self, text: &str) {
        self.raw(b"+");
        self.raw(text.as_bytes());
        self.raw(b"\r\n");
    }

    /// An error: a code in capitals, then words. Line breaks, which would end it early, become
    /// spaces.
    pub fn error(&mut self, text: &str) {
        self.raw(b"-");
        for part in text.split_inclusive(['\r', '\n']) {
            match part.strip_suffix(['\r', '\n']) {
                None => self.raw(part.as_bytes()),
                Some(line) => {
                    self.raw(line.as_bytes());
                    self.raw(b" ");
                }
            }
        }
        self.raw(b"\r\n");
    }

    /// An integer.
    #[inline]
    pub fn int(&mut self, value: i64) {
        self.header(b':', value);
    }

    /// A count, which no table brings near 2^63.
    pub fn count(&mut self, value: usize) {
        self.int(value as i64);
    }

    /// 1 or 0.
    pub fn flag(&mut self, value: bool) {
        self.int(i64::from(value));
    }

    /// A string of any bytes.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.header(b'$', bytes.len() as i64);
        self.raw(bytes);
        self.raw(b"\r\n");
    }

    /// A string of any bytes, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Text for people; RESP3 tells it from data.
    pub fn verbatim(&mut self, text: &str) {
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.raw(b"txt:");
                self.raw(text.as_bytes());
                self.raw(b"\r\n");
            }
        }
    }

    /// Nothing, where a string might be.
    #[inline]
    pub fn null(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"$-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Nothing, where an array might be.
    pub fn null_array(&mut self) {
        match self.protocol {
            Protocol::Resp2 => self.raw(b"*-1\r\n"),
            Protocol::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Begins an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// Begins a map of `len` pairs; to RESP2 clients an array of twice as many.
    pub fn map(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(2 * len),
            Protocol::Resp3 => self.header(b'%', len as i64),
        }
    }

    /// Begins a set of `len` replies; to RESP2 clients an array.
    pub fn set(&mut self, len: usize) {
        match self.protocol {
            Protocol::Resp2 => self.array(len),
            Protocol::Resp3 => self.header(b'~', len as i64),
        }
    }

    /// A truth; to RESP2 clients 1 or 0.
    pub fn boolean(&mut self, value: bool) {
        match (self.protocol, value) {
            (Protocol::Resp2, _) => self.flag(value),
            (Protocol::Resp3, true) => self.raw(b"#t\r\n"),
            (Protocol::Resp3, false) => self.raw(b"#f\r\n"),
        }
    }

    /// A number with a fraction; to RESP2 clients a string.
    pub fn double(&mut self, value: f64) {
        let text = match value {
            _ if value.is_nan() => "nan".to_owned(),
            f64::INFINITY => "inf".to_owned(),
            f64::NEG_INFINITY => "-inf".to_owned(),
            _ => value.to_string(),
        };
        match self.protocol {
            Protocol::Resp2 => self.bulk(text.as_bytes()),
            Protocol::Resp3 => {
                self.raw(b",");
                self.raw(text.as_bytes());
                self.raw(b"\r\n");
            }
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        let mut line = [0; 24];
        let digits = Digits::new(value);
        let digits = digits.as_bytes();
        line[0] = kind;
        line[1..=digits.len()].copy_from_slice(digits);
        line[digits.len() + 1..digits.len() + 3].copy_from_slice(b"\r\n");
        self.raw(&line[..digits.len() + 3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Replies)) -> [String; 2] {
        [Protocol::Resp2, Protocol::Resp3].map(|protocol| {
            let mut replies = Replies::new(1 << 20);
            replies.protocol = protocol;
            write(&mut replies);
            String::from_utf8(replies.unsent().to_vec()).unwrap()
        })
    }

    #[test]
    fn each_protocol_has_its_form() {
        assert_eq!(both(Replies::null), ["$-1\r\n", "_\r\n"]);
        assert_eq!(both(Replies::null_array), ["*-1\r\n", "_\r\n"]);
        assert_eq!(both(|r| r.map(2)), ["*4\r\n", "%2\r\n"]);
        assert_eq!(both(|r| r.set(2)), ["*2\r\n", "~2\r\n"]);
        assert_eq!(both(|r| r.boolean(true)), [":1\r\n", "#t\r\n"]);
        assert_eq!(both(|r| r.double(1.5)), ["$3\r\n1.5\r\n", ",1.5\r\n"]);
        assert_eq!(both(|r| r.double(f64::INFINITY)), ["$3\r\ninf\r\n", ",inf\r\n"]);
        assert_eq!(both(|r| r.verbatim("hi")), ["$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"]);
        assert_eq!(both(|r| r.bulk(b"")), ["$0\r\n\r\n"; 2]);
        assert_eq!(both(|r| r.int(i64::MIN)), [":-9223372036854775808\r\n"; 2]);
        assert_eq!(both(|r| r.array(1 << 40)), ["*1099511627776\r\n"; 2]);
        assert_eq!(both(|r| r.error("ERR a\r\nb")), ["-ERR a  b\r\n"; 2]);
    }

    #[test]
    fn what_does_not_fit_is_not_held() {
        let mut replies = Replies::new(100);
        replies.bulk(&[0; 1 << 20]);
        assert!(replies.has_overflowed());
        assert!(replies.bytes.capacity() < 1000);
    }

    #[test]
    fn sending_in_parts_keeps_the_rest() {
        let mut replies = Replies::new(100);
        replies.bulk(b"hello");
        let whole = replies.unsent().to_vec();
        for sent in 0..whole.len() {
            assert_eq!(replies.unsent(), &whole[sent..]);
            replies.advance(1);
        }
        assert!(replies.is_empty());
    }
}
