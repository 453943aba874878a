//! The server and its threads, from binding to draining.
//!
//! | thread | task |
//! | --- | --- |
//! | the caller's | accepts clients |
//! | `siltstone-serve-N` | serves clients, one thread per core |
//! | `siltstone-script` | runs long scripts, alone |
//! | `siltstone-sync` | syncs written tables every second, under [`Fsync::EverySecond`] |
//! | `siltstone-metrics` | serves metrics over HTTP |
//! | `siltstone-udp-N` | serves a `mica` table over UDP, one port per thread |
//! | `siltstone-mc-udp` | serves memcached over UDP, if enabled |
//!
//! Shutdown: no more clients are accepted; workers run received requests and send pending replies
//! within `drain_timeout`; then every table is synced. The node of a replicated table stops last.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use siltstone::Table;
use siltstone::catalogue::TableSpec;
use siltstone_engine::{Clock, Error, InvalidOption, Result};
use siltstone_mica::Store;

use crate::acl::users::Acl;
use crate::backups::Backups;
use crate::clients::Clients;
use crate::command::{Waiters, command_index, read_functions_file, run_long_scripts};
use crate::keyspace_events::KeyspaceEvents;
use crate::latency::LatencyMonitor;
use crate::memcached::MemcachedCounters;
use crate::metrics::Metrics;
use crate::metrics::http::{HttpPort, IsTls};
use crate::monitors::Monitors;
use crate::net::accept::Acceptor;
use crate::net::listen::listen;
use crate::net::protocol::{Endpoint, Protocol};
use crate::net::unix_socket::UnixSocket;
use crate::net::worker::Worker;
use crate::pause::Pause;
use crate::pubsub::PubSub;
use crate::replication::options::ClusterOptions;
use crate::replication::start::{Running, Started};
use crate::replication::{self, groups::Groups};
use crate::script::cache::ScriptCache;
use crate::script::functions::Functions;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::signals::{self, SignalGuard};
use crate::slow_log::SlowLog;
use crate::store::access_times::AccessTimes;
use crate::store::fetch_times::FetchTimes;
use crate::store::observers::Observers;
use crate::store::versions::Versions;
use crate::store::{Content, Cursors, Database};
use crate::tls::{TlsOptions, TlsState};
use crate::udp::{self, Ports};
use crate::{Fsync, ServerOptions, StopHandle};

/// How long a read of a table is repeated that a received snapshot replaces.
const REPLACE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum delay until the sync thread notices a stop.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A bound server; [`run`](Self::run) serves.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<(mio::net::TcpListener, Endpoint)>,
    unix: Option<UnixSocket>,
    memcached_udp: Option<UdpSocket>,
    udp: Option<(Ports, Arc<Store>)>,
    metrics: Vec<(mio::net::TcpListener, IsTls)>,
    addresses: Addresses,
    /// This node of a replicated table.
    node: Option<Running>,
}

/// The tables that a server is bound to.
struct Tables {
    databases: Vec<Database>,
    observers: Arc<Observers>,
    replication: Option<(Groups, Running)>,
}

