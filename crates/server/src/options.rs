//! Server options: addresses, limits, timeouts, durability.
//!
//! Invariant: [`ServerOptions::check`] passes before any socket is bound, so a server without a
//! password is reachable from its own machine only.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use siltstone_client::wire::hello::MAX_PORTS;
use siltstone_engine::{Clock, Error, InvalidOption, Result, SystemClock};

use crate::backups::BackupOptions;
use crate::holdable_clock::HoldableClock;
use crate::tls::TlsOptions;

/// Maximum bytes of a reply around its value: a memcached key, flags, numbers.
const REPLY_FRAME_BYTES: usize = 512;

/// When a write is acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fsync {
    /// After it is on stable storage: it survives a power cut. Concurrent writes share a sync.
    Always,
    /// After it is in the page cache, synced every second: a power cut may lose the last second.
    #[default]
    EverySecond,
    /// After it is in the page cache: it survives a process crash.
    Never,
}

/// Server options.
#[derive(Clone)]
pub struct ServerOptions {
    /// Address of the Redis listener. Port 0 picks a free port.
    pub listen: SocketAddr,
    /// Path of a Unix socket for Redis clients, if any, and the permissions of its file.
    pub unix_socket: Option<(PathBuf, u32)>,
    /// Address of the memcached listener (TCP), if any.
    pub memcached: Option<SocketAddr>,
    /// Address for memcached over UDP, if any; must be a loopback address.
    pub memcached_udp: Option<SocketAddr>,
    /// Table of memcached clients; `None`: the first table.
    pub memcached_table: Option<String>,
    /// Address of the UDP protocol of `mica`, if any: the first of `udp_ports` consecutive ports.
    pub udp: Option<SocketAddr>,
    /// Table served over UDP; `None`: the first `mica` table.
    pub udp_table: Option<String>,
    /// Number of UDP threads, each with its port; 0: one per core. At most the table's number of
    /// partitions.
    pub udp_ports: usize,
    /// Whether every port takes requests for every partition and forwards them, which is slower.
    pub udp_any_port: bool,
    /// Maximum packets per GSO batch, in both directions; 1 disables batches and GRO.
    pub udp_gso_segments: usize,
    /// Interface that has the address of `udp`, and the first of as many of its queues as there are
    /// UDP threads: their packets bypass the kernel's network stack (AF_XDP).
    pub udp_xdp: Option<(String, u32)>,
    /// Address of the metrics port (HTTP), if any.
    pub metrics: Option<SocketAddr>,
    /// When a write is acknowledged.
    pub fsync: Fsync,
    /// Password that clients must send, if any.
    pub password: Option<String>,
    /// File of users, if any, in the format of Redis's ACL files. It must exist.
    pub acl_file: Option<PathBuf>,
    /// Directory of the log of libraries of functions, if any, which FUNCTION LOAD and others
    /// write: that of the store, which must exist. Without it a restart forgets them. A replicated
    /// table keeps them itself.
    pub functions_dir: Option<PathBuf>,
    /// TLS, on addresses beside those without.
    pub tls: Option<TlsOptions>,
    /// Maximum number of connections.
    pub max_clients: usize,
    /// Maximum bytes of a request, and of all commands queued between MULTI and EXEC.
    pub max_request_bytes: usize,
    /// Maximum bytes of unsent replies per client. A command whose reply does not fit fails with an
    /// error, and a value that no reply could carry is rejected.
    pub max_output_bytes: usize,
    /// Maximum time between requests of a client; `None`: unlimited.
    pub idle_timeout: Option<Duration>,
    /// Maximum time for a client to complete a request (plus one second per 64 KiB of it), or to
    /// read its replies.
    pub stall_timeout: Duration,
    /// Maximum time to send pending replies at shutdown.
    pub drain_timeout: Duration,
    /// Number of threads that serve clients; 0: one per core.
    pub threads: usize,
    /// Backups of the store while it is served. Without them BGSAVE syncs all tables.
    pub backup: Option<BackupOptions>,
    /// Clock for expiry; must be the clock of the tables.
    pub clock: Arc<dyn Clock>,
    /// The clock again, if clients may hold it by CLIENT HOLD-EXPIRY.
    pub holdable_clock: Option<Arc<HoldableClock>>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        ServerOptions {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 6379)),
            unix_socket: None,
            memcached: None,
            memcached_udp: None,
            memcached_table: None,
            udp: None,
            udp_table: None,
            udp_ports: 0,
            udp_any_port: false,
            udp_gso_segments: 64,
            udp_xdp: None,
            metrics: None,
            fsync: Fsync::default(),
            password: None,
            acl_file: None,
            functions_dir: None,
            tls: None,
            max_clients: 10_000,
            max_request_bytes: 512 << 20,
            max_output_bytes: 64 << 20,
            idle_timeout: None,
            stall_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(5),
            threads: 0,
            backup: None,
            clock: Arc::new(SystemClock),
            holdable_clock: None,
        }
    }
}

