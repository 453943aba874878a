//! State shared by all threads of a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use siltstone_collections::ExpiredFields;
use siltstone_engine::{Clock, Timestamp};

use crate::acl::users::Acl;
use crate::archive::Archive;
use crate::backups::Backups;
use crate::clients::Clients;
use crate::command::{CommandIndex, Waiters};
use crate::keyspace_events::{EventClass, KeyspaceEvents, of_expired_fields};
use crate::latency::LatencyMonitor;
use crate::memcached::MemcachedCounters;
use crate::metrics::Metrics;
use crate::monitors::Monitors;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::replication::cluster_changes::ClusterChanges;
use crate::replication::groups::Groups;
use crate::script::cache::ScriptCache;
use crate::script::functions::Functions;
use crate::script::long_runs::LongRuns;
use crate::settings::Settings;
use crate::slow_log::SlowLog;
use crate::store::access_times::AccessTimes;
use crate::store::observers::Observers;
use crate::store::{Cursors, Database};
use crate::table_moves::TableMoves;
use crate::ticket_queue::TicketQueue;
use crate::tls::TlsState;
use crate::{ServerOptions, StopHandle, process, udp};

/// State shared by all threads of a server.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    /// Users and their rights.
    pub(crate) acl: Acl,
    /// Certificates of the TLS listeners, if there are some.
    pub(crate) tls: Option<TlsState>,
    pub(crate) address: SocketAddr,
    /// Address of the memcached listener.
    pub(crate) memcached_address: Option<SocketAddr>,
    pub(crate) databases: Vec<Database>,
    /// Receivers of changed keys.
    pub(crate) observers: Arc<Observers>,
    /// Parked commands.
    pub(crate) waiters: Waiters,
    pub(crate) pubsub: PubSub,
    pub(crate) monitors: Monitors,
    /// CLIENT PAUSE.
    pub(crate) pause: Pause,
    pub(crate) events: KeyspaceEvents,
    /// Settings that CONFIG SET changes.
    pub(crate) settings: Settings,
    pub(crate) scripts: ScriptCache,
    pub(crate) functions: Functions,
    pub(crate) long_runs: Arc<LongRuns>,
    /// Parked commands that wait for the job thread.
    pub(crate) jobs: TicketQueue,
    /// Moves of tables to other engines.
    pub(crate) moves: TableMoves,
    pub(crate) slow_log: SlowLog,
    pub(crate) latency: LatencyMonitor,
    /// Definitions of the Redis commands.
    pub(crate) commands: &'static CommandIndex,
    pub(crate) cursors: Mutex<Cursors>,
    /// Access times of keys, for OBJECT IDLETIME and memcached.
    pub(crate) access_times: AccessTimes,
    pub(crate) clients: Arc<Clients>,
    pub(crate) metrics: Metrics,
    /// Counters of the memcached protocols.
    pub(crate) memcached: MemcachedCounters,
    /// Counters of the UDP protocol.
    pub(crate) udp: udp::UdpCounters,
    /// Index of the table served over UDP, if one is.
    pub(crate) udp_table: usize,
    pub(crate) stop: StopHandle,
    pub(crate) started: Instant,
    pub(crate) backups: Option<Backups>,
    /// Archives the changes between backups, if anyone does.
    pub(crate) archive: Option<Archive>,
    /// Changes of users of a replicated table that are under way here.
    pub(crate) cluster_changes: ClusterChanges,
    /// The groups, if the table is replicated. Each of them has a database then, and all together
    /// are SELECT 0.
    pub(crate) replication: Option<Groups>,
    /// Time at which all tables were last synced, in seconds since 1970.
    pub(crate) last_sync: AtomicU64,
}

impl Shared {
    /// When the last backup was complete, in seconds since 1970; 0 if there is none. Without
    /// backups, when all tables were last synced.
    pub(crate) fn last_save_s(&self) -> u64 {
        match &self.backups {
            Some(backups) => backups.report().completed_at_s.unwrap_or(0),
            None => self.last_sync.load(Relaxed),
        }
    }

