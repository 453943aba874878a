//! Encodes replies in RESP2 or RESP3.
//!
//! Replies are buffered until the connection sends them. A reply beyond the buffer's limit is not
//! stored, and [`Replies::has_overflowed`] makes the command fail with an error instead. So the
//! memory of a reply is bounded, whatever the size of the data.
//!
//! Invariant: unless it has overflowed, the buffer holds complete replies after each command.
//!
//! Source: the Redis serialization protocol specification.

use super::number::format_double;

/// Protocol version of a client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RespVersion {
    /// Initial version of every connection.
    #[default]
    Resp2,
    /// After `HELLO 3`: with maps, booleans, doubles and null.
    Resp3,
}

/// Pending replies of a client.
#[derive(Debug)]
pub struct Replies {
    bytes: Vec<u8>,
    /// Bytes already sent.
    sent: usize,
    limit: usize,
    overflowed: bool,
    /// Protocol version of the client.
    pub version: RespVersion,
}

impl Replies {
    /// An empty buffer of up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let version = RespVersion::default();
        Replies { bytes: Vec::new(), sent: 0, limit, overflowed: false, version }
    }

    /// Number of unsent bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether everything is sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a reply did not fit.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Unsent bytes.
    pub fn unsent(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Records that `count` bytes were sent. Releases a large empty buffer.
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

    /// Position for [`rewind`](Self::rewind), valid until something is sent.
    pub fn mark(&self) -> usize {
        self.bytes.len()
    }

    /// Discards everything after `mark`, including an overflow.
    pub fn rewind(&mut self, mark: usize) {
        self.bytes.truncate(mark);
        self.overflowed = false;
    }

    /// Appends already encoded bytes.
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

    /// A status, without line breaks.
    pub fn simple(&mut self, text: &str) {
        self.raw(b"+");
        self.raw(text.as_bytes());
        self.raw(b"\r\n");
    }

    /// An error: a code in capitals, then text. Line breaks, which would end it, become spaces.
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

    /// A floating-point number; a byte string in RESP2.
    pub fn double(&mut self, value: f64) {
        let text = format_double(value);
        match self.version {
            RespVersion::Resp2 => self.bulk(text.as_bytes()),
            RespVersion::Resp3 => {
                self.raw(b",");
                self.raw(text.as_bytes());
                self.raw(b"\r\n");
            }
        }
    }

    /// A count, far below 2^63.
    pub fn count(&mut self, value: usize) {
        self.int(value as i64);
    }

    /// 1 or 0.
    pub fn flag(&mut self, value: bool) {
        self.int(i64::from(value));
    }

    /// Reserves memory for `count` byte strings of `bytes` bytes in total, up to the limit.
    pub fn reserve_bulks(&mut self, count: usize, bytes: usize) {
        // A header of two digits and two line ends.
        let needed = bytes.saturating_add(count.saturating_mul(7));
        self.bytes.reserve(needed.min(self.limit.saturating_sub(self.len())));
    }

    /// A byte string.
    #[inline]
    pub fn bulk(&mut self, bytes: &[u8]) {
        if self.len() + HEADER_BYTES + bytes.len() + 2 > self.limit {
            self.overflowed = true;
            return;
        }
        if let len @ 10..100 = bytes.len() {
            // The most frequent lengths: a header of a constant length is copied without a call.
            let (tens, ones) = (b'0' + (len / 10) as u8, b'0' + (len % 10) as u8);
            self.bytes.extend_from_slice(&[b'$', tens, ones, b'\r', b'\n']);
        } else {
            let (line, start) = header_line(b'$', bytes.len() as i64);
            self.bytes.extend_from_slice(&line[start..]);
        }
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// A byte string, or null.
    pub fn bulk_or_null(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.bulk(bytes),
            None => self.null(),
        }
    }

    /// Human-readable text, a separate type in RESP3.
    pub fn verbatim(&mut self, text: &str) {
        match self.version {
            RespVersion::Resp2 => self.bulk(text.as_bytes()),
            RespVersion::Resp3 => {
                self.header(b'=', text.len() as i64 + 4);
                self.raw(b"txt:");
                self.raw(text.as_bytes());
                self.raw(b"\r\n");
            }
        }
    }

    /// Null in place of a string.
    #[inline]
    pub fn null(&mut self) {
        match self.version {
            RespVersion::Resp2 => self.raw(b"$-1\r\n"),
            RespVersion::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Null in place of an array.
    pub fn null_array(&mut self) {
        match self.version {
            RespVersion::Resp2 => self.raw(b"*-1\r\n"),
            RespVersion::Resp3 => self.raw(b"_\r\n"),
        }
    }

    /// Begins an array of `len` replies.
    pub fn array(&mut self, len: usize) {
        self.header(b'*', len as i64);
    }

    /// Begins a push of `len` replies; in RESP2 an array.
    pub fn push(&mut self, len: usize) {
        match self.version {
            RespVersion::Resp2 => self.array(len),
            RespVersion::Resp3 => self.header(b'>', len as i64),
        }
    }

    /// Begins a map of `len` pairs; in RESP2 an array of twice as many.
    pub fn map(&mut self, len: usize) {
        match self.version {
            RespVersion::Resp2 => self.array(2 * len),
            RespVersion::Resp3 => self.header(b'%', len as i64),
        }
    }

    /// Begins a set of `len` replies; in RESP2 an array.
    pub fn set(&mut self, len: usize) {
        match self.version {
            RespVersion::Resp2 => self.array(len),
            RespVersion::Resp3 => self.header(b'~', len as i64),
        }
    }

    #[inline]
    fn header(&mut self, kind: u8, value: i64) {
        let (line, start) = header_line(kind, value);
        self.raw(&line[start..]);
    }
}

/// A kind, a number and a line end, from a position of the line on.
#[inline]
fn header_line(kind: u8, value: i64) -> ([u8; HEADER_BYTES], usize) {
    let mut line = [b'\n'; HEADER_BYTES];
    line[HEADER_BYTES - 2] = b'\r';
    let (mut start, mut rest) = (HEADER_BYTES - 2, value.unsigned_abs());
    loop {
        start -= 1;
        line[start] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        start -= 1;
        line[start] = b'-';
    }
    line[start - 1] = kind;
    (line, start - 1)
}

/// A kind, 20 characters and a line end.
const HEADER_BYTES: usize = 23;

#[cfg(test)]
mod tests {
    use super::*;

    fn both(write: impl Fn(&mut Replies)) -> [String; 2] {
        [RespVersion::Resp2, RespVersion::Resp3].map(|version| {
            let mut replies = Replies::new(1 << 20);
            replies.version = version;
            write(&mut replies);
            String::from_utf8(replies.unsent().to_vec()).unwrap()
        })
    }

    #[test]
    fn replies_have_the_form_of_their_version() {
        assert_eq!(both(Replies::null), ["$-1\r\n", "_\r\n"]);
        assert_eq!(both(Replies::null_array), ["*-1\r\n", "_\r\n"]);
        assert_eq!(both(|r| r.map(2)), ["*4\r\n", "%2\r\n"]);
        assert_eq!(both(|r| r.push(2)), ["*2\r\n", ">2\r\n"]);
        assert_eq!(both(|r| r.set(2)), ["*2\r\n", "~2\r\n"]);
        assert_eq!(both(|r| r.verbatim("hi")), ["$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n"]);
        assert_eq!(both(|r| r.bulk(b"")), ["$0\r\n\r\n"; 2]);
        assert_eq!(both(|r| r.double(-1.5)), ["$4\r\n-1.5\r\n", ",-1.5\r\n"]);
        assert_eq!(both(|r| r.int(i64::MIN)), [":-9223372036854775808\r\n"; 2]);
        assert_eq!(both(|r| r.array(1 << 40)), ["*1099511627776\r\n"; 2]);
        assert_eq!(both(|r| r.error("ERR a\r\nb")), ["-ERR a  b\r\n"; 2]);
    }

    #[test]
    fn overflowing_reply_is_not_stored() {
        let mut replies = Replies::new(100);
        replies.bulk(&[0; 1 << 20]);
        assert!(replies.has_overflowed());
        assert!(replies.bytes.capacity() < 1000);
    }

    #[test]
    fn partial_sends_keep_the_rest() {
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
