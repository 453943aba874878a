//! Server processes.
//!
//! Each server is started on a free port with its fastest settings: nothing is written to disk, one
//! thread per core. Ours is the `siltstone` program (`siltstone serve`): see [`siltstone`].
//!
//! Invariant: a process is ended when its [`Server`] is dropped.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use siltstone_client::xdp::veth::{INTERFACE, Side, VethPair};
use siltstone_engine::{Error, Result};
use tempfile::TempDir;

/// Default number of packets per GSO batch.
pub const GSO_SEGMENTS: usize = 64;

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `siltstone serve` with a `mica` cache.
    Ours {
        /// Number of UDP ports, each with a thread and a partition.
        ports: usize,
        /// Bytes of an item's key and value.
        item: usize,
        /// Software direction: any port accepts any request.
        any_port: bool,
        /// Kernel bypass (AF_XDP), which needs a pair of virtual interfaces.
        xdp: bool,
        /// Packets per GSO batch, at both ends.
        gso_segments: usize,
    },
    /// `memcached`.
    Memcached,
    /// `redis-server`.
    Redis,
}

/// The network between a server and its load.
#[derive(Clone, Copy)]
pub enum Between<'w> {
    /// The loopback interface.
    Loopback,
    /// A pair of virtual interfaces in their own namespaces.
    VethPair(&'w VethPair),
}

impl Between<'_> {
    /// Moves this thread permanently to the namespace of the load.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn enter(self) -> Result<()> {
        match self {
            Between::Loopback => Ok(()),
            Between::VethPair(wire) => {
                wire.enter(Side::A).map_err(|error| failed("a network namespace", &error))
            }
        }
    }

    fn address(self) -> IpAddr {
        match self {
            Between::Loopback => Ipv4Addr::LOCALHOST.into(),
            Between::VethPair(_) => Side::B.address().into(),
        }
    }
}

/// Creates a pair of virtual interfaces.
///
/// # Errors
/// If root rights or a program are missing.
pub fn wire() -> Result<VethPair> {
    VethPair::new(&format!("siltstone-{}", std::process::id()))
        .map_err(|error| failed("a pair of virtual interfaces, which takes root", &error))
}

/// The password of our server on a non-loopback interface.
pub(super) const PASSWORD: &str = "measured";

/// A running server.
pub struct Server {
    child: Child,
    _directory: TempDir,
    /// Address of its protocol over TCP (ours: memcached's).
    pub tcp: SocketAddr,
    /// Address of our UDP protocol.
    pub udp: Option<SocketAddr>,
    /// Whether server and load use AF_XDP.
    pub xdp: bool,
    /// Packets per GSO batch, at both ends.
    pub gso_segments: usize,
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::Invalid(format!("{what}: {error}"))
}

impl Server {
    /// Starts a server on these cores, with this much memory for items, at the other end of the
    /// network.
    ///
    /// # Errors
    /// If its program is missing or does not start to listen.
    pub fn start(
        kind: Kind,
        between: Between<'_>,
        cores: &str,
        threads: usize,
        memory_mib: u64,
    ) -> Result<Self> {
        let directory = TempDir::new().map_err(|error| failed("a directory", &error))?;
        let mut tcp = free_address()?;
        tcp.set_ip(between.address());
        let address = between.address().to_string();
        let (port, threads) = (tcp.port().to_string(), threads.to_string());
        let mut command = match between {
            Between::Loopback => Command::new("taskset"),
            Between::VethPair(wire) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", &wire.namespace(Side::B), "taskset"]);
                command
            }
        };
        command.args(["-c", cores]).current_dir(directory.path());
        let (xdp, gso_segments) = match kind {
            Kind::Ours { xdp, gso_segments, .. } => (xdp, gso_segments),
            _ => (false, 1),
        };
        match kind {
            Kind::Memcached => {
                let memory = memory_mib.to_string();
                command.args(["memcached", "-l", &address, "-U", "0", "-u", "nobody"]);
                // The maximal number of consecutive requests per client: there is only one client.
                command.args(["-R", "1000", "-t", &threads, "-m", &memory, "-p", &port]);
            }
            Kind::Redis => {
                command.args(["redis-server", "--bind", &address, "--port", &port]);
                command.args(["--protected-mode", "no"]);
                command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
            }
            Kind::Ours { ports, item, any_port, gso_segments, .. } => {
                let program = siltstone()?;
                let table = format!(
                    "cache=mica,mode=cache,item={item},memory={memory_mib}MiB,partitions={},cas=on",
                    ports.next_power_of_two()
                );
                command.arg(program).args(["serve", "store", "--listen", "127.0.0.1:0"]);
                command.args(["--table", &table, "--threads", &threads, "--fsync", "no"]);
                command.args(["--udp", &format!("{address}:0"), "--udp-ports", &ports.to_string()]);
                command.args(["--udp-gso-segments", &gso_segments.to_string()]);
                command.args(["--udp-direction", if any_port { "any" } else { "client" }]);
                match between {
                    Between::Loopback => command.args(["--memcached", "127.0.0.1:0"]),
                    Between::VethPair(_) => command.args(["--password", PASSWORD]),
                };
                if xdp {
                    command.args(["--xdp", INTERFACE]);
                }
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed("taskset", &error))?;
        let stderr = child.stderr.take().map(BufReader::new);
        let mut udp = None;
        if let (Kind::Ours { .. }, Some(stderr)) = (kind, stderr) {
            for line in stderr.lines().map_while(std::result::Result::ok) {
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
        let must_poll = udp.is_none();
        let mut server = Server { child, _directory: directory, tcp, udp, xdp, gso_segments };
        if must_poll && !comes_to_listen(&mut server.child, server.tcp) {
            return Err(Error::Invalid(format!("{kind:?} does not listen; is it installed?")));
        }
        Ok(server)
    }
}

/// A free port of the loopback interface.
///
/// # Errors
/// If the system refuses.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let address = free.and_then(|listener| listener.local_addr());
    address.map_err(|error| failed("a free port", &error))
}

/// Waits until the process listens on `address`; `false` if it ends, or does not within 10 s.
pub(crate) fn comes_to_listen(child: &mut Child, address: SocketAddr) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(address).is_err() {
        let has_ended = child.try_wait().is_ok_and(|ended| ended.is_some());
        if has_ended || Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// The `siltstone` program under test: the environment's `SILTSTONE` if it is set, else the one
/// next to this program, else the release build of this checkout.
///
/// # Errors
/// [`Error::Refused`] if there is none.
pub(crate) fn siltstone() -> Result<PathBuf> {
    if let Some(program) = std::env::var_os("SILTSTONE") {
        return Ok(program.into());
    }
    let adjacent = std::env::current_exe().ok().map(|program| program.with_file_name("siltstone"));
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/siltstone");
    adjacent.into_iter().chain([built]).find(|program| program.is_file()).ok_or_else(|| {
        let reason = "build it with `cargo build --release -p siltstone-cli`, or name it by the \
                      environment's SILTSTONE";
        Error::Refused { path: "siltstone".to_owned(), reason: reason.to_owned() }
    })
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