    /// Whether commands have to wait until writes to a replicated table are proposed.
    #[inline]
    pub(crate) fn has_full_proposal(&self) -> bool {
        self.replication.as_ref().is_some_and(Groups::is_full)
    }

    /// Sends a message to the subscribers of a channel and of matching patterns, at all nodes of a
    /// replicated table. Returns how many subscriptions here received it.
    pub(crate) fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        if let Some(groups) = &self.replication {
            groups.publish(channel, message);
        }
        self.pubsub.publish(channel, message)
    }

    /// Prepares the table of a replicated group for commands: other nodes may have written it.
    pub(crate) fn begin_term(&self, group: usize) {
        if let Err(error) = self.databases[group].reload(self.now(group)) {
            // Commands on collections would be wrong.
            let text = "the replicated table cannot be read, so the server stops";
            process::log(&format!("{text}: {error}"));
            self.stop.stop();
        }
    }

    /// The clock of commands on a table.
    #[inline]
    pub(crate) fn clock(&self, table: usize) -> &dyn Clock {
        match &self.replication {
            None => self.options.clock.as_ref(),
            Some(groups) => groups.get(table).clock.as_ref(),
        }
    }

    /// The time of commands on a table.
    #[inline]
    pub(crate) fn now(&self, table: usize) -> Timestamp {
        self.clock(table).now()
    }

    /// Whether commands on a table may write: not on a follower of a replicated group.
    pub(crate) fn may_write(&self, table: usize) -> bool {
        self.replication.as_ref().is_none_or(|groups| groups.get(table).clock.is_leading())
    }

    /// The SELECT index of a table, as clients see it.
    pub(crate) fn select_index(&self, table: usize) -> usize {
        if self.replication.is_some() { 0 } else { table }
    }

    /// The number of SELECT indexes.
    pub(crate) fn select_count(&self) -> usize {
        if self.replication.is_some() { 1 } else { self.databases.len() }
    }

    /// Records that all tables were just synced.
    pub(crate) fn record_sync(&self) {
        self.last_sync.store(self.options.clock.now() / 1000, Relaxed);
    }

    /// Notifies the observers of keys whose expiry has passed, and makes the keys ready whose end
    /// commands wait for.
    pub(crate) fn publish_expired(&self) {
        self.observers.blocked.mark_expired_ready(self.options.clock.now());
        if !self.observers.has_expiries() {
            return;
        }
        // While a script is busy, the next call does it.
        let Some(_gate) = self.long_runs.enter() else { return };
        while let Some((table, key, is_of_fields)) =
            self.observers.expiries.take_due(self.options.clock.now())
        {
            if is_of_fields {
                self.publish_expired_fields(table, &key);
                continue;
            }
            // A key that was written again meanwhile has not expired.
            if matches!(self.databases[table].get(&key), Ok(None)) {
                let index = self.select_index(table);
                self.events.publish(&self.pubsub, index, EventClass::EXPIRED, "expired", &key);
                self.observers.tracking.invalidate(&[&key]);
            }
        }
    }

    /// Removes fields of a hash that have expired, and notifies its observers.
    fn publish_expired_fields(&self, table: usize, key: &[u8]) {
        if !self.may_write(table) {
            return;
        }
        // If it fails, the next command on the hash does it.
        let expired = self.databases[table].expire_fields(key, self.clock(table));
        let Ok(Some(ExpiredFields { count, is_removed, .. })) = expired else { return };
        self.metrics.expired_fields.fetch_add(count, Relaxed);
        let index = self.select_index(table);
        for (class, event) in of_expired_fields(is_removed) {
            self.events.publish(&self.pubsub, index, class, event, key);
        }
        self.observers.tracking.invalidate(&[key]);
    }

    /// Records a latency if it is above the threshold.
    pub(crate) fn record_latency(&self, event: &'static str, latency: Duration) {
        let threshold_ms = self.settings.latency_threshold_ms.load(Relaxed);
        if threshold_ms > 0 && latency >= Duration::from_millis(threshold_ms) {
            self.latency.record(event, latency);
        }
    }
}
