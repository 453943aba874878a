//! From bytes to a command, and what is remembered of a client.
//!
//! ```text
//! line \r\n                      a command
//! line \r\n  data … \r\n         set, add, replace, append, prepend, cas, ms: the line says how long
//! get key key … \r\n            as many keys as a client likes: see retrieve
//! ```
//!
//! A line ends at `\n`, a `\r` before it is dropped. Where a server has a password, a client must begin
//! with a `set` of any key whose data are `user password`; the user may be any. Until it has got that
//! right, every command is answered with an error.
//!
//! A client that speaks another protocol is cut off before anything of it runs: at a first byte of 0x80,
//! which begins memcached's binary protocol, and at a line of HTTP. A browser that some page has sent
//! here, or a program that fetches any URL, must not be able to write.
//!
//! Invariant: a step uses no bytes of a request that has not come whole, but for data that are thrown
//! away and keys of a retrieval that are answered; nothing is allocated by an announced length. How the
//! input is cut changes no answer.
//!
//! Source: memcached's `doc/protocol.txt`, among others "Authentication".

use std::sync::atomic::Ordering::Relaxed;

use super::classic::{self, Header};
use super::deed::{Complaint, Deed};
use super::meta::Meta;
use super::retrieve::{Progress, Retrieval};
use super::tallies::Count;
use crate::command::is_same;
use crate::resp::{Replies, is_http};
use crate::shared::Shared;
use crate::store::turn::Turn;

/// The longest line that is no retrieval, in bytes, as in memcached. No command needs half of it.
const MAX_LINE_BYTES: usize = 2 << 10;
/// The longest retrieval that is looked over before it is answered.
const MAX_CHECKED_BYTES: usize = 64 << 10;
/// What a client may send at a time before it has given the password.
const MAX_UNKNOWN_BYTES: usize = 2 << 10;
/// The first byte of each request of memcached's binary protocol.
const BINARY_REQUEST: u8 = 0x80;
/// Methods of HTTP. No command is written in capitals.
const METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// What is remembered of a client.
pub(crate) struct Talk {
    is_known: bool,
    /// Nothing has come yet.
    is_new: bool,
    /// Bytes of data that are still to be thrown away.
    unwanted: usize,
    /// The rest of the line is to be thrown away.
    skips_line: bool,
    /// A retrieval whose line is not done.
    retrieval: Option<Retrieval>,
    /// How much of the input is known to hold no end of a line.
    scanned: usize,
    /// A request has begun and not come whole.
    pub(crate) is_waiting: bool,
    /// Nothing more is to be run.
    pub(crate) is_closing: bool,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The request goes on beyond the input.
    Incomplete,
    /// So many bytes are done with.
    Used(usize),
}

