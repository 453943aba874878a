//! The state that the threads of a transport share: groups, links, and incoming connections.
//!
//! A hello is checked here, on both sides: version, cluster, number of groups and node id must fit.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::SystemTime;

use parking_lot::{Mutex, RwLock};

use super::event::{HelloRefusal, TransportEvent};
use super::link::{Link, PushOutcome};
use super::options::TransportOptions;
use crate::codec::{Hello, HelloDirectory};
use crate::network::Receiver;
use crate::packet::{Envelope, Packet, Registered};
use crate::publication::Publication;

/// The versions of the protocol that this program speaks, oldest and newest.
pub(super) const VERSIONS: (u16, u16) = (1, 5);
/// The earlier processes of a node that are remembered.
const MAX_PROCESSES: usize = 16;

/// An open connection to or from another node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The other node.
    pub node: u64,
    /// Whether this node has opened it: its packets go to the other node.
    pub is_outgoing: bool,
    /// When it was opened.
    pub opened_at: SystemTime,
    /// The bytes that wait to be sent.
    pub waiting_bytes: usize,
}

/// The shared state of a transport.
pub(super) struct Shared {
    pub(super) options: TransportOptions,
    /// A random number of this process.
    process: u64,
    groups: RwLock<HashMap<u64, Arc<dyn Receiver>>>,
    links: RwLock<HashMap<u64, Arc<Link>>>,
    client_addresses: RwLock<HashMap<u64, String>>,
    /// By group.
    directories: RwLock<BTreeMap<u64, GroupDirectories>>,
    incoming: Mutex<IncomingConnections>,
    pub(super) is_stopped: AtomicBool,
    dropped_packets: AtomicU64,
    pub(super) publications: PublicationCounters,
}

/// Published messages to and from other nodes. One to several nodes counts once for each.
#[derive(Default)]
pub(super) struct PublicationCounters {
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// The directories of a group's nodes.
struct GroupDirectories {
    own: u64,
    /// Those that the group has committed.
    committed: BTreeMap<u64, u64>,
}

/// The connections that others have opened.
#[derive(Default)]
struct IncomingConnections {
    last_id: u64,
    streams: HashMap<u64, TcpStream>,
    /// The connection of each node.
    of_node: HashMap<u64, u64>,
    /// When each node has opened its connection.
    opened_at: HashMap<u64, SystemTime>,
    /// The processes of each node that have connected, the last one last.
    processes: HashMap<u64, Vec<u64>>,
}

impl Shared {
    pub(super) fn new(options: TransportOptions) -> Self {
        let mut client_addresses = HashMap::new();
        client_addresses.extend(options.client_address.clone().map(|own| (options.node, own)));
        Shared {
            options,
            process: random(),
            groups: RwLock::default(),
            links: RwLock::default(),
            client_addresses: RwLock::new(client_addresses),
            directories: RwLock::default(),
            incoming: Mutex::default(),
            is_stopped: AtomicBool::new(false),
            dropped_packets: AtomicU64::new(0),
            publications: PublicationCounters::default(),
        }
    }

    pub(super) fn report(&self, event: TransportEvent) {
        (self.options.listener)(&event);
    }

    /// The hello of this node to another one.
    pub(super) fn hello(&self, to: u64) -> Hello {
        let directories = self.directories.read();
        let directories = directories.iter().map(|(group, of_group)| HelloDirectory {
            group: *group,
            own: of_group.own,
            of_receiver: of_group.committed.get(&to).copied(),
        });
        Hello {
            versions: VERSIONS,
            cluster: self.options.cluster,
            from: self.options.node,
            to,
            process: self.process,
            client_address: self.options.client_address.clone().unwrap_or_default(),
            groups: self.options.groups,
            directories: directories.collect(),
        }
    }

