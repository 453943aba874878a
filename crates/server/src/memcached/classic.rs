//! Classic text commands, except retrievals ([`retrieve`](super::retrieve)).
//!
//! | command | |
//! | --- | --- |
//! | `set` `add` `replace` `append` `prepend` `key flags time bytes [noreply]`, `cas key flags time bytes cas [noreply]`, each with a data block | |
//! | `delete key [noreply]`, `touch key time [noreply]`, `incr key number [noreply]`, `decr …` | |
//! | `flush_all [time] [noreply]`, `stats [what]`, `version`, `verbosity level [noreply]`, `quit` | |
//!
//! Source: memcached's `doc/protocol.txt`; texts and corner cases as in memcached 1.6.18.

use super::commands::{
    Arithmetic, BAD_LINE, CommandContext, CommandError, Mode, StoreRequest, WriteOutcome,
};
use super::line::{data_len, key, number, seconds, words};
use super::prefixes::Access;
use super::retrieve::BAD_TIME;
use super::stats;

/// Header of a command with a data block.
#[derive(Debug, Clone, Copy)]
pub(super) struct Header<'a> {
    key: &'a [u8],
    mode: Mode,
    flags: u32,
    expiry: i64,
    /// Length of the data block.
    pub(super) len: usize,
    cas: Option<u64>,
    pub(super) is_quiet: bool,
}

impl<'a> Header<'a> {
    /// Parses `set` and related commands; `None` for other commands.
    ///
    /// An error comes with whether the client wants no reply.
    pub(super) fn parse(line: &'a [u8]) -> Option<Result<Self, (CommandError, bool)>> {
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
        // As in memcached: with fewer words it is not a command, additional words are ignored.
        if all.clone().count() < fixed {
            return Some(Err((CommandError::Text("ERROR"), false)));
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
    pub(super) fn run(
        self,
        context: &mut CommandContext<'_>,
        data: &[u8],
    ) -> Result<(), CommandError> {
        let Header { key, mode, flags, expiry, cas, .. } = self;
        context.shared.memcached.prefixes.record(key, Access::Set);
        let (vivify, may_be_stale) = (None, false);
        let new = StoreRequest { mode, value: data, flags, expiry, cas, vivify, may_be_stale };
        let line: &[u8] = match context.store(key, new)? {
            WriteOutcome::Done(_) => b"STORED\r\n",
            WriteOutcome::NotStored => b"NOT_STORED\r\n",
            WriteOutcome::Exists => b"EXISTS\r\n",
            WriteOutcome::NotFound => b"NOT_FOUND\r\n",
        };
        context.replies.raw(line);
        Ok(())
    }

    /// Rejects a data block that is too large.
    pub(super) fn too_large(self, context: &mut CommandContext<'_>) -> CommandError {
        // As in memcached, a conditional write does not remove the old value.
        context.reject_too_large(self.is_set().then_some(self.key))
    }

    /// Whether it is a plain `set`.
    pub(super) fn is_set(&self) -> bool {
        self.mode == Mode::Set && self.cas.is_none()
    }
}

/// Whether the client wants no reply to this line.
pub(super) fn is_quiet(line: &[u8]) -> bool {
    let mut all = words(line);
    // A key may be called `noreply`.
    let first = match all.next() {
        Some(b"delete" | b"incr" | b"decr" | b"touch") => 1,
        Some(b"flush_all" | b"verbosity") => 0,
        _ => return false,
    };
    all.skip(first).last() == Some(b"noreply")
}

/// Runs a command without a data block.
pub(super) fn run(context: &mut CommandContext<'_>, line: &[u8]) -> Result<(), CommandError> {
    let mut args = words(line);
    let name = args.next().unwrap_or_default();
    let error = CommandError::Text("ERROR");
    let count = args.clone().count() - usize::from(is_quiet(line));
    match name {
        b"delete" => delete(context, args),
        b"incr" | b"decr" if count == 2 => sum(context, args, name == b"decr"),
        b"touch" if count == 2 => touch(context, args),
        b"flush_all" if count <= 1 => {
            let time = args.next().filter(|word| *word != b"noreply");
            let delay = time.map_or(Some(0), seconds).ok_or(BAD_TIME)?;
            context.flush(delay)?;
            context.replies.raw(b"OK\r\n");
            Ok(())
        }
        b"stats" => stats::answer(context, args),
        b"version" => {
            context.replies.raw(format!("VERSION {}\r\n", stats::VERSION).as_bytes());
            Ok(())
        }
        b"verbosity" if count == 1 => {
            // There is one level; the argument is validated and ignored.
            args.next().and_then(number).ok_or(BAD_LINE)?;
            context.replies.raw(b"OK\r\n");
            Ok(())
        }
        b"shutdown" => Err(CommandError::Text("ERROR: shutdown not enabled")),
        _ => Err(error),
    }
}

fn delete<'a>(
    context: &mut CommandContext<'_>,
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), CommandError> {
    let word = args.next().ok_or(CommandError::Text("ERROR"))?;
    // Old clients send a time, which can only be 0.
    if !args.all(|word| word == b"0" || word == b"noreply") {
        return Err(CommandError::Text(
            "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
        ));
    }
    let key = key(word).ok_or(BAD_LINE)?;
    context.shared.memcached.prefixes.record(key, Access::Delete);
    let written = context.delete(key, None)?;
    let is_done = matches!(written, WriteOutcome::Done(_));
    context.replies.raw(if is_done { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
    Ok(())
}

fn touch<'a>(
    context: &mut CommandContext<'_>,
    mut args: impl Iterator<Item = &'a [u8]>,
) -> Result<(), CommandError> {
    let key = key(args.next().unwrap_or_default()).ok_or(BAD_LINE)?;
    let expiry = args.next().and_then(seconds).ok_or(BAD_TIME)?;
    let is_there = context.touch(key, expiry)?;
    context.replies.raw(if is_there { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" });
    Ok(())
}

fn sum<'a>(
    context: &mut CommandContext<'_>,
    mut args: impl Iterator<Item = &'a [u8]>,
    is_decrement: bool,
) -> Result<(), CommandError> {
    let key = key(args.next().unwrap_or_default()).ok_or(BAD_LINE)?;
    let bad = CommandError::Text("CLIENT_ERROR invalid numeric delta argument");
    let delta = args.next().and_then(number).ok_or(bad)?;
    match context
        .sum(key, Arithmetic { delta, is_decrement, cas: None, vivify: None, expiry: None })?
    {
        WriteOutcome::Done(item) => {
            context.replies.raw(&item.value);
            context.replies.raw(b"\r\n");
        }
        _ => context.replies.raw(b"NOT_FOUND\r\n"),
    }
    Ok(())
}
