//! State shared by all threads of a server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

use crate::clients::Clients;
use crate::memcached::MemcachedCounters;
use crate::metrics::Metrics;
use crate::store::access_times::AccessTimes;
use crate::store::{Cursors, Database};
use crate::{ServerOptions, StopHandle, udp};

/// State shared by all threads of a server.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) address: SocketAddr,
    /// Address of the memcached listener.
    pub(crate) memcached_address: Option<SocketAddr>,
    pub(crate) databases: Vec<Database>,
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
    /// Time at which all tables were last synced, in seconds since 1970.
    pub(crate) last_sync: AtomicU64,
}

impl Shared {
    /// Records that all tables were just synced.
    pub(crate) fn record_sync(&self) {
        self.last_sync.store(self.options.clock.now() / 1000, Relaxed);
    }
}
