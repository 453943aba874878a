//! Session of a memcached connection: parsing of commands, and state between them.
//!
//! ```text
//! line \r\n                      a command
//! line \r\n  data … \r\n         set, add, replace, append, prepend, cas, ms: the line has the length
//! get key key … \r\n            any number of keys, see retrieve
//! ```
//!
//! A line ends at `\n`; a preceding `\r` is dropped. If the user `default` has a password, a client
//! must begin with a `set` of any key whose data is `user password`; before it, every command
//! fails. The user must be one who may do everything.
//!
//! Clients of other protocols are disconnected before anything runs: at a first byte of 0x80, which
//! starts memcached's binary protocol, and at a line of HTTP. A browser directed here by a web
//! page, or a program that fetches arbitrary URLs, must not be able to write.
//!
//! Invariant: a step consumes no bytes of an incomplete request, except data to be discarded and
//! answered keys of a retrieval; announced lengths allocate nothing. Responses do not depend on how
//! the input is split.
//!
//! Source: memcached's `doc/protocol.txt`, including "Authentication".

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::classic::{self, Header};
use super::commands::{CommandContext, CommandError};
use super::counters::Counter;
use super::meta::Meta;
use super::retrieve::{Retrieval, RetrievalProgress};
use crate::acl::access::Access;
use crate::acl::user::{DEFAULT_USER, User};
use crate::resp::{Replies, is_http};
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

/// Maximum length of a line that is not a retrieval, in bytes, as in memcached.
const MAX_LINE_BYTES: usize = 2 << 10;
/// Maximum length of a retrieval that is validated before it is answered, in bytes.
const MAX_CHECKED_BYTES: usize = 64 << 10;
/// Maximum length of a request before authentication, in bytes.
const MAX_UNAUTHENTICATED_BYTES: usize = 2 << 10;
/// First byte of each request of memcached's binary protocol.
const BINARY_REQUEST: u8 = 0x80;
/// HTTP methods. No command is in upper case.
const HTTP_METHODS: [&[u8]; 9] =
    [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH"];

/// State of a connection.
pub(crate) struct MemcachedSession {
    access: Access,
    /// The user that the last command has logged in.
    logged_in: Option<Arc<User>>,
    /// Nothing was received yet.
    is_new: bool,
    /// Bytes of data still to be discarded.
    bytes_to_discard: usize,
    /// The rest of the line is to be discarded.
    discards_line: bool,
    /// An unfinished retrieval.
    retrieval: Option<Retrieval>,
    /// Bytes of the input already searched for a line end.
    scanned: usize,
    /// A request is incomplete.
    pub(crate) has_partial_request: bool,
    /// Nothing more is to be run.
    pub(crate) is_closing: bool,
}

/// Result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The request continues beyond the input.
    Incomplete,
    /// This number of bytes is consumed.
    Consumed(usize),
}

