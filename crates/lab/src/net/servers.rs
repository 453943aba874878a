//! Processes that serve, and where.
//!
//! Each is started on a free port with the settings that are fastest for it: nothing is written to a
//! disk, as many threads as it gets cores. Ours is this very program (`siltstone serve`).
//!
//! Invariant: a process is ended when its [`Server`] is dropped.
//!
//! Source: ours.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use siltstone_client::xdp::veth::{INTERFACE, Side, Wire};
use siltstone_engine::{Error, Result};
use tempfile::TempDir;

/// Packets that the system may carry as one, where that is not what is measured.
pub const TRAIN: usize = 64;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `siltstone serve` with a `mica` cache.
    Ours {
        /// UDP ports, each with a thread and a partition.
        ports: usize,
        /// Bytes of an item's key and value.
        item: usize,
        /// Software direction: any port takes any request.
        any_port: bool,
        /// Past the kernel's network, which takes a wire.
        past: bool,
        /// Packets that the system may carry as one, here and at the load's end.
        train: usize,
    },
    /// `memcached`.
    Memcached,
    /// `redis-server`.
    Redis,
}

/// Between a server and its load.
#[derive(Clone, Copy)]
pub enum Between<'w> {
    /// The machine's own interface.
    Loopback,
    /// A pair of virtual ones, in namespaces of their own.
    Wire(&'w Wire),
}

impl Between<'_> {
    /// Moves this thread to the load's end, for good.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enter(self) -> Result<()> {
        match self {
            Between::Loopback => Ok(()),
            Between::Wire(wire) => {
                wire.enter(Side::A).map_err(|error| failed("a network namespace", &error))
            }
        }
    }

    fn address(self) -> IpAddr {
        match self {
            Between::Loopback => Ipv4Addr::LOCALHOST.into(),
            Between::Wire(_) => Side::B.address().into(),
        }
    }
}

/// A pair of interfaces.
///
/// # Errors
/// What it takes that is not there: root, or a program.
pub fn wire() -> Result<Wire> {
    Wire::new(&format!("siltstone-{}", std::process::id()))
        .map_err(|error| failed("a pair of virtual interfaces, which takes root", &error))
}

/// What our server asks for where it can be reached from elsewhere.
pub(super) const PASSWORD: &str = "measured";

/// A server that runs.
pub struct Server {
    child: Child,
    _directory: TempDir,
    /// Where it speaks its protocol over TCP (ours: memcached's).
    pub tcp: SocketAddr,
    /// Where it takes our packets.
    pub udp: Option<SocketAddr>,
    /// Whether they come past the kernel's network, and so must the load.
    pub past: bool,
    /// Packets that the system may carry as one, and so at the load's end.
    pub train: usize,
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::Invalid(format!("{what}: {error}"))
}

impl Server {
    /// Starts a server on these cores, with this much memory for items, at the other end of what is
    /// between it and its load.
    ///
    /// # Errors
    /// If its program is missing or does not listen.
    pub fn start(
        kind: Kind,
        between: Between<'_>,
        cores: &str,
        threads: usize,
        memory_mib: u64,
    ) -> Result<Self> {
        let directory = TempDir::new().map_err(|error| failed("a directory", &error))?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let mut tcp = free.map_err(|error| failed("a free port", &error))?;
        tcp.set_ip(between.address());
        let address = between.address().to_string();
        let (port, threads) = (tcp.port().to_string(), threads.to_string());
        let mut command = match between {
            Between::Loopback => Command::new("taskset"),
            Between::Wire(wire) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &wire.namespace(Side::B), "taskset"]);
                command
            }
        };
        command.args(["-c", cores]).current_dir(directory.path());
        let (past, train) = match kind {
            Kind::Ours { past, train, .. } => (past, train),
            _ => (false, 1),
        };
        match kind {
            Kind::Memcached => {
                let memory = memory_mib.to_string();
                command.args(["memcached", "-l", &address, "-U", "0", "-u", "nobody"]);
                // As many requests of one client in a row as it takes: there is only one.
                command.args(["-R", "1000", "-t", &threads, "-m", &memory, "-p", &port]);
            }
            Kind::Redis => {
                command.args(["redis-server", "--bind", &address, "--port", &port]);
                command.args(["--protected-mode", "no"]);
                command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
            }
            Kind::Ours { ports, item, any_port, train, .. } => {
                let program =
                    std::env::current_exe().map_err(|error| failed("our own program", &error))?;
                let table = format!(
                    "cache=mica,mode=cache,item={item},memory={memory_mib}MiB,partitions={},stamps=on",
                    ports.next_power_of_two()
                );
                command.arg(program).args(["serve", "store", "--listen", "127.0.0.1:0"]);
                command.args(["--table", &table, "--threads", &threads, "--fsync", "no"]);
                command.args(["--udp", &format!("{address}:0"), "--udp-ports", &ports.to_string()]);
                command.args(["--udp-train", &train.to_string()]);
                command.args(["--udp-direction", if any_port { "any" } else { "client" }]);
                match between {
                    Between::Loopback => command.args(["--memcached", "127.0.0.1:0"]),
                    Between::Wire(_) => command.args(["--password", PASSWORD]),
                };
                if past {
                    command.args(["--xdp", INTERFACE]);
                }
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("taskset", &error))?;
        let said = child.stderr.take().map(BufReader::new);
        let mut udp = None;
        if let (Kind::Ours { .. }, Some(said)) = (kind, said) {
            for line in said.lines().map_while(std::result::Result::ok) {
                if let Some(address) = line.strip_prefix("memcached's protocol on ") {
                    tcp = address.parse().map_err(|_| Error::Invalid(line.clone()))?;
                }
                if let Some(address) = line.strip_prefix("UDP on ") {
                    udp = address.parse().ok();
                    break;
                }
            }
            if udp.is_none() {
                let _ = child.kill();
                return Err(Error::Invalid("our server did not start".to_owned()));
            }
        }
        let is_awaited = udp.is_none();
        let mut server = Server { child, _directory: directory, tcp, udp, past, train };
        let patience = Instant::now() + Duration::from_secs(10);
        while is_awaited && TcpStream::connect(server.tcp).is_err() {
            let has_ended = server.child.try_wait().is_ok_and(|ended| ended.is_some());
            if has_ended || Instant::now() > patience {
                return Err(Error::Invalid(format!("{kind:?} does not listen; is it installed?")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
