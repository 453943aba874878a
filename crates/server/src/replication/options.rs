//! Options of a replicated table: the nodes, and what this one is.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use siltstone::encryption::Keys;
use siltstone::engines;
use siltstone_engine::{Error, InvalidOption, Result};

use crate::ServerOptions;
use crate::node_client::NodeAccess;
use crate::tls::NodeTlsFiles;

/// Distance of a node's port for other nodes from its port for clients, unless it is given; as in
/// Redis Cluster.
const BUS_PORT_OFFSET: u16 = 10_000;

/// The maximum number of groups.
pub(crate) const MAX_GROUPS: u16 = 64;

const MIN_ELECTION_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_ELECTION_TIMEOUT: Duration = Duration::from_secs(60);

/// A node of the group, and where it is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its number, unique in the group for all time; not 0.
    pub node: u64,
    /// Its address for clients, as MOVED announces it.
    pub client: SocketAddr,
    /// Its address for the other nodes.
    pub bus: SocketAddr,
}

impl FromStr for Member {
    type Err = String;

    /// `ID=HOST:PORT[@BUSPORT]`, the notation of CLUSTER NODES.
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let invalid = || format!("{text:?} is not ID=IP:PORT or ID=IP:PORT@BUSPORT");
        let (node, address) = text.split_once('=').ok_or_else(invalid)?;
        let node = node.parse().ok().filter(|node| *node != 0).ok_or_else(invalid)?;
        Self::at(node, address)
    }
}

impl fmt::Display for Member {
    /// `ID=IP:PORT@BUSPORT`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.node, self.address())
    }
}

impl Member {
    /// The node with this number at an address, `IP:PORT` or `IP:PORT@BUSPORT`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn at(node: u64, text: &str) -> std::result::Result<Self, String> {
        let invalid = || format!("{text:?} is not IP:PORT or IP:PORT@BUSPORT");
        let (address, port) = match text.split_once('@') {
            None => (text, None),
            Some((address, port)) => (address, Some(port.parse().map_err(|_| invalid())?)),
        };
        let client: SocketAddr = address.parse().map_err(|_| invalid())?;
        let port =
            port.or_else(|| client.port().checked_add(BUS_PORT_OFFSET)).ok_or_else(|| {
                format!("{text:?}: the port for nodes would be above 65535; give it behind an @")
            })?;
        Ok(Member { node, client, bus: SocketAddr::new(client.ip(), port) })
    }

    /// `IP:PORT@BUSPORT`.
    pub fn address(&self) -> String {
        format!("{}@{}", self.client, self.bus.port())
    }
}

/// How a new node finds the group.
#[derive(Debug, Clone)]
pub struct JoinOptions {
    /// The address for clients of a node of the group, `host:port`.
    pub seed: String,
    /// How this node authenticates itself there.
    pub access: NodeAccess,
    /// The addresses of this node; its number is not known yet.
    pub own: Member,
}

/// Options of a replicated table.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// The number of the group, the same at all nodes. Nodes of another group are refused.
    pub group: u64,
    /// The number of this node; one of `members`.
    pub node: u64,
    /// The nodes of the group when it was created, the same at all nodes.
    pub members: Vec<Member>,
    /// The number of groups among which the keys are split, the same at all nodes. It is fixed when
    /// the cluster is made. `None`: that of the directory, that of the cluster of a node that
    /// joins, or 1.
    pub groups: Option<u16>,
    /// The directory of this node.
    pub dir: PathBuf,
    /// The keys with which all files of this node are encrypted, or none. Other nodes may have
    /// others. What nodes send to each other is not encrypted with them.
    pub encryption: Keys,
    /// Options of the engine `lsm`, by name.
    pub table: BTreeMap<String, String>,
    /// A follower campaigns once it has received nothing from a leader for one to two times this.
    pub election_timeout: Duration,
    /// A node that joins a group: `group`, `node` and `members` are 0 and empty then. What its
    /// directory says counts once it has joined.
    pub join: Option<JoinOptions>,
    /// Certificates for connections between nodes. Without them addresses must be loopback
    /// addresses.
    pub tls: Option<NodeTlsFiles>,
    /// Whether the users of this node's options replace those of the cluster once it is started:
    /// the way in if nobody can log in any more.
    pub replaces_users: bool,
    /// The bytes of snapshots that this node sends per second; 0: unlimited.
    pub snapshot_bytes_per_second: u64,
    /// The size of a group's log from which on entries are not retained any more for a node that
    /// receives a snapshot, in bytes: that node needs another one then. The log is in memory, too.
    pub max_log_bytes: u64,
}

impl ClusterOptions {
    /// The default of `snapshot_bytes_per_second`.
    pub const DEFAULT_SNAPSHOT_RATE: u64 = 64 << 20;

    /// The default of `max_log_bytes`.
    pub const DEFAULT_MAX_LOG_BYTES: u64 = 1 << 30;

    /// The smallest `max_log_bytes`: twice what makes a node compact its log.
    pub const MIN_MAX_LOG_BYTES: u64 = 128 << 20;