/// A command with its data block, as parsed.
enum ParsedInput<'a> {
    Incomplete,
    /// A command and its length in bytes.
    Command(Command<'a>, usize),
    /// A retrieval whose keys start at this offset.
    Retrieval(Retrieval, usize),
    /// An invalid command: error, bytes to consume, and whether the client wants no reply.
    Invalid(CommandError, usize, bool),
    /// A command with a data block that is too large, and the length of its line.
    TooLarge(Command<'a>, usize),
    /// Another protocol, or a line longer than any command: closed without a reply.
    OtherProtocol,
}

enum Command<'a> {
    Line(&'a [u8]),
    Store(Header<'a>, &'a [u8]),
    Meta(Meta<'a>, &'a [u8]),
}

impl MemcachedSession {
    pub(crate) fn new(shared: &Shared) -> Self {
        MemcachedSession {
            access: Access::new(&shared.acl),
            logged_in: None,
            is_new: true,
            bytes_to_discard: 0,
            discards_line: false,
            retrieval: None,
            scanned: 0,
            has_partial_request: false,
            is_closing: false,
        }
    }

    /// Runs the command at the start of `input`, or a part of it.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        batcher: &mut WriteBatcher,
        input: &[u8],
    ) -> Progress {
        if let Some(used) = self.discard(input) {
            return Progress::Consumed(used);
        }
        let mut context =
            CommandContext { shared, table: shared.memcached.table, replies, batcher };
        if let Some(retrieval) = self.retrieval {
            return self.advance(retrieval, &mut context, input, 0);
        }
        if self.is_new && !input.is_empty() {
            self.is_new = false;
            if input[0] == BINARY_REQUEST {
                self.is_closing = true;
                return Progress::Consumed(input.len());
            }
        }
        let is_authenticated = self.is_authenticated(shared);
        let max_value =
            if is_authenticated { context.max_value_bytes() } else { MAX_UNAUTHENTICATED_BYTES };
        let max_checked = if is_authenticated { MAX_CHECKED_BYTES } else { MAX_LINE_BYTES };
        let parsed = parse(input, &mut self.scanned, max_checked, max_value);
        if let ParsedInput::Incomplete = parsed {
            self.has_partial_request = !input.is_empty();
            return Progress::Incomplete;
        }
        (self.scanned, self.has_partial_request) = (0, false);
        let mark = context.replies.mark();
        let (outcome, used, is_quiet) = match parsed {
            ParsedInput::Incomplete => return Progress::Incomplete,
            ParsedInput::OtherProtocol => {
                self.is_closing = true;
                return Progress::Consumed(input.len());
            }
            parsed if !is_authenticated => {
                self.run_unauthenticated(parsed, &mut context, input.len())
            }
            ParsedInput::Invalid(error, used, is_quiet) => (Err(error), used, is_quiet),
            ParsedInput::TooLarge(command, used) => {
                let is_quiet = command.is_quiet();
                self.bytes_to_discard = command.data_len().saturating_add(2);
                (Err(command.too_large(&mut context)), used, is_quiet)
            }
            ParsedInput::Retrieval(retrieval, at) => {
                return self.advance(retrieval, &mut context, input, at);
            }
            ParsedInput::Command(command, used) => {
                let is_quiet = command.is_quiet();
                (self.run(command, &mut context), used, is_quiet)
            }
        };
        if let Err(error) = outcome {
            context.replies.rewind(mark);
            answer_error(&mut context, &error);
        }
        if is_quiet {
            context.replies.rewind(mark);
        }
        Progress::Consumed(used)
    }

    /// Number of bytes to discard from the input, if any.
    fn discard(&mut self, input: &[u8]) -> Option<usize> {
        if input.is_empty() || self.bytes_to_discard == 0 && !self.discards_line {
            return None;
        }
        self.has_partial_request = false;
        if self.bytes_to_discard > 0 {
            let used = self.bytes_to_discard.min(input.len());
            self.bytes_to_discard -= used;
            return Some(used);
        }
        let end = input.iter().position(|byte| *byte == b'\n');
        self.discards_line = end.is_none();
        Some(end.map_or(input.len(), |end| end + 1))
    }

    /// Continues a retrieval whose next key is at offset `at`.
    fn advance(
        &mut self,
        retrieval: Retrieval,
        context: &mut CommandContext<'_>,
        input: &[u8],
        at: usize,
    ) -> Progress {
        let (used, progress) = retrieval.advance(context, &input[at..]);
        self.retrieval = match progress {
            RetrievalProgress::Partial => Some(retrieval),
            RetrievalProgress::Done => None,
            RetrievalProgress::Failed(error) => {
                answer_error(context, &error);
                self.discards_line = true;
                None
            }
        };
        self.has_partial_request = at + used == 0;
        if self.has_partial_request { Progress::Incomplete } else { Progress::Consumed(at + used) }
    }

    /// Handles a command of an unauthenticated client. Returns the outcome, bytes consumed, and
    /// whether the client wants no reply.
    fn run_unauthenticated(
        &mut self,
        parsed: ParsedInput<'_>,
        context: &mut CommandContext<'_>,
        input_len: usize,
    ) -> (Result<(), CommandError>, usize, bool) {
        let rejection = CommandError::Text("CLIENT_ERROR unauthenticated");
        match parsed {
            ParsedInput::Command(Command::Store(header, data), used) if header.is_set() => {
                (self.authenticate(context, data), used, false)
            }
            ParsedInput::Command(Command::Line(b"quit"), used) => {
                self.is_closing = true;
                (Ok(()), used, false)
            }
            ParsedInput::TooLarge(command, used) => {
                self.bytes_to_discard = command.data_len().saturating_add(2);
                (Err(CommandError::Text("CLIENT_ERROR auth token too long")), used, false)
            }
            ParsedInput::Retrieval(_, used) => {
                self.discards_line = true;
                (Err(rejection), used, false)
            }
            ParsedInput::Invalid(_, used, _) | ParsedInput::Command(_, used) => {
                (Err(rejection), used, false)
            }
            ParsedInput::Incomplete | ParsedInput::OtherProtocol => {
                (Err(rejection), input_len, false)
            }
        }
    }

    /// Whether the client's user may do everything: commands of memcached have no rights of their
    /// own.
    #[inline]
    fn is_authenticated(&mut self, shared: &Shared) -> bool {
        self.access.is_free(&shared.acl)
            || self.access.refresh(&shared.acl).is_ok() && self.access.is_free(&shared.acl)
    }

    /// The user that the last command has logged in.
    pub(crate) fn take_login(&mut self) -> Option<Arc<User>> {
        self.logged_in.take()
    }

    /// Checks whether a client's data is `user password`. A name that is not that of a user stands
    /// for the user `default`.
    fn authenticate(
        &mut self,
        context: &mut CommandContext<'_>,
        data: &[u8],
    ) -> Result<(), CommandError> {
        let shared = context.shared;
        let mut parts = data.splitn(2, |byte| *byte == b' ');
        let (Some(name), Some(given)) = (parts.next(), parts.next()) else {
            return Err(CommandError::Text("CLIENT_ERROR bad authentication token format"));
        };
        shared.memcached.add(Counter::Auths);
        let name = if shared.acl.user(name).is_some() { name } else { DEFAULT_USER };
        let user = shared.acl.authenticate(name, given);
        if let Some(user) = user.filter(|user| user.is_unrestricted()) {
            self.access.log_in(user.clone());
            self.logged_in = Some(user);
        } else {
            shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
            shared.memcached.add(Counter::AuthErrors);
            return Err(CommandError::Text("CLIENT_ERROR authentication failure"));
        }
        context.replies.raw(b"STORED\r\n");
        Ok(())
    }

    fn run(
        &mut self,
        command: Command<'_>,
        context: &mut CommandContext<'_>,
    ) -> Result<(), CommandError> {
        match command {
            Command::Store(header, data) => header.run(context, data),
            Command::Meta(meta, data) => meta.run(context, data),
            Command::Line(line) => {
                if super::line::words(line).next() == Some(b"quit") {
                    self.is_closing = true;
                    return Ok(());
                }
                classic::run(context, line)
            }
        }
    }
}

