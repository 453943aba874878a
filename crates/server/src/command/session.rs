//! What the server remembers of a client between its commands.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Command;
use super::sliced::Sliced;
use crate::clients::{Client, Registration};
use crate::resp::{Args, Span};
use crate::shared::Shared;
use crate::store::turn::Unanswered;

/// What the server remembers of a client.
pub(crate) struct Session {
    registration: Registration,
    pub(crate) is_authenticated: bool,
    /// The SELECT index.
    pub(crate) table: usize,
    /// Commands since MULTI.
    pub(crate) transaction: Option<Transaction>,
    /// Keys since WATCH.
    pub(crate) watched: Vec<Watched>,
    /// Bytes held for them.
    pub(crate) watched_bytes: usize,
    /// Whether to close when all replies are sent.
    pub(crate) is_closing: bool,
    pub(crate) reply: ReplyMode,
    /// SETs that were gathered and not answered yet.
    pub(crate) unanswered: Option<Unanswered>,
    /// What is left of the command that came last.
    pub(crate) sliced: Option<Box<Sliced>>,
}

/// Whether replies are wanted (CLIENT REPLY).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// Not for the next command.
    SkipNext,
    /// Not for the command that runs.
    Skip,
}

/// Commands between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<Queued>,
    /// A command could not be queued: EXEC must fail.
    pub(crate) is_broken: bool,
    pub(crate) bytes: usize,
}

/// One command that waits for EXEC.
pub(crate) struct Queued {
    pub(crate) command: &'static Command,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// A key and what it looked like at WATCH.
pub(crate) struct Watched {
    pub(crate) table: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) version: u64,
    pub(crate) existed: bool,
}

impl Queued {
    pub(crate) fn new(command: &'static Command, args: Args<'_>) -> Self {
        let mut bytes = Vec::with_capacity(args.iter().map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            let start = bytes.len();
            bytes.extend_from_slice(arg);
            spans.push(Span { start, end: bytes.len() });
        }
        Queued { command, bytes, spans }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Bytes held for it.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.len() + size_of::<Self>() + self.spans.len() * size_of::<Span>()
    }
}

impl Session {
    pub(crate) fn new(registration: Registration, is_authenticated: bool) -> Self {
        Session {
            registration,
            is_authenticated,
            table: 0,
            transaction: None,
            watched: Vec::new(),
            watched_bytes: 0,
            is_closing: false,
            reply: ReplyMode::On,
            unanswered: None,
            sliced: None,
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.registration.client
    }

    /// Changes the SELECT index.
    pub(crate) fn select(&mut self, table: usize) {
        self.table = table;
        self.client().table.store(table, Relaxed);
    }

    /// Ends all watches. Must be called before the session is dropped.
    pub(crate) fn unwatch(&mut self, shared: &Shared) {
        self.watched_bytes = 0;
        for watched in self.watched.drain(..) {
            shared.databases[watched.table].watches.remove(&watched.key);
        }
    }
}