impl fmt::Debug for ServerOptions {
    /// Omits the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions")
            .field("listen", &self.listen)
            .field("memcached", &self.memcached)
            .field("udp", &self.udp)
            .field("udp_xdp", &self.udp_xdp)
            .field("metrics", &self.metrics)
            .field("tls", &self.tls)
            .field("fsync", &self.fsync)
            .field("max_clients", &self.max_clients)
            .field("threads", &self.threads)
            .field("backup", &self.backup)
            .finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// Rejects invalid options, and reports all of them at once.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`].
    pub fn check(&self) -> Result<()> {
        let mut errors = Vec::new();
        let mut require = |is_valid: bool, option: &str, reason: String| {
            if !is_valid {
                errors.push(InvalidOption { option: option.to_owned(), reason });
            }
        };
        let password = self.password.as_deref();
        require(
            password != Some(""),
            "password",
            "it is empty; set one, or none to serve this machine only".to_owned(),
        );
        for (option, address) in self.addresses() {
            let Some(address) = address else { continue };
            require(
                address.ip().is_loopback() || password.is_some() || self.acl_file.is_some(),
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
                format!(
                    "packets are selected by their address: set udp to the IPv4 address of {interface}"
                ),
            );
        }
        if let Some(address) = self.memcached_udp {
            require(
                address.ip().is_loopback(),
                "memcached_udp",
                format!(
                    "{address} can be reached from other machines, and a forged sender \
                     address would receive large responses; use a loopback address, or TCP"
                ),
            );
            require(
                password.is_none(),
                "memcached_udp",
                "memcached's datagrams cannot carry the password; use TCP".to_owned(),
            );
        }
        if let Some(tls) = &self.tls {
            require(
                tls.listen.or(tls.memcached).or(tls.metrics).is_some(),
                "tls",
                "there is a certificate and no address; set one for Redis clients, memcached \
                 clients or metrics"
                    .to_owned(),
            );
        }
        require(self.max_clients > 0, "max_clients", "it must be at least 1".to_owned());
        for (option, bytes) in [
            ("max_request_bytes", self.max_request_bytes),
            ("max_output_bytes", self.max_output_bytes),
        ] {
            require(
                bytes >= 1024,
                option,
                format!("{bytes} bytes are too few; the minimum is 1KiB"),
            );
        }
        if errors.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(errors)) }
    }

    /// Addresses that may be public only with a password, by their option.
    fn addresses(&self) -> [(&'static str, Option<SocketAddr>); 7] {
        let tls = self.tls.as_ref();
        [
            ("listen", Some(self.listen)),
            ("memcached", self.memcached),
            ("udp", self.udp),
            ("metrics", self.metrics),
            ("tls_listen", tls.and_then(|tls| tls.listen)),
            ("tls_memcached", tls.and_then(|tls| tls.memcached)),
            ("tls_metrics", tls.and_then(|tls| tls.metrics)),
        ]
    }

    /// Whether other machines can reach the server.
    pub(crate) fn is_public(&self) -> bool {
        let addresses = self.addresses().into_iter().filter_map(|(_, address)| address);
        addresses.into_iter().any(|address| !address.ip().is_loopback())
    }

    /// Number of UDP threads for a table with this number of partitions.
    pub(crate) fn udp_threads(&self, partitions: usize) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let wanted = if self.udp_ports == 0 { cores } else { self.udp_ports };
        wanted.min(partitions).min(MAX_PORTS)
    }

    /// Number of threads that serve clients.
    pub(crate) fn workers(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// Maximum value size: what fits in a request and in a reply.
    pub(crate) fn max_value_bytes(&self) -> usize {
        self.max_reply_value_bytes().min(self.max_request_bytes)
    }

    /// Maximum value size that fits in a reply.
    pub(crate) fn max_reply_value_bytes(&self) -> usize {
        self.reply_bytes() - REPLY_FRAME_BYTES
    }

    /// The size of a reply that fits whatever replies are pending.
    pub(crate) fn reply_bytes(&self) -> usize {
        self.max_output_bytes - self.soft_output_bytes()
    }

    /// Bytes of unsent replies above which a client's next requests wait.
    pub(crate) fn soft_output_bytes(&self) -> usize {
        (self.max_output_bytes / 4).min(1 << 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_address_without_a_password_is_rejected() {
        let mut options = ServerOptions {
            listen: "0.0.0.0:1".parse().unwrap(),
            metrics: Some("[::]:2".parse().unwrap()),
            ..ServerOptions::default()
        };
        let Err(Error::InvalidOptions(errors)) = options.check() else { panic!("accepted") };
        let names: Vec<_> = errors.iter().map(|m| m.option.as_str()).collect();
        assert_eq!(names, ["listen", "metrics"]);
        assert!(errors[0].reason.contains("127.0.0.1:1"));
        options.password = Some("secret".into());
        options.check().unwrap();
        assert!(!format!("{options:?}").contains("secret"));
    }
}
