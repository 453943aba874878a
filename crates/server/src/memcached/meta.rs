//! The meta commands: two letters, a key, and flags of one letter, some with a token behind.
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
//! | flag | where | for |
//! | --- | --- | --- |
//! | `b` | all | the key is base64, and is answered so |
//! | `k` `O(token)` `q` | all | answer the key; answer the token; answer only what is not the rule |
//! | `c` `f` `s` `t` `v` | mg; `c s` ms; `c t v` ma | answer cas, client's flags, bytes, seconds left, value |
//! | `h` `l` | mg | answer whether it was fetched before, and seconds since it was |
//! | `u` | mg | do not note that it was fetched |
//! | `T(seconds)` | mg ms ma, md with I | another expiry |
//! | `C(cas)` | ms md ma | only if the item has this cas |
//! | `C(cas)` | mg | answer the value only if the item has another cas |
//! | `I` | md; ms | mark the value as stale instead of removing it; with `C`, store an older value as stale |
//! | `x` | md | take the value away and leave an empty item |
//! | `R(seconds)` | mg | if fewer seconds are left, the client is to replace the value |
//! | `F(flags)` | ms | the client's flags |
//! | `M(mode)` | ms ma | E add, A append, P prepend, R replace, S set; I or + up, D or - down |
//! | `N(seconds)` | mg ms ma | where nothing is there: store for so long (`ms` with A or P; `mg` an empty value) |
//! | `D(delta)` `J(initial)` | ma | by how much; what `N` stores |
//!
//! Of a value that is to be replaced one client is told so: it wins (`W`), the others that come before it
//! is done are told that somebody has (`Z`). A stale value has `X` with it. These come behind the flags.
//!
//! As in memcached, a flag that a command does not know is ignored if another does. A write that was
//! not done answers `c` with `c0`.
//!
//! Of what came after memcached 1.6.18 `s` of `ms`, `C` of `mg` and `x` of `md` are here; `E`, by which a
//! client chooses an item's cas, is not.
//!
//! Source: memcached's `doc/protocol.txt`, "Meta Commands".

use std::borrow::Cow;

use super::deed::{BAD_LINE, Complaint, Deed, EmptyItem, Fetch, Mode, New, Part, Sum, Written};
use super::line::{base64, data_len, key, number, seconds, words};
use super::tallies::Count;
use crate::resp::number::Digits;
use crate::store::item::{Item, STALE};
use crate::store::reads::Seen;

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
    recache: Option<i64>,
    is_stale: bool,
    is_unnoted: bool,
    takes_value: bool,
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

    /// The flags that are answered with something.
    fn answered(self) -> &'static [u8] {
        match self {
            Kind::Get => b"cfhklOst",
            Kind::Set => b"ckOs",
            Kind::Delete => b"kO",
            Kind::Sum => b"ckOt",
            Kind::Debug | Kind::Nothing => b"",
        }
    }
}

/// The flags that some command knows, proxies' among them.
const FLAGS: &[u8] = b"bcfhklqstuvCDFIJLMNOPRT";