/// Bound addresses besides that of the Redis listener.
#[derive(Default)]
struct Addresses {
    metrics: Option<SocketAddr>,
    tls_listen: Option<SocketAddr>,
    tls_memcached: Option<SocketAddr>,
    tls_metrics: Option<SocketAddr>,
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
        let tls = options.tls.as_ref();
        let addresses = [
            Some(options.listen),
            options.memcached,
            options.metrics,
            tls.and_then(|tls| tls.listen),
            tls.and_then(|tls| tls.memcached),
            tls.and_then(|tls| tls.metrics),
        ];
        addresses.into_iter().flatten().try_for_each(|address| listen(address).map(drop))?;
        options.unix_socket.as_ref().map(|(path, _)| UnixSocket::check(path)).transpose()?;
        options.memcached_udp.map(bind_udp).transpose()?;
        let Some(address) = options.udp else { return Ok(()) };
        let mica = |spec: &TableSpec| {
            (spec.engine == "mica").then(|| siltstone_mica::Options::from_map(&spec.options))
        };
        let tables = tables.iter().map(|(name, spec)| (*name, mica(spec)));
        let (_, mica) = find_mica(tables, options.udp_table.as_deref())?;
        let threads = options.udp_threads(mica?.partitions);
        Ports::bind(address, threads, None, options.udp_gso_segments).map(drop)
    }

    /// Binds the listeners for these tables; the first is SELECT 0, the second SELECT 1, ….
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for invalid options, such as an address that other machines can
    /// reach without a password; [`Error::Io`] if an address cannot be bound; those of an upgrade
    /// of an old table to collections ([`siltstone_collections::Keyspace::open`]).
    pub fn bind(tables: Vec<Table>, options: ServerOptions) -> Result<Self> {
        let names: Vec<_> = tables.iter().map(Table::name).collect();
        Self::bind_tables(&names, options, |options| {
            let observers = Arc::new(Observers::default());
            let contents = tables.iter().map(|table| {
                Content::open(table.clone(), options.max_value_bytes(), options.clock.now())
            });
            let databases = Database::of_contents(contents.collect::<Result<_>>()?, &observers);
            Ok(Tables { databases, observers, replication: None })
        })
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
        Self::bind_tables(&["replicated"], options, |options| {
            let observers = Arc::new(Observers::default());
            let Started { groups, running } = replication::start::start(cluster)?;
            let contents = groups.iter().enumerate().map(|(index, group)| {
                let name = match groups.are_several() {
                    true => format!("group-{index}"),
                    false => "replicated".to_owned(),
                };
                let max_value_bytes = options.max_value_bytes();
                while_replaced(|| {
                    let (engine, now) = (group.table.clone(), group.clock.now());
                    Content::open_replicated(name.clone(), engine, max_value_bytes, now)
                })
            });
            let databases = Database::of_contents(contents.collect::<Result<_>>()?, &observers);
            Ok(Tables { databases, observers, replication: Some((groups, running)) })
        })
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
            return Err(invalid_option(
                "tables",
                "there is no table to serve; name at least one".to_owned(),
            ));
        }
        let bound = |address| -> Result<(SocketAddr, mio::net::TcpListener)> {
            let listener = listen(address)?;
            let address = listener
                .local_addr()
                .map_err(|error| Error::io("listen on", address.to_string(), &error))?;
            Ok((address, listener))
        };
        let (address, listener) = bound(options.listen)?;
        let plain = |protocol| Endpoint { protocol, is_tls: false };
        let mut listeners = vec![(listener, plain(Protocol::Resp))];
        let mut memcached_address = None;
        if let Some(wanted) = options.memcached {
            let (address, listener) = bound(wanted)?;
            memcached_address = Some(address);
            listeners.push((listener, plain(Protocol::Memcached)));
        }
        let unix = options.unix_socket.as_ref();
        let unix = unix.map(|(path, mode)| UnixSocket::bind(path, *mode)).transpose()?;
        let memcached_udp = options.memcached_udp.map(bind_udp).transpose()?;
        let mut metrics = Vec::new();
        let mut addresses = Addresses::default();
        if let Some(wanted) = options.metrics {
            let (address, listener) = bound(wanted)?;
            addresses.metrics = Some(address);
            metrics.push((listener, false));
        }
        if let Some(tls) = &options.tls {
            for (wanted, protocol, address) in [
                (tls.listen, Protocol::Resp, &mut addresses.tls_listen),
                (tls.memcached, Protocol::Memcached, &mut addresses.tls_memcached),
            ] {
                let Some(wanted) = wanted else { continue };
                let (bound, listener) = bound(wanted)?;
                *address = Some(bound);
                listeners.push((listener, Endpoint { protocol, is_tls: true }));
            }
            if let Some(wanted) = tls.metrics {
                let (address, listener) = bound(wanted)?;
                addresses.tls_metrics = Some(address);
                metrics.push((listener, true));
            }
        }
        check_names(names)?;
        let memcached_table = find_table(names, options.memcached_table.as_deref())?;
        let Tables { mut databases, observers, replication } = open(&options)?;
        let (replication, node) = replication.unzip();
        let has_memcached = memcached_address.is_some()
            || memcached_udp.is_some()
            || addresses.tls_memcached.is_some();
        if has_memcached {
            databases[memcached_table].versions = Some(Versions::new());
            databases[memcached_table].fetch_times = Some(FetchTimes::new());
        }
        let mut udp_table = 0;
        let udp = match options.udp {
            None => None,
            Some(address) => {
                let stores = databases.iter().map(|d| (d.name.as_str(), d.mica.clone()));
                let store;
                (udp_table, store) = find_mica(stores, options.udp_table.as_deref())?;
                if has_memcached && memcached_table == udp_table && !store.has_cas() {
                    return Err(invalid_option(
                        "udp",
                        "the table also serves memcached clients, whose cas must detect \
                         writes over UDP: create it with cas=on, or serve another table"
                            .to_owned(),
                    ));
                }
                let threads = options.udp_threads(store.partitions());
                databases[udp_table].locks.set_burst_threads(threads);
                Some((
                    Ports::bind(
                        address,
                        threads,
                        options.udp_xdp.as_ref(),
                        options.udp_gso_segments,
                    )?,
                    store,
                ))
            }
        };
        let shared = Arc::new(Shared {
            address,
            memcached_address,
            databases,
            observers,
            waiters: Waiters::default(),
            pubsub: PubSub::default(),
            monitors: Monitors::default(),
            pause: Pause::default(),
            events: KeyspaceEvents::default(),
            settings: Settings::new(&options),
            scripts: ScriptCache::default(),
            functions: Functions::new(options.functions_file.clone()),
            long_runs: Arc::default(),
            slow_log: SlowLog::default(),
            latency: LatencyMonitor::default(),
            cursors: Mutex::new(Cursors::default()),
            access_times: AccessTimes::new(),
            clients: Arc::new(Clients::default()),
            commands: command_index(),
            metrics: Metrics::new(options.workers() + 1, command_index()),
            memcached: MemcachedCounters::new(memcached_table),
            udp: udp::UdpCounters::default(),
            udp_table,
            stop: StopHandle::default(),
            started: Instant::now(),
            backups: options
                .backup
                .clone()
                .map(|backup| Backups::new(backup, options.clock.clone())),
            replication,
            last_sync: AtomicU64::new(0),
            acl,
            tls,
            options,
        });
        shared.record_sync();
        if let Some(file) = &shared.options.functions_file {
            read_functions_file(&shared.functions, file)
                .map_err(|reason| invalid_option("functions_file", reason))?;
        }
        Ok(Server { shared, listeners, unix, memcached_udp, udp, metrics, addresses, node })
    }

    pub(crate) fn udp_store(&self) -> Option<&Arc<Store>> {
        self.udp.as_ref().map(|(_, store)| store)
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

    /// Address of memcached over UDP.
    pub fn memcached_udp_addr(&self) -> Option<SocketAddr> {
        self.memcached_udp.as_ref().and_then(|socket| socket.local_addr().ok())
    }

    /// Address of the first UDP port of the `mica` table.
    pub fn udp_addr(&self) -> Option<SocketAddr> {
        self.udp.as_ref().map(|(ports, _)| ports.address)
    }

    /// Address of the metrics port.
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.addresses.metrics
    }

    /// Address of the Redis listener with TLS.
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.addresses.tls_listen
    }

    /// Address of the memcached listener with TLS.
    pub fn tls_memcached_addr(&self) -> Option<SocketAddr> {
        self.addresses.tls_memcached
    }

    /// Address of the metrics port with TLS.
    pub fn tls_metrics_addr(&self) -> Option<SocketAddr> {
        self.addresses.tls_metrics
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
        let shared = self.shared;
        let failed = |error: std::io::Error| Error::io("serve", shared.address.to_string(), &error);
        let (acceptor, waker) = Acceptor::new(self.listeners, self.unix).map_err(failed)?;
        shared.stop.wake_with(waker);
        let mut threads: Vec<JoinHandle<std::io::Result<()>>> = Vec::new();
        let mut inboxes = Vec::new();
        for index in 0..shared.options.workers() {
            let (worker, inbox) = Worker::new(index, shared.clone()).map_err(failed)?;
            inboxes.push(inbox);
            let guard = StopOnExit(shared.stop.clone());
            threads.push(spawn(&format!("siltstone-serve-{index}"), move || {
                let _guard = guard;
                worker.run()
            })?);
        }
        {
            let shared = shared.clone();
            let guard = StopOnExit(shared.stop.clone());
            threads.push(spawn("siltstone-script", move || {
                let _guard = guard;
                run_long_scripts(&shared, shared.options.workers());
                Ok(())
            })?);
        }
        if let Some(socket) = self.memcached_udp {
            let shared = shared.clone();
            threads.push(spawn("siltstone-mc-udp", move || {
                crate::memcached::udp::run(&socket, &shared)
            })?);
        }
        if let Some((ports, store)) = self.udp {
            let work = ports.threads(&shared, &store).map_err(failed)?;
            for (index, work) in work.into_iter().enumerate() {
                let guard = StopOnExit(shared.stop.clone());
                threads.push(spawn(&format!("siltstone-udp-{index}"), move || {
                    let _guard = guard;
                    work()
                })?);
            }
        }
        let mut metrics_waker = None;
        if !self.metrics.is_empty() {
            let (port, waker) = HttpPort::new(self.metrics).map_err(failed)?;
            metrics_waker = Some(waker);
            let shared = shared.clone();
            threads.push(spawn("siltstone-metrics", move || {
                port.run(&shared);
                Ok(())
            })?);
        }
        if shared.options.fsync == Fsync::EverySecond {
            let shared = shared.clone();
            threads.push(spawn("siltstone-sync", move || {
                sync_each_second(&shared);
                Ok(())
            })?);
        }
        if shared.backups.is_some() {
            let shared = shared.clone();
            threads.push(spawn("siltstone-backup", move || {
                shared.backups.iter().for_each(Backups::run);
                Ok(())
            })?);
        }
        let mut outcome = acceptor.run(&shared, &inboxes);
        shared.stop.stop();
        shared.backups.iter().for_each(Backups::stop);
        for inbox in &inboxes {
            inbox.wakeups.interrupt();
        }
        if let Some(waker) = metrics_waker {
            let _ = waker.wake();
        }
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| {
                Err(std::io::Error::other("a thread has panicked; this is a bug"))
            });
            outcome = outcome.and(ended);
        }
        let mut synced = Ok(());
        for database in &shared.databases {
            synced = synced.and(database.engine.sync());
        }
        if let Some(node) = self.node {
            synced = synced.and(node.shutdown());
        }
        synced.and(outcome.map_err(failed))
    }
}

