//! Starts this node: creates it in an empty directory, has it added to its group, or opens what is
//! there; with one group in the directory itself, or with several in directories of their own
//! ([`NodeDirectory`]). A directory that was restored from a backup becomes the first node of a new
//! cluster ([`super::origin`]).

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siltstone::NODE_FILES;
use siltstone_cluster::node::{Network, Node, NodeDirectory, NodeOptions};
use siltstone_cluster::transport::{Encryption, Transport, TransportEvent, TransportOptions};
use siltstone_cluster::{GroupOptions, LogIdentity, RaftLog, TableFilter};
use siltstone_collections::DeadRows;
use siltstone_engine::{Error, Result};
use siltstone_vfs::{Disk, Vfs};

use super::checkpoint::NodeCheckpointer;
use super::clock::TIME_KEY;
use super::function_rows::FUNCTION_PREFIX;
use super::group_table::Notes;
use super::groups::Groups;
use super::join::{self, JoinReply};
use super::membership::{self, Membership, MembershipThread};
use super::options::{ClusterOptions, JoinOptions};
use super::origin::Origin;
use super::peers::Peers;
use super::placement::Placement;
use super::publications::ReceivedPublications;
use super::user_rows::USER_PREFIX;
use super::{Replication, opener};
use crate::process;
use crate::tls::{NodeTls, NodeTlsFiles};

/// A running node.
pub(crate) struct StartedNode {
    pub(crate) groups: Groups,
    pub(crate) running: NodeThreads,
}

/// The threads of a node. Dropping it stops them, the members' threads first.
pub(crate) struct NodeThreads {
    _members: Vec<MembershipThread>,
    nodes: Vec<Node>,
    pub(crate) checkpointer: NodeCheckpointer,
    /// Whether it joins just now: it has received nothing of its cluster yet.
    pub(crate) joins: bool,
    /// Whether the users of its options shall replace those of the cluster.
    pub(crate) replaces_users: bool,
    /// Locked as long as the groups in it run.
    _directory: Option<NodeDirectory>,
}

impl NodeThreads {
    /// Stops the node.
    ///
    /// # Errors
    /// Those of [`Node::shutdown`].
    pub(crate) fn shutdown(self) -> Result<()> {
        let NodeThreads { _members, nodes, _directory, .. } = self;
        drop(_members);
        // Each of them may wait until another node leads.
        std::thread::scope(|scope| {
            let stopping: Vec<_> =
                nodes.into_iter().map(|node| scope.spawn(|| node.shutdown())).collect();
            let panicked = || Error::ReadOnly { cause: "a thread has panicked".into() };
            let ends =
                stopping.into_iter().map(|node| node.join().unwrap_or_else(|_| Err(panicked())));
            // All of them end before the first error is returned.
            ends.collect::<Vec<_>>().into_iter().collect()
        })
    }
}

