//! Meta commands: two letters, a key, and flags of one letter, some with a token.
//!
//! ```text
//! mg <key> <flags>*                     VA <bytes> <flags>*\r\n<data>   HD <flags>*   EN
//! ms <key> <bytes> <flags>*\r\n<data>   HD NS EX NF, with <flags>*
//! md <key> <flags>*                     HD EX NF
//! ma <key> <flags>*                     HD VA NS EX NF
//! me <key>                              ME <key> exp= la= cas= fetch= cls= size=   EN
//! mn                                    MN
//! ```
//!
//! | flag | command | meaning |
//! | --- | --- | --- |
//! | `b` | all | the key is base64, also in the response |
//! | `k` `O(token)` `q` | all | return the key; return the token; omit the usual response |
//! | `c` `f` `s` `t` `v` | mg; `c s` ms; `c t v` ma | return cas, client flags, size, seconds left, value |
//! | `h` `l` | mg | return whether it was fetched before, and seconds since the last access |
//! | `u` | mg | do not record the fetch |
//! | `T(seconds)` | mg ms ma, md with I | set the expiry |
//! | `C(cas)` | ms md ma | only if the item has this cas |
//! | `C(cas)` | mg | return the value only if the item has another cas |
//! | `I` | md; ms | mark the value as stale instead of removing it; with `C`, store an older value as stale |
//! | `x` | md | remove the value and leave an empty item |
//! | `R(seconds)` | mg | if fewer seconds are left, the client may win the refresh |
//! | `F(flags)` | ms | client flags |
//! | `M(mode)` | ms ma | E add, A append, P prepend, R replace, S set; I or + increment, D or - decrement |
//! | `N(seconds)` | mg ms ma | on a miss, create with this expiry (`ms` with A or P; `mg` an empty value) |
//! | `D(delta)` `J(initial)` | ma | delta; initial value for `N` |
//!
//! One client is to refresh a value: its response has the flag `W` (won). Until it has done so, the
//! responses to others have `Z`. A stale value has `X`. These flags follow the others.
//!
//! As in memcached, a flag that is unknown to the command but known to another one is ignored. A
//! write that was not done returns `c0` for `c`.
//!
//! Of the features after memcached 1.6.18 `s` of `ms`, `C` of `mg` and `x` of `md` are implemented;
//! `E`, with which a client chooses an item's cas, is not.
//!
//! Source: memcached's `doc/protocol.txt`, "Meta Commands".

use std::borrow::Cow;

use super::commands::{
    Arithmetic, BAD_LINE, CommandContext, CommandError, EmptyItem, Mode, StoreRequest, WriteOutcome,
};
use super::counters::Counter;
use super::line::{base64, data_len, key, number, seconds, words};
use super::lookup::{FetchOptions, RefreshRole};
use crate::resp::number::Digits;
use crate::store::fetch_times::FetchState;
use crate::store::item::{Item, STALE};

/// Maximum length of the opaque token, in bytes.
const MAX_OPAQUE: usize = 32;

/// A parsed meta command.
#[derive(Debug)]
pub(super) struct Meta<'a> {
    kind: Kind,
    key: Cow<'a, [u8]>,
    /// The key as written.
    word: &'a [u8],
    /// The flags as written.
    flags: &'a [u8],
    /// Length of the data block of `ms`.
    pub(super) len: usize,
    pub(super) is_quiet: bool,
    wants_value: bool,
    cas: Option<u64>,
    client_flags: u32,
    expiry: Option<i64>,
    mode: u8,
    vivify: Option<i64>,
    recache: Option<i64>,
    is_stale: bool,
    is_unrecorded: bool,
    clears_value: bool,
    delta: u64,
    initial: u64,
    /// Error in the flags, reported after the data block.
    error: Option<CommandError>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get,
    Set,
    Delete,
    Arithmetic,
    Debug,
    Noop,
}

impl Kind {
    fn of(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"mg" => Kind::Get,
            b"ms" => Kind::Set,
            b"md" => Kind::Delete,
            b"ma" => Kind::Arithmetic,
            b"me" => Kind::Debug,
            b"mn" => Kind::Noop,
            _ => return None,
        })
    }

    /// Flags that return something.
    fn answered(self) -> &'static [u8] {
        match self {
            Kind::Get => b"cfhklOst",
            Kind::Set => b"ckOs",
            Kind::Delete => b"kO",
            Kind::Arithmetic => b"ckOt",
            Kind::Debug | Kind::Noop => b"",
        }
    }
}

/// Flags known to any command, including those of proxies.
const FLAGS: &[u8] = b"bcfhklqstuvCDFIJLMNOPRT";

