//! Shared test support: an engine in memory, a server in the test process, and clients that render
//! replies as text.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "each test is a crate and uses a part"
)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Bound;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::RwLock;
use siltstone::{
    Capabilities, Clock, Durability, Engine, Entry, Error, KeyRange, Op, Result, Stats,
    SystemClock, Table, VerifyReport, WriteBatch,
};
use siltstone_engine::{CheckpointSink, Cursor, ReadPoint};
use siltstone_server::{ClusterOptions, Fsync, Server, ServerOptions, StopHandle};

type Map = BTreeMap<Vec<u8>, Entry>;

/// An ordered engine in memory with injectable errors.
#[derive(Default)]
pub struct MapEngine {
    map: RwLock<Arc<Map>>,
    pub writes: AtomicU64,
    pub syncs: AtomicU64,
    pub fail_syncs: AtomicBool,
    pub fail_writes: AtomicBool,
    pub disk_full: AtomicBool,
    /// Each sync takes 5 ms.
    pub slow_syncs: AtomicBool,
}

fn fault(operation: &'static str, kind: std::io::ErrorKind) -> Error {
    Error::io(operation, "000001.log", &std::io::Error::from(kind))
}

impl Engine for MapEngine {
    fn name(&self) -> &'static str {
        "map"
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
            versioned: false,
            incremental_gc: false,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: 32 << 20,
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let now = SystemClock.now();
        Ok(self.map.read().get(key).filter(|entry| !entry.is_expired(now)).cloned())
    }

    fn write(&self, batch: &WriteBatch, _durability: Durability) -> Result<()> {
        batch.check(self.capabilities().max_value_bytes)?;
        if self.disk_full.load(SeqCst) {
            return Err(fault("write", std::io::ErrorKind::StorageFull));
        }
        if self.fail_writes.load(SeqCst) {
            return Err(Error::ReadOnly { cause: "a test".into() });
        }
        self.writes.fetch_add(1, SeqCst);
        let mut guard = self.map.write();
        let map = Arc::make_mut(&mut guard);
        for op in batch.iter() {
            match op {
                Op::Put { key, value, expires_at } => {
                    map.insert(key.to_vec(), Entry { value: value.to_vec(), expires_at });
                }
                Op::Delete { key } => {
                    map.remove(key);
                }
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.syncs.fetch_add(1, SeqCst);
        if self.slow_syncs.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        if self.fail_syncs.load(SeqCst) {
            return Err(fault("sync", std::io::ErrorKind::Other));
        }
        Ok(())
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        let map = self.map.read().clone();
        Ok(Box::new(MapCursor { map, at: None, now: SystemClock.now() }))
    }

    fn range(&self, range: KeyRange, _at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        range.check()?;
        let map = self.map.read().clone();
        let inside = map.iter().filter(|(key, _)| range.contains(key));
        let map = Arc::new(inside.map(|(key, entry)| (key.clone(), entry.clone())).collect());
        Ok(Box::new(MapCursor { map, at: None, now: SystemClock.now() }))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn maintain(&self) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self, _sink: &mut dyn CheckpointSink) -> Result<()> {
        Err(self.unsupported("checkpoints"))
    }

    fn verify(&self, _progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        Ok(VerifyReport::default())
    }

    fn stats(&self) -> Stats {
        Stats {
            engine: "map",
            keys_estimate: Some(self.map.read().len() as u64),
            writes: self.writes.load(SeqCst),
            ..Stats::default()
        }
    }

    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct MapCursor {
    map: Arc<Map>,
    at: Option<(Vec<u8>, Entry)>,
    now: u64,
}

impl MapCursor {
    fn place(&mut self, start: Bound<&[u8]>) -> Result<bool> {
        let mut range = self.map.range::<[u8], _>((start, Bound::Unbounded));
        let found = range.find(|(_, entry)| !entry.is_expired(self.now));
        self.at = found.map(|(key, entry)| (key.clone(), entry.clone()));
        Ok(self.at.is_some())
    }

    fn place_back(&mut self, end: Bound<&[u8]>) -> Result<bool> {
        let range = self.map.range::<[u8], _>((Bound::Unbounded, end));
        let found = range.rev().find(|(_, entry)| !entry.is_expired(self.now));
        self.at = found.map(|(key, entry)| (key.clone(), entry.clone()));
        Ok(self.at.is_some())
    }
}

impl Cursor for MapCursor {
    fn first(&mut self) -> Result<bool> {
        self.place(Bound::Unbounded)
    }

    fn last(&mut self) -> Result<bool> {
        self.place_back(Bound::Unbounded)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.place(Bound::Included(key))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        self.place_back(Bound::Included(key))
    }

    fn next(&mut self) -> Result<bool> {
        let (key, _) = self.at.take().unwrap();
        self.place(Bound::Excluded(&key))
    }

    fn prev(&mut self) -> Result<bool> {
        let (key, _) = self.at.take().unwrap();
        self.place_back(Bound::Excluded(&key))
    }

    fn valid(&self) -> bool {
        self.at.is_some()
    }

    fn key(&self) -> &[u8] {
        &self.at.as_ref().unwrap().0
    }

    fn value(&self) -> &[u8] {
        &self.at.as_ref().unwrap().1.value
    }

    fn expires_at(&self) -> Option<u64> {
        self.at.as_ref().unwrap().1.expires_at
    }
}

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
        let members = vec!["1=127.0.0.1:7001@0".parse().unwrap()];
        let mut cluster = ClusterOptions::new(1, 1, members, dir.to_owned());
        cluster.election_timeout = Duration::from_millis(100);
        cluster.groups = groups;
        let options = ServerOptions { threads: 0, ..options };
        let server = Server::bind_replicated(&cluster, options).unwrap();
        let server = Self::run(server, Arc::default());
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

/// A client that renders replies as text: `+OK`, `:1`, `"bulk"`, `nil`, `[a, b]`, `-ERR …`.
pub struct Client {
    pub reader: BufReader<TcpStream>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { reader: BufReader::new(stream) }
    }

    pub fn stream(&mut self) -> &mut TcpStream {
        self.reader.get_mut()
    }

    /// Sends raw bytes.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream().write_all(bytes).unwrap();
    }

    /// Sends a command without waiting for the reply.
    pub fn send(&mut self, args: &[&[u8]]) {
        let bytes = encode(args);
        self.send_raw(&bytes);
    }

    /// Sends words and returns the reply.
    pub fn call(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.call_bytes(&words)
    }

    pub fn call_bytes(&mut self, args: &[&[u8]]) -> String {
        self.send(args);
        self.read()
    }

    /// The bulk string of a reply; `None` for null.
    pub fn call_for_bulk(&mut self, args: &[&[u8]]) -> Option<Vec<u8>> {
        self.send(args);
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let len = line.strip_prefix('$').unwrap_or_else(|| panic!("no bulk: {line}"));
        let len = usize::try_from(len.trim().parse::<i64>().unwrap()).ok()?;
        let mut bytes = vec![0; len + 2];
        self.reader.read_exact(&mut bytes).unwrap();
        bytes.truncate(len);
        Some(bytes)
    }

    /// Asserts the replies to a sequence of commands.
    pub fn expect(&mut self, steps: &[(&str, &str)]) {
        for (command, expected) in steps {
            assert_eq!(&self.call(command), expected, "{command}");
        }
    }

    pub fn read(&mut self) -> String {
        self.try_read().expect("a reply")
    }

    /// The next reply; `None` once the server has closed.
    pub fn try_read(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.reader.read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) => panic!("no reply: {error}"),
        }
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r\n").unwrap()).into_owned();
        let (kind, rest) = line.split_at(1);
        let count = || rest.parse::<i64>().unwrap();
        Some(match kind {
            "+" | "-" | ":" | "," | "#" | "(" => line,
            "_" => "nil".into(),
            "$" | "=" if count() < 0 => "nil".into(),
            "$" | "=" => {
                let mut bytes = vec![0; count() as usize + 2];
                self.reader.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                format!("\"{}\"", String::from_utf8_lossy(&bytes))
            }
            "*" | "~" if count() < 0 => "nil".into(),
            "*" | "~" | "%" | ">" => {
                let count = count() * if kind == "%" { 2 } else { 1 };
                let items: Vec<_> = (0..count).map(|_| self.read()).collect();
                format!("[{}]", items.join(", "))
            }
            other => panic!("reply of kind {other:?}: {line}"),
        })
    }

    /// Whether the server closes the connection, after any replies.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = Vec::new();
        match self.reader.read_to_end(&mut rest) {
            Ok(_) => true,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

/// A memcached client.
pub struct MemcachedClient {
    pub stream: TcpStream,
}

impl MemcachedClient {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        MemcachedClient { stream }
    }

    /// Sends bytes and an `mn`, and returns the response before that of `mn`.
    pub fn request(&mut self, bytes: &[u8]) -> String {
        self.stream.write_all(bytes).unwrap();
        self.stream.write_all(b"mn\r\n").unwrap();
        let mut all = Vec::new();
        while !all.ends_with(b"MN\r\n") {
            let mut buffer = [0; 4096];
            let count = self.stream.read(&mut buffer).unwrap();
            assert!(count > 0, "closed after {}", all.escape_ascii());
            all.extend_from_slice(&buffer[..count]);
        }
        all.truncate(all.len() - 4);
        String::from_utf8_lossy(&all).into_owned()
    }

    /// Asserts the responses to commands; `|` stands for a line end in both.
    pub fn expect(&mut self, steps: &[(&str, &str)]) {
        for (sent, received) in steps {
            let [sent, received] = [sent, received].map(|text| text.replace('|', "\r\n"));
            assert_eq!(self.request(sent.as_bytes()), received, "{sent}");
        }
    }

    /// The cas of a key.
    pub fn cas(&mut self, key: &str) -> u64 {
        let answer = self.request(format!("gets {key}\r\n").as_bytes());
        let first = answer.lines().next().unwrap();
        first.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Bytes received until the server closes.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    }
}

/// An open `mica` table with these options.
pub fn mica(options: &str) -> Arc<dyn Engine> {
    let pairs = options.split(' ').filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let options = siltstone_mica::Options::from_map(&map).unwrap();
    Arc::new(siltstone_mica::Mica::open(siltstone::Env::system(1), options).unwrap())
}

/// Encodes a command as an array of bulk strings.
pub fn encode(args: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
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