/// Starts the node, and has it added to its group if it joins one. A node that has lost its log or
/// its table does not start. One whose directory somebody has emptied starts as a new one, and
/// stops when the others tell it that it was created again.
///
/// # Errors
/// Those of the directory, of the network, of joining, and of opening the node.
pub(crate) fn start(options: &ClusterOptions) -> Result<StartedNode> {
    let tls = options.tls.as_ref().map(open_tls).transpose()?.map(Arc::new);
    let disk = Arc::new(Disk::create(&options.dir)?);
    let vfs = options.encryption.open_directory(disk, "the node's directory", &NODE_FILES)?;
    let origin = Origin::read(vfs.as_ref())?;
    origin.iter().try_for_each(|origin| origin.check(options))?;
    let found = groups_of(vfs.as_ref(), origin)?;
    check_groups(found, options)?;
    let mut options = options.clone();
    let mut known = options.members.clone();
    let mut groups = found.or(options.groups).unwrap_or(1);
    let mut joins = false;
    if let Some(join) = &mut options.join {
        let JoinReply { group, node, groups: of_cluster, members } =
            identity(join, vfs.clone(), found)?;
        (options.group, options.node, join.own.node) = (group, node, node);
        // A node that has joined before learns them from its table.
        joins = !members.is_empty();
        (known, groups) = (members, of_cluster);
        check_groups(Some(groups), &options)?;
    }
    let own = *options
        .own()
        .ok_or_else(|| Error::Invalid("the node is not among the members".to_owned()))?;
    let (mut directory, places) = open_places(vfs.clone(), groups, origin)?;
    // Those that have joined later are added once the node has read who they are.
    let others: Vec<_> = known.iter().filter(|member| member.node != own.node).copied().collect();
    let publications = Arc::new(ReceivedPublications::new());
    let received = publications.clone();
    let transport = Transport::bind(TransportOptions {
        client_address: Some(own.client.to_string()),
        groups: groups.into(),
        peers: others.iter().map(|member| (member.node, member.bus.to_string())).collect(),
        encryption: tls.clone().map(|tls| tls as Arc<dyn Encryption>),
        listener: Arc::new(|event| process::log(&line(event))),
        publication_listener: Arc::new(move |publication| received.push(publication)),
        ..TransportOptions::new(options.group, options.node, own.bus)
            .with_election_timeout(options.election_timeout)
    })?;
    let mut voters: Vec<_> = options.members.iter().map(|member| member.node).collect();
    voters.sort_unstable();
    let (mut nodes, mut notes) = (Vec::new(), Vec::new());
    for (index, (vfs, is_new)) in places.into_iter().enumerate() {
        let of_group = Notes::default();
        let (open, node_options) =
            (opener(&options, &of_group), node_options(&options, index, groups));
        let network: Arc<dyn Network> = transport.clone();
        nodes.push(match is_new {
            false => Node::open(node_options, vfs, open, network)?,
            true if origin.is_some() => {
                let kept = [TIME_KEY, FUNCTION_PREFIX, USER_PREFIX];
                Node::restore(node_options, vfs, open, network, &kept)?
            }
            true => Node::create(node_options, vfs, open, network, &voters)?,
        });
        notes.push(of_group);
    }
    directory.iter_mut().try_for_each(NodeDirectory::complete)?;
    if origin.is_some() {
        Origin::remove(vfs.as_ref())?;
    }
    let links = Arc::downgrade(&transport);
    let peers = Arc::new(Peers::new(transport, &others, groups.into()));
    let timeout = options.election_timeout;
    let (mut members, mut replicas, mut first) = (Vec::new(), Vec::new(), None);
    for (index, (node, notes)) in nodes.iter().zip(&notes).enumerate() {
        let handle = node.handle().clone();
        let membership = Membership::new(handle.clone(), own, &known, tls.is_some(), timeout);
        let membership = Arc::new(membership);
        let placement = Placement::new(index, first.clone(), groups > 1, timeout);
        first.get_or_insert_with(|| membership.clone());
        let changes = notes.row_changes.clone();
        members.push(membership::start(&membership, peers.clone(), placement, changes)?);
        replicas.push(Replication::new(handle, membership, notes, tls.clone()));
    }
    let checkpointer = NodeCheckpointer {
        dir: options.dir,
        encryption: options.encryption,
        cluster: options.group,
        node: own.node,
        groups: nodes.iter().map(|node| node.handle().clone()).collect(),
    };
    let replaces_users = options.replaces_users;
    let running = NodeThreads {
        _members: members,
        nodes,
        checkpointer,
        joins,
        replaces_users,
        _directory: directory,
    };
    Ok(StartedNode { groups: Groups::new(replicas, links, publications), running })
}

/// The number of groups of the node in a directory, if there is one, or of what was restored there.
fn groups_of(vfs: &dyn Vfs, origin: Option<Origin>) -> Result<Option<u16>> {
    Ok(match (origin, NodeDirectory::groups_in(vfs)?) {
        (Some(origin), _) => Some(origin.groups),
        (None, Some(groups)) => Some(groups),
        // Its first files have no number of groups.
        (None, None) => (!Node::is_new(vfs)?).then_some(1),
    })
}

/// Refuses another number of groups than that of the directory or of the cluster.
fn check_groups(found: Option<u16>, options: &ClusterOptions) -> Result<()> {
    match (found, options.groups) {
        (Some(found), Some(wanted)) if found != wanted => {
            let reason = format!(
                "the number of groups is fixed when a cluster is made: this one has {found}, not \
                 {wanted}; leave the option out"
            );
            Err(Error::invalid_option("groups", reason))
        }
        _ => Ok(()),
    }
}

/// The directory of each group, and whether the group has to be created there.
type Places = Vec<(Arc<dyn Vfs>, bool)>;

fn open_places(
    vfs: Arc<dyn Vfs>,
    groups: u16,
    origin: Option<Origin>,
) -> Result<(Option<NodeDirectory>, Places)> {
    if groups == 1 {
        let is_new = match origin {
            None => Node::is_new(vfs.as_ref())?,
            Some(_) => !Node::is_created(vfs.as_ref())?,
        };
        return Ok((None, vec![(vfs, is_new)]));
    }
    let directory = NodeDirectory::create(vfs, groups)?;
    let place = |index| match origin {
        None => directory.group(index),
        Some(_) => directory.restored_group(index),
    };
    let places = (0..groups).map(place).collect::<Result<_>>()?;
    Ok((Some(directory), places))
}

