//! The meta commands: two letters, a key, and flags of one letter, some with a token behind.
//!
//! ```text
//! mg <key> <flags>*                     VA <bytes> <flags>*\r\n<data>   HD <flags>*   EN
//! ms <key> <bytes> <flags>*\r\n<data>   HD NS EX NF, with <flags>*
//! md <key> <flags>*                     HD EX NF
//! ma <key> <flags>*                     HD VA NS EX NF
//! me <key>                              ME <key> <name=value>*   EN
//! mn                                    MN
//! ```
//!
//! | flag | where | for |
//! | --- | --- | --- |
//! | `b` | all | the key is base64, and is answered so |
//! | `k` `O(token)` `q` | all | answer the key; answer the token; answer only what is not the rule |
//! | `c` `f` `s` `t` `v` | mg; `c` ms ma; `t v` ma | answer cas, client's flags, bytes, seconds left, value |
//! | `T(seconds)` | mg ms ma | another expiry |
//! | `C(cas)` | ms md ma | only if the item has this cas |
//! | `F(flags)` | ms | the client's flags |
//! | `M(mode)` | ms ma | E add, A append, P prepend, R replace, S set; I or + up, D or - down |
//! | `N(seconds)` | ms ma | where nothing is there: store for so long (`ms` with A or P) |
//! | `D(delta)` `J(initial)` | ma | by how much; what `N` stores |
//!
//! Source: memcached's `doc/protocol.txt`, "Meta Commands".

use std::borrow::Cow;

use super::deed::{BAD_LINE, Complaint, Deed, Mode, New, Sum, TOO_LARGE, Written};
use super::line::{base64, data_len, key, number, signed, words};
use crate::resp::number::Digits;
use crate::store::item::Item;

/// The longest opaque token, in bytes.
const MAX_OPAQUE: usize = 32;

/// A meta command as its line has it.
#[derive(Debug)]
pub(super) struct Meta<'a> {
    kind: Kind,
    key: Cow<'a, [u8]>,
    /// The key as it was written.
    word: &'a [u8],
    /// The flags as they were written.
    flags: &'a [u8],
    /// Bytes of the data block, in `ms`.
    pub(super) len: usize,
    pub(super) is_quiet: bool,
    wants_value: bool,
    cas: Option<u64>,
    client_flags: u32,
    expiry: Option<i64>,
    mode: u8,
    vivify: Option<i64>,
    delta: u64,
    initial: u64,
    /// What is wrong with it, where a data block follows all the same.
    mistake: Option<Complaint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Get,
    Set,
    Delete,
    Sum,
    Debug,
    Nothing,
}

impl Kind {
    fn of(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"mg" => Kind::Get,
            b"ms" => Kind::Set,
            b"md" => Kind::Delete,
            b"ma" => Kind::Sum,
            b"me" => Kind::Debug,
            b"mn" => Kind::Nothing,
            _ => return None,
        })
    }

    /// The flags that it takes.
    fn flags(self) -> &'static [u8] {
        match self {
            Kind::Get => b"bckOqfstvT",
            Kind::Set => b"bckOqCFTMN",
            Kind::Delete => b"bkOqC",
            Kind::Sum => b"bckOqtvTCMNDJ",
            Kind::Debug => b"b",
            Kind::Nothing => b"",
        }
    }
}

const BAD_TOKEN: Complaint = Complaint::Words("CLIENT_ERROR bad token in command line format");

impl<'a> Meta<'a> {
    /// Reads a line; `None` if it is no meta command.
    pub(super) fn parse(line: &'a [u8]) -> Option<Result<Self, Complaint>> {
        let kind = Kind::of(words(line).next()?)?;
        Some(Self::parse_kind(kind, line))
    }

