//! Server processes that form a group, and their lives.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use super::client::Connection;

const PATIENCE: Duration = Duration::from_secs(30);

/// The processes; dropping it kills them.
pub struct Nodes {
    dir: tempfile::TempDir,
    cluster: String,
    pub clients: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
}

impl Nodes {
    /// Starts all nodes of a new group.
    pub fn start(count: usize) -> Self {
        // All are bound at once, so that they differ.
        let listeners: Vec<_> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop(listeners);
        let (clients, buses) = addresses.split_at(count);
        let members = clients.iter().zip(buses).enumerate();
        let members = members.map(|(i, (own, bus))| format!("{}={own}@{}", i + 1, bus.port()));
        let mut nodes = Nodes {
            dir: tempfile::tempdir().unwrap(),
            cluster: members.collect::<Vec<_>>().join(","),
            clients: clients.to_vec(),
            processes: (0..count).map(|_| None).collect(),
        };
        (0..count).for_each(|node| nodes.restart(node));
        nodes
    }

    pub fn restart(&mut self, node: usize) {
        let dir = self.dir.path().join(format!("node-{node}"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .args(["serve", &dir.display().to_string(), "--node-id", &(node + 1).to_string()])
            .args(["--initial-cluster", &self.cluster, "--cluster-id", "77"])
            .args(["--election-timeout", "300ms"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = Vec::new();
        let serves = errors.by_ref().map_while(Result::ok).any(|line| {
            let serves = line.starts_with("serving ");
            lines.push(line);
            serves
        });
        assert!(serves, "node {node} does not start: {lines:?}");
        // A full pipe would block the process.
        std::thread::spawn(move || errors.map_while(Result::ok).for_each(drop));
        self.processes[node] = Some(child);
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.processes[node].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The node that leads and serves.
    pub fn leader(&self) -> usize {
        let mut found = None;
        wait_for("a leader", || {
            found = (0..self.clients.len()).find(|node| {
                self.processes[*node].is_some()
                    && Connection::open(self.clients[*node])
                        .ok()
                        .and_then(|mut client| client.call(&["GET", "probe"]))
                        .is_some_and(|reply| !reply.starts_with('-'))
            });
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        (0..self.processes.len()).for_each(|node| self.kill(node));
    }
}

/// Sets a flag at the end of a scope, also after a panic.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