    /// The options of one of the first nodes of a group, with the defaults.
    pub fn new(group: u64, node: u64, members: Vec<Member>, dir: PathBuf) -> Self {
        ClusterOptions {
            group,
            node,
            members,
            groups: None,
            dir,
            encryption: Keys::default(),
            table: BTreeMap::new(),
            election_timeout: Duration::from_secs(1),
            join: None,
            tls: None,
            replaces_users: false,
            snapshot_bytes_per_second: Self::DEFAULT_SNAPSHOT_RATE,
            max_log_bytes: Self::DEFAULT_MAX_LOG_BYTES,
        }
    }
}

impl ClusterOptions {
    /// This node.
    pub(crate) fn own(&self) -> Option<&Member> {
        if let Some(join) = &self.join {
            return Some(&join.own);
        }
        self.members.iter().find(|member| member.node == self.node)
    }

    /// Rejects invalid options, and those of a server that cannot serve a replicated table.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] with all mistakes.
    pub fn check(&self, server: &ServerOptions) -> Result<()> {
        let mut errors = Vec::new();
        let mut require = |is_valid: bool, option: &str, reason: &str| {
            if !is_valid {
                let (option, reason) = (option.to_owned(), reason.to_owned());
                errors.push(InvalidOption { option, reason });
            }
        };
        let is_new = self.join.is_some();
        require(is_new || self.group != 0, "cluster-id", "it must not be 0");
        require(
            (MIN_ELECTION_TIMEOUT..=MAX_ELECTION_TIMEOUT).contains(&self.election_timeout),
            "election-timeout",
            "it must be from 100ms to 60s",
        );
        require(
            self.groups.is_none_or(|groups| (1..=MAX_GROUPS).contains(&groups)),
            "groups",
            "it must be from 1 to 64",
        );
        let is_large = self.max_log_bytes >= Self::MIN_MAX_LOG_BYTES;
        require(is_large, "max-log", "it must be at least 128MiB");
        let is_member = self.own().is_some();
        require(is_member, "node-id", "it is not among the nodes of --initial-cluster");
        let mut ids: Vec<_> = self.members.iter().map(|member| member.node).collect();
        ids.sort_unstable();
        ids.dedup();
        let is_distinct = ids.len() == self.members.len();
        require(is_distinct, "initial-cluster", "a node's number is given twice");
        let not_served = "it is not there for a replicated table yet";
        require(server.memcached.is_none(), "memcached", not_served);
        require(server.memcached_udp.is_none(), "memcached-udp", not_served);
        let has_tls_memcached = server.tls.as_ref().is_some_and(|tls| tls.memcached.is_some());
        require(!has_tls_memcached, "tls-memcached", not_served);
        require(server.udp.is_none(), "udp", not_served);
        require(
            server.threads <= 1,
            "threads",
            "one thread runs the commands of a replicated table; leave the option out",
        );
        let own = self.join.iter().map(|join| ("cluster-announce", &join.own));
        let others = self.members.iter().map(|member| ("initial-cluster", member));
        for (option, member) in own.chain(others) {
            let is_allowed = self.tls.is_some() || member.bus.ip().is_loopback();
            require(is_allowed, option, &needs_tls(member));
            let is_unspecified = member.client.ip().is_unspecified();
            let reason = "it must be an address that other machines can connect to";
            require(!is_unspecified, option, reason);
        }
        engines::check("lsm", &self.table)?;
        engines::check_encryption(&self.encryption, "replicated", "lsm", &self.table)?;
        if errors.is_empty() { Ok(()) } else { Err(Error::InvalidOptions(errors)) }
    }
}

/// Why an address needs TLS.
pub(crate) fn needs_tls(member: &Member) -> String {
    format!(
        "{}: without certificates nodes neither encrypt nor authenticate their connections; give \
         --cluster-tls-cert, --cluster-tls-key and --cluster-tls-ca, or use loopback addresses",
        member.bus
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_without_bus_port_gets_that_of_redis_cluster() {
        let member: Member = "2=127.0.0.1:7002".parse().unwrap();
        assert_eq!((member.node, member.client.port(), member.bus.port()), (2, 7002, 17_002));
        let member: Member = "3=[::1]:60000@7".parse().unwrap();
        assert_eq!((member.client.port(), member.bus.port()), (60_000, 7));
        for wrong in ["", "1", "0=127.0.0.1:1", "x=127.0.0.1:1", "1=host", "1=127.0.0.1:60000"] {
            assert!(wrong.parse::<Member>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_without_a_replicated_counterpart_are_refused_by_name() {
        let members = ["1=127.0.0.1:7001", "1=10.0.0.2:7002"].map(|text| text.parse().unwrap());
        let options = ClusterOptions::new(1, 3, members.into(), PathBuf::new());
        let server = ServerOptions {
            memcached: Some("127.0.0.1:1".parse().unwrap()),
            threads: 2,
            ..ServerOptions::default()
        };
        let Err(Error::InvalidOptions(errors)) = options.check(&server) else { panic!("accepted") };
        let names: Vec<_> = errors.iter().map(|error| error.option.as_str()).collect();
        let expected = ["node-id", "initial-cluster", "memcached", "threads", "initial-cluster"];
        assert_eq!(names, expected);
    }
}