/// A command with its data block, as far as it has come.
enum Parsed<'a> {
    Incomplete,
    /// A command of so many bytes.
    Command(Command<'a>, usize),
    /// Keys to be answered, which begin behind so many bytes.
    Retrieval(Retrieval, usize),
    /// No command: the answer, bytes to drop, and whether the client wants no answer.
    Mistake(Complaint, usize, bool),
    /// A line of so many bytes that announces a data block which is too large.
    TooLarge(Command<'a>, usize),
    /// Another protocol, or a line longer than any command: it is not answered.
    OtherProtocol,
}

enum Command<'a> {
    Line(&'a [u8]),
    Store(Header<'a>, &'a [u8]),
    Meta(Meta<'a>, &'a [u8]),
}

impl Talk {
    pub(crate) fn new(shared: &Shared) -> Self {
        Talk {
            is_known: shared.options.password.is_none(),
            is_new: true,
            unwanted: 0,
            skips_line: false,
            retrieval: None,
            scanned: 0,
            is_waiting: false,
            is_closing: false,
        }
    }

    /// Runs the command that `input` begins with, or a part of it.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        turn: &mut Turn,
        input: &[u8],
    ) -> Step {
        if let Some(used) = self.throw_away(input) {
            return Step::Used(used);
        }
        let mut deed = Deed { shared, table: shared.memcached.table, replies, turn };
        if let Some(retrieval) = self.retrieval {
            return self.advance(retrieval, &mut deed, input, 0);
        }
        if self.is_new && !input.is_empty() {
            self.is_new = false;
            if input[0] == BINARY_REQUEST {
                self.is_closing = true;
                return Step::Used(input.len());
            }
        }
        let max_value = if self.is_known { deed.max_value_bytes() } else { MAX_UNKNOWN_BYTES };
        let max_checked = if self.is_known { MAX_CHECKED_BYTES } else { MAX_LINE_BYTES };
        let parsed = parse(input, &mut self.scanned, max_checked, max_value);
        if let Parsed::Incomplete = parsed {
            self.is_waiting = !input.is_empty();
            return Step::Incomplete;
        }
        (self.scanned, self.is_waiting) = (0, false);
        let mark = deed.replies.mark();
        let (outcome, used, is_quiet) = match parsed {
            Parsed::Incomplete => return Step::Incomplete,
            Parsed::OtherProtocol => {
                self.is_closing = true;
                return Step::Used(input.len());
            }
            parsed if !self.is_known => self.run_unauthenticated(parsed, &mut deed, input.len()),
            Parsed::Mistake(complaint, used, is_quiet) => (Err(complaint), used, is_quiet),
            Parsed::TooLarge(command, used) => {
                let is_quiet = command.is_quiet();
                self.unwanted = command.data_len().saturating_add(2);
                (Err(command.too_large(&mut deed)), used, is_quiet)
            }
            Parsed::Retrieval(retrieval, at) => {
                return self.advance(retrieval, &mut deed, input, at);
            }
            Parsed::Command(command, used) => {
                let is_quiet = command.is_quiet();
                (self.run(command, &mut deed), used, is_quiet)
            }
        };
        if let Err(complaint) = outcome {
            deed.replies.rewind(mark);
            answer_error(&mut deed, &complaint);
        }
        if is_quiet {
            deed.replies.rewind(mark);
        }
        Step::Used(used)
    }

    /// How many bytes of the input nobody wants, if it begins with such.
    fn throw_away(&mut self, input: &[u8]) -> Option<usize> {
        if input.is_empty() || self.unwanted == 0 && !self.skips_line {
            return None;
        }
        self.is_waiting = false;
        if self.unwanted > 0 {
            let used = self.unwanted.min(input.len());
            self.unwanted -= used;
            return Some(used);
        }
        let end = input.iter().position(|byte| *byte == b'\n');
        self.skips_line = end.is_none();
        Some(end.map_or(input.len(), |end| end + 1))
    }

    /// Goes on with a retrieval, whose next key is behind `at` bytes.
    fn advance(
        &mut self,
        retrieval: Retrieval,
        deed: &mut Deed<'_>,
        input: &[u8],
        at: usize,
    ) -> Step {
        let (used, progress) = retrieval.advance(deed, &input[at..]);
        self.retrieval = match progress {
            Progress::Partial => Some(retrieval),
            Progress::Done => None,
            Progress::Failed(complaint) => {
                answer_error(deed, &complaint);
                self.skips_line = true;
                None
            }
        };
        self.is_waiting = at + used == 0;
        if self.is_waiting { Step::Incomplete } else { Step::Used(at + used) }
    }

    /// Runs what comes from a client that has not given the password. How it went, bytes that are done
    /// with, and whether the client wants no answer.
    fn run_unauthenticated(
        &mut self,
        parsed: Parsed<'_>,
        deed: &mut Deed<'_>,
        input_len: usize,
    ) -> (Result<(), Complaint>, usize, bool) {
        let refusal = Complaint::Words("CLIENT_ERROR unauthenticated");
        match parsed {
            Parsed::Command(Command::Store(header, data), used) if header.is_set() => {
                (self.authenticate(deed, data), used, false)
            }
            Parsed::Command(Command::Line(b"quit"), used) => {
                self.is_closing = true;
                (Ok(()), used, false)
            }
            Parsed::TooLarge(command, used) => {
                self.unwanted = command.data_len().saturating_add(2);
                (Err(Complaint::Words("CLIENT_ERROR auth token too long")), used, false)
            }
            Parsed::Retrieval(_, used) => {
                self.skips_line = true;
                (Err(refusal), used, false)
            }
            Parsed::Mistake(_, used, _) | Parsed::Command(_, used) => (Err(refusal), used, false),
            Parsed::Incomplete | Parsed::OtherProtocol => (Err(refusal), input_len, false),
        }
    }

    /// Looks whether a client's data are `user password`.
    fn authenticate(&mut self, deed: &mut Deed<'_>, data: &[u8]) -> Result<(), Complaint> {
        let shared = deed.shared;
        let Some(given) = data.splitn(2, |byte| *byte == b' ').nth(1) else {
            return Err(Complaint::Words("CLIENT_ERROR bad authentication token format"));
        };
        shared.memcached.add(Count::Auths);
        let password = shared.options.password.as_deref();
        self.is_known = password.is_some_and(|right| is_same(right.as_bytes(), given));
        if !self.is_known {
            shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
            shared.memcached.add(Count::AuthErrors);
            return Err(Complaint::Words("CLIENT_ERROR authentication failure"));
        }
        deed.replies.raw(b"STORED\r\n");
        Ok(())
    }

    fn run(&mut self, command: Command<'_>, deed: &mut Deed<'_>) -> Result<(), Complaint> {
        match command {
            Command::Store(header, data) => header.run(deed, data),
            Command::Meta(meta, data) => meta.run(deed, data),
            Command::Line(line) => {
                if super::line::words(line).next() == Some(b"quit") {
                    self.is_closing = true;
                    return Ok(());
                }
                classic::run(deed, line)
            }
        }
    }
}

/// Answers with an error.
fn answer_error(deed: &mut Deed<'_>, complaint: &Complaint) {
    deed.shared.metrics.errors.fetch_add(1, Relaxed);
    deed.replies.raw(complaint.text().as_bytes());
    deed.replies.raw(b"\r\n");
}

