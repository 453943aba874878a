//! Server processes that form a group, and their lives.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::client::{Connection, PASSWORD};

const PATIENCE: Duration = Duration::from_secs(120);

/// Where a node runs.
#[derive(Clone)]
pub struct Host {
    /// Its address for clients and that for other nodes.
    pub client: SocketAddr,
    pub bus: SocketAddr,
    pub dir: PathBuf,
    /// A program with arguments that runs the node's program, if there is one.
    pub wrapper: Vec<String>,
    pub environment: Vec<(&'static str, PathBuf)>,
    /// Where what the node says is kept, if anywhere.
    pub log: Option<PathBuf>,
}

/// The processes; dropping it kills them.
pub struct Nodes {
    /// Holds the directories of nodes on this machine.
    _scratch: Option<tempfile::TempDir>,
    hosts: Vec<Host>,
    cluster: String,
    /// The number of the cluster.
    pub cluster_id: u64,
    /// The keys of the nodes' files, if these are encrypted.
    pub key_file: Option<String>,
    /// Whether the node joins; the others are the first nodes of the group.
    joins: Vec<bool>,
    options: Vec<String>,
    /// The addresses for clients of all nodes, also of those that have not joined yet.
    pub clients: Vec<SocketAddr>,
    processes: Vec<Option<Child>>,
}

impl Nodes {
    /// Starts all nodes of a new group.
    pub fn start(count: usize) -> Self {
        Self::with_spare(count, 0, &[])
    }

    /// Starts the first nodes of a new group on this machine. Others may join later.
    pub fn with_spare(first: usize, spare: usize, options: &[String]) -> Self {
        let mut nodes = Self::not_started(first, spare, options);
        nodes.start_first();
        nodes
    }

    /// The nodes of a new group on this machine, none of which runs.
    pub fn not_started(first: usize, spare: usize, options: &[String]) -> Self {
        let count = first + spare;
        let addresses = free_addresses(2 * count);
        let scratch = tempfile::tempdir().unwrap();
        let host = |node: usize| Host {
            client: addresses[node],
            bus: addresses[count + node],
            dir: scratch.path().join(format!("node-{node}")),
            wrapper: Vec::new(),
            environment: Vec::new(),
            log: Some(scratch.path().join(format!("node-{node}.log"))),
        };
        let hosts = (0..count).map(host).collect();
        let mut nodes = Self::planned(hosts, first, options);
        nodes._scratch = Some(scratch);
        nodes
    }

    /// Starts the first nodes of a new group. Others may join later.
    pub fn on(hosts: Vec<Host>, first: usize, options: &[String]) -> Self {
        let mut nodes = Self::planned(hosts, first, options);
        nodes.start_first();
        nodes
    }

    /// The nodes of a new group, none of which runs.
    pub fn planned(hosts: Vec<Host>, first: usize, options: &[String]) -> Self {
        let members = hosts.iter().enumerate().take(first);
        let members =
            members.map(|(i, host)| format!("{}={}@{}", i + 1, host.client, host.bus.port()));
        Nodes {
            _scratch: None,
            cluster: members.collect::<Vec<_>>().join(","),
            cluster_id: 77,
            key_file: None,
            joins: (0..hosts.len()).map(|node| node >= first).collect(),
            options: options.to_vec(),
            clients: hosts.iter().map(|host| host.client).collect(),
            processes: hosts.iter().map(|_| None).collect(),
            hosts,
        }
    }

    /// Starts the first nodes of the group.
    pub fn start_first(&mut self) {
        let first: Vec<_> = (0..self.joins.len()).filter(|node| !self.joins[*node]).collect();
        first.into_iter().for_each(|node| self.restart(node));
    }

    /// Where a node runs.
    pub fn host(&self, node: usize) -> &Host {
        &self.hosts[node]
    }

    /// The directory of a node.
    pub fn dir(&self, node: usize) -> &Path {
        &self.hosts[node].dir
    }

    /// What a node has said.
    pub fn log(&self, node: usize) -> String {
        let log = self.hosts[node].log.as_ref().map(std::fs::read_to_string);
        log.and_then(Result::ok).unwrap_or_default()
    }

