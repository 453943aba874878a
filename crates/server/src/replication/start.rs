//! Starts this node: creates it in an empty directory, has it added to its group, or opens what is
//! there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siltstone_cluster::node::{Network, Node, NodeOptions, START_FILES};
use siltstone_cluster::transport::{Encryption, Transport, TransportEvent, TransportOptions};
use siltstone_cluster::{GroupOptions, LogIdentity, RaftLog};
use siltstone_engine::{Error, InvalidOption, Result};
use siltstone_vfs::Disk;

use super::clock::GroupClock;
use super::group_table::Notes;
use super::join::{self, Joined};
use super::membership::{self, Membership, MembershipThread};
use super::options::{ClusterOptions, JoinOptions, Member};
use super::{Replication, opener};
use crate::process;
use crate::tls::{NodeTls, NodeTlsFiles};

/// A node that runs.
pub(crate) struct Started {
    pub(crate) replication: Replication,
    pub(crate) running: Running,
}

/// What stops when it is dropped: the members' thread first.
pub(crate) struct Running {
    _members: MembershipThread,
    node: Node,
}

impl Running {
    /// Stops the node.
    ///
    /// # Errors
    /// Those of [`Node::shutdown`].
    pub(crate) fn shutdown(self) -> Result<()> {
        let Running { _members, node } = self;
        drop(_members);
        node.shutdown()
    }
}

/// Starts the node, and has it added to its group if it joins one. A node that has lost its log or
/// its table does not start; a directory that somebody has emptied looks like that of a new node.
///
/// # Errors
/// Those of the directory, of the network, of joining, and of opening the node.
pub(crate) fn start(options: &ClusterOptions, clock: &Arc<GroupClock>) -> Result<Started> {
    let tls = options.tls.as_ref().map(open_tls).transpose()?.map(Arc::new);
    let is_new = is_empty(options)?;
    let vfs = Arc::new(Disk::create(&options.dir)?);
    let mut options = options.clone();
    let mut known = options.members.clone();
    if let Some(join) = &mut options.join {
        let (group, node, members) = identity(join, vfs.clone(), is_new)?;
        (options.group, options.node, join.own.node) = (group, node, node);
        known = members;
    }
    let own = *options
        .own()
        .ok_or_else(|| Error::Invalid("the node is not among the members".to_owned()))?;
    let notes = Notes { clock: clock.clone(), ..Notes::default() };
    let (open, node_options) = (opener(&options, &notes), node_options(&options));
    // Those that have joined later are added once the node has read who they are.
    let peers = known.iter().filter(|member| member.node != own.node);
    let transport = Transport::bind(TransportOptions {
        client_address: Some(own.client.to_string()),
        peers: peers.map(|member| (member.node, member.bus.to_string())).collect(),
        encryption: tls.clone().map(|tls| tls as Arc<dyn Encryption>),
        listener: Arc::new(|event| process::log(&line(event))),
        ..TransportOptions::new(options.group, options.node, own.bus)
    })?;
    let network: Arc<dyn Network> = transport.clone();
    let node = match is_new {
        false => Node::open(node_options, vfs, open, network)?,
        true => {
            let mut voters: Vec<_> = options.members.iter().map(|member| member.node).collect();
            voters.sort_unstable();
            Node::create(node_options, vfs, open, network, &voters)?
        }
    };
    let handle = node.handle().clone();
    let timeout = options.election_timeout;
    let membership = Membership::new(handle.clone(), own, &known, tls.is_some(), timeout);
    let membership = Arc::new(membership);
    let members = membership::start(&membership, Some(transport), notes.row_changes.clone())?;
    let replication = Replication::new(handle, membership, &notes, tls);
    Ok(Started { replication, running: Running { _members: members, node } })
}

/// Group and number of a node that joins, or has joined, and the members that it knows of.
fn identity(join: &JoinOptions, vfs: Arc<Disk>, is_new: bool) -> Result<(u64, u64, Vec<Member>)> {
    if !is_new && let Some(LogIdentity { group, node }) = RaftLog::identity_in(vfs.as_ref())? {
        return Ok((group, node, Vec::new()));
    }
    let Joined { group, node, members } = join::join(join, Node::directory_id(vfs)?)?;
    Ok((group, node, members))
}

fn node_options(options: &ClusterOptions) -> NodeOptions {
    let seed = RandomState::new().hash_one("election timeouts");
    let mut group = GroupOptions::new(options.group, options.node, seed);
    let tick = options.election_timeout / group.election_ticks as u32;
    let rate = options.snapshot_bytes_per_second;
    let per_tick = (u128::from(rate) * tick.as_micros()).div_ceil(1_000_000);
    group.snapshot_bytes_per_tick = u64::try_from(per_tick).unwrap_or(u64::MAX);
    NodeOptions { tick, ..NodeOptions::new(group) }
}

fn open_tls(files: &NodeTlsFiles) -> Result<NodeTls> {
    NodeTls::open(files).map_err(|reason| {
        let option = "cluster-tls-cert".to_owned();
        Error::InvalidOptions(vec![InvalidOption { option, reason }])
    })
}

fn is_empty(options: &ClusterOptions) -> Result<bool> {
    match std::fs::read_dir(&options.dir) {
        // An interrupted start leaves some of its first files.
        Ok(mut entries) => Ok(entries.all(|entry| {
            entry.is_ok_and(|entry| START_FILES.iter().any(|name| entry.file_name() == **name))
        })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io("list", options.dir.display().to_string(), &error)),
    }
}

/// The line for what an operator wants to know.
fn line(event: &TransportEvent) -> String {
    match event {
        TransportEvent::Connected { node, address } => {
            format!("connected to node {node}, {address}")
        }
        TransportEvent::Disconnected { node, reason } => {
            format!("not connected to node {node}: {reason}")
        }
        TransportEvent::Accepted { node, address } => {
            format!("node {node} has connected from {address}")
        }
        TransportEvent::Refused { address, refusal } => {
            format!("the connection from {address} is refused: {refusal}")
        }
        TransportEvent::RefusedBy { node, reason } => {
            format!("node {node} refuses this node: {reason}")
        }
        TransportEvent::Closed { address, reason } => {
            format!("the connection from {address} is closed: {reason}")
        }
        TransportEvent::TooLarge { node } => {
            format!("a packet to node {node} was too large and was dropped")
        }
    }
}
