//! Commands of the replication stream, as they come.
//!
//! ```text
//!   *2\r\n  $3\r\nDEL\r\n  $1\r\nk\r\n        an array of bulk strings
//! ```
//!
//! The bytes of a command are kept as they are: they are also the request to the target.

use std::ops::Range;

/// The longest line before a string.
const MAX_HEADER_BYTES: usize = 32;
const MAX_WORDS: usize = 1 << 24;
const SHOWN_BYTES: usize = 64;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    /// As it came, and as it is sent.
    pub(super) bytes: Vec<u8>,
    words: Vec<Range<usize>>,
}

/// The bytes are no command.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Request {
    /// A command of these words.
    pub(super) fn of(words: &[&[u8]]) -> Self {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        let mut ranges = Vec::with_capacity(words.len());
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            ranges.push(bytes.len()..bytes.len() + word.len());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        Request { bytes, words: ranges }
    }

    /// The command at the front of a buffer; `None` if it is incomplete.
    pub(super) fn parse(input: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut at = 0;
        let Some(count) = header(input, &mut at, b'*')? else { return Ok(None) };
        if count == 0 || count > MAX_WORDS {
            return Err(Malformed);
        }
        let mut words = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            let Some(length) = header(input, &mut at, b'$')? else { return Ok(None) };
            let word = at..at.checked_add(length).ok_or(Malformed)?;
            at = word.end.checked_add(2).ok_or(Malformed)?;
            let Some(end) = input.get(word.end..at) else { return Ok(None) };
            if end != b"\r\n" {
                return Err(Malformed);
            }
            words.push(word);
        }
        Ok(Some(Request { bytes: input[..at].to_vec(), words }))
    }

    pub(super) fn word(&self, index: usize) -> Option<&[u8]> {
        self.words.get(index).map(|range| &self.bytes[range.clone()])
    }

    /// The command in lower case.
    pub(super) fn name(&self) -> String {
        String::from_utf8_lossy(self.word(0).unwrap_or_default()).to_lowercase()
    }

    /// Its beginning, for a message: the first two words, which have the key of most commands.
    pub(super) fn shown(&self) -> String {
        let shown = |word: &[u8]| word[..word.len().min(SHOWN_BYTES)].escape_ascii().to_string();
        let words: Vec<_> = (0..2).filter_map(|index| self.word(index)).map(shown).collect();
        let rest = if self.words.len() > 2 { " …" } else { "" };
        format!("{}{rest}", words.join(" "))
    }
}

/// A count behind `mark`, and the end of its line.
fn header(input: &[u8], at: &mut usize, mark: u8) -> Result<Option<usize>, Malformed> {
    let rest = &input[*at..];
    match rest.first() {
        None => return Ok(None),
        Some(first) if *first != mark => return Err(Malformed),
        Some(_) => {}
    }
    let line = &rest[..rest.len().min(MAX_HEADER_BYTES)];
    let Some(end) = line.iter().position(|byte| *byte == b'\n') else {
        return if line.len() < MAX_HEADER_BYTES { Ok(None) } else { Err(Malformed) };
    };
    let digits = line[1..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    *at += end + 1;
    text.parse().map(Some).map_err(|_| Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_read_once_it_is_complete() {
        let request = Request::of(&[b"SET", b"k\r\n", b""]);
        let bytes = [&request.bytes[..], b"*1\r\n"].concat();
        for end in 0..request.bytes.len() {
            assert_eq!(Request::parse(&bytes[..end]), Ok(None), "{end} bytes");
        }
        assert_eq!(Request::parse(&bytes), Ok(Some(request.clone())));
        assert_eq!((request.name(), request.word(1)), ("set".to_owned(), Some(&b"k\r\n"[..])));
        assert_eq!(request.shown(), r"SET k\r\n …");
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in
            ["PING\r\n", "\n", "*0\r\n", "*1\r\n$1\r\nabc", "*1\r\n:1\r\n", "*x\r\n", "*1\n"]
        {
            assert_eq!(Request::parse(bytes.as_bytes()), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(Request::parse(&[b'*'; 40]), Err(Malformed));
        assert_eq!(Request::parse(format!("*1\r\n${}\r\n", usize::MAX).as_bytes()), Err(Malformed));
    }
}