const BAD_FLAG: CommandError = CommandError::Text("CLIENT_ERROR invalid or duplicate flag");
const BAD_TOKEN: CommandError = CommandError::Text("CLIENT_ERROR bad token in command line format");

impl<'a> Meta<'a> {
    /// Parses a line; `None` if it is not a meta command.
    pub(super) fn parse(line: &'a [u8]) -> Option<Result<Self, CommandError>> {
        let kind = Kind::of(words(line).next()?)?;
        Some(Self::parse_kind(kind, line))
    }

    fn parse_kind(kind: Kind, line: &'a [u8]) -> Result<Self, CommandError> {
        let mut args = words(line).skip(1).peekable();
        let mut meta = Meta {
            kind,
            key: Cow::Borrowed(b""),
            word: b"",
            flags: b"",
            len: 0,
            is_quiet: false,
            wants_value: false,
            cas: None,
            client_flags: 0,
            expiry: None,
            mode: if kind == Kind::Arithmetic { b'I' } else { b'S' },
            vivify: None,
            recache: None,
            is_stale: false,
            is_unrecorded: false,
            clears_value: false,
            delta: 1,
            initial: 0,
            error: None,
        };
        if kind == Kind::Noop {
            return Ok(meta);
        }
        let no_key = if kind == Kind::Debug { BAD_LINE } else { CommandError::Text("ERROR") };
        meta.word = args.next().ok_or(no_key)?;
        if meta.word.len() > super::line::MAX_KEY_BYTES {
            return Err(BAD_LINE);
        }
        if kind == Kind::Set {
            meta.len = args.next().and_then(data_len).ok_or(BAD_LINE)?;
        }
        if let Some(first) = args.peek() {
            // Words are parts of the line, so the rest begins at the first of them.
            meta.flags = &line[first.as_ptr() as usize - line.as_ptr() as usize..];
        }
        let read = match kind {
            // Accepts only the flag of the key.
            Kind::Debug if meta.flags.first() != Some(&b'b') => {
                meta.key = Cow::Borrowed(key(meta.word).ok_or(BAD_LINE)?);
                return Ok(meta);
            }
            Kind::Debug => meta.read_flags().map_err(|_| BAD_LINE),
            // As in memcached, all errors have the same text here.
            Kind::Delete | Kind::Arithmetic => meta.read_flags().map_err(|_| BAD_FLAG),
            _ => meta.read_flags(),
        };
        match (read, kind) {
            (Err(error), Kind::Set) => meta.error = Some(error),
            (read, _) => read?,
        }
        Ok(meta)
    }

    fn read_flags(&mut self) -> Result<(), CommandError> {
        let (mut seen_flags, mut is_base64) = (0u128, false);
        for flag in words(self.flags) {
            let (letter, token) = (flag[0], &flag[1..]);
            let is_known = FLAGS.contains(&letter) || letter == b'x' && self.kind == Kind::Delete;
            if !is_known {
                return Err(CommandError::Text("CLIENT_ERROR invalid flag"));
            }
            if seen_flags & 1 << letter != 0 {
                return Err(CommandError::Text("CLIENT_ERROR duplicate flag"));
            }
            seen_flags |= 1 << letter;
            let whole = || number(token).ok_or(BAD_TOKEN);
            match letter {
                b'b' => is_base64 = true,
                b'q' => self.is_quiet = true,
                b'v' => self.wants_value = true,
                b'O' if token.len() > MAX_OPAQUE => {
                    return Err(CommandError::Text("CLIENT_ERROR opaque token too long"));
                }
                b'C' => self.cas = Some(whole()?),
                b'F' => {
                    let flags = number(token).and_then(|flags| flags.try_into().ok());
                    self.client_flags = flags.ok_or(BAD_LINE)?;
                }
                b'T' => self.expiry = Some(seconds(token).ok_or(BAD_TOKEN)?),
                b'I' => self.is_stale = true,
                b'u' => self.is_unrecorded = true,
                b'x' => self.clears_value = true,
                b'R' => self.recache = Some(seconds(token).ok_or(BAD_TOKEN)?),
                b'N' => self.vivify = Some(seconds(token).ok_or(BAD_TOKEN)?),
                b'D' => {
                    let bad = CommandError::Text("CLIENT_ERROR invalid numeric delta value");
                    self.delta = number(token).ok_or(bad)?;
                }
                b'J' => {
                    let bad = CommandError::Text("CLIENT_ERROR invalid numeric initial value");
                    self.initial = number(token).ok_or(bad)?;
                }
                b'M' => {
                    let [mode] = *token else {
                        return Err(CommandError::Text(
                            "CLIENT_ERROR incorrect length for M token",
                        ));
                    };
                    self.mode = mode;
                }
                _ => {}
            }
        }
        let not_base64 = CommandError::Text("CLIENT_ERROR error decoding key");
        self.key = match is_base64 {
            true => Cow::Owned(base64(self.word).ok_or(not_base64)?),
            false => Cow::Borrowed(key(self.word).ok_or(BAD_LINE)?),
        };
        Ok(())
    }

