//! `get`, `gets`, `gat` and `gats`: any number of keys on a line, one after the other.
//!
//! A line may be longer than the input that is held, and its answer longer than the replies that may
//! wait. So a retrieval runs in steps and is kept by the connection in between:
//!
//! ```text
//! get k1 k2 k3 … k100000 \r\n
//! └─ begin ─┘└ advance ┘└ advance …            a step ends where the input does, or when more
//!              VALUE …    VALUE …    END         replies wait than the soft limit
//! ```
//!
//! A line up to the limit of other lines is looked over first, so a key that cannot be one is answered
//! with an error and nothing else. In a longer line the error stands in place of `END`, behind values.
//!
//! Invariant: a step leaves whole values; memory depends neither on the keys nor on their values.
//!
//! Source: memcached's `doc/protocol.txt`, "Retrieval command" and "Get And Touch".

use super::deed::{BAD_LINE, Complaint, Deed};
use super::line::{MAX_KEY_BYTES, Next, key, next, seconds};
use crate::resp::number::Digits;
use crate::store::item::Item;

pub(super) const BAD_TIME: Complaint = Complaint::Words("CLIENT_ERROR invalid exptime argument");

/// A retrieval that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retrieval {
    shows_cas: bool,
    /// Another expiry for what is found, in seconds.
    touch: Option<i64>,
}

/// How far a step has come.
#[derive(Debug)]
pub(super) enum Progress {
    /// The line is answered.
    Done,
    /// It goes on beyond the input, or the replies must be sent first.
    Partial,
    /// An error ends it; the rest of the line is to be skipped.
    Failed(Complaint),
}

impl Retrieval {
    /// Reads what stands before the keys, and where they begin; `None` if a line is no retrieval or
    /// ends before that is known.
    pub(super) fn begin(input: &[u8]) -> Option<(Result<Self, Complaint>, usize)> {
        let Next::Word(name, at) = next(input, 0) else { return None };
        let (shows_cas, has_time) = match name {
            b"get" => (false, false),
            b"gets" => (true, false),
            b"gat" => (false, true),
            b"gats" => (true, true),
            _ => return None,
        };
        if !has_time {
            return Some((Ok(Retrieval { shows_cas, touch: None }), at));
        }
        match next(input, at) {
            Next::Word(time, at) => {
                let touch = seconds(time).ok_or(BAD_TIME);
                Some((touch.map(|time| Retrieval { shows_cas, touch: Some(time) }), at))
            }
            Next::End(after) => Some((Err(Complaint::Words("ERROR")), after)),
            Next::Incomplete(_) => None,
        }
    }

    /// Looks over the keys of a line that has come whole.
    pub(super) fn check(self, keys: &[u8]) -> Result<(), Complaint> {
        let (mut at, mut has_keys) = (0, false);
        while let Next::Word(word, behind) = next(keys, at) {
            key(word).ok_or(BAD_LINE)?;
            (at, has_keys) = (behind, true);
        }
        match has_keys || self.touch.is_some() {
            true => Ok(()),
            false => Err(Complaint::Words("ERROR")),
        }
    }

    /// Answers keys that `input` begins with, one at least; how many bytes are done with.
    pub(super) fn advance(self, deed: &mut Deed<'_>, input: &[u8]) -> (usize, Progress) {
        let most = deed.shared.options.soft_output_bytes();
        let mut at = 0;
        loop {
            match next(input, at) {
                Next::Word(word, behind) => {
                    at = behind;
                    let Some(key) = key(word) else { return (at, Progress::Failed(BAD_LINE)) };
                    if let Err(complaint) = self.answer(deed, key) {
                        return (at, Progress::Failed(complaint));
                    }
                    if deed.replies.len() > most || deed.replies.has_overflowed() {
                        return (at, Progress::Partial);
                    }
                }
                Next::End(after) => {
                    deed.replies.raw(b"END\r\n");
                    return (after, Progress::Done);
                }
                // The last byte may be the `\r` of the line's end.
                Next::Incomplete(start) if input.len() - start > MAX_KEY_BYTES + 1 => {
                    return (start, Progress::Failed(BAD_LINE));
                }
                Next::Incomplete(start) => return (start, Progress::Partial),
            }
        }
    }

    fn answer(self, deed: &mut Deed<'_>, key: &[u8]) -> Result<(), Complaint> {
        let item = match self.touch {
            None => deed.get(key)?,
            Some(seconds) => deed.get_and_touch(key, seconds)?,
        };
        let Some(item) = item else { return Ok(()) };
        deed.check_answerable(&item)?;
        self.show(deed, key, &item);
        Ok(())
    }

    fn show(self, deed: &mut Deed<'_>, key: &[u8], item: &Item) {
        let replies = &mut *deed.replies;
        let digits = |value| Digits::unsigned(value);
        replies.raw(b"VALUE ");
        replies.raw(key);
        replies.raw(b" ");
        replies.raw(digits(item.flags.into()).as_bytes());
        replies.raw(b" ");
        replies.raw(digits(item.value.len() as u64).as_bytes());
        if self.shows_cas {
            replies.raw(b" ");
            replies.raw(digits(item.cas).as_bytes());
        }
        replies.raw(b"\r\n");
        replies.raw(&item.value);
        replies.raw(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_reads_the_name_and_the_time() {
        let plain = |shows_cas, touch| Retrieval { shows_cas, touch };
        let begun = |line: &str| {
            let (retrieval, at) = Retrieval::begin(line.as_bytes())?;
            Some((retrieval.ok()?, at))
        };
        assert_eq!(begun("get a"), Some((plain(false, None), 3)));
        assert_eq!(begun(" gets a b\r\n"), Some((plain(true, None), 5)));
        assert_eq!(begun("gat 5 a"), Some((plain(false, Some(5)), 5)));
        assert_eq!(begun("gats -1 a"), Some((plain(true, Some(-1)), 7)));
        for other in ["gat x a", "gat\r\n", "gat 5", "set a 0 0 1\r\n", "getx a", "", "get"] {
            assert_eq!(begun(other), None, "{other}");
        }
    }

    #[test]
    fn check_refuses_a_line_with_a_bad_key_or_with_none() {
        let get = Retrieval { shows_cas: false, touch: None };
        let gat = Retrieval { touch: Some(0), ..get };
        assert!(get.check(b" a b\r\n").is_ok() && gat.check(b"\r\n").is_ok());
        assert!(get.check(b"\r\n").is_err() && get.check(b" a \x7f b\r\n").is_err());
        let long = [&b" a "[..], &[b'k'; MAX_KEY_BYTES + 1], b"\r\n"].concat();
        assert!(get.check(&long).is_err() && get.check(&long[..253]).is_ok());
    }
}
