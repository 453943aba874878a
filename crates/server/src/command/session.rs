//! State of a client between its commands.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::queued::QueuedCommand;
use super::shown_call::ShownCall;
use super::sliced::SlicedCommand;
use crate::acl::access::Access;
use crate::acl::user::User;
use crate::clients::{Client, Ticket, flag};
use crate::pubsub::Kind;
use crate::replication::group_set::GroupSet;
use crate::shared::Shared;
use crate::store::write_batcher::PendingReplies;
use crate::tracking::TrackingOptions;

/// State of a client between its commands.
pub(crate) struct Session {
    client: Arc<Client>,
    /// The user.
    pub(crate) access: Access,
    /// SELECT index; in a replicated table the group of the running command.
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
    /// How it was called, for its reply and counters.
    pub(crate) sliced_call: Option<Call>,
    /// The last command, while it waits.
    pub(crate) parked: Option<Box<ParkedCommand>>,
    /// Until when the next command waits, during CLIENT PAUSE.
    pub(crate) paused_until: Option<Instant>,
    /// Commands of the last script, for the monitors.
    pub(crate) script_calls: Vec<ShownCall>,
    /// A parked command is being run again.
    pub(crate) is_retry: bool,
    /// The groups in which commands of this iteration have seen or written what may not be
    /// committed.
    pub(crate) needs_commit: GroupSet,
    /// READONLY: reads may be answered by a follower, from what it has applied.
    pub(crate) is_replica_reader: bool,
    /// CLIENT HOLD-EXPIRY.
    pub(crate) holds_expiry: bool,
    /// CLIENT NO-TOUCH: reads do not change access times.
    pub(crate) is_no_touch: bool,
    /// CLIENT TRACKING.
    pub(crate) tracking: Option<Box<SessionTracking>>,
    /// Channels, patterns and shard channels.
    pub(crate) subscriptions: [BTreeSet<Vec<u8>>; 3],
    /// Memory used by them, in bytes.
    pub(crate) subscription_bytes: usize,
}

/// State of CLIENT TRACKING.
pub(crate) struct SessionTracking {
    pub(crate) options: TrackingOptions,
    /// The argument of CLIENT CACHING, for the next command.
    pub(crate) caching: Option<bool>,
}

impl SessionTracking {
    /// Whether keys of the running command are recorded.
    pub(crate) fn records_reads(&self) -> bool {
        let TrackingOptions { is_broadcast, opt_in, opt_out, .. } = self.options;
        !is_broadcast
            && (!opt_in || self.caching == Some(true))
            && (!opt_out || self.caching != Some(false))
    }
}

/// A command whose reply comes later.
pub(crate) struct ParkedCommand {
    pub(crate) ticket: Ticket,
    /// When it ends without having found anything.
    pub(crate) deadline: Option<Instant>,
    /// Its reply then.
    pub(crate) on_timeout: TimeoutReply,
    pub(crate) mode: ReplyMode,
    /// Another thread does its work.
    pub(crate) is_job: bool,
}

/// Reply to a parked command whose time is over.
#[derive(Debug, Clone, Copy)]
pub(crate) enum TimeoutReply {
    /// Null in place of an array.
    NullArray,
    Int(i64),
    /// Two numbers.
    Pair(i64, i64),
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

/// Parameters of a call.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// Number of the command.
    pub(crate) command: usize,
    pub(crate) mode: ReplyMode,
    pub(crate) began: Instant,
}

/// Commands between MULTI and EXEC.
#[derive(Default)]
pub(crate) struct Transaction {
    pub(crate) commands: Vec<QueuedCommand>,
    /// A command could not be queued: EXEC must fail.
    pub(crate) is_aborted: bool,
    pub(crate) bytes: usize,
}

/// A watched key and its state at WATCH.
pub(crate) struct WatchedKey {
    pub(crate) table: usize,
    pub(crate) key: Vec<u8>,
    pub(crate) version: u64,
    pub(crate) existed: bool,
}

