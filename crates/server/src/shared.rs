//! What all threads of a server share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

use crate::clients::Clients;
use crate::memcached::Tallies;
use crate::metrics::Metrics;
use crate::store::access_times::AccessTimes;
use crate::store::{Cursors, Database};
use crate::{ServerOptions, StopHandle, udp};

/// What all threads of a server share.
pub(crate) struct Shared {
    pub(crate) options: ServerOptions,
    pub(crate) address: SocketAddr,
    /// Where memcached's clients are listened for.
    pub(crate) memcached_address: Option<SocketAddr>,
    pub(crate) databases: Vec<Database>,
    pub(crate) cursors: Mutex<Cursors>,
    /// When keys were last accessed.
    pub(crate) access_times: AccessTimes,
    pub(crate) clients: Arc<Clients>,
    pub(crate) metrics: Metrics,
    /// What is counted for memcached's clients.
    pub(crate) memcached: Tallies,
    /// What is counted over UDP.
    pub(crate) udp: udp::Tallies,
    /// The table that is served over UDP, if one is.
    pub(crate) udp_table: usize,
    pub(crate) stop: StopHandle,
    pub(crate) started: Instant,
    /// When all tables were last synced, in seconds since 1970.
    pub(crate) last_sync: AtomicU64,
}

impl Shared {
    /// Notes that all tables have just been synced.
    pub(crate) fn note_sync(&self) {
        self.last_sync.store(self.options.clock.now() / 1000, Relaxed);
    }
}