    /// Checks the hello of another node, and records its address for clients.
    pub(super) fn check_hello(&self, hello: &Hello) -> Result<(), HelloRefusal> {
        let (own, node) = (self.options.node, hello.from);
        if hello.versions.0 > VERSIONS.1 || hello.versions.1 < VERSIONS.0 {
            return Err(HelloRefusal::Version { node, own: VERSIONS, found: hello.versions });
        }
        if hello.cluster != self.options.cluster {
            let (own, found) = (self.options.cluster, hello.cluster);
            return Err(HelloRefusal::OtherCluster { node, own, found });
        }
        if hello.groups != self.options.groups {
            let (own, found) = (self.options.groups, hello.groups);
            return Err(HelloRefusal::OtherGroups { node, own, found });
        }
        if node == own {
            return Err(HelloRefusal::OwnNode { node });
        }
        if hello.to != own {
            return Err(HelloRefusal::OtherNode { expected: hello.to, found: own });
        }
        self.compare_directories(hello);
        if !self.links.read().contains_key(&node) {
            return Err(HelloRefusal::UnknownNode { node });
        }
        if !hello.client_address.is_empty() {
            self.client_addresses.write().insert(node, hello.client_address.clone());
        }
        Ok(())
    }

    /// Tells groups by which directories the other node knows this one. A node that was created
    /// again may know no node of its group any more, and gets no packets then.
    fn compare_directories(&self, hello: &Hello) {
        for HelloDirectory { group, own, of_receiver } in &hello.directories {
            let is_same = |known: u64| {
                self.directories.read().get(group).is_none_or(|here| here.own == known)
            };
            let Some(directory) = of_receiver.filter(|known| !is_same(*known)) else { continue };
            let (from, to) = (hello.from, self.options.node);
            let answer = Registered { from, to, directory, is_committed: true };
            let packet = Packet::Registered(answer);
            self.deliver(Envelope { group: *group, directory: *own, packet });
        }
    }

    pub(super) fn set_directories(&self, group: u64, own: u64, committed: &BTreeMap<u64, u64>) {
        let directories = GroupDirectories { own, committed: committed.clone() };
        self.directories.write().insert(group, directories);
    }

    /// Takes a connection that another node has opened.
    pub(super) fn add_incoming(&self, stream: &TcpStream) -> std::io::Result<u64> {
        let stream = stream.try_clone()?;
        let mut incoming = self.incoming.lock();
        incoming.last_id += 1;
        let id = incoming.last_id;
        incoming.streams.insert(id, stream);
        Ok(id)
    }

    /// How many connections others have opened.
    pub(super) fn incoming(&self) -> usize {
        self.incoming.lock().streams.len()
    }

    /// Closes the oldest of the connections that belong to no node yet; `false` if there is none.
    pub(super) fn close_oldest_stranger(&self) -> bool {
        let mut incoming = self.incoming.lock();
        let IncomingConnections { streams, of_node, .. } = &mut *incoming;
        let known: HashSet<u64> = of_node.values().copied().collect();
        let oldest = streams.keys().copied().filter(|id| !known.contains(id)).min();
        let Some(stream) = oldest.and_then(|id| streams.remove(&id)) else { return false };
        // It may be closed already. Its thread ends with it.
        let _ = stream.shutdown(Shutdown::Both);
        true
    }

    /// Notes whose connection it is. An earlier one of the same node is closed.
    pub(super) fn identify(&self, id: u64, hello: &Hello) -> Result<(), HelloRefusal> {
        let node = hello.from;
        let mut incoming = self.incoming.lock();
        let processes = incoming.processes.entry(node).or_default();
        match processes.iter().position(|process| *process == hello.process) {
            Some(at) if at + 1 == processes.len() => {}
            Some(_) => return Err(HelloRefusal::Duplicate { node }),
            None => {
                processes.push(hello.process);
                if processes.len() > MAX_PROCESSES {
                    processes.remove(0);
                }
            }
        }
        let old = incoming.of_node.insert(node, id);
        incoming.opened_at.insert(node, SystemTime::now());
        if let Some(stream) = old.and_then(|old| incoming.streams.get(&old)) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(incoming);
        if let Some(link) = self.link(node) {
            link.note_process(hello.process);
        }
        Ok(())
    }

