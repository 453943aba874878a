//! Processes that serve, and where.
//!
//! Each is started on a free port with the settings that are fastest for it: nothing is written to a
//! disk, as many threads as it gets cores. Ours is this very program (`siltstone serve`).
//!
//! Invariant: a process is ended when its [`Server`] is dropped.
//!
//! Source: ours.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use siltstone_engine::{Error, Result};
use tempfile::TempDir;

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `siltstone serve` with a `mica` cache.
    Ours {
        /// UDP ports, each with a thread and a partition.
        ports: usize,
        /// Software direction: any port takes any request.
        any_port: bool,
    },
    /// `memcached`.
    Memcached,
    /// `redis-server`.
    Redis,
}

/// A server that runs.
pub struct Server {
    child: Child,
    _directory: TempDir,
    /// Where it speaks its protocol over TCP (ours: memcached's).
    pub tcp: SocketAddr,
    /// Where it takes our packets.
    pub udp: Option<SocketAddr>,
}

fn failed(what: &str, error: &std::io::Error) -> Error {
    Error::Invalid(format!("{what}: {error}"))
}

impl Server {
    /// Starts a server on these cores, with this much memory for items.
    ///
    /// # Errors
    /// If its program is missing or does not listen.
    pub fn start(kind: Kind, cores: &str, threads: usize, memory_mib: u64) -> Result<Self> {
        let directory = TempDir::new().map_err(|error| failed("a directory", &error))?;
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let mut tcp = free.map_err(|error| failed("a free port", &error))?;
        let (port, threads) = (tcp.port().to_string(), threads.to_string());
        let mut command = Command::new("taskset");
        command.args(["-c", cores]).current_dir(directory.path());
        match kind {
            Kind::Memcached => {
                let memory = memory_mib.to_string();
                command.args(["memcached", "-l", "127.0.0.1", "-U", "0", "-u", "nobody"]);
                // As many requests of one client in a row as it takes: there is only one.
                command.args(["-R", "1000", "-t", &threads, "-m", &memory, "-p", &port]);
            }
            Kind::Redis => {
                command.args(["redis-server", "--bind", "127.0.0.1", "--port", &port]);
                command.args(["--save", "", "--appendonly", "no", "--loglevel", "warning"]);
            }
            Kind::Ours { ports, any_port } => {
                let program =
                    std::env::current_exe().map_err(|error| failed("our own program", &error))?;
                let table = format!(
                    "cache=mica,mode=cache,item=16,memory={memory_mib}MiB,partitions={},stamps=on",
                    ports.next_power_of_two()
                );
                command.arg(program).args(["serve", "store", "--listen", "127.0.0.1:0"]);
                command.args(["--table", &table, "--threads", &threads, "--fsync", "no"]);
                command.args(["--udp", "127.0.0.1:0", "--udp-ports", &ports.to_string()]);
                command.args(["--udp-direction", if any_port { "any" } else { "client" }]);
                command.args(["--memcached", "127.0.0.1:0"]);
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
        let mut server = Server { child, _directory: directory, tcp, udp };
        let patience = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(server.tcp).is_err() {
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
