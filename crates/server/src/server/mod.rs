//! The server and its threads, from binding to draining.
//!
//! | thread | task |
//! | --- | --- |
//! | the caller's | accepts clients |
//! | `siltstone-serve-N` | serves clients, one thread per core |
//! | `siltstone-script` | runs long scripts, alone |
//! | `siltstone-jobs` | runs MIGRATE, and changes of users in a replicated table |
//! | `siltstone-move` | moves tables to other engines |
//! | `siltstone-sync` | syncs written tables every second, under [`Fsync::EverySecond`] |
//! | `siltstone-users` | commits changes of users, at the leader of a replicated table |
//! | `siltstone-publish` | leaves messages of other nodes for subscribers, in a replicated table |
//! | `siltstone-metrics` | serves metrics over HTTP |
//! | `siltstone-udp-N` | serves a `mica` table over UDP, one port per thread |
//! | `siltstone-mc-udp` | serves memcached over UDP, if enabled |
//!
//! Shutdown: no more clients are accepted; workers run received requests and send pending replies
//! within `drain_timeout`; then every table is synced. The node of a replicated table stops last.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use parking_lot::Mutex;
use siltstone::Table;
use siltstone::catalogue::TableSpec;
use siltstone_engine::{Error, Result};
use siltstone_mica::Store;

use crate::acl::users::Acl;
use crate::archive::Archive;
use crate::backups::Backups;
use crate::clients::Clients;
use crate::command::{Waiters, begin_with_users, command_index, open_functions};
use crate::keyspace_events::KeyspaceEvents;
use crate::latency::LatencyMonitor;
use crate::memcached::MemcachedCounters;
use crate::metrics::Metrics;
use crate::monitors::Monitors;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::replication::checkpoint::NodeCheckpointer;
use crate::replication::cluster_changes::ClusterChanges;
use crate::replication::options::ClusterOptions;
use crate::replication::start::NodeThreads;
use crate::script::cache::ScriptCache;
use crate::script::functions::Functions;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::signals::{self, SignalGuard};
use crate::slow_log::SlowLog;
use crate::store::Cursors;
use crate::store::access_times::AccessTimes;
use crate::store::fetch_times::FetchTimes;
use crate::store::versions::Versions;
use crate::table_moves::TableMoves;
use crate::ticket_queue::TicketQueue;
use crate::tls::{TlsOptions, TlsState};
use crate::{Fsync, ServerOptions, StopHandle, udp};

mod moves;
mod sockets;
mod tables;
mod threads;

use sockets::{MicaPorts, Sockets};
use tables::{Tables, check_names, find_table};

/// A bound server; [`run`](Self::run) serves.
pub struct Server {
    shared: Arc<Shared>,
    sockets: Sockets,
    mica: Option<MicaPorts>,
    /// This node of a replicated table.
    node: Option<NodeThreads>,
}

impl Server {
    /// Checks what [`bind`](Self::bind) would reject, for a caller that has yet to create the
    /// tables: invalid options, names of tables that are not served, addresses in use.
    ///
    /// # Errors
    /// As [`bind`](Self::bind).
    pub fn check(options: &ServerOptions, tables: &[(&str, &TableSpec)]) -> Result<()> {
        options.check()?;
        open_acl(options)?;
        let names: Vec<_> = tables.iter().map(|(name, _)| *name).collect();
        check_names(&names)?;
        find_table(&names, options.memcached_table.as_deref())?;
        options.tls.as_ref().map(open_tls).transpose()?;
        Sockets::check(options)?;
        options.udp.map_or(Ok(()), |address| MicaPorts::check(address, tables, options))
    }

    /// Binds the listeners for these tables; the first is SELECT 0, the second SELECT 1, ….
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for invalid options, such as an address that other machines can
    /// reach without a password; [`Error::Io`] if an address cannot be bound; those of an upgrade
    /// of an old table to collections ([`siltstone_collections::Keyspace::open`]).
    pub fn bind(tables: Vec<Table>, options: ServerOptions) -> Result<Self> {
        let names: Vec<_> = tables.iter().map(Table::name).collect();
        Self::bind_tables(&names, options, |options| Tables::of_store(&tables, options))
    }

    /// Binds the listeners for this node of a replicated table, and starts the node. It is created
    /// if its directory is missing or empty. Experimental.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for invalid options; [`Error::Io`] if an address cannot be bound;
    /// those of opening the node: one that has lost its log or its table does not open.
    pub fn bind_replicated(cluster: &ClusterOptions, options: ServerOptions) -> Result<Self> {
        cluster.check(&options)?;
        let options = ServerOptions { threads: 1, fsync: Fsync::Always, ..options };
        Self::bind_tables(&["replicated"], options, |options| Tables::of_node(cluster, options))
    }