/// Repeats a read of a node's table while a received snapshot replaces the table, which is closed
/// then.
fn while_replaced<T>(read: impl Fn() -> Result<T>) -> Result<T> {
    let deadline = Instant::now() + REPLACE_TIMEOUT;
    loop {
        match read() {
            Err(Error::Closed) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(2));
            }
            outcome => return outcome,
        }
    }
}

/// The users of the options.
fn open_acl(options: &ServerOptions) -> Result<Acl> {
    let (password, file) = (options.password.as_deref(), options.acl_file.clone());
    Acl::open(command_index(), password, file, options.is_public())
        .map_err(|reason| invalid_option("acl_file", reason))
}

/// The certificates of the options.
fn open_tls(options: &TlsOptions) -> Result<TlsState> {
    TlsState::open(&options.files).map_err(|reason| invalid_option("tls", reason))
}

/// Index of the table with this name; 0 without a name.
fn find_table(names: &[&str], name: Option<&str>) -> Result<usize> {
    let Some(name) = name else { return Ok(0) };
    names.iter().position(|served| *served == name).ok_or_else(|| {
        let reason = format!("'{name}' is not served; the tables are {}", names.join(", "));
        invalid_option("memcached_table", reason)
    })
}

/// Finds the `mica` table with this name, or the first: its index and attached value.
fn find_mica<'a, T>(
    tables: impl Iterator<Item = (&'a str, Option<T>)>,
    name: Option<&str>,
) -> Result<(usize, T)> {
    let mut names = Vec::new();
    for (at, (served, mica)) in tables.enumerate() {
        let Some(mica) = mica else { continue };
        if name.is_none_or(|name| name == served) {
            return Ok((at, mica));
        }
        names.push(served);
    }
    let reason = match (name, names.is_empty()) {
        (_, true) => {
            "it requires a table of the engine mica, and there is none; add one, e.g. with --table \
             cache=mica,mode=cache"
                .to_owned()
        }
        (name, false) => format!(
            "'{}' is not a served table of the engine mica; these are: {}",
            name.unwrap_or_default(),
            names.join(", ")
        ),
    };
    Err(invalid_option("udp", reason))
}

