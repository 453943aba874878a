//! Requests and responses over TCP: positions of keys and values.
//!
//! ```text
//! lookup    get.head  key  get.tail
//! store     set.head  key  set.middle  value  set.tail
//! found     … key?  …  value  …             of one length, so its end is known from its start
//! missing   miss, and the key if the protocol has it
//! ```
//!
//! Sources: memcached's `doc/protocol.txt`, Redis's specification.

use super::draws::Sizes;
use super::drivers::Protocol;

/// A request: its key, its value, and whether it is a lookup.
type Draw<'d> = (&'d [u8], &'d [u8], bool);

/// Requests and responses of a protocol, for items of one size.
pub(super) struct Frames {
    get: [Vec<u8>; 2],
    set: [Vec<u8>; 3],
    stored: &'static [u8],
    /// Positions of the key and the value in a response with a value.
    key_at: Option<usize>,
    value_at: usize,
    /// Bytes of a response with a value.
    found: usize,
    miss: &'static [u8],
    /// Bytes of a response without a value.
    missing: usize,
}

/// A response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// A valid response, with its length.
    Valid { bytes: usize, missed: bool },
    /// A wrong response.
    Invalid,
}

impl Frames {
    pub(super) fn of(protocol: Protocol, sizes: Sizes) -> Self {
        let Sizes { key, value } = sizes;
        let text = |text: String| text.into_bytes();
        let (get, set, stored, head, foot, miss): (_, _, &[u8], _, _, &[u8]) = match protocol {
            Protocol::Redis => (
                [format!("*2\r\n$3\r\nGET\r\n${key}\r\n"), "\r\n".to_owned()],
                [
                    format!("*3\r\n$3\r\nSET\r\n${key}\r\n"),
                    format!("\r\n${value}\r\n"),
                    "\r\n".to_owned(),
                ],
                b"+OK\r\n",
                format!("${value}\r\n"),
                "\r\n",
                b"$-1\r\n",
            ),
            Protocol::MemcachedMeta => (
                ["mg ".to_owned(), " v k\r\n".to_owned()],
                ["ms ".to_owned(), format!(" {value}\r\n"), "\r\n".to_owned()],
                b"HD\r\n",
                format!("VA {value} k"),
                "\r\n",
                b"EN k",
            ),
            _ => (
                ["get ".to_owned(), "\r\n".to_owned()],
                ["set ".to_owned(), format!(" 0 0 {value}\r\n"), "\r\n".to_owned()],
                b"STORED\r\n",
                "VALUE ".to_owned(),
                "\r\nEND\r\n",
                b"END\r\n",
            ),
        };
        // Between key and value, if the response has the key.
        let between = match protocol {
            Protocol::Redis => None,
            Protocol::MemcachedMeta => Some("\r\n".to_owned()),
            _ => Some(format!(" 0 {value}\r\n")),
        };
        let key_at = between.as_ref().map(|_| head.len());
        let value_at = head.len() + between.map_or(0, |between| key + between.len());
        let missing = miss.len() + if miss == b"EN k" { key + 2 } else { 0 };
        Frames {
            get: get.map(text),
            set: set.map(text),
            stored,
            key_at,
            value_at,
            found: value_at + value + foot.len(),
            miss,
            missing,
        }
    }

    /// Writes a request.
    #[inline]
    pub(super) fn write(&self, (key, value, is_get): Draw<'_>, out: &mut Vec<u8>) {
        let parts: [&[u8]; 5] = match is_get {
            true => [&self.get[0], key, &self.get[1], b"", b""],
            false => [&self.set[0], key, &self.set[1], value, &self.set[2]],
        };
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }

    /// Parses the response to a request at the start of the input; `None` if it is incomplete.
    #[inline]
    pub(super) fn parse(&self, (key, value, is_get): Draw<'_>, input: &[u8]) -> Option<Response> {
        if !is_get {
            let bytes = self.stored.len();
            let is_right = input.get(..bytes)? == self.stored;
            return Some(if is_right {
                Response::Valid { bytes, missed: false }
            } else {
                Response::Invalid
            });
        }
        if input.len() >= self.missing && input.starts_with(self.miss) {
            return Some(Response::Valid { bytes: self.missing, missed: true });
        }
        let found = input.get(..self.found)?;
        let is_right = found[self.value_at..].starts_with(value)
            && self.key_at.is_none_or(|at| found[at..].starts_with(key));
        Some(if is_right {
            Response::Valid { bytes: self.found, missed: false }
        } else {
            Response::Invalid
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { key: 3, value: 12 };
    const LOOKUP: Draw<'_> = (b"abc", b"valuevalue!?", true);
    const STORE: Draw<'_> = (b"abc", b"valuevalue!?", false);

    #[test]
    fn complete_responses_are_recognized() {
        for (protocol, get, set, stored, found, missing) in [
            (
                Protocol::Redis,
                "*2\r\n$3\r\nGET\r\n$3\r\nabc\r\n",
                "*3\r\n$3\r\nSET\r\n$3\r\nabc\r\n$12\r\nvaluevalue!?\r\n",
                "+OK\r\n",
                "$12\r\nvaluevalue!?\r\n",
                "$-1\r\n",
            ),
            (
                Protocol::Memcached,
                "get abc\r\n",
                "set abc 0 0 12\r\nvaluevalue!?\r\n",
                "STORED\r\n",
                "VALUE abc 0 12\r\nvaluevalue!?\r\nEND\r\n",
                "END\r\n",
            ),
            (
                Protocol::MemcachedMeta,
                "mg abc v k\r\n",
                "ms abc 12\r\nvaluevalue!?\r\n",
                "HD\r\n",
                "VA 12 kabc\r\nvaluevalue!?\r\n",
                "EN kabc\r\n",
            ),
        ] {
            let frames = Frames::of(protocol, SIZES);
            for (draw, text) in [(LOOKUP, get), (STORE, set)] {
                let mut out = Vec::new();
                frames.write(draw, &mut out);
                assert_eq!(out, text.as_bytes());
            }
            for (draw, text, missed) in
                [(STORE, stored, false), (LOOKUP, found, false), (LOOKUP, missing, true)]
            {
                let response = Response::Valid { bytes: text.len(), missed };
                let input = [text, "more"].concat();
                assert_eq!(frames.parse(draw, input.as_bytes()), Some(response), "{text}");
                for cut in 0..text.len() {
                    assert_eq!(frames.parse(draw, &text.as_bytes()[..cut]), None, "{text}");
                }
            }
            let other = found.replace("value!", "value?");
            let others = found.replace("abc", "abd");
            assert_eq!(frames.parse(LOOKUP, other.as_bytes()), Some(Response::Invalid));
            if protocol != Protocol::Redis {
                assert_eq!(frames.parse(LOOKUP, others.as_bytes()), Some(Response::Invalid));
            }
            assert_eq!(frames.parse(STORE, b"-ERR what is this\r\n"), Some(Response::Invalid));
        }
    }
}
