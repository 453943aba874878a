//! From bytes to a command, and what is remembered of a client.
//!
//! ```text
//! line \r\n                      a command
//! line \r\n  data … \r\n         set, add, replace, append, prepend, cas, ms: the line says how long
//! ```
//!
//! A line ends at `\n`, a `\r` before it is dropped. Where a server has a password, a client's first
//! command must be a `set` of any key whose data are `user password`; the user may be any.
//!
//! Invariant: a step uses no bytes of a request that has not come whole, but for data that are thrown
//! away; nothing is allocated by an announced length.
//!
//! Source: memcached's `doc/protocol.txt`, among others "Authentication".

use std::sync::atomic::Ordering::Relaxed;

use super::classic::{self, Header};
use super::deed::{Complaint, Deed};
use super::meta::Meta;
use crate::command::is_same;
use crate::resp::{Replies, is_http};
use crate::shared::Shared;
use crate::store::turn::Turn;

/// The longest line, in bytes: some hundreds of the longest keys.
const MAX_LINE_BYTES: usize = 64 << 10;
/// What a client may send at a time before it has given the password.
const MAX_UNKNOWN_BYTES: usize = 2 << 10;

/// What is remembered of a client.
pub(crate) struct Talk {
    is_known: bool,
    /// Bytes of data that are still to be thrown away.
    unwanted: usize,
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
    /// No command: the answer, bytes to drop, and whether the client wants no answer.
    Mistake(Complaint, usize, bool),
    /// As `Mistake`, and data of so many bytes follow that are to be thrown away.
    Unwanted(Complaint, usize, usize, bool),
    /// Where the next command begins is unknown.
    Hopeless(Complaint),
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
            unwanted: 0,
            scanned: 0,
            is_waiting: false,
            is_closing: false,
        }
    }

    /// Runs the command that `input` begins with.
    pub(crate) fn step(
        &mut self,
        shared: &Shared,
        replies: &mut Replies,
        turn: &mut Turn,
        input: &[u8],
    ) -> Step {
        if self.unwanted > 0 && !input.is_empty() {
            let used = self.unwanted.min(input.len());
            self.unwanted -= used;
            return Step::Used(used);
        }
        let mut deed = Deed { shared, table: shared.memcached.table, replies, turn };
        let max_value = if self.is_known { deed.max_value_bytes() } else { MAX_UNKNOWN_BYTES };
        let max_line = if self.is_known { MAX_LINE_BYTES } else { MAX_UNKNOWN_BYTES };
        let parsed = parse(input, &mut self.scanned, max_line, max_value);
        if let Parsed::Incomplete = parsed {
            self.is_waiting = !input.is_empty();
            return Step::Incomplete;
        }
        (self.scanned, self.is_waiting) = (0, false);
        let mark = deed.replies.mark();
        let (outcome, used, is_quiet) = match parsed {
            Parsed::Incomplete => return Step::Incomplete,
            Parsed::Mistake(complaint, used, is_quiet) => (Err(complaint), used, is_quiet),
            Parsed::Hopeless(complaint) => {
                self.is_closing = true;
                (Err(complaint), input.len(), false)
            }
            Parsed::Unwanted(complaint, used, unwanted, is_quiet) => {
                self.unwanted = unwanted;
                (Err(complaint), used, is_quiet)
            }
            Parsed::Command(command, used) if !self.is_known => {
                self.is_known = is_password(shared, &command);
                let refusal = Complaint::Words("CLIENT_ERROR authentication failure");
                if self.is_known {
                    deed.replies.raw(b"STORED\r\n");
                } else {
                    shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
                }
                (if self.is_known { Ok(()) } else { Err(refusal) }, used, false)
            }
            Parsed::Command(command, used) => {
                let is_quiet = command.is_quiet();
                (self.run(command, &mut deed), used, is_quiet)
            }
        };
        if let Err(complaint) = outcome {
            shared.metrics.errors.fetch_add(1, Relaxed);
            deed.replies.rewind(mark);
            deed.replies.raw(complaint.text().as_bytes());
            deed.replies.raw(b"\r\n");
            // Who does not know the password has one try a connection.
            self.is_closing |= !self.is_known;
        }
        if is_quiet {
            deed.replies.rewind(mark);
        }
        Step::Used(used)
    }

    fn run(&mut self, command: Command<'_>, deed: &mut Deed<'_>) -> Result<(), Complaint> {
        match command {
            Command::Store(header, data) => header.run(deed, data),
            Command::Meta(meta, data) => meta.run(deed, data),
            Command::Line(line) => {
                let name = super::line::words(line).next().unwrap_or_default();
                self.is_closing |= name == b"quit" || is_http(name);
                if name == b"quit" {
                    return Ok(());
                }
                classic::run(deed, line)
            }
        }
    }
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
}

/// Whether a command tells the password.
fn is_password(shared: &Shared, command: &Command<'_>) -> bool {
    let Command::Store(_, data) = command else { return false };
    let given = data.splitn(2, |byte| *byte == b' ').nth(1);
    let password = shared.options.password.as_deref();
    password.zip(given).is_some_and(|(password, given)| is_same(password.as_bytes(), given))
}

fn parse<'a>(
    input: &'a [u8],
    scanned: &mut usize,
    max_line: usize,
    max_value: usize,
) -> Parsed<'a> {
    let Some(end) = input[*scanned..].iter().position(|byte| *byte == b'\n') else {
        *scanned = input.len();
        if input.len() > max_line {
            return Parsed::Hopeless(Complaint::Words("CLIENT_ERROR line too long"));
        }
        return Parsed::Incomplete;
    };
    let after = *scanned + end + 1;
    *scanned += end;
    let line = &input[..after - 1];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
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
            let unwanted = header.len.saturating_add(2);
            return Parsed::Unwanted(header.too_large(), after, unwanted, header.is_quiet);
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
        Some(Ok(meta)) if meta.len > max_value => {
            let unwanted = meta.len.saturating_add(2);
            Parsed::Unwanted(meta.too_large(), after, unwanted, false)
        }
        Some(Ok(meta)) => match data(meta.len) {
            None => Parsed::Incomplete,
            Some(Ok((data, used))) => Parsed::Command(Command::Meta(meta, data), used),
            Some(Err(used)) => Parsed::Mistake(bad_data, used, false),
        },
        None => Parsed::Command(Command::Line(line), after),
    }
}
