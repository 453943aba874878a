//! Requests to the nodes of a group: their status, and commands for the leader.

use std::time::Duration;

use siltstone_server::{Member, NodeAccess, NodeClient, Reply};

use super::access::POLL_INTERVAL;
use crate::outcome::Failure;

/// How long to wait for a leader, which an election may take.
const LEADER_TIMEOUT: Duration = Duration::from_secs(15);

/// The reply of a node to CLUSTER STATUS.
#[derive(Debug, Default)]
pub(super) struct NodeStatus {
    /// The number of groups.
    pub(super) groups: u64,
    pub(super) group: u64,
    pub(super) node: u64,
    pub(super) role: String,
    pub(super) term: u64,
    pub(super) leader: Option<u64>,
    pub(super) applied: u64,
    pub(super) log_bytes: u64,
    pub(super) table_bytes: u64,
    pub(super) voters: Vec<u64>,
    pub(super) refused_nodes: Vec<u64>,
    pub(super) refused_by: Vec<u64>,
    pub(super) unregistered_at: Vec<u64>,
    pub(super) failure: String,
    pub(super) members: Vec<Member>,
    pub(super) peers: Vec<Peer>,
}

/// Another node, as the leader sees it.
#[derive(Debug, Default, Clone)]
pub(super) struct Peer {
    pub(super) node: u64,
    pub(super) lag: u64,
    pub(super) is_alive: bool,
    pub(super) is_receiving_snapshot: bool,
}

impl NodeStatus {
    /// Asks the node at an address about a group, by its index.
    ///
    /// # Errors
    /// The reason why there is no status, as text.
    pub(super) fn of(access: &NodeAccess, address: &str, group: u64) -> Result<Self, String> {
        let number = group.to_string();
        // Earlier versions have one group, and no such argument.
        let words = ["CLUSTER", "STATUS", &number];
        let words = if group == 0 { &words[..2] } else { &words[..] };
        let reply = NodeClient::connect(address, access)?.call(words)?;
        match reply {
            Reply::Bulk(text) => Ok(Self::parse(&String::from_utf8_lossy(&text))),
            Reply::Error(text) => Err(format!("{address}: {text}")),
            _ => Err(format!("{address}: this is no node of a replicated table")),
        }
    }

    fn parse(text: &str) -> Self {
        let mut status = NodeStatus { groups: 1, ..NodeStatus::default() };
        for (field, value) in text.lines().filter_map(|line| line.split_once(':')) {
            let number = || value.parse().unwrap_or_default();
            let list = || value.split(',').filter_map(|node| node.parse().ok()).collect();
            match field {
                "groups" => status.groups = number(),
                "group" => status.group = number(),
                "node" => status.node = number(),
                "role" => status.role = value.to_owned(),
                "term" => status.term = number(),
                "leader" => status.leader = value.parse().ok(),
                "applied" => status.applied = number(),
                "log_bytes" => status.log_bytes = number(),
                "table_bytes" => status.table_bytes = number(),
                "voters" => status.voters = list(),
                "refused_nodes" => status.refused_nodes = list(),
                "refused_by" => status.refused_by = list(),
                "unregistered_at" => status.unregistered_at = list(),
                "failure" => status.failure = value.to_owned(),
                "member" => status.members.extend(value.parse::<Member>()),
                "peer" => status.peers.push(Peer::parse(value)),
                // Of a later version.
                _ => {}
            }
        }
        status
    }

    /// Whether a node votes in this group.
    pub(super) fn is_voter(&self, node: u64) -> bool {
        self.voters.contains(&node)
    }
}

impl Peer {
    fn parse(text: &str) -> Self {
        let mut peer = Peer::default();
        for (field, value) in text.split(',').filter_map(|pair| pair.split_once('=')) {
            match field {
                "node" => peer.node = value.parse().unwrap_or_default(),
                "lag" => peer.lag = value.parse().unwrap_or_default(),
                "alive" => peer.is_alive = value == "1",
                "snapshot" => peer.is_receiving_snapshot = value == "1",
                _ => {}
            }
        }
        peer
    }
}

/// The addresses for clients of the group, beginning with the one that is known.
pub(super) fn addresses(access: &NodeAccess, address: &str) -> Vec<String> {
    let mut addresses = vec![address.to_owned()];
    if let Ok(status) = NodeStatus::of(access, address, 0) {
        addresses.extend(status.members.iter().map(|member| member.client.to_string()));
        addresses.dedup();
    }
    addresses
}

/// Sends a command to the leader of the group that it is about.
///
/// # Errors
/// Its error, or why there is no reply.
pub(super) fn call_leader(
    access: &NodeAccess,
    address: &str,
    command: &[&str],
) -> Result<Reply, Failure> {
    let seeds = addresses(access, address);
    match access.call_leader(&seeds, command, LEADER_TIMEOUT).map_err(Failure::Store)? {
        Reply::Error(text) => {
            Err(Failure::Usage(text.strip_prefix("ERR ").unwrap_or(&text).to_owned()))
        }
        reply => Ok(reply),
    }
}

/// The status of the leader of a group.
///
/// # Errors
/// If none is known.
pub(super) fn leader_status(
    access: &NodeAccess,
    address: &str,
    group: u64,
) -> Result<NodeStatus, Failure> {
    let deadline = std::time::Instant::now() + LEADER_TIMEOUT;
    let mut problem;
    loop {
        match try_leader_status(access, address, group) {
            Ok(status) => return Ok(status),
            Err(text) => problem = text,
        }
        if std::time::Instant::now() >= deadline {
            return Err(Failure::Store(problem));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// One attempt of [`leader_status`]: asks a node who leads, and then that node.
fn try_leader_status(access: &NodeAccess, address: &str, group: u64) -> Result<NodeStatus, String> {
    let status = NodeStatus::of(access, address, group)?;
    if status.leader == Some(status.node) {
        return Ok(status);
    }
    let none = || {
        format!(
            "{address}: no leader is known: an election is under way, or no majority of the nodes \
             can be reached"
        )
    };
    let leader = status.leader.ok_or_else(none)?;
    let member = status.members.iter().find(|member| member.node == leader).ok_or_else(none)?;
    NodeStatus::of(access, &member.client.to_string(), group)
        .and_then(|status| if status.leader == Some(leader) { Ok(status) } else { Err(none()) })
}
