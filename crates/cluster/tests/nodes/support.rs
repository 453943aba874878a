//! Nodes of a test cluster, on directories of a disk and TCP over loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use siltstone_cluster::network::{Network, Receiver};
use siltstone_cluster::node::{
    Committed, Node, NodeHandle, NodeOptions, ReadIndex, Refusal, RequestError, Role,
};
use siltstone_cluster::transport::{Transport, TransportOptions};
use siltstone_cluster::{Change, Envelope, GroupOptions, OpenTable};
use siltstone_engine::{Engine, IoCounters, Purpose, Result, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Disk, MeteredVfs, Vfs};

pub(crate) const GROUP: u64 = 1;
pub(crate) const TICK: Duration = Duration::from_millis(20);
/// Long, because other tests may take the processor.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) fn open_table() -> OpenTable {
    Arc::new(|vfs| {
        let options = [("memtable", "256KiB"), ("cache", "256KiB")];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let options = Options::from_map(&options.into()).unwrap();
        Ok(Arc::new(Lsm::open(vfs, Env::system(1), options)?) as Arc<dyn Engine>)
    })
}

pub(crate) fn node_options(id: u64) -> NodeOptions {
    let drain = TIMEOUT / 2;
    NodeOptions { tick: TICK, drain, ..NodeOptions::new(GroupOptions::new(GROUP, id, id)) }
}

pub(crate) fn put(key: &str, value: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    batch
}

pub(crate) fn propose(
    handle: &NodeHandle,
    term: Option<u64>,
    batch: WriteBatch,
) -> std::result::Result<Committed, RequestError> {
    let (done, outcome) = channel();
    handle.propose(term, batch, move |result| done.send(result).unwrap());
    outcome.recv().unwrap()
}

pub(crate) fn read_index(handle: &NodeHandle) -> std::result::Result<ReadIndex, Refusal> {
    let (done, outcome) = channel();
    handle.read_index(move |result| done.send(result).unwrap());
    outcome.recv().unwrap()
}

pub(crate) fn barrier(handle: &NodeHandle) -> std::result::Result<ReadIndex, Refusal> {
    let (done, outcome) = channel();
    // Nobody receives a late outcome.
    handle.barrier(move |result| drop(done.send(result)));
    outcome.recv_timeout(50 * TICK).unwrap_or(Err(Refusal::Busy("there is no outcome")))
}

/// Waits until the condition holds.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Every row of a table.
pub(crate) fn rows(table: &dyn Engine) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut cursor, mut rows) = (table.iter().unwrap(), Vec::new());
    let mut is_there = cursor.first().unwrap();
    while is_there {
        rows.push((cursor.key().to_vec(), cursor.value().to_vec()));
        is_there = cursor.next().unwrap();
    }
    rows
}

/// A node's directory and addresses, and the node while it runs.
pub(crate) struct TestNode {
    pub(crate) id: u64,
    pub(crate) directory: PathBuf,
    pub(crate) address: SocketAddr,
    running: Option<(Node, Arc<Transport>)>,
    counters: Arc<IoCounters>,
    sent_packets: Arc<AtomicU64>,
}

/// Counts the packets of a transport.
struct Counted {
    transport: Arc<Transport>,
    sent_packets: Arc<AtomicU64>,
}

impl Network for Counted {
    fn send(&self, envelope: Envelope) {
        self.sent_packets.fetch_add(1, SeqCst);
        self.transport.send(envelope);
    }

    fn attach(&self, group: u64, receiver: Arc<dyn Receiver>) {
        self.transport.attach(group, receiver);
    }

    fn detach(&self, group: u64) {
        self.transport.detach(group);
    }

    fn client_address(&self, node: u64) -> Option<String> {
        self.transport.client_address(node)
    }
}

impl TestNode {
    pub(crate) fn handle(&self) -> &NodeHandle {
        self.running.as_ref().unwrap().0.handle()
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.running.as_ref().unwrap().1
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    fn vfs(&self) -> Arc<dyn Vfs> {
        let disk = Arc::new(Disk::create(&self.directory).unwrap());
        Arc::new(MeteredVfs::with_counters(disk, self.counters.clone()))
    }

    fn network(&self, transport: Arc<Transport>) -> Arc<dyn Network> {
        Arc::new(Counted { transport, sent_packets: self.sent_packets.clone() })
    }

    /// Syncs of its log, and of the log of its table.
    pub(crate) fn log_syncs(&self) -> u64 {
        self.counters.get(Purpose::Log).syncs
    }

    pub(crate) fn sent_packets(&self) -> u64 {
        self.sent_packets.load(SeqCst)
    }

    /// Closes the node in good order.
    pub(crate) fn stop(&mut self) {
        self.shut_down().unwrap();
    }

    /// Ends the node. Returns the error that has stopped it earlier.
    pub(crate) fn shut_down(&mut self) -> Result<()> {
        // The transport is dropped after it.
        self.running.take().map_or(Ok(()), |(node, _transport)| node.shutdown())
    }
}

/// Nodes 1 to n.
pub(crate) struct TestCluster {
    pub(crate) nodes: Vec<TestNode>,
    options: fn(u64) -> NodeOptions,
    /// Dropped last.
    root: tempfile::TempDir,
}

impl TestCluster {
    pub(crate) fn start(count: u64, options: fn(u64) -> NodeOptions) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut cluster = TestCluster { nodes: Vec::new(), options, root };
        let voters: Vec<u64> = (1..=count).collect();
        for &id in &voters {
            cluster.create(id, &voters);
        }
        cluster
    }