    fn parse_kind(kind: Kind, line: &'a [u8]) -> Result<Self, Complaint> {
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
            mode: if kind == Kind::Sum { b'I' } else { b'S' },
            vivify: None,
            delta: 1,
            initial: 0,
            mistake: None,
        };
        if kind == Kind::Nothing {
            return Ok(meta);
        }
        let no_key = if kind == Kind::Debug { BAD_LINE } else { Complaint::Words("ERROR") };
        meta.word = args.next().ok_or(no_key)?;
        if meta.word.len() > super::line::MAX_KEY_BYTES {
            return Err(BAD_LINE);
        }
        if kind == Kind::Set {
            meta.len = args.next().and_then(data_len).ok_or(BAD_LINE)?;
        }
        if let Some(first) = args.peek() {
            // Words are parts of the line, so the rest of it begins where the first of them does.
            meta.flags = &line[first.as_ptr() as usize - line.as_ptr() as usize..];
        }
        match (meta.read_flags(), kind) {
            (Err(mistake), Kind::Set) => meta.mistake = Some(mistake),
            (read, _) => read?,
        }
        Ok(meta)
    }

    fn read_flags(&mut self) -> Result<(), Complaint> {
        let (mut seen, mut is_base64) = (0u128, false);
        for flag in words(self.flags) {
            let (letter, token) = (flag[0], &flag[1..]);
            if !self.kind.flags().contains(&letter) {
                return Err(Complaint::Words("CLIENT_ERROR invalid flag"));
            }
            if seen & 1 << letter != 0 {
                return Err(Complaint::Words("CLIENT_ERROR duplicate flag"));
            }
            seen |= 1 << letter;
            let whole = || number(token).ok_or(BAD_TOKEN);
            match letter {
                b'b' => is_base64 = true,
                b'q' => self.is_quiet = true,
                b'v' => self.wants_value = true,
                b'O' if token.len() > MAX_OPAQUE => {
                    return Err(Complaint::Words("CLIENT_ERROR opaque token too long"));
                }
                b'C' => self.cas = Some(whole()?),
                b'F' => self.client_flags = whole()?.try_into().map_err(|_| BAD_TOKEN)?,
                b'T' => self.expiry = Some(signed(token).ok_or(BAD_TOKEN)?),
                b'N' => self.vivify = Some(signed(token).ok_or(BAD_TOKEN)?),
                b'D' => self.delta = whole()?,
                b'J' => self.initial = whole()?,
                b'M' => self.mode = *token.first().ok_or(BAD_TOKEN)?,
                _ => {}
            }
        }
        let not_base64 = Complaint::Words("CLIENT_ERROR error decoding key");
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

    /// Refuses a data block that is too large.
    pub(super) fn too_large(&self) -> Complaint {
        Complaint::Words(TOO_LARGE)
    }

    /// Runs it.
    pub(super) fn run(mut self, deed: &mut Deed<'_>, data: &[u8]) -> Result<(), Complaint> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        match self.kind {
            Kind::Get => self.get(deed),
            Kind::Set => self.set(deed, data),
            Kind::Delete => {
                let written = deed.delete(&self.key, self.cas)?;
                self.answer_written(deed, &written);
                Ok(())
            }
            Kind::Sum => self.sum(deed),
            Kind::Debug => self.debug(deed),
            Kind::Nothing => {
                deed.replies.raw(b"MN\r\n");
                Ok(())
            }
        }
    }

    fn get(&self, deed: &mut Deed<'_>) -> Result<(), Complaint> {
        let item = match self.expiry {
            None => deed.get(&self.key)?,
            Some(seconds) => deed.get_and_touch(&self.key, seconds)?,
        };
        match item {
            None if self.is_quiet => {}
            None => {
                deed.replies.raw(b"EN");
                self.return_flags(deed, None);
                deed.replies.raw(b"\r\n");
            }
            Some(item) => self.answer_item(deed, &item),
        }
        Ok(())
    }

    /// `VA` with the value, if it is wanted, or `HD`.
    fn answer_item(&self, deed: &mut Deed<'_>, item: &Item) {
        match self.wants_value {
            true => {
                deed.replies.raw(b"VA ");
                deed.replies.raw(Digits::unsigned(item.value.len() as u64).as_bytes());
            }
            false => deed.replies.raw(b"HD"),
        }
        self.return_flags(deed, Some(item));
        deed.replies.raw(b"\r\n");
        if self.wants_value {
            deed.replies.raw(&item.value);
            deed.replies.raw(b"\r\n");
        }
    }

    fn set(&self, deed: &mut Deed<'_>, data: &[u8]) -> Result<(), Complaint> {
        let mode = match self.mode.to_ascii_uppercase() {
            b'E' => Mode::Add,
            b'A' => Mode::Append,
            b'P' => Mode::Prepend,
            b'R' => Mode::Replace,
            b'S' => Mode::Set,
            _ => return Err(Complaint::Words("CLIENT_ERROR invalid mode for ms M token")),
        };
        let (flags, expiry) = (self.client_flags, self.expiry.unwrap_or(0));
        let new = New { mode, value: data, flags, expiry, cas: self.cas, vivify: self.vivify };
        let written = deed.store(&self.key, new)?;
        self.answer_written(deed, &written);
        Ok(())
    }

    fn sum(&self, deed: &mut Deed<'_>) -> Result<(), Complaint> {
        let is_down = match self.mode.to_ascii_uppercase() {
            b'I' | b'+' => false,
            b'D' | b'-' => true,
            _ => return Err(Complaint::Words("CLIENT_ERROR invalid mode for ma M token")),
        };
        let vivify = self.vivify.map(|seconds| (self.initial, seconds));
        let sum = Sum { delta: self.delta, is_down, cas: self.cas, vivify, expiry: self.expiry };
        let written = deed.sum(&self.key, sum)?;
        match &written {
            Written::Done(item) if !self.is_quiet => self.answer_item(deed, item),
            _ => self.answer_written(deed, &written),
        }
        Ok(())
    }

    /// The answer to a write; a quiet one hides what is the rule.
    fn answer_written(&self, deed: &mut Deed<'_>, written: &Written) {
        let (word, item, is_rule): (&[u8], _, _) = match written {
            Written::Done(item) => (b"HD", Some(item), true),
            Written::NotFound => (b"NF", None, false),
            Written::NotStored => (b"NS", None, false),
            Written::Exists => (b"EX", None, false),
        };
        if self.is_quiet && is_rule {
            return;
        }
        deed.replies.raw(word);
        self.return_flags(deed, item);
        deed.replies.raw(b"\r\n");
    }

    /// The flags that ask for something, with it, in the order in which they were asked.
    fn return_flags(&self, deed: &mut Deed<'_>, item: Option<&Item>) {
        let now = deed.now();
        let replies = &mut *deed.replies;
        for flag in words(self.flags) {
            let letter = flag[0];
            let of_item = item.and_then(|item| match letter {
                b'c' => Some(item.cas),
                b'f' => Some(item.flags.into()),
                b's' => Some(item.value.len() as u64),
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
                (b't', Some(item)) => {
                    replies.raw(b" t");
                    match item.expires_at {
                        None => replies.raw(b"-1"),
                        Some(at) => {
                            let seconds = at.saturating_sub(now).div_ceil(1000);
                            replies.raw(Digits::unsigned(seconds).as_bytes());
                        }
                    }
                }
                _ => {}
            }
            if let Some(number) = of_item {
                replies.raw(&[b' ', letter]);
                replies.raw(Digits::unsigned(number).as_bytes());
            }
        }
    }

    fn debug(&self, deed: &mut Deed<'_>) -> Result<(), Complaint> {
        let Some(item) = deed.database().item(&self.key)? else {
            deed.replies.raw(b"EN\r\n");
            return Ok(());
        };
        let expiry = match item.expires_at {
            None => "-1".to_owned(),
            Some(at) => at.saturating_sub(deed.now()).div_ceil(1000).to_string(),
        };
        deed.replies.raw(b"ME ");
        deed.replies.raw(self.word);
        let (cas, size) = (item.cas, item.value.len());
        deed.replies.raw(format!(" exp={expiry} cas={cas} size={size}\r\n").as_bytes());
        Ok(())
    }
}
