//! Starts this node: creates it in an empty directory, or opens what is there.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siltstone_cluster::GroupOptions;
use siltstone_cluster::node::{Network, NoPeers, Node, NodeOptions};
use siltstone_engine::{Error, Result};
use siltstone_vfs::Disk;

use super::clock::GroupClock;
use super::opener;
use super::options::ClusterOptions;

/// Starts the node. A node that has lost its log or its table does not start; a directory that
/// somebody has emptied looks like that of a new node.
///
/// # Errors
/// Those of the directory, of the network, and of opening the node.
pub(crate) fn start(options: &ClusterOptions, clock: &Arc<GroupClock>) -> Result<Node> {
    let seed = RandomState::new().hash_one("election timeouts");
    let group = GroupOptions::new(options.group, options.node, seed);
    let node = NodeOptions::new(group);
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
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(Error::io("list", options.dir.display().to_string(), &error)),
    }
}

fn network(options: &ClusterOptions) -> Result<Arc<dyn Network>> {
    let own = options.own().map(|member| member.client.to_string());
    if options.members.len() > 1 {
        return Err(Error::Invalid("several nodes need a transport".into()));
    }
    Ok(Arc::new(NoPeers { client_address: own }))
}
