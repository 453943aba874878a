//! State of a client between its commands.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Command;
use super::sliced::SlicedCommand;
use crate::clients::{Client, Registration};
use crate::resp::{Args, Span};
use crate::shared::Shared;
use crate::store::write_batcher::PendingReplies;

/// State of a client between its commands.
pub(crate) struct Session {
    registration: Registration,
    pub(crate) is_authenticated: bool,
    /// SELECT index.
    pub(crate) table: usize,
    /// Commands since MULTI.
    pub(crate) transaction: Option<Transaction>,
    /// Keys since WATCH.
    pub(crate) watched: Vec<WatchedKey>,
    /// Memory used by them, in bytes.
    pub(crate) watched_bytes: usize,
    /// Close once all replies are sent.
    pub(crate) is_closing: bool,
    pub(crate) reply: ReplyMode,
    /// Batched SETs without replies so far.
    pub(crate) pending_sets: Option<PendingReplies>,
    /// The unfinished last command.
    pub(crate) sliced: Option<Box<SlicedCommand>>,
}

/// Reply mode (CLIENT REPLY).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplyMode {
    On,
    Off,
    /// Off for the next command.
    SkipNext,
    /// Off for the running command.
    Skip,
}

/// Commands between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<QueuedCommand>,
    /// A command could not be queued: EXEC must fail.
    pub(crate) is_aborted: bool,
    pub(crate) bytes: usize,
}

/// A command queued for EXEC.
pub(crate) struct QueuedCommand {
    pub(crate) command: &'static Command,
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

/// A watched key and its state at WATCH.
pub(crate) struct WatchedKey {
    pub(crate) table: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) version: u64,
    pub(crate) existed: bool,
}

impl QueuedCommand {
    pub(crate) fn new(command: &'static Command, args: Args<'_>) -> Self {
        let mut bytes = Vec::with_capacity(args.iter().map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(args.len());
        for arg in args.iter() {
            let start = bytes.len();
            bytes.extend_from_slice(arg);
            spans.push(Span { start, end: bytes.len() });
        }
        QueuedCommand { command, bytes, spans }
    }

    pub(crate) fn args(&self) -> Args<'_> {
        Args::new(&self.bytes, &self.spans)
    }

    /// Memory used, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
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
            pending_sets: None,
            sliced: None,
        }
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.registration.client
    }

    /// Sets the SELECT index.
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