/// Whether a line is the first of a request of HTTP, or one of its headers that come soon.
fn is_http_request(line: &[u8]) -> bool {
    let mut words = super::line::words(line);
    let Some(name) = words.next() else { return false };
    if is_http(name) {
        return true;
    }
    // Lines of commands are left alone by their first byte.
    if !name[0].is_ascii_uppercase() {
        return false;
    }
    let target = words.clone().next().unwrap_or_default();
    let has_target = target.first().is_some_and(|byte| matches!(byte, b'/' | b'*'))
        || target.windows(3).any(|part| part == b"://");
    METHODS.contains(&name) && has_target
        || words.last().is_some_and(|word| word.starts_with(b"HTTP/"))
}

impl Command<'_> {
    /// Whether the client wants no answer at all. (Quiet meta commands want some.)
    fn is_quiet(&self) -> bool {
        match self {
            Command::Line(line) => classic::is_quiet(line),
            Command::Store(header, _) => header.is_quiet,
            Command::Meta(..) => false,
        }
    }

    /// Bytes of the data block that the line announces.
    fn data_len(&self) -> usize {
        match self {
            Command::Line(_) => 0,
            Command::Store(header, _) => header.len,
            Command::Meta(meta, _) => meta.len,
        }
    }

    /// Refuses the data block.
    fn too_large(self, deed: &mut Deed<'_>) -> Complaint {
        match self {
            Command::Line(_) => deed.refuse_too_large(None),
            Command::Store(header, _) => header.too_large(deed),
            Command::Meta(meta, _) => meta.too_large(deed),
        }
    }
}

fn parse<'a>(
    input: &'a [u8],
    scanned: &mut usize,
    max_checked: usize,
    max_value: usize,
) -> Parsed<'a> {
    let end = input[*scanned..].iter().position(|byte| *byte == b'\n').map(|end| *scanned + end);
    *scanned = end.unwrap_or(input.len());
    // As many bytes as are here tell nothing: only the line's length does.
    if *scanned > MAX_LINE_BYTES {
        match Retrieval::begin(&input[..MAX_LINE_BYTES]) {
            Some((Ok(retrieval), at)) if *scanned > max_checked => {
                return Parsed::Retrieval(retrieval, at);
            }
            Some((Ok(_), _)) => {}
            _ => return Parsed::OtherProtocol,
        }
    }
    let Some(end) = end else { return Parsed::Incomplete };
    let after = end + 1;
    if let Some((retrieval, at)) = Retrieval::begin(&input[..after]) {
        let checked = retrieval.and_then(|it| it.check(&input[at..after]).map(|()| it));
        return match checked {
            Ok(retrieval) => Parsed::Retrieval(retrieval, at),
            Err(complaint) => Parsed::Mistake(complaint, after, false),
        };
    }
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if is_http_request(line) {
        return Parsed::OtherProtocol;
    }
    // A block of data, and the bytes of the whole.
    let data = |len: usize| -> Option<Result<(&'a [u8], usize), usize>> {
        let whole = after + len + 2;
        let block = input.get(after..whole)?;
        Some(block.strip_suffix(b"\r\n").map(|data| (data, whole)).ok_or(whole))
    };
    let bad_data = Complaint::Words("CLIENT_ERROR bad data chunk");
    match Header::parse(line) {
        Some(Err((complaint, is_quiet))) => return Parsed::Mistake(complaint, after, is_quiet),
        Some(Ok(header)) if header.len > max_value => {
            return Parsed::TooLarge(Command::Store(header, b""), after);
        }
        Some(Ok(header)) => {
            return match data(header.len) {
                None => Parsed::Incomplete,
                Some(Ok((data, used))) => Parsed::Command(Command::Store(header, data), used),
                Some(Err(used)) => Parsed::Mistake(bad_data, used, header.is_quiet),
            };
        }
        None => {}
    }
    match Meta::parse(line) {
        Some(Err(complaint)) => Parsed::Mistake(complaint, after, false),
        Some(Ok(meta)) if !meta.has_data() => Parsed::Command(Command::Meta(meta, b""), after),
        Some(Ok(meta)) if meta.len > max_value => Parsed::TooLarge(Command::Meta(meta, b""), after),
        Some(Ok(meta)) => match data(meta.len) {
            None => Parsed::Incomplete,
            Some(Ok((data, used))) => Parsed::Command(Command::Meta(meta, data), used),
            Some(Err(used)) => Parsed::Mistake(bad_data, used, false),
        },
        None => Parsed::Command(Command::Line(line), after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_http_request_tells_http_from_commands() {
        for line in [
            "GET / HTTP/1.1",
            "POST /x HTTP/1.0",
            "GET /x",
            "HEAD http://a/",
            "OPTIONS *",
            "post",
            "Host: a",
            "PRI * HTTP/2.0",
        ] {
            assert!(is_http_request(line.as_bytes()), "{line}");
        }
        for line in ["GET a", "get / HTTP/1.1", "delete /x", "set / 0 0 1", "", "GET", "version"] {
            assert!(!is_http_request(line.as_bytes()), "{line}");
        }
    }
}