    /// Whether a data block follows.
    pub(super) fn has_data(&self) -> bool {
        self.kind == Kind::Set
    }

    /// Rejects a data block that is too large.
    pub(super) fn too_large(mut self, context: &mut CommandContext<'_>) -> CommandError {
        match (self.error.take(), self.set_mode()) {
            (Some(error), _) | (None, Err(error)) => error,
            // As in memcached, the old value is removed in any mode.
            (None, Ok(_)) => context.reject_too_large(Some(&self.key)),
        }
    }

    /// Runs the command.
    pub(super) fn run(
        mut self,
        context: &mut CommandContext<'_>,
        data: &[u8],
    ) -> Result<(), CommandError> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        context.shared.memcached.add(Counter::Metas);
        match self.kind {
            Kind::Get => self.get(context),
            Kind::Set => self.set(context, data),
            Kind::Delete => {
                let Meta { cas, expiry, is_stale, client_flags: flags, .. } = self;
                let written = match (self.clears_value, is_stale) {
                    (true, _) => {
                        let empty = EmptyItem { is_stale, flags, expiry: expiry.unwrap_or(0) };
                        context.clear_value(&self.key, cas, empty)?
                    }
                    (false, true) => context.invalidate(&self.key, cas, expiry)?,
                    (false, false) => context.delete(&self.key, cas)?,
                };
                self.reply_written(context, &written);
                Ok(())
            }
            Kind::Arithmetic => self.sum(context),
            Kind::Debug => self.debug(context),
            Kind::Noop => {
                context.replies.raw(b"MN\r\n");
                Ok(())
            }
        }
    }

    fn get(&self, context: &mut CommandContext<'_>) -> Result<(), CommandError> {
        let Meta { expiry, vivify, recache, is_unrecorded, .. } = *self;
        match context.fetch(&self.key, FetchOptions { expiry, vivify, recache, is_unrecorded })? {
            None if self.is_quiet => {}
            None => {
                context.replies.raw(b"EN");
                self.return_flags(context, None, FetchState::default());
                context.replies.raw(b"\r\n");
            }
            Some(fetched) => {
                let wants_value = self.wants_value && self.cas != Some(fetched.item.cas);
                if wants_value {
                    context.check_reply_size(&fetched.item)?;
                }
                self.answer_item(
                    context,
                    &fetched.item,
                    wants_value,
                    fetched.fetch_state,
                    fetched.role,
                );
            }
        }
        Ok(())
    }

    /// Writes `VA` with the value, if wanted, or `HD`.
    fn answer_item(
        &self,
        context: &mut CommandContext<'_>,
        item: &Item,
        wants_value: bool,
        fetch_state: FetchState,
        role: Option<RefreshRole>,
    ) {
        match wants_value {
            true => {
                context.replies.raw(b"VA ");
                context.replies.raw(Digits::unsigned(item.value.len() as u64).as_bytes());
            }
            false => context.replies.raw(b"HD"),
        }
        self.return_flags(context, Some(item), fetch_state);
        let is_stale = item.marks & STALE != 0;
        if self.kind == Kind::Get {
            context.replies.raw(match (role, is_stale) {
                (Some(RefreshRole::Winner), true) => b" X W",
                (Some(RefreshRole::Winner), false) => b" W",
                (Some(RefreshRole::Waiting), true) => b" Z X",
                (Some(RefreshRole::Waiting), false) => b" Z",
                (None, _) => b"",
            });
        }
        context.replies.raw(b"\r\n");
        if wants_value {
            context.replies.raw(&item.value);
            context.replies.raw(b"\r\n");
        }
    }

    fn set_mode(&self) -> Result<Mode, CommandError> {
        match self.mode.to_ascii_uppercase() {
            b'E' => Ok(Mode::Add),
            b'A' => Ok(Mode::Append),
            b'P' => Ok(Mode::Prepend),
            b'R' => Ok(Mode::Replace),
            b'S' => Ok(Mode::Set),
            _ => Err(CommandError::Text("CLIENT_ERROR invalid mode for ms M token")),
        }
    }

    fn set(&self, context: &mut CommandContext<'_>, data: &[u8]) -> Result<(), CommandError> {
        let mode = self.set_mode()?;
        let (flags, expiry) = (self.client_flags, self.expiry.unwrap_or(0));
        let (cas, vivify, may_be_stale) = (self.cas, self.vivify, self.is_stale);
        let new = StoreRequest { mode, value: data, flags, expiry, cas, vivify, may_be_stale };
        let written = context.store(&self.key, new)?;
        self.reply_written(context, &written);
        Ok(())
    }

    fn sum(&self, context: &mut CommandContext<'_>) -> Result<(), CommandError> {
        let is_decrement = match self.mode.to_ascii_uppercase() {
            b'I' | b'+' => false,
            b'D' | b'-' => true,
            _ => return Err(CommandError::Text("CLIENT_ERROR invalid mode for ma M token")),
        };
        let vivify = self.vivify.map(|seconds| (self.initial, seconds));
        let sum = Arithmetic {
            delta: self.delta,
            is_decrement,
            cas: self.cas,
            vivify,
            expiry: self.expiry,
        };
        let written = context.sum(&self.key, sum)?;
        match &written {
            WriteOutcome::Done(item) if !self.is_quiet => {
                self.answer_item(context, item, self.wants_value, FetchState::default(), None);
            }
            _ => self.reply_written(context, &written),
        }
        Ok(())
    }

    /// Writes the response to a write; quiet mode omits the usual one.
    fn reply_written(&self, context: &mut CommandContext<'_>, written: &WriteOutcome) {
        let (word, item, is_usual): (&[u8], _, _) = match written {
            WriteOutcome::Done(item) => (b"HD", Some(item), true),
            WriteOutcome::NotFound => (b"NF", None, false),
            WriteOutcome::NotStored => (b"NS", None, false),
            WriteOutcome::Exists => (b"EX", None, false),
        };
        if self.is_quiet && is_usual {
            return;
        }
        context.replies.raw(word);
        self.return_flags(context, item, FetchState::default());
        context.replies.raw(b"\r\n");
    }

    /// Appends the returning flags with their values, in the order of the request.
    fn return_flags(
        &self,
        context: &mut CommandContext<'_>,
        item: Option<&Item>,
        fetch_state: FetchState,
    ) {
        let left = item.and_then(|item| context.seconds_left(item));
        let replies = &mut *context.replies;
        for flag in words(self.flags) {
            if !self.kind.answered().contains(&flag[0]) {
                continue;
            }
            let letter = flag[0];
            let for_missing = (letter == b'c' && self.kind == Kind::Set).then_some(0);
            let for_item = item.map_or(for_missing, |item| match letter {
                b'c' => Some(item.cas),
                b'f' => Some(item.flags.into()),
                b's' => Some(item.value.len() as u64),
                b'h' => Some(fetch_state.is_fetched.into()),
                b'l' => Some(fetch_state.seconds_ago),
                _ => None,
            });
            match (letter, item) {
                (b'O', _) => {
                    replies.raw(b" ");
                    replies.raw(flag);
                }
                (b'k', _) => {
                    replies.raw(b" k");
                    replies.raw(self.word);
                    if matches!(self.key, Cow::Owned(_)) {
                        replies.raw(b" b");
                    }
                }
                (b't', Some(_)) => {
                    replies.raw(b" t");
                    match left {
                        None => replies.raw(b"-1"),
                        Some(seconds) => replies.raw(Digits::unsigned(seconds).as_bytes()),
                    }
                }
                _ => {}
            }
            if let Some(number) = for_item {
                replies.raw(&[b' ', letter]);
                replies.raw(Digits::unsigned(number).as_bytes());
            }
        }
    }

    fn debug(&self, context: &mut CommandContext<'_>) -> Result<(), CommandError> {
        let Some(item) = context.database().item(&self.key)? else {
            context.replies.raw(b"EN\r\n");
            return Ok(());
        };
        let left = context.seconds_left(&item).map_or("-1".to_owned(), |left| left.to_string());
        let FetchState { is_fetched, seconds_ago } = context.fetch_state(&self.key);
        let fetch = if is_fetched { "yes" } else { "no" };
        context.replies.raw(b"ME ");
        context.replies.raw(self.word);
        let (cas, size) = (item.cas, item.value.len());
        // There is one class.
        let text =
            format!(" exp={left} la={seconds_ago} cas={cas} fetch={fetch} cls=1 size={size}\r\n");
        context.replies.raw(text.as_bytes());
        Ok(())
    }
}