fn bind_udp(address: SocketAddr) -> Result<UdpSocket> {
    UdpSocket::bind(address).map_err(|error| Error::io("bind to", address.to_string(), &error))
}

/// Two databases of one table would not share locks, so INCR and WATCH would be wrong.
fn check_names(names: &[&str]) -> Result<()> {
    let duplicate = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    match duplicate {
        None => Ok(()),
        Some((_, name)) => {
            Err(invalid_option("tables", format!("'{name}' is named twice; name it once")))
        }
    }
}

fn invalid_option(option: &str, reason: String) -> Error {
    Error::InvalidOptions(vec![InvalidOption { option: option.to_owned(), reason }])
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let thread = std::thread::Builder::new().name(name.to_owned());
    thread.spawn(body).map_err(|error| Error::io("start thread", name, &error))
}

/// Stops the server when a thread ends, by an error or a panic: otherwise its clients would never
/// get a reply.
struct StopOnExit(StopHandle);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn sync_each_second(shared: &Shared) {
    let mut due = Instant::now() + Duration::from_secs(1);
    while !shared.stop.is_stopping() {
        std::thread::sleep(SYNC_POLL_INTERVAL);
        if Instant::now() < due {
            continue;
        }
        due = Instant::now() + Duration::from_secs(1);
        let mut is_synced = true;
        for database in &shared.databases {
            if database.sync_if_written().is_err() {
                // The table is read-only now; its next write reports why.
                shared.metrics.failed_syncs.fetch_add(1, Relaxed);
                is_synced = false;
            }
        }
        if is_synced {
            shared.record_sync();
        }
    }
}
