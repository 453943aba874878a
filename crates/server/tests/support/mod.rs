//! Shared test support: an engine in memory, a server in the test process, and clients that render
//! replies as text.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "each test is a crate and uses a part"
)]

mod clients;
mod map_engine;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

pub use clients::{Client, MemcachedClient, encode};
pub use map_engine::MapEngine;
use siltstone::{Engine, Result, Table};
use siltstone_server::{ClusterOptions, Fsync, Server, ServerOptions, StopHandle};

/// A server in the test process with two tables, stopped when dropped.
pub struct TestServer {
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub memcached: Option<SocketAddr>,
    pub memcached_udp: Option<SocketAddr>,
    pub udp: Option<SocketAddr>,
    /// For Redis, memcached and metrics.
    pub tls: [Option<SocketAddr>; 3],
    pub stop: StopHandle,
    pub engine: Arc<MapEngine>,
    thread: Option<JoinHandle<Result<()>>>,
    /// The directory of a replicated table, unless it is kept.
    dir: Option<tempfile::TempDir>,
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut ServerOptions)) -> Self {
        Self::over(None, change)
    }

    /// With another engine for the first table.
    pub fn over(first: Option<Arc<dyn Engine>>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        let mut options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            fsync: Fsync::Never,
            threads: 2,
            ..ServerOptions::default()
        };
        change(&mut options);
        if std::env::var_os("SILTSTONE_TEST_REPLICATED").is_some() && first.is_none() {
            return Self::replicated(options);
        }
        let engine = Arc::new(MapEngine::default());
        let first: Arc<dyn Engine> = first.unwrap_or_else(|| engine.clone());
        let tables =
            vec![Table::new("first", first), Table::new("second", Arc::new(MapEngine::default()))];
        let server = Server::bind(tables, options).unwrap();
        Self::run(server, engine)
    }

    /// Of these tables.
    pub fn of_tables(tables: Vec<Table>) -> Self {
        let options = ServerOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            threads: 2,
            ..ServerOptions::default()
        };
        let server = Server::bind(tables, options).unwrap();
        Self::run(server, Arc::new(MapEngine::default()))
    }

    /// With a replicated table of one node in a directory of its own.
    fn replicated(options: ServerOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut server = Self::replicated_in(&dir.path().join("node"), options);
        server.dir = Some(dir);
        server
    }

    /// With a replicated table of one node, which leads once this returns.
    pub fn replicated_in(dir: &std::path::Path, options: ServerOptions) -> Self {
        Self::replicated_groups(dir, options, None)
    }

    /// As [`replicated_in`](Self::replicated_in), with a number of groups.
    pub fn replicated_groups(
        dir: &std::path::Path,
        options: ServerOptions,
        groups: Option<u16>,
    ) -> Self {
        let server = Self::replicated_node(dir, options, groups);
        eventually("the node leads", || {
            // Of each of up to four groups.
            let mut client = server.client();
            ["a", "b", "c", "d"].iter().all(|key| {
                let reply = client.call(&format!("GET {key}"));
                reply == "nil" || reply.starts_with('"') || reply.starts_with("-WRONGTYPE")
            })
        });
        server
    }

    /// As [`replicated_groups`](Self::replicated_groups), without waiting until the node leads.
    pub fn replicated_node(
        dir: &std::path::Path,
        options: ServerOptions,
        groups: Option<u16>,
    ) -> Self {
        let members = vec!["1=127.0.0.1:7001@0".parse().unwrap()];
        let mut cluster = ClusterOptions::new(1, 1, members, dir.to_owned());
        cluster.election_timeout = Duration::from_millis(100);
        cluster.groups = groups;
        let options = ServerOptions { threads: 0, ..options };
        let server = Server::bind_replicated(&cluster, options).unwrap();
        Self::run(server, Arc::default())
    }

    fn run(server: Server, engine: Arc<MapEngine>) -> Self {
        let (address, metrics) = (server.local_addr(), server.metrics_addr());
        let (memcached, memcached_udp) = (server.memcached_addr(), server.memcached_udp_addr());
        let udp = server.udp_addr();
        let tls = [server.tls_addr(), server.tls_memcached_addr(), server.tls_metrics_addr()];
        let stop = server.stop_handle();
        let thread = Some(std::thread::spawn(move || server.run()));
        TestServer {
            address,
            metrics,
            memcached,
            memcached_udp,
            udp,
            tls,
            stop,
            engine,
            thread,
            dir: None,
        }
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// A memcached connection.
    pub fn memcached_client(&self) -> MemcachedClient {
        MemcachedClient::connect(self.memcached.unwrap())
    }

    /// Stops the server and returns its result.
    pub fn finish(mut self) -> Result<()> {
        self.stop.stop();
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// A foreign server for comparison, on a free port, stopped when dropped.
pub struct Peer {
    child: Child,
    pub address: SocketAddr,
}

impl Peer {
    /// Starts a program that takes the port as its last argument; `None`, with a message, if it is
    /// not installed.
    pub fn start(program: &str, args: &[&str]) -> Option<Self> {
        // Another process may take the port before the program does, which then ends.
        for _ in 0..5 {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let mut command = Command::new(program);
            command.args(args).arg(address.port().to_string()).stdout(Stdio::null());
            let Ok(child) = command.spawn() else {
                println!("skipped: {program} is not on the PATH");
                return None;
            };
            let mut peer = Peer { child, address };
            let mut has_ended = false;
            eventually("the peer listens, or has ended", || {
                has_ended = peer.child.try_wait().unwrap().is_some();
                has_ended || is_listening(address)
            });
            if !has_ended {
                return Some(peer);
            }
        }
        panic!("{program} {args:?} ends at once");
    }
}

/// Whether a program listens. A connection to a free port may be accepted by its own socket.
fn is_listening(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok_and(|stream| stream.local_addr().ok() != Some(address))
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An open `mica` table with these options.
pub fn mica(options: &str) -> Arc<dyn Engine> {
    let pairs = options.split(' ').filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = siltstone_mica::Options::from_map(&map).unwrap();
    Arc::new(siltstone_mica::Mica::open(siltstone::Env::system(1), options).unwrap())
}

/// An open `lsm` table in memory, with these options.
pub fn lsm(options: &[(&str, &str)]) -> Arc<dyn Engine> {
    let map = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let vfs = Arc::new(siltstone_vfs::Ram::new());
    siltstone::engines::open("lsm", vfs, &siltstone::Env::system(1), &map.collect()).unwrap()
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("never: {what}");
}

/// A server of a `mica` table with these options, over UDP too.
pub fn udp_server(table: &str, change: impl FnOnce(&mut ServerOptions)) -> TestServer {
    TestServer::over(Some(mica(table)), |options| {
        options.udp = Some(([127, 0, 0, 1], 0).into());
        change(options);
    })
}