/// Writes an error reply.
fn answer_error(context: &mut CommandContext<'_>, error: &CommandError) {
    context.shared.metrics.errors.fetch_add(1, Relaxed);
    context.replies.raw(error.text().as_bytes());
    context.replies.raw(b"\r\n");
}

/// Whether a line is the first of an HTTP request, or one of its early headers.
fn is_http_request(line: &[u8]) -> bool {
    let mut words = super::line::words(line);
    let Some(name) = words.next() else { return false };
    if is_http(name) {
        return true;
    }
    // Commands start with another byte.
    if !name[0].is_ascii_uppercase() {
        return false;
    }
    let target = words.clone().next().unwrap_or_default();
    let has_target = target.first().is_some_and(|byte| matches!(byte, b'/' | b'*'))
        || target.windows(3).any(|part| part == b"://");
    HTTP_METHODS.contains(&name) && has_target
        || words.last().is_some_and(|word| word.starts_with(b"HTTP/"))
}

impl Command<'_> {
    /// Whether the client wants no reply. (Quiet meta commands want some.)
    fn is_quiet(&self) -> bool {
        match self {
            Command::Line(line) => classic::is_quiet(line),
            Command::Store(header, _) => header.is_quiet,
            Command::Meta(..) => false,
        }
    }

    /// Length of the announced data block.
    fn data_len(&self) -> usize {
        match self {
            Command::Line(_) => 0,
            Command::Store(header, _) => header.len,
            Command::Meta(meta, _) => meta.len,
        }
    }

    /// Rejects the data block.
    fn too_large(self, context: &mut CommandContext<'_>) -> CommandError {
        match self {
            Command::Line(_) => context.reject_too_large(None),
            Command::Store(header, _) => header.too_large(context),
            Command::Meta(meta, _) => meta.too_large(context),
        }
    }
}