    /// A group of node 1 alone that begins with the checkpoint in a directory.
    pub(crate) fn restore(directory: &Path) -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut cluster = TestCluster { nodes: Vec::new(), options: node_options, root };
        let transport = bind(1, ([127, 0, 0, 1], 0).into());
        let mut node = TestNode {
            id: 1,
            directory: directory.to_owned(),
            address: transport.address(),
            running: None,
            counters: Arc::default(),
            sent_packets: Arc::default(),
        };
        let network = node.network(transport.clone());
        let restored = Node::restore(node_options(1), node.vfs(), open_table(), network, &[]);
        node.running = Some((restored.unwrap(), transport));
        cluster.nodes.push(node);
        cluster
    }

    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Creates a node, and makes it known to the others.
    pub(crate) fn create(&mut self, id: u64, voters: &[u64]) {
        let transport = bind(id, ([127, 0, 0, 1], 0).into());
        let mut node = TestNode {
            id,
            directory: self.root.path().join(format!("node-{id}")),
            address: transport.address(),
            running: None,
            counters: Arc::default(),
            sent_packets: Arc::default(),
        };
        for other in &self.nodes {
            transport.set_peer(other.id, other.address.to_string()).unwrap();
            if let Some((_, others)) = &other.running {
                others.set_peer(id, node.address.to_string()).unwrap();
            }
        }
        let options = (self.options)(id);
        let created = Node::create(
            options,
            node.vfs(),
            open_table(),
            node.network(transport.clone()),
            voters,
        )
        .unwrap();
        node.running = Some((created, transport));
        self.nodes.push(node);
    }

    /// Opens a node that was stopped.
    pub(crate) fn open(&mut self, at: usize) -> Result<()> {
        let (id, transport) = self.bind_again(at)?;
        let (vfs, network) = (self.nodes[at].vfs(), self.nodes[at].network(transport.clone()));
        let node = Node::open((self.options)(id), vfs, open_table(), network)?;
        self.nodes[at].running = Some((node, transport));
        Ok(())
    }

    /// Empties the directory of a node that was stopped, and creates the node again.
    pub(crate) fn create_again(&mut self, at: usize, voters: &[u64]) {
        std::fs::remove_dir_all(&self.nodes[at].directory).unwrap();
        let (id, transport) = self.bind_again(at).unwrap();
        let (vfs, network) = (self.nodes[at].vfs(), self.nodes[at].network(transport.clone()));
        let node = Node::create((self.options)(id), vfs, open_table(), network, voters).unwrap();
        self.nodes[at].running = Some((node, transport));
    }

    fn bind_again(&self, at: usize) -> Result<(u64, Arc<Transport>)> {
        let TestNode { id, address, .. } = self.nodes[at];
        let transport = bind(id, address);
        for other in self.nodes.iter().filter(|other| other.id != id) {
            transport.set_peer(other.id, other.address.to_string())?;
        }
        Ok((id, transport))
    }

    /// Where the leader of the latest term is, once there is one.
    pub(crate) fn leader(&self) -> usize {
        let mut found = None;
        wait_for("a leader", || {
            let running = self.nodes.iter().enumerate().filter(|(_, node)| node.is_running());
            let leaders = running.filter_map(|(at, node)| {
                let status = node.handle().status();
                (status.role == Role::Leader).then_some((status.term, at))
            });
            found = leaders.max();
            found.is_some()
        });
        found.unwrap().1
    }

    /// Writes at whichever node leads.
    pub(crate) fn write(&self, key: &str, value: &str) {
        wait_for("a write", || {
            let leader = self.nodes[self.leader()].handle();
            match propose(leader, None, put(key, value)) {
                Ok(_) => true,
                Err(RequestError::NotProposed(_) | RequestError::OutcomeUnknown(_)) => false,
            }
        });
    }

    pub(crate) fn change(&self, changes: &[Change]) {
        wait_for("a change of membership", || {
            let (done, outcome) = channel();
            let leader = self.nodes[self.leader()].handle();
            leader.change_membership(changes.to_vec(), move |result| done.send(result).unwrap());
            outcome.recv().unwrap().is_ok()
        });
    }

    /// Waits until all running nodes have applied the same, and compares their tables.
    pub(crate) fn check_that_all_agree(&self) {
        self.write("last", "write");
        let running = || self.nodes.iter().filter(|node| node.is_running());
        wait_for("all nodes to apply the same", || {
            let applied: Vec<_> = running().map(|node| node.handle().status().applied).collect();
            applied.windows(2).all(|pair| pair[0] == pair[1])
        });
        let mut tables = running().map(|node| rows(node.handle().table().as_ref()));
        let first = tables.next().unwrap();
        assert!(tables.all(|table| table == first), "the tables differ");
    }
}

fn bind(id: u64, listen: SocketAddr) -> Arc<Transport> {
    let options = TransportOptions {
        client_address: Some(format!("client-of-{id}")),
        ..TransportOptions::new(7, id, listen)
    };
    Transport::bind(options).unwrap()
}