/// Who a node is that joins or has joined, and the members that it knows of. A node that was
/// stopped before it had received anything knows no member, and asks again.
fn identity(join: &JoinOptions, vfs: Arc<dyn Vfs>, found: Option<u16>) -> Result<JoinReply> {
    let directory = match found {
        None => Node::directory_id(vfs)?,
        Some(1) => match joined_identity(vfs.as_ref())? {
            Some(identity) => return Ok(joined(identity, 1)),
            None => Node::directory_id(vfs)?,
        },
        Some(groups) => {
            let directory = NodeDirectory::create(vfs, groups)?;
            if directory.is_complete() {
                let (vfs, _) = directory.group(0)?;
                if let Some(identity) = joined_identity(vfs.as_ref())? {
                    return Ok(joined(identity, groups));
                }
            }
            directory.id()
        }
    };
    join::join(join, directory)
}

/// The identity of a node that has received its group's first snapshot, and so its members.
fn joined_identity(vfs: &dyn Vfs) -> Result<Option<LogIdentity>> {
    match RaftLog::has_entries_in(vfs)? {
        true => RaftLog::identity_in(vfs),
        false => Ok(None),
    }
}

/// A node that has joined before.
fn joined(LogIdentity { group, node }: LogIdentity, groups: u16) -> JoinReply {
    JoinReply { group, node, groups, members: Vec::new() }
}

/// The number of a group in packets and logs. The first one has that of the cluster.
fn group_number(cluster: u64, index: usize) -> u64 {
    cluster ^ (index as u64) << 48
}

fn node_options(options: &ClusterOptions, index: usize, groups: u16) -> NodeOptions {
    let seed = RandomState::new().hash_one("election timeouts");
    let number = group_number(options.group, index);
    let mut group = GroupOptions::new(number, options.node, seed);
    let tick = options.election_timeout / group.election_ticks as u32;
    let rate = options.snapshot_bytes_per_second;
    // Each group has its part of the node's rate.
    let per_tick = (u128::from(rate) * tick.as_micros()).div_ceil(1_000_000 * u128::from(groups));
    group.snapshot_bytes_per_tick = u64::try_from(per_tick).unwrap_or(u64::MAX);
    group.max_retained_log_bytes = options.max_log_bytes;
    group.filter = TableFilter(Some(Arc::new(DeadRows)));
    NodeOptions { tick, ..NodeOptions::new(group) }
}

fn open_tls(files: &NodeTlsFiles) -> Result<NodeTls> {
    NodeTls::open(files).map_err(|reason| Error::invalid_option("cluster-tls-cert", reason))
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

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use siltstone_cluster::node::NoPeers;

    use super::*;
    use crate::node_client::NodeAccess;
    use crate::replication::options::Member;

    #[test]
    fn node_that_was_stopped_before_it_received_anything_asks_its_group_again() {
        let dir = tempfile::tempdir().unwrap();
        let group = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let join = JoinOptions {
            seed: group.local_addr().unwrap().to_string(),
            access: NodeAccess::default(),
            own: Member::at(3, "127.0.0.1:7003@0").unwrap(),
        };
        let dir = dir.path().join("node");
        let options = ClusterOptions {
            join: Some(join),
            ..ClusterOptions::new(7, 3, Vec::new(), dir.clone())
        };
        // As it is between the answer to its question and the first snapshot.
        let vfs = Arc::new(Disk::create(&dir).unwrap());
        let (open, network) = (opener(&options, &Notes::default()), Arc::new(NoPeers::default()));
        let node = Node::create(node_options(&options, 0, 1), vfs, open, network, &[]).unwrap();
        node.shutdown().unwrap();
        let asked = std::thread::spawn(move || {
            let (mut client, _) = group.accept().unwrap();
            let mut question = [0; 256];
            let len = client.read(&mut question).unwrap();
            client.write_all(b"-ERR not today\r\n").unwrap();
            String::from_utf8_lossy(&question[..len]).into_owned()
        });
        let error = start(&options).err().unwrap().to_string();
        assert!(error.contains("not today"), "{error}");
        assert!(asked.join().unwrap().contains("ADD-NODE"));
    }
}
