//! Starts this node: creates it in an empty directory, or opens what is there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siltstone_cluster::GroupOptions;
use siltstone_cluster::node::{Network, NoPeers, Node, NodeOptions, START_FILES};
use siltstone_cluster::transport::{Transport, TransportEvent, TransportOptions};
use siltstone_engine::{Error, Result};
use siltstone_vfs::Disk;

use super::clock::GroupClock;
use super::opener;
use super::options::ClusterOptions;
use crate::process;

/// Starts the node. A node that has lost its log or its table does not start; a directory that
/// somebody has emptied looks like that of a new node.
///
/// # Errors
/// Those of the directory, of the network, and of opening the node.
pub(crate) fn start(options: &ClusterOptions, clock: &Arc<GroupClock>) -> Result<Node> {
    let seed = RandomState::new().hash_one("election timeouts");
    let group = GroupOptions::new(options.group, options.node, seed);
    let tick = options.election_timeout / group.election_ticks as u32;
    let node = NodeOptions { tick, ..NodeOptions::new(group) };
    let is_new = is_empty(options)?;
    let vfs = Arc::new(Disk::create(&options.dir)?);
    let (open, network) = (opener(options, clock), network(options)?);
    if !is_new {
        return Node::open(node, vfs, open, network);
    }
    let mut voters: Vec<_> = options.members.iter().map(|member| member.node).collect();
    voters.sort_unstable();
    Node::create(node, vfs, open, network, &voters)
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

/// The connections to the other nodes. What they refuse is on standard error, where the server's
/// log is.
fn network(options: &ClusterOptions) -> Result<Arc<dyn Network>> {
    let Some(own) = options.own() else {
        return Err(Error::Invalid("the node is not among the members".into()));
    };
    let client_address = Some(own.client.to_string());
    let others = options.members.iter().filter(|member| member.node != own.node);
    let peers: Vec<_> = others.map(|member| (member.node, member.bus.to_string())).collect();
    if peers.is_empty() {
        return Ok(Arc::new(NoPeers { client_address }));
    }
    Ok(Transport::bind(TransportOptions {
        client_address,
        peers,
        listener: Arc::new(|event| process::log(&line(event))),
        ..TransportOptions::new(options.group, options.node, own.bus)
    })?)
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