    /// The command that starts a node.
    pub fn command(&self, node: usize) -> Command {
        let Host { client, bus, dir, wrapper, environment, .. } = &self.hosts[node];
        let words = wrapper.iter().map(String::as_str).chain([env!("CARGO_BIN_EXE_siltstone")]);
        let words: Vec<_> = words.collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).envs(environment.iter().map(|(name, value)| (name, value)));
        command.args(["serve", &dir.display().to_string(), "--election-timeout", "300ms"]);
        command.args(&self.options).args(password(*client));
        command.args(self.key_file.iter().flat_map(|path| ["--key-file", path]));
        if self.joins[node] {
            let own = format!("{client}@{}", bus.port());
            let through = self.clients[self.running()[0]].to_string();
            command.args(["--join", &through, "--cluster-announce", &own]);
        } else {
            let number = (node + 1).to_string();
            command.args(["--node-id", &number, "--cluster-id", &self.cluster_id.to_string()]);
            command.args(["--initial-cluster", &self.cluster]);
        }
        command
    }

    /// Starts a node, which has not run yet or was killed.
    pub fn restart(&mut self, node: usize) {
        self.run(node, self.command(node));
    }

    /// Starts a node by a command that is that of [`command`](Self::command), perhaps with more
    /// options.
    pub fn run(&mut self, node: usize, mut command: Command) {
        let log = &self.hosts[node].log;
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut lines = Vec::new();
        let serves = errors.by_ref().map_while(Result::ok).any(|line| {
            let serves = line.starts_with("serving ");
            lines.push(line);
            serves
        });
        assert!(serves, "node {node} does not start: {lines:?}");
        let options = OpenOptions::new().create(true).append(true).clone();
        let mut log = log.as_ref().map(|path| options.open(path).unwrap());
        // A full pipe would block the process.
        std::thread::spawn(move || {
            for line in lines.into_iter().chain(errors.map_while(Result::ok)) {
                if let Some(log) = &mut log {
                    writeln!(log, "{line}").unwrap();
                }
            }
        });
        self.processes[node] = Some(child);
    }

    /// SIGKILL.
    pub fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.processes[node].take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Kills a node and removes its directory. If it is started again, it joins as a new one.
    pub fn forget(&mut self, node: usize) {
        self.kill(node);
        std::fs::remove_dir_all(self.dir(node)).unwrap();
        self.joins[node] = true;
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
        let through = self.clients[*self.running().last().unwrap()];
        Command::new(env!("CARGO_BIN_EXE_siltstone"))
            .args(["cluster", command, &through.to_string()])
            .args(arguments)
            .args(password(through))
            .output()
            .unwrap()
    }

    /// The number of a node in its group.
    pub fn number(&self, node: usize) -> String {
        let mut number = None;
        // A node that has just joined answers nobody before it has the users.
        wait_for("the status of a node", || {
            let client = Connection::open(self.clients[node]).ok();
            let status = client.and_then(|mut client| client.call(&["CLUSTER", "STATUS"]));
            let mut lines = status.iter().flat_map(|status| status.lines());
            number = lines.find_map(|line| line.strip_prefix("node:")).map(str::to_owned);
            number.is_some()
        });
        number.unwrap()
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

/// The options of TLS between nodes.
pub fn tls() -> Vec<String> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../server/tests/certificates");
    let file = |name: &str| dir.join(name).display().to_string();
    let options = [
        ("--cluster-tls-cert", file("node.pem")),
        ("--cluster-tls-key", file("node.key")),
        ("--cluster-tls-ca", file("node_authority.pem")),
    ];
    options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
}

/// Only nodes that this machine alone can reach need no password.
fn password(address: SocketAddr) -> impl Iterator<Item = &'static str> {
    (!address.ip().is_loopback()).then_some(["--password", PASSWORD]).into_iter().flatten()
}

/// Sets a flag at the end of a scope, also after a panic.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs the program.
pub fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

/// What a program has printed.
pub fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

/// What a program has printed that has succeeded.
pub fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", text(output));
    text(output)
}

pub fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Addresses of this machine on which nothing listens. A node may start long after its address was
/// chosen, so their ports are below those that the system gives to whoever asks for any, and no two
/// calls return the same one.
fn free_addresses(count: usize) -> Vec<SocketAddr> {
    const FIRST_PORT: u64 = 12_000;
    const PORT_COUNT: u64 = 20_000;
    /// How far apart the first ports of two processes with consecutive numbers are.
    const PORTS_PER_PROCESS: u64 = 331;
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let start = u64::from(std::process::id()) * PORTS_PER_PROCESS;
    let offsets = std::iter::repeat_with(|| (start + DRAWN.fetch_add(1, Relaxed)) % PORT_COUNT);
    let addresses =
        offsets.map(|offset| SocketAddr::from(([127, 0, 0, 1], (FIRST_PORT + offset) as u16)));
    addresses.filter(|address| TcpListener::bind(address).is_ok()).take(count).collect()
}
