//! Server processes that form a group, and their lives.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::Connection;

const PATIENCE: Duration = Duration::from_secs(30);

/// The processes; dropping it kills them.
pub struct Nodes {
    dir: tempfile::TempDir,
    cluster: String,
    /// How many nodes the group has at first; the others join.
    first: usize,
    options: Vec<String>,
    /// The addresses for clients of all nodes, also of those that have not joined yet.
    pub clients: Vec<SocketAddr>,
    buses: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
}

impl Nodes {
    /// Starts all nodes of a new group.
    pub fn start(count: usize) -> Self {
        Self::with_spare(count, 0, &[])
    }

    /// Starts the first nodes of a new group. Others may join later.
    pub fn with_spare(first: usize, spare: usize, options: &[String]) -> Self {
        let count = first + spare;
        // All are bound at once, so that they differ.
        let listeners: Vec<_> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        drop(listeners);
        let (clients, buses) = addresses.split_at(count);
        let members = clients.iter().zip(buses).enumerate().take(first);
        let members = members.map(|(i, (own, bus))| format!("{}={own}@{}", i + 1, bus.port()));
        let mut nodes = Nodes {
            dir: tempfile::tempdir().unwrap(),
            cluster: members.collect::<Vec<_>>().join(","),
            first,
            options: options.to_vec(),
            clients: clients.to_vec(),
            buses: buses.to_vec(),
            processes: (0..count).map(|_| None).collect(),
        };
        (0..first).for_each(|node| nodes.restart(node));
        nodes
    }

    pub fn restart(&mut self, node: usize) {
        let dir = self.dir.path().join(format!("node-{node}"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_siltstone"));
        command.args(["serve", &dir.display().to_string(), "--election-timeout", "300ms"]);
        command.args(&self.options);
        if node < self.first {
            command.args(["--node-id", &(node + 1).to_string(), "--cluster-id", "77"]);
            command.args(["--initial-cluster", &self.cluster]);
        } else {
            let own = format!("{}@{}", self.clients[node], self.buses[node].port());
            let through = self.clients[self.running()[0]].to_string();
            command.args(["--join", &through, "--cluster-announce", &own]);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
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

    /// The nodes whose processes run.
    pub fn running(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|node| self.processes[*node].is_some()).collect()
    }

    /// SIGSTOP or SIGCONT.
    pub fn signal(&self, node: usize, signal: Signal) {
        let child = self.processes[node].as_ref().unwrap();
        kill_process(Pid::from_raw(child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Runs `siltstone cluster` with the address of a running node.
    pub fn cluster(&self, command: &str, arguments: &[&str]) -> Output {
        let through = self.clients[*self.running().last().unwrap()].to_string();
        Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .args(["cluster", command, &through])
            .args(arguments)
            .output()
            .unwrap()
    }

    /// The number of a node in its group.
    pub fn number(&self, node: usize) -> String {
        let status = Connection::open(self.clients[node]).unwrap().call(&["CLUSTER", "STATUS"]);
        let status = status.unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("node:"));
        line.unwrap().to_owned()
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
