//! `get`, `gets`, `gat` and `gats`: any number of keys per line, processed one by one.
//!
//! A line may exceed the input buffer, and its response the output limit. So a retrieval runs in
//! steps, and its state is kept by the connection in between:
//!
//! ```text
//! get k1 k2 k3 … k100000 \r\n
//! └─ begin ─┘└ advance ┘└ advance …            a step ends at the end of the input, or when
//!              VALUE …    VALUE …    END         pending replies exceed the soft limit
//! ```
//!
//! A line within the normal line limit is validated first, so an invalid key gets only an error. In
//! a longer line the error replaces `END`, after some values.
//!
//! Invariant: a step leaves complete values; memory depends neither on the keys nor on their
//! values.
//!
//! Source: memcached's `doc/protocol.txt`, "Retrieval command" and "Get And Touch".

use super::commands::{BAD_LINE, CommandContext, CommandError};
use super::line::{LineToken, MAX_KEY_BYTES, key, next, seconds};
use crate::resp::number::Digits;
use crate::store::item::Item;

pub(super) const BAD_TIME: CommandError =
    CommandError::Text("CLIENT_ERROR invalid exptime argument");

/// An unfinished retrieval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Retrieval {
    with_cas: bool,
    /// New expiry of what is found, in seconds.
    touch: Option<i64>,
}

/// Result of a step.
#[derive(Debug)]
pub(super) enum RetrievalProgress {
    /// The line is complete.
    Done,
    /// The line continues, or replies must be sent first.
    Partial,
    /// An error ended it; the rest of the line must be skipped.
    Failed(CommandError),
}

impl Retrieval {
    /// Parses what precedes the keys, and returns the start of the keys; `None` if the line is not
    /// a retrieval or incomplete before that is known.
    pub(super) fn begin(input: &[u8]) -> Option<(Result<Self, CommandError>, usize)> {
        let LineToken::Word(name, at) = next(input, 0) else { return None };
        let (with_cas, has_time) = match name {
            b"get" => (false, false),
            b"gets" => (true, false),
            b"gat" => (false, true),
            b"gats" => (true, true),
            _ => return None,
        };
        if !has_time {
            return Some((Ok(Retrieval { with_cas, touch: None }), at));
        }
        match next(input, at) {
            LineToken::Word(time, at) => {
                let touch = seconds(time).ok_or(BAD_TIME);
                Some((touch.map(|time| Retrieval { with_cas, touch: Some(time) }), at))
            }
            LineToken::End(after) => Some((Err(CommandError::Text("ERROR")), after)),
            LineToken::Incomplete(_) => None,
        }
    }

    /// Validates the keys of a complete line.
    pub(super) fn check(self, keys: &[u8]) -> Result<(), CommandError> {
        let (mut at, mut has_keys) = (0, false);
        while let LineToken::Word(word, after) = next(keys, at) {
            key(word).ok_or(BAD_LINE)?;
            (at, has_keys) = (after, true);
        }
        match has_keys || self.touch.is_some() {
            true => Ok(()),
            false => Err(CommandError::Text("ERROR")),
        }
    }

    /// Answers the keys at the start of `input`, at least one. Returns the bytes consumed.
    pub(super) fn advance(
        self,
        context: &mut CommandContext<'_>,
        input: &[u8],
    ) -> (usize, RetrievalProgress) {
        let max_pending = context.shared.options.soft_output_bytes();
        let mut at = 0;
        loop {
            match next(input, at) {
                LineToken::Word(word, after) => {
                    at = after;
                    let Some(key) = key(word) else {
                        return (at, RetrievalProgress::Failed(BAD_LINE));
                    };
                    if let Err(error) = self.answer(context, key) {
                        return (at, RetrievalProgress::Failed(error));
                    }
                    if context.replies.len() > max_pending || context.replies.has_overflowed() {
                        return (at, RetrievalProgress::Partial);
                    }
                }
                LineToken::End(after) => {
                    context.replies.raw(b"END\r\n");
                    return (after, RetrievalProgress::Done);
                }
                // The last byte may be the `\r` of the line end.
                LineToken::Incomplete(start) if input.len() - start > MAX_KEY_BYTES + 1 => {
                    return (start, RetrievalProgress::Failed(BAD_LINE));
                }
                LineToken::Incomplete(start) => return (start, RetrievalProgress::Partial),
            }
        }
    }

    fn answer(self, context: &mut CommandContext<'_>, key: &[u8]) -> Result<(), CommandError> {
        let item = match self.touch {
            None => context.get(key)?,
            Some(seconds) => context.get_and_touch(key, seconds)?,
        };
        let Some(item) = item else { return Ok(()) };
        context.check_reply_size(&item)?;
        self.show(context, key, &item);
        Ok(())
    }

    fn show(self, context: &mut CommandContext<'_>, key: &[u8], item: &Item) {
        let replies = &mut *context.replies;
        let digits = |value| Digits::unsigned(value);
        replies.raw(b"VALUE ");
        replies.raw(key);
        replies.raw(b" ");
        replies.raw(digits(item.flags.into()).as_bytes());
        replies.raw(b" ");
        replies.raw(digits(item.value.len() as u64).as_bytes());
        if self.with_cas {
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
    fn begin_parses_the_command_and_the_time() {
        let plain = |with_cas, touch| Retrieval { with_cas, touch };
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
    fn check_rejects_invalid_and_missing_keys() {
        let get = Retrieval { with_cas: false, touch: None };
        let gat = Retrieval { touch: Some(0), ..get };
        assert!(get.check(b" a b\r\n").is_ok() && gat.check(b"\r\n").is_ok());
        assert!(get.check(b"\r\n").is_err() && get.check(b" a \x7f b\r\n").is_err());
        let long = [&b" a "[..], &[b'k'; MAX_KEY_BYTES + 1], b"\r\n"].concat();
        assert!(get.check(&long).is_err() && get.check(&long[..253]).is_ok());
    }
}