    fn bind_tables(
        names: &[&str],
        options: ServerOptions,
        open: impl FnOnce(&ServerOptions) -> Result<Tables>,
    ) -> Result<Self> {
        options.check()?;
        let acl = open_acl(&options)?;
        let tls = options.tls.as_ref().map(open_tls).transpose()?;
        if names.is_empty() {
            let reason = "there is no table to serve; name at least one";
            return Err(Error::invalid_option("tables", reason));
        }
        check_names(names)?;
        let memcached_table = find_table(names, options.memcached_table.as_deref())?;
        let sockets = Sockets::bind(&options)?;
        let Tables { mut databases, observers, replication } = open(&options)?;
        let (replication, node) = replication.unzip();
        let has_memcached = sockets.have_memcached();
        if has_memcached {
            databases[memcached_table].versions = Some(Versions::new());
            databases[memcached_table].fetch_times = Some(FetchTimes::new());
        }
        let of_memcached = has_memcached.then_some(memcached_table);
        let mica = options
            .udp
            .map(|address| MicaPorts::bind(address, &mut databases, of_memcached, &options))
            .transpose()?;
        let functions = match (&replication, &options.functions_dir) {
            (None, Some(dir)) => open_functions(dir)
                .map_err(|reason| Error::invalid_option("functions_dir", reason))?,
            // Those of a replicated table are rows of it.
            (_, _) => Functions::default(),
        };
        let shared = Arc::new(Shared {
            address: sockets.addresses.listen,
            memcached_address: sockets.addresses.memcached,
            databases,
            observers,
            waiters: Waiters::default(),
            pubsub: PubSub::default(),
            monitors: Monitors::default(),
            pause: Pause::default(),
            events: KeyspaceEvents::default(),
            settings: Settings::new(&options),
            scripts: ScriptCache::default(),
            functions,
            long_runs: Arc::default(),
            jobs: TicketQueue::default(),
            moves: TableMoves::default(),
            slow_log: SlowLog::default(),
            latency: LatencyMonitor::default(),
            cursors: Mutex::new(Cursors::default()),
            access_times: AccessTimes::new(),
            clients: Arc::new(Clients::default()),
            commands: command_index(),
            metrics: Metrics::new(options.workers() + 2, command_index()),
            memcached: MemcachedCounters::new(memcached_table),
            udp: udp::UdpCounters::default(),
            udp_table: mica.as_ref().map_or(0, |mica| mica.table),
            stop: StopHandle::default(),
            started: Instant::now(),
            backups: options
                .backup
                .clone()
                .map(|backup| Backups::new(backup, options.clock.clone())),
            archive: options
                .backup
                .as_ref()
                .and_then(|backup| backup.archive.clone())
                .map(|archive| Archive::new(archive, options.clock.clone())),
            cluster_changes: ClusterChanges::default(),
            replication,
            last_sync: AtomicU64::new(0),
            acl,
            tls,
            options,
        });
        if node.as_ref().is_some_and(|node| node.joins) {
            shared.acl.lock();
        }
        // Before the first client.
        begin_with_users(&shared)?;
        shared.record_sync();
        Ok(Server { shared, sockets, mica, node })
    }

    pub(crate) fn udp_store(&self) -> Option<&Arc<Store>> {
        self.mica.as_ref().map(|mica| &mica.store)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Address of the Redis listener.
    pub fn local_addr(&self) -> SocketAddr {
        self.shared.address
    }

    /// Address of the memcached listener.
    pub fn memcached_addr(&self) -> Option<SocketAddr> {
        self.shared.memcached_address
    }

    /// The number of this node of a replicated table.
    pub fn node(&self) -> Option<u64> {
        self.shared.replication.as_ref().map(|groups| groups.first().id())
    }

    /// Takes checkpoints of this node of a replicated table.
    pub fn node_checkpointer(&self) -> Option<NodeCheckpointer> {
        self.node.as_ref().map(|node| node.checkpointer.clone())
    }

    /// Address of memcached over UDP.
    pub fn memcached_udp_addr(&self) -> Option<SocketAddr> {
        self.sockets.memcached_udp.as_ref().and_then(|socket| socket.local_addr().ok())
    }

    /// Address of the first UDP port of the `mica` table.
    pub fn udp_addr(&self) -> Option<SocketAddr> {
        self.mica.as_ref().map(|mica| mica.ports.address)
    }

    /// Address of the metrics port.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.sockets.addresses.metrics
    }

    /// Address of the Redis listener with TLS.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.sockets.addresses.tls_listen
    }

    /// Address of the memcached listener with TLS.
    pub fn tls_memcached_addr(&self) -> Option<SocketAddr> {
        self.sockets.addresses.tls_memcached
    }

    /// Address of the metrics port with TLS.
    pub fn tls_metrics_addr(&self) -> Option<SocketAddr> {
        self.sockets.addresses.tls_metrics
    }

    /// A handle that stops the server from any thread.
    pub fn stop_handle(&self) -> StopHandle {
        self.shared.stop.clone()
    }

    /// Makes SIGTERM and SIGINT stop the server until the guard is dropped. A signal before
    /// [`run`](Self::run) makes it return at once. With TLS, for clients or between nodes,
    /// SIGHUP makes the server read its certificates again; if they are wrong, it keeps those that
    /// it has.
    ///
    /// # Errors
    /// If a signal handler or a thread cannot be created.
    pub fn stop_on_signal(&self) -> Result<SignalGuard> {
        signals::listen(&self.shared)
    }

    /// Serves until SIGTERM or SIGINT, then drains and syncs.
    ///
    /// # Errors
    /// As [`run`](Self::run) and [`stop_on_signal`](Self::stop_on_signal).
    pub fn run_until_signal(self) -> Result<()> {
        let _signals = self.stop_on_signal()?;
        self.run()
    }

    /// Serves until [`StopHandle::stop`], then drains and syncs.
    ///
    /// # Errors
    /// System errors (threads, polls), and the error of the last sync: then the last writes may not
    /// be durable.
    pub fn run(self) -> Result<()> {
        threads::run(self.shared, self.sockets, self.mica, self.node)
    }
}

/// The users of the options.
fn open_acl(options: &ServerOptions) -> Result<Acl> {
    let (password, file) = (options.password.as_deref(), options.acl_file.clone());
    Acl::open(command_index(), password, file, options.is_public())
        .map_err(|reason| Error::invalid_option("acl_file", reason))
}

/// The certificates of the options.
fn open_tls(options: &TlsOptions) -> Result<TlsState> {
    TlsState::open(&options.files).map_err(|reason| Error::invalid_option("tls", reason))
}
