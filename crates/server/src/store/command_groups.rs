//! Commands of an event-loop iteration that will run together, of all clients of a worker.
//!
//! ```text
//!   group of table 0, writes   requests   HSET a f 1 │ HGET a f │ INCR b │ HSET a g 2
//!                              parts      └─ connection 7 ──────┘ └ 9 ─┘ └─ 12 ────┘
//! ```
//!
//! There is a group of reads and one of other commands per table. `command::pipeline` fills and
//! runs them.
//!
//! Invariant: a connection has at most one part in all groups, and waits until it has run.

use std::ops::Range;

use super::locks::Stripes;
use crate::resp::lookahead::{Bounds, Lookahead};

/// Requests from which on a group is to run.
const MAX_REQUESTS: usize = 256;
/// Bytes of input from which on a group is to run.
const MAX_BYTES: usize = 64 << 10;
/// Locks of keys from which on a group is to run: others wait for them.
const MAX_LOCKS: usize = 32;

/// Commands on one table that will run together.
#[derive(Debug, Default)]
pub(crate) struct CommandGroup {
    pub(crate) table: usize,
    /// All commands are reads.
    pub(crate) is_read_only: bool,
    pub(crate) lookahead: Lookahead,
    pub(crate) parts: Vec<Part>,
    /// The locks of their keys.
    pub(crate) stripes: Stripes,
    bytes: usize,
}

/// Consecutive commands of one connection.
#[derive(Debug)]
pub(crate) struct Part {
    /// The connection, by its number in the worker.
    pub(crate) connection: usize,
    /// Its requests among those of the group.
    pub(crate) requests: Range<usize>,
    /// How many of them have run.
    pub(crate) ran: usize,
    /// Position in the input behind these.
    pub(crate) end: usize,
    /// Position in the replies before the first one.
    pub(crate) mark: usize,
}

impl CommandGroup {
    /// How much more it takes, at least one request.
    pub(crate) fn room(&self) -> Bounds {
        let requests = MAX_REQUESTS.saturating_sub(self.lookahead.requests().len()).max(1);
        Bounds { requests, bytes: MAX_BYTES.saturating_sub(self.bytes) }
    }

    fn is_full(&self) -> bool {
        self.lookahead.requests().len() >= MAX_REQUESTS
            || self.bytes >= MAX_BYTES
            || self.stripes.len() >= MAX_LOCKS
    }

    /// Makes requests of the lookahead those of a connection.
    pub(crate) fn add_part(&mut self, connection: usize, requests: Range<usize>) {
        self.bytes += self.lookahead.requests()[requests.clone()].last().map_or(0, |last| last.end);
        self.parts.push(Part { connection, requests, ran: 0, end: 0, mark: 0 });
    }
}

/// The groups of an iteration that have not run.
#[derive(Debug, Default)]
pub(crate) struct CommandGroups {
    open: Vec<CommandGroup>,
    /// Empty groups, whose memory is used again.
    free: Vec<CommandGroup>,
}

impl CommandGroups {
    /// The group of such commands.
    pub(crate) fn open(&mut self, table: usize, is_read_only: bool) -> &mut CommandGroup {
        let is_it =
            |group: &CommandGroup| (group.table, group.is_read_only) == (table, is_read_only);
        let at = self.open.iter().position(is_it).unwrap_or_else(|| {
            let group = self.free.pop().unwrap_or_default();
            self.open.push(CommandGroup { table, is_read_only, ..group });
            self.open.len() - 1
        });
        &mut self.open[at]
    }

    /// Whether a group is to run before more is added.
    pub(crate) fn is_any_full(&self) -> bool {
        self.open.iter().any(CommandGroup::is_full)
    }

    /// Takes the oldest group, to run it.
    pub(crate) fn take(&mut self) -> Option<CommandGroup> {
        (!self.open.is_empty()).then(|| self.open.remove(0))
    }

    /// Takes the memory of a group back.
    pub(crate) fn recycle(&mut self, mut group: CommandGroup) {
        group.lookahead.clear();
        group.parts.clear();
        group.stripes.clear();
        group.bytes = 0;
        self.free.push(group);
    }
}
