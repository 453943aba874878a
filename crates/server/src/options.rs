//! How to serve: addresses, limits, timeouts, and when a write is acknowledged.
//!
//! Invariant: [`ServerOptions::check`] passes before anything listens, so a server without a
//! password can be reached from its own machine only.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use siltstone_client::wire::hello::MAX_PORTS;
use siltstone_engine::{Clock, Error, InvalidOption, Result, SystemClock};

/// What a reply has at most around the value that it carries: a key of memcached's, flags, numbers.
const REPLY_FRAME_BYTES: usize = 512;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fsync {
    /// When the medium has it: it survives a power cut. Writes that arrive together share a sync.
    Always,
    /// When the operating system has it, and the medium within a second: a power cut may take the
    /// last second.
    #[default]
    EverySecond,
    /// When the operating system has it: it survives the death of the process.
    Never,
}

/// How to serve.
#[derive(Clone)]
pub struct ServerOptions {
    /// Where to listen for clients. Port 0 takes any free one.
    pub listen: SocketAddr,
    /// Where to listen for memcached's clients over TCP, if anywhere.
    pub memcached: Option<SocketAddr>,
    /// Where to take memcached's commands in datagrams, if anywhere; a loopback address only.
    pub memcached_udp: Option<SocketAddr>,
    /// The table that memcached's clients are served; `None`: the first.
    pub memcached_table: Option<String>,
    /// Where to serve a `mica` table over UDP, if anywhere: the first of as many ports as there are
    /// threads.
    pub udp: Option<SocketAddr>,
    /// The table that is served over UDP; `None`: the first of `mica`.
    pub udp_table: Option<String>,
    /// Threads that serve UDP, and ports; 0 for one a core. No more than the table has partitions.
    pub udp_ports: usize,
    /// Whether a port takes requests for any partition and hands them over, which is slower.
    pub udp_any_port: bool,
    /// Datagrams that the system may carry as one, both ways, where it can; 1 for none.
    pub udp_train: usize,
    /// An interface that has the address of `udp`, and the first of as many of its queues as there are
    /// threads: packets that come there are taken past the kernel's network (AF_XDP).
    pub udp_xdp: Option<(String, u32)>,
    /// Where to serve metrics over HTTP, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// When a write is acknowledged.
    pub fsync: Fsync,
    /// What clients must send with AUTH, if anything.
    pub password: Option<String>,
    /// Clients at once.
    pub max_clients: usize,
    /// Bytes of a request, and of all commands that wait between MULTI and EXEC.
    pub max_request_bytes: usize,
    /// Bytes of replies that wait for one client. A command whose reply does not fit is answered by an error, and
    /// a value that no reply could carry is refused.
    pub max_output_bytes: usize,
    /// How long a client may be silent between requests; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How long a client may take over a request that it has begun (and a second more for each
    /// 64 KiB of it), or leave replies unread.
    pub stall_timeout: Duration,
    /// How long shutting down may take to send what is still unsent.
    pub drain_timeout: Duration,
    /// Threads that serve clients; 0 for one a core.
    pub threads: usize,
    /// What time it is, for expiry; the clock that the tables were opened with.
    pub clock: Arc<dyn Clock>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6379)),
            memcached: None,
            memcached_udp: None,
            memcached_table: None,
            udp: None,
            udp_table: None,
            udp_ports: 0,
            udp_any_port: false,
            udp_train: 64,
            udp_xdp: None,
            metrics: None,
            fsync: Fsync::default(),
            password: None,
            max_clients: 10_000,
            max_request_bytes: 512 << 20,
            max_output_bytes: 64 << 20,
            idle_timeout: None,
            stall_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            threads: 0,
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for ServerOptions {
    /// All but the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("listen", &self.listen)
            .field("memcached", &self.memcached)
            .field("udp", &self.udp)
            .field("udp_xdp", &self.udp_xdp)
            .field("metrics", &self.metrics)
            .field("fsync", &self.fsync)
            .field("max_clients", &self.max_clients)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// Refuses options that cannot be, all mistakes at once.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`].
    pub fn check(&self) -> Result<()> {
        let mut mistakes = Vec::new();
        let mut require = |holds: bool, option: &str, reason: String| {
            if !holds {
                mistakes.push(InvalidOption { option: option.to_owned(), reason });
            }
        };
        let password = self.password.as_deref();
        require(
            password != Some(""),
            "password",
            "it is empty; give one, or none to serve this machine only".to_owned(),
        );
        let reachable = [
            ("listen", Some(self.listen)),
            ("memcached", self.memcached),
            ("udp", self.udp),
            ("metrics", self.metrics),
        ];
        for (option, address) in reachable {
            let Some(address) = address else { continue };
            require(
                address.ip().is_loopback() || password.is_some(),
                option,
                format!(
                    "{address} can be reached from other machines and there is no password; set \
                     one, or use a loopback address such as 127.0.0.1:{}",
                    address.port()
                ),
            );
        }
        if let Some((interface, _)) = &self.udp_xdp {
            require(
                self.udp.is_some_and(|udp| udp.is_ipv4() && !udp.ip().is_unspecified()),
                "udp_xdp",
                format!("packets are taken by their address: give udp the IPv4 one of {interface}"),
            );
        }
        if let Some(address) = self.memcached_udp {
            require(
                address.ip().is_loopback(),
                "memcached_udp",
                format!(
                    "{address} can be reached from other machines, and whoever forges a sender's \
                     address could have large answers sent there; use a loopback address, or TCP"
                ),
            );
            require(
                password.is_none(),
                "memcached_udp",
                "memcached's datagrams have no room for the password; use TCP".to_owned(),
            );
        }
        require(self.max_clients > 0, "max_clients", "it must be at least 1".to_owned());
        for (option, bytes) in [
            ("max_request_bytes", self.max_request_bytes),
            ("max_output_bytes", self.max_output_bytes),
        ] {
            require(bytes >= 1024, option, format!("{bytes} bytes are too few; 1KiB is the least"));
        }
        if mistakes.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(mistakes)) }
    }

    /// How many threads serve UDP, of a table with so many partitions.
    pub(crate) fn udp_threads(&self, partitions: usize) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = if self.udp_ports == 0 { cores } else { self.udp_ports };
        wanted.min(partitions).min(MAX_PORTS)
    }

    /// How many threads serve clients.
    pub(crate) fn workers(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// The largest value that the server takes: one that a request brings and a reply can carry.
    pub(crate) fn max_value_bytes(&self) -> usize {
        self.max_carried_bytes().min(self.max_request_bytes)
    }

    /// The largest value that a reply can carry.
    pub(crate) fn max_carried_bytes(&self) -> usize {
        self.max_output_bytes - self.soft_output_bytes() - REPLY_FRAME_BYTES
    }

    /// Replies that wait for one client before its next requests wait too.
    pub(crate) fn soft_output_bytes(&self) -> usize {
        (self.max_output_bytes / 4).min(1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_address_without_a_password_is_refused() {
        let mut options = ServerOptions {
            listen: "0.0.0.0:1".parse().unwrap(),
            metrics: Some("[::]:2".parse().unwrap()),
            ..ServerOptions::default()
        };
        let Err(Error::InvalidOptions(mistakes)) = options.check() else { panic!("accepted") };
        let names: Vec<_> = mistakes.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["listen", "metrics"]);
        assert!(mistakes[0].reason.contains("127.0.0.1:1"));
        options.password = Some("secret".into());
        options.check().unwrap();
        assert!(!format!("{options:?}").contains("secret"));
    }
}