impl Session {
    pub(crate) fn new(client: Arc<Client>, access: Access) -> Self {
        client.set_user(access.user());
        Session {
            client,
            access,
            table: 0,
            transaction: None,
            watched: Vec::new(),
            watched_bytes: 0,
            is_closing: false,
            reply: ReplyMode::On,
            pending_sets: None,
            sliced: None,
            sliced_call: None,
            parked: None,
            paused_until: None,
            script_calls: Vec::new(),
            is_retry: false,
            needs_commit: 0,
            is_replica_reader: false,
            holds_expiry: false,
            is_no_touch: false,
            tracking: None,
            subscriptions: Default::default(),
            subscription_bytes: 0,
        }
    }

    /// A session that runs one parked command of a client again. `tracks_reads`: keys that it reads
    /// are recorded for CLIENT TRACKING.
    pub(crate) fn retry(
        shared: &Shared,
        client: Arc<Client>,
        table: usize,
        tracks_reads: bool,
    ) -> Self {
        let access = match client.user() {
            Some(user) => Access::again(&shared.acl, user),
            None => Access::new(&shared.acl),
        };
        // The options have been applied.
        let options = TrackingOptions::default();
        let tracking = SessionTracking { options, caching: None };
        let tracking = tracks_reads.then(|| Box::new(tracking));
        let is_no_touch = client.has_flag(flag::NO_TOUCH);
        let session = Self::new(client, access);
        Session { table, is_retry: true, is_no_touch, tracking, ..session }
    }

    /// Whether keys of the running command are recorded for CLIENT TRACKING.
    pub(crate) fn tracks_reads(&self) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.records_reads())
    }

    /// Makes the connection that of a user who has logged in.
    pub(crate) fn log_in(&mut self, user: Arc<User>) {
        self.client.set_user(&user);
        self.access.log_in(user);
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Sets the SELECT index.
    pub(crate) fn select(&mut self, table: usize) {
        self.table = table;
        self.client().table.store(table, Relaxed);
    }

    /// Selects the table again that was selected before a script or transaction.
    pub(crate) fn select_again(&mut self, table: usize) {
        if self.table != table {
            self.select(table);
        }
    }

    /// Whether the client has subscriptions.
    pub(crate) fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|names| !names.is_empty())
    }

    /// Ends all subscriptions.
    pub(crate) fn unsubscribe(&mut self, shared: &Shared) {
        self.subscription_bytes = 0;
        for kind in [Kind::Channel, Kind::Pattern, Kind::ShardChannel] {
            for name in std::mem::take(&mut self.subscriptions[kind as usize]) {
                shared.pubsub.unsubscribe(kind, &name, &self.client);
            }
        }
    }

    /// Ends CLIENT TRACKING.
    pub(crate) fn untrack(&mut self, shared: &Shared) {
        if self.tracking.take().is_some() {
            shared.observers.untrack(self.client.id);
            self.client.set_flags(flag::TRACKING | flag::BROADCAST, false);
            self.client.redirect.store(0, Relaxed);
        }
    }

    /// Ends MONITOR.
    pub(crate) fn end_monitor(&mut self, shared: &Shared) {
        if self.client.has_flag(flag::MONITOR) {
            self.client.set_flags(flag::MONITOR, false);
            shared.monitors.remove(self.client.id, &shared.observers);
        }
    }

    /// Releases what outlives the session. Must be called before it is dropped.
    pub(crate) fn close(&mut self, shared: &Shared) {
        self.unwatch(shared);
        self.unsubscribe(shared);
        self.untrack(shared);
        self.end_monitor(shared);
        if let Some(clock) = shared.options.holdable_clock.as_ref().filter(|_| self.holds_expiry) {
            clock.release(self.client.id);
        }
        if let Some(parked) = self.parked.take() {
            shared.waiters.abandon(&shared.observers, parked.ticket);
            self.client.set_parked(None);
        }
    }

    /// Ends all watches.
    pub(crate) fn unwatch(&mut self, shared: &Shared) {
        self.watched_bytes = 0;
        self.client.watches.store(0, Relaxed);
        for watched in self.watched.drain(..) {
            shared.databases[watched.table].watches.remove(&watched.key);
        }
    }
}
