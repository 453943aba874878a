//! Denied commands and logins: counters, and the latest of them for ACL LOG.
//!
//! A denial that equals one of the latest within a minute is counted with it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::selector::Denial;

/// Denials of this many milliseconds ago or less are counted together.
const GROUPING_MS: u64 = 60_000;
/// How many entries are compared with a new one.
const MAX_COMPARED: usize = 10;
const DEFAULT_MAX_ENTRIES: usize = 128;
/// Maximum bytes of a key, channel or name of a user: clients choose them.
const MAX_TEXT_BYTES: usize = 1 << 10;

/// What was denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Command = 0,
    Key = 1,
    Channel = 2,
    Auth = 3,
}

/// Where a command was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallContext {
    TopLevel,
    Transaction,
    Script,
}

/// A denial, or several equal ones.
#[derive(Debug, Clone)]
pub(crate) struct LogEntry {
    pub(crate) id: u64,
    pub(crate) count: u64,
    pub(crate) reason: Reason,
    pub(crate) context: CallContext,
    /// The command, key or channel.
    pub(crate) object: Vec<u8>,
    pub(crate) user: Vec<u8>,
    /// The client's line of CLIENT LIST, at the last denial.
    pub(crate) client: String,
    /// Times of the first and last denial, in milliseconds since 1970.
    pub(crate) created_at: u64,
    pub(crate) updated_at: u64,
}

/// The latest denials.
pub(crate) struct DenialLog {
    entries: Mutex<Entries>,
    pub(crate) max_entries: AtomicUsize,
    /// By [`Reason`].
    counts: [AtomicU64; 4],
}

#[derive(Default)]
struct Entries {
    next_id: u64,
    /// The latest first.
    latest: VecDeque<LogEntry>,
}

impl Default for DenialLog {
    fn default() -> Self {
        DenialLog {
            entries: Mutex::default(),
            max_entries: AtomicUsize::new(DEFAULT_MAX_ENTRIES),
            counts: Default::default(),
        }
    }
}

impl Reason {
    /// Name in INFO.
    pub(crate) fn short_name(self) -> &'static str {
        if self == Reason::Command { "cmd" } else { self.name() }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Command => "command",
            Reason::Key => "key",
            Reason::Channel => "channel",
            Reason::Auth => "auth",
        }
    }
}

impl From<&Denial> for Reason {
    fn from(denial: &Denial) -> Self {
        match denial {
            Denial::Command => Reason::Command,
            Denial::Key(..) => Reason::Key,
            Denial::Channel(..) => Reason::Channel,
        }
    }
}

impl CallContext {
    pub(crate) fn name(self) -> &'static str {
        match self {
            CallContext::TopLevel => "toplevel",
            CallContext::Transaction => "multi",
            CallContext::Script => "lua",
        }
    }
}

impl DenialLog {
    /// Adds a denial to user `user`.
    pub(crate) fn add(
        &self,
        (reason, context): (Reason, CallContext),
        object: &[u8],
        user: &[u8],
        client: String,
        now: u64,
    ) {
        self.counts[reason as usize].fetch_add(1, Relaxed);
        let (object, user) = (shorten(object), shorten(user));
        let mut entries = self.entries.lock();
        let is_equal = |entry: &LogEntry| {
            entry.reason == reason
                && entry.context == context
                && now.abs_diff(entry.updated_at) <= GROUPING_MS
                && entry.object == object
                && entry.user == user
        };
        let equal = entries.latest.iter().take(MAX_COMPARED).position(is_equal);
        let entry = match equal.and_then(|place| entries.latest.remove(place)) {
            Some(entry) => LogEntry { count: entry.count + 1, client, updated_at: now, ..entry },
            None => {
                let id = entries.next_id;
                entries.next_id += 1;
                let (created_at, updated_at) = (now, now);
                LogEntry {
                    id,
                    count: 1,
                    reason,
                    context,
                    object,
                    user,
                    client,
                    created_at,
                    updated_at,
                }
            }
        };
        entries.latest.push_front(entry);
        entries.latest.truncate(self.max_entries.load(Relaxed));
    }

    /// The latest entries.
    pub(crate) fn latest(&self, count: usize) -> Vec<LogEntry> {
        self.entries.lock().latest.iter().take(count).cloned().collect()
    }

    /// Removes all entries.
    pub(crate) fn reset(&self) {
        self.entries.lock().latest.clear();
    }

    /// Denials since the start.
    pub(crate) fn count(&self, reason: Reason) -> u64 {
        self.counts[reason as usize].load(Relaxed)
    }
}

/// A text, or its beginning and how long it was.
fn shorten(text: &[u8]) -> Vec<u8> {
    match text.split_at_checked(MAX_TEXT_BYTES) {
        Some((shown, rest)) if !rest.is_empty() => {
            [shown, format!("... ({} more bytes)", rest.len()).as_bytes()].concat()
        }
        _ => text.to_vec(),
    }
}