const BAD_FLAG: Complaint = Complaint::Words("CLIENT_ERROR invalid or duplicate flag");
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
            recache: None,
            is_stale: false,
            is_unnoted: false,
            takes_value: false,
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
        let read = match kind {
            // It takes none but the key's.
            Kind::Debug if meta.flags.first() != Some(&b'b') => {
                meta.key = Cow::Borrowed(key(meta.word).ok_or(BAD_LINE)?);
                return Ok(meta);
            }
            Kind::Debug => meta.read_flags().map_err(|_| BAD_LINE),
            // Theirs are all told in the same words.
            Kind::Delete | Kind::Sum => meta.read_flags().map_err(|_| BAD_FLAG),
            _ => meta.read_flags(),
        };
        match (read, kind) {
            (Err(mistake), Kind::Set) => meta.mistake = Some(mistake),
            (read, _) => read?,
        }
        Ok(meta)
    }

    fn read_flags(&mut self) -> Result<(), Complaint> {
        let (mut seen, mut is_base64) = (0u128, false);
        for flag in words(self.flags) {
            let (letter, token) = (flag[0], &flag[1..]);
            let is_known = FLAGS.contains(&letter) || letter == b'x' && self.kind == Kind::Delete;
            if !is_known {
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
                b'F' => {
                    let flags = number(token).and_then(|flags| flags.try_into().ok());
                    self.client_flags = flags.ok_or(BAD_LINE)?;
                }
                b'T' => self.expiry = Some(seconds(token).ok_or(BAD_TOKEN)?),
                b'I' => self.is_stale = true,
                b'u' => self.is_unnoted = true,
                b'x' => self.takes_value = true,
                b'R' => self.recache = Some(seconds(token).ok_or(BAD_TOKEN)?),
                b'N' => self.vivify = Some(seconds(token).ok_or(BAD_TOKEN)?),
                b'D' => {
                    let bad = Complaint::Words("CLIENT_ERROR invalid numeric delta value");
                    self.delta = number(token).ok_or(bad)?;
                }
                b'J' => {
                    let bad = Complaint::Words("CLIENT_ERROR invalid numeric initial value");
                    self.initial = number(token).ok_or(bad)?;
                }
                b'M' => {
                    let [mode] = *token else {
                        return Err(Complaint::Words("CLIENT_ERROR incorrect length for M token"));
                    };
                    self.mode = mode;
                }
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
    pub(super) fn too_large(mut self, deed: &mut Deed<'_>) -> Complaint {
        match (self.mistake.take(), self.set_mode()) {
            (Some(mistake), _) | (None, Err(mistake)) => mistake,
            // As in memcached, whatever the mode: the key's value goes.
            (None, Ok(_)) => deed.refuse_too_large(Some(&self.key)),
        }
    }

    /// Runs it.
    pub(super) fn run(mut self, deed: &mut Deed<'_>, data: &[u8]) -> Result<(), Complaint> {
        if let Some(mistake) = self.mistake.take() {
            return Err(mistake);
        }
        deed.shared.memcached.add(Count::Metas);
        match self.kind {
            Kind::Get => self.get(deed),
            Kind::Set => self.set(deed, data),
            Kind::Delete => {
                let Meta { cas, expiry, is_stale, client_flags: flags, .. } = self;
                let written = match (self.takes_value, is_stale) {
                    (true, _) => {
                        let empty = EmptyItem { is_stale, flags, expiry: expiry.unwrap_or(0) };
                        deed.take_value(&self.key, cas, empty)?
                    }
                    (false, true) => deed.invalidate(&self.key, cas, expiry)?,
                    (false, false) => deed.delete(&self.key, cas)?,
                };
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
        let Meta { expiry, vivify, recache, is_unnoted, .. } = *self;
        match deed.fetch(&self.key, Fetch { expiry, vivify, recache, is_unnoted })? {
            None if self.is_quiet => {}
            None => {
                deed.replies.raw(b"EN");
                self.return_flags(deed, None, Seen::default());
                deed.replies.raw(b"\r\n");
            }
            Some(fetched) => {
                let wants_value = self.wants_value && self.cas != Some(fetched.item.cas);
                if wants_value {
                    deed.check_answerable(&fetched.item)?;
                }
                self.answer_item(deed, &fetched.item, wants_value, fetched.seen, fetched.part);
            }
        }
        Ok(())
    }

    /// `VA` with the value, if it is wanted, or `HD`.
    fn answer_item(
        &self,
        deed: &mut Deed<'_>,
        item: &Item,
        wants_value: bool,
        seen: Seen,
        part: Option<Part>,
    ) {
        match wants_value {
            true => {
                deed.replies.raw(b"VA ");
                deed.replies.raw(Digits::unsigned(item.value.len() as u64).as_bytes());
            }
            false => deed.replies.raw(b"HD"),
        }
        self.return_flags(deed, Some(item), seen);
        let is_stale = item.marks & STALE != 0;
        if self.kind == Kind::Get {
            deed.replies.raw(match (part, is_stale) {
                (Some(Part::Wins), true) => b" X W",
                (Some(Part::Wins), false) => b" W",
                (Some(Part::Waits), true) => b" Z X",
                (Some(Part::Waits), false) => b" Z",
                (None, _) => b"",
            });
        }
        deed.replies.raw(b"\r\n");
        if wants_value {
            deed.replies.raw(&item.value);
            deed.replies.raw(b"\r\n");
        }
    }

    fn set_mode(&self) -> Result<Mode, Complaint> {
        match self.mode.to_ascii_uppercase() {
            b'E' => Ok(Mode::Add),
            b'A' => Ok(Mode::Append),
            b'P' => Ok(Mode::Prepend),
            b'R' => Ok(Mode::Replace),
            b'S' => Ok(Mode::Set),
            _ => Err(Complaint::Words("CLIENT_ERROR invalid mode for ms M token")),
        }
    }

    fn set(&self, deed: &mut Deed<'_>, data: &[u8]) -> Result<(), Complaint> {
        let mode = self.set_mode()?;
        let (flags, expiry) = (self.client_flags, self.expiry.unwrap_or(0));
        let (cas, vivify, may_be_stale) = (self.cas, self.vivify, self.is_stale);
        let new = New { mode, value: data, flags, expiry, cas, vivify, may_be_stale };
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
            Written::Done(item) if !self.is_quiet => {
                self.answer_item(deed, item, self.wants_value, Seen::default(), None);
            }
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
        self.return_flags(deed, item, Seen::default());
        deed.replies.raw(b"\r\n");
    }

    /// The flags that ask for something, with it, in the order in which they were asked.
    fn return_flags(&self, deed: &mut Deed<'_>, item: Option<&Item>, seen: Seen) {
        let left = item.and_then(|item| deed.seconds_left(item));
        let replies = &mut *deed.replies;
        for flag in words(self.flags) {
            if !self.kind.answered().contains(&flag[0]) {
                continue;
            }
            let letter = flag[0];
            let of_none = (letter == b'c' && self.kind == Kind::Set).then_some(0);
            let of_item = item.map_or(of_none, |item| match letter {
                b'c' => Some(item.cas),
                b'f' => Some(item.flags.into()),
                b's' => Some(item.value.len() as u64),
                b'h' => Some(seen.is_fetched.into()),
                b'l' => Some(seen.ago),
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
        let left = deed.seconds_left(&item).map_or("-1".to_owned(), |left| left.to_string());
        let Seen { is_fetched, ago } = deed.seen(&self.key);
        let fetch = if is_fetched { "yes" } else { "no" };
        deed.replies.raw(b"ME ");
        deed.replies.raw(self.word);
        let (cas, size) = (item.cas, item.value.len());
        // There is one class.
        let text = format!(" exp={left} la={ago} cas={cas} fetch={fetch} cls=1 size={size}\r\n");
        deed.replies.raw(text.as_bytes());
        Ok(())
    }
}