fn parse<'a>(
    input: &'a [u8],
    scanned: &mut usize,
    max_checked: usize,
    max_value: usize,
) -> ParsedInput<'a> {
    let end = input[*scanned..].iter().position(|byte| *byte == b'\n').map(|end| *scanned + end);
    *scanned = end.unwrap_or(input.len());
    // The decision depends on the line's length only, not on the bytes received so far.
    if *scanned > MAX_LINE_BYTES {
        match Retrieval::begin(&input[..MAX_LINE_BYTES]) {
            Some((Ok(retrieval), at)) if *scanned > max_checked => {
                return ParsedInput::Retrieval(retrieval, at);
            }
            Some((Ok(_), _)) => {}
            _ => return ParsedInput::OtherProtocol,
        }
    }
    let Some(end) = end else { return ParsedInput::Incomplete };
    let after = end + 1;
    if let Some((retrieval, at)) = Retrieval::begin(&input[..after]) {
        let checked = retrieval.and_then(|it| it.check(&input[at..after]).map(|()| it));
        return match checked {
            Ok(retrieval) => ParsedInput::Retrieval(retrieval, at),
            Err(error) => ParsedInput::Invalid(error, after, false),
        };
    }
    let line = &input[..end];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if is_http_request(line) {
        return ParsedInput::OtherProtocol;
    }
    // A data block, and the total length.
    let data = |len: usize| -> Option<Result<(&'a [u8], usize), usize>> {
        let whole = after + len + 2;
        let block = input.get(after..whole)?;
        Some(block.strip_suffix(b"\r\n").map(|data| (data, whole)).ok_or(whole))
    };
    let bad_data = CommandError::Text("CLIENT_ERROR bad data chunk");
    match Header::parse(line) {
        Some(Err((error, is_quiet))) => return ParsedInput::Invalid(error, after, is_quiet),
        Some(Ok(header)) if header.len > max_value => {
            return ParsedInput::TooLarge(Command::Store(header, b""), after);
        }
        Some(Ok(header)) => {
            return match data(header.len) {
                None => ParsedInput::Incomplete,
                Some(Ok((data, used))) => ParsedInput::Command(Command::Store(header, data), used),
                Some(Err(used)) => ParsedInput::Invalid(bad_data, used, header.is_quiet),
            };
        }
        None => {}
    }
    match Meta::parse(line) {
        Some(Err(error)) => ParsedInput::Invalid(error, after, false),
        Some(Ok(meta)) if !meta.has_data() => ParsedInput::Command(Command::Meta(meta, b""), after),
        Some(Ok(meta)) if meta.len > max_value => {
            ParsedInput::TooLarge(Command::Meta(meta, b""), after)
        }
        Some(Ok(meta)) => match data(meta.len) {
            None => ParsedInput::Incomplete,
            Some(Ok((data, used))) => ParsedInput::Command(Command::Meta(meta, data), used),
            Some(Err(used)) => ParsedInput::Invalid(bad_data, used, false),
        },
        None => ParsedInput::Command(Command::Line(line), after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_requests_are_distinguished_from_commands() {
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