    pub(super) fn remove_incoming(&self, id: u64) {
        let mut incoming = self.incoming.lock();
        incoming.streams.remove(&id);
        incoming.of_node.retain(|_, of| *of != id);
    }

    /// Closes the connections that others have opened: those of one node, or all.
    pub(super) fn close_incoming(&self, node: Option<u64>) {
        let incoming = self.incoming.lock();
        let of_node = node.map(|node| incoming.of_node.get(&node).copied().unwrap_or_default());
        for (id, stream) in &incoming.streams {
            if of_node.is_none_or(|of| of == *id) {
                // It may be closed already.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// The open connections, those of this node first.
    pub(super) fn connections(&self) -> Vec<Connection> {
        let links = self.links.read();
        let outgoing = links.values().filter_map(|link| {
            let (opened_at, waiting_bytes) = link.connection()?;
            Some(Connection { node: link.node, is_outgoing: true, opened_at, waiting_bytes })
        });
        let mut connections: Vec<_> = outgoing.collect();
        let incoming = self.incoming.lock();
        connections.extend(incoming.of_node.keys().filter_map(|&node| {
            let opened_at = *incoming.opened_at.get(&node)?;
            Some(Connection { node, is_outgoing: false, opened_at, waiting_bytes: 0 })
        }));
        connections.sort_by_key(|connection| (!connection.is_outgoing, connection.node));
        connections
    }

    pub(super) fn deliver(&self, envelope: Envelope) {
        if let Some(receiver) = self.groups.read().get(&envelope.group) {
            receiver.deliver(envelope);
        }
    }

    pub(super) fn send(&self, envelope: Envelope) {
        let node = envelope.packet.to();
        let pushed = self.link(node).map_or(PushOutcome::Dropped, |link| link.push(envelope));
        if pushed != PushOutcome::Queued {
            self.dropped_packets.fetch_add(1, Relaxed);
        }
        if pushed == PushOutcome::Overflows {
            // Raft then sends one packet at a time, until the peer answers.
            self.report_unreachable(node);
        }
    }

    /// Sends a published message to all other nodes, or drops it.
    pub(super) fn publish(&self, publication: Publication) {
        let publication = Arc::new(publication);
        let links = self.links.read();
        let dropped = links.values().filter(|link| !link.publish(publication.clone())).count();
        self.publications.dropped.fetch_add(dropped as u64, Relaxed);
    }

    pub(super) fn dropped_packets(&self) -> u64 {
        self.dropped_packets.load(Relaxed)
    }

    /// Reports to all groups that packets to a node have been lost.
    pub(super) fn report_unreachable(&self, node: u64) {
        self.groups.read().values().for_each(|receiver| receiver.report_unreachable(node));
    }

    /// Reports to a group that a node has not been asked to note a start.
    pub(super) fn report_earlier_version(&self, group: u64, node: u64) {
        if let Some(receiver) = self.groups.read().get(&group) {
            receiver.report_earlier_version(node);
        }
    }

    pub(super) fn attach(&self, group: u64, receiver: Arc<dyn Receiver>) {
        self.groups.write().insert(group, receiver);
    }

    pub(super) fn detach(&self, group: u64) {
        self.groups.write().remove(&group);
    }

    pub(super) fn link(&self, node: u64) -> Option<Arc<Link>> {
        self.links.read().get(&node).cloned()
    }

    /// Puts a link in the place of an earlier one to the same node.
    pub(super) fn add_link(&self, link: Arc<Link>) {
        if let Some(old) = self.links.write().insert(link.node, link) {
            old.close();
        }
    }

    pub(super) fn remove_link(&self, node: u64) {
        if let Some(old) = self.links.write().remove(&node) {
            old.close();
        }
        self.close_incoming(Some(node));
    }

    pub(super) fn close_links(&self) {
        self.links.read().values().for_each(|link| link.close());
    }

    pub(super) fn client_address(&self, node: u64) -> Option<String> {
        self.client_addresses.read().get(&node).cloned()
    }
}

/// A random number.
pub(super) fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}
