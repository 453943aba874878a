//! The classic text commands, but for retrievals ([`retrieve`](super::retrieve)).
//!
//! | | |
//! | --- | --- |
//! | `set` `add` `replace` `append` `prepend` `key flags time bytes [noreply]`, `cas key flags time bytes cas [noreply]`, each with a data block | |
//! | `delete key [noreply]`, `touch key time [noreply]`, `incr key number [noreply]`, `decr …` | |
//! | `flush_all [time] [noreply]`, `stats [what]`, `version`, `verbosity level [noreply]`, `quit` | |
//!
//! Source: memcached's `doc/protocol.txt`; words and corner cases as memcached 1.6.18 has them.

use super::deed::{BAD_LINE, Complaint, Deed, Mode, New, Sum, Written};
use super::line::{data_len, key, number, seconds, words};
use super::prefixes::Access;
use super::retrieve::BAD_TIME;
use super::stats;

/// What a line that announces a data block says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a> {
    key: &'a [u8],
    mode: Mode,
    flags: u32,
    expiry: i64,
    /// Bytes of the data block.
    pub(super) len: usize,
    cas: Option<u64>,
    pub(super) is_quiet: bool,
}

impl<'a> Header<'a> {
    /// Reads the line of `set` and its kin; `None` if it is not theirs.
    ///
    /// A mistake comes with whether its answer is wanted.
    pub(super) fn parse(line: &'a [u8]) -> Option<Result<Self, (Complaint, bool)>> {
        let mut all = words(line);
        let (mode, has_cas) = match all.next()? {
            b"set" => (Mode::Set, false),
            b"add" => (Mode::Add, false),
            b"replace" => (Mode::Replace, false),
            b"append" => (Mode::Append, false),
            b"prepend" => (Mode::Prepend, false),
            b"cas" => (Mode::Set, true),
            _ => return None,
        };
        let fixed = if has_cas { 5 } else { 4 };
        // As memcached has it: fewer words are no command, more are looked over.
        if all.clone().count() < fixed {
            return Some(Err((Complaint::Words("ERROR"), false)));
        }
        let is_quiet = all.clone().last() == Some(b"noreply");
        let mut next = || all.next().unwrap_or_default();
        let mut parse = || {
            let key = key(next())?;
            let flags = number(next())?.try_into().ok()?;
            let expiry = seconds(next())?;
            let len = data_len(next())?;
            let cas = match has_cas {
                true => Some(number(next())?),
                false => None,
            };
            Some(Header { key, mode, flags, expiry, len, cas, is_quiet })
        };
        Some(parse().ok_or((BAD_LINE, is_quiet)))
    }

    /// Stores the data block.
    pub(super) fn run(self, deed: &mut Deed<'_>, data: &[u8]) -> Result<(), Complaint> {
        let Header { key, mode, flags, expiry, cas, .. } = self;
        deed.shared.memcached.prefixes.note(key, Access::Set);
        let (vivify, may_be_stale) = (None, false);
        let new = New { mode, value: data, flags, expiry, cas, vivify, may_be_stale };
        let line: &[u8] = match deed.store(key, new)? {
            Written::Done(_) => b"STORED\r\n",
            Written::NotStored => b"NOT_STORED\r\n",
            Written::Exists => b"EXISTS\r\n",
            Written::NotFound => b"NOT_FOUND\r\n",
        };
        deed.replies.raw(line);
        Ok(())
    }

    /// Refuses a data block that is too large.
    pub(super) fn too_large(self, deed: &mut Deed<'_>) -> Complaint {
        // As in memcached, which leaves alone what a write with a condition does not replace for sure.
        deed.refuse_too_large(self.is_set().then_some(self.key))
    }

    /// Whether it is a plain `set`.
    pub(super) fn is_set(&self) -> bool {
        self.mode == Mode::Set && self.cas.is_none()
    }
}

/// Whether the client wants no answer to this line.
pub(super) fn is_quiet(line: &[u8]) -> bool {
    let mut all = words(line);
    // What stands where a key does is one.
    let first = match all.next() {
        Some(b"delete" | b"incr" | b"decr" | b"touch") => 1,
        Some(b"flush_all" | b"verbosity") => 0,
        _ => return false,
    };
    all.skip(first).last() == Some(b"noreply")
}

/// Runs a line that announces no data block.
pub(super) fn run(deed: &mut Deed<'_>, line: &[u8]) -> Result<(), Complaint> {
    let mut args = words(line);
    let name = args.next().unwrap_or_default();
    let error = Complaint::Words("ERROR");
    let count = args.clone().count() - usize::from(is_quiet(line));
    match name {
        b"delete" => delete(deed, args),
        b"incr" | b"decr" if count == 2 => sum(deed, args, name == b"decr"),
        b"touch" if count == 2 => touch(deed, args),
        b"flush_all" if count <= 1 => {
            let time = args.next().filter(|word| *word != b"noreply");
            let delay = time.map_or(Some(0), seconds).ok_or(BAD_TIME)?;
            deed.flush(delay)?;
            deed.replies.raw(b"OK\r\n");
            Ok(())
        }
        b"stats" => stats::answer(deed, args),
        b"version" => {
            deed.replies.raw(format!("VERSION {}\r\n", stats::VERSION).as_bytes());
            Ok(())
        }
        b"verbosity" if count == 1 => {
            // There is one level; the word is checked and forgotten.
            args.next().and_then(number).ok_or(BAD_LINE)?;
            deed.replies.raw(b"OK\r\n");
            Ok(())
        }
        b"shutdown" => Err(Complaint::Words("ERROR: shutdown not enabled")),
        _ => Err(error),
    }
}

fn delete<'a>(
    deed: &mut Deed<'_>,
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Complaint> {
    let word = args.next().ok_or(Complaint::Words("ERROR"))?;
    // Old clients send a time, which can only be 0.
    if !args.all(|word| word == b"0" || word == b"noreply") {
        return Err(Complaint::Words(
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        ));
    }
    let key = key(word).ok_or(BAD_LINE)?;
    deed.shared.memcached.prefixes.note(key, Access::Delete);
    let written = deed.delete(key, None)?;
    let is_done = matches!(written, Written::Done(_));
    deed.replies.raw(if is_done { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
    Ok(())
}

fn touch<'a>(
    deed: &mut Deed<'_>,
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), Complaint> {
    let key = key(args.next().unwrap_or_default()).ok_or(BAD_LINE)?;
    let expiry = args.next().and_then(seconds).ok_or(BAD_TIME)?;
    let is_there = deed.touch(key, expiry)?;
    deed.replies.raw(if is_there { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" });
    Ok(())
}

fn sum<'a>(
    deed: &mut Deed<'_>,
    mut args: impl Iterator<Item = &'a [u8]>,
    is_down: bool,
) -> Result<(), Complaint> {
    let key = key(args.next().unwrap_or_default()).ok_or(BAD_LINE)?;
    let bad = Complaint::Words("CLIENT_ERROR invalid numeric delta argument");
    let delta = args.next().and_then(number).ok_or(bad)?;
    match deed.sum(key, Sum { delta, is_down, cas: None, vivify: None, expiry: None })? {
        Written::Done(item) => {
            deed.replies.raw(&item.value);
            deed.replies.raw(b"\r\n");
        }
        _ => deed.replies.raw(b"NOT_FOUND\r\n"),
    }
    Ok(())
}
