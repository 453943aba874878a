//! Three processes that are killed with SIGKILL in rounds, while clients write and read.
//!
//! A process is this test program again. It answers lines of its standard input on its standard
//! output:
//!
//! ```text
//!   ID get KEY             ID value TERM [VALUE] | ID refused LEADER
//!   ID put TERM KEY VALUE  ID done | ID refused LEADER | ID unknown      TERM 0: any
//! ```

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use siltstone_cluster::node::{Node, NodeHandle, Refusal, RequestError};
use siltstone_cluster::transport::{Transport, TransportOptions};
use siltstone_testkit::TestRng;
use siltstone_vfs::{Disk, Vfs};

use crate::clients::{Answer, Histories, Service};
use crate::support::{node_options, open_table, put, wait_for};

/// How many rounds of kills.
const ROUNDS: &str = "SILTSTONE_KILL_ROUNDS";
/// In a child: its id, its directory, and the addresses of all.
const CHILD: &str = "SILTSTONE_TEST_NODE";

#[test]
fn node_process() {
    // In the parent there is nothing to do.
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let mut arguments = arguments.split(' ');
    let mut next = || arguments.next().unwrap();
    let (id, directory): (u64, _) = (next().parse().unwrap(), next());
    let addresses: Vec<SocketAddr> =
        next().split(',').map(|address| address.parse().unwrap()).collect();
    let mut options = TransportOptions::new(7, id, addresses[id as usize - 1]);
    options.peers = (1..).zip(&addresses).map(|(id, at)| (id, at.to_string())).collect();
    options.peers.retain(|(peer, _)| *peer != id);
    let transport = Transport::bind(options).unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(Disk::create(directory).unwrap());
    let mut options = node_options(id);
    options.group.max_log_bytes = 200_000;
    options.group.retained_entries = 50;
    let is_new = !vfs.list().unwrap().iter().any(|name| name.ends_with(".log"));
    let node = match is_new {
        true => Node::create(options, vfs, open_table(), transport, &[1, 2, 3]),
        false => Node::open(options, vfs, open_table(), transport),
    };
    let node = node.unwrap();
    println!("\nready");
    for line in std::io::stdin().lines() {
        answer(node.handle(), &line.unwrap());
    }
    node.shutdown().unwrap();
}

fn reply(id: &str, text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{id} {text}").and_then(|()| out.flush()).unwrap();
}

fn refused(refusal: &Refusal) -> String {
    let leader = match refusal {
        Refusal::NotLeader { leader: Some(leader) } => leader.node,
        _ => 0,
    };
    format!("refused {leader}")
}

fn answer(handle: &NodeHandle, line: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let id = words[0].to_owned();
    match words[1..] {
        ["get", key] => {
            let (key, of_read) = (key.to_owned(), handle.clone());
            handle.read_index(move |outcome| match outcome {
                Err(refusal) => reply(&id, &refused(&refusal)),
                Ok(read) => {
                    let entry = of_read.table().get(key.as_bytes()).unwrap();
                    let value = entry.map(|entry| String::from_utf8(entry.value).unwrap());
                    reply(&id, &format!("value {} {}", read.term, value.unwrap_or_default()));
                }
            });
        }
        ["put", term, key, value] => {
            let term = Some(term.parse().unwrap()).filter(|&term| term != 0);
            handle.propose(term, put(key, value), move |outcome| match outcome {
                Ok(_) => reply(&id, "done"),
                Err(RequestError::NotProposed(refusal)) => reply(&id, &refused(&refusal)),
                Err(RequestError::OutcomeUnknown(_)) => reply(&id, "unknown"),
            });
        }
        _ => panic!("{line}"),
    }
}

/// A running process and the requests that wait for it.
struct Process {
    child: Child,
    input: ChildStdin,
    /// Dropped when the process ends.
    pending: Arc<Mutex<HashMap<u64, Sender<String>>>>,
}

struct Processes {
    addresses: Vec<SocketAddr>,
    running: Vec<Mutex<Option<Process>>>,
    last_request: AtomicU64,
}

impl Processes {
    fn new() -> Self {
        // Taken by the processes a moment later.
        let listeners: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let running = (0..3).map(|_| Mutex::new(None)).collect();
        Processes { addresses, running, last_request: AtomicU64::new(0) }
    }

    fn start(&self, root: &Path, node: u64) {
        let directory = root.join(format!("node-{node}"));
        let addresses: Vec<_> = self.addresses.iter().map(SocketAddr::to_string).collect();
        let arguments = format!("{node} {} {}", directory.display(), addresses.join(","));
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["processes::node_process", "--exact", "--nocapture"])
            .env(CHILD, arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let is_ready = lines.by_ref().map_while(|line| line.ok()).any(|line| line == "ready");
        assert!(is_ready, "node {node} does not start: {:?}", child.wait());
        let pending: Arc<Mutex<HashMap<u64, Sender<String>>>> = Arc::default();
        let of_reader = pending.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(|line| line.ok()) {
                let Some((id, text)) = line.split_once(' ') else { continue };
                let Ok(id) = id.parse() else { continue };
                if let Some(reply) = of_reader.lock().unwrap().remove(&id) {
                    // A client that waits no more has given up on the process.
                    let _ = reply.send(text.to_owned());
                }
            }
            of_reader.lock().unwrap().clear();
        });
        *self.running[node as usize - 1].lock().unwrap() = Some(Process { child, input, pending });
    }

    fn kill(&self, node: u64) {
        if let Some(mut process) = self.running[node as usize - 1].lock().unwrap().take() {
            process.child.kill().unwrap();
            process.child.wait().unwrap();
            process.pending.lock().unwrap().clear();
        }
    }

    /// `None` if the process was not reached; an error if it died before it replied.
    fn call(&self, node: u64, request: &str) -> Option<Result<String, ()>> {
        let id = self.last_request.fetch_add(1, SeqCst);
        let (sender, reply) = channel();
        {
            let mut running = self.running[node as usize - 1].lock().unwrap();
            let process = running.as_mut()?;
            process.pending.lock().unwrap().insert(id, sender);
            if writeln!(process.input, "{id} {request}").is_err() {
                process.pending.lock().unwrap().remove(&id);
                return Some(Err(()));
            }
        }
        Some(reply.recv().map_err(|_| ()))
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        (1..=3).for_each(|node| self.kill(node));
    }
}

fn leader_in(words: &[&str]) -> Option<u64> {
    let leader = words.get(1).and_then(|leader| leader.parse().ok());
    leader.filter(|&leader| leader != 0)
}

impl Service for Processes {
    fn nodes(&self) -> u64 {
        3
    }

    fn get(&self, node: u64, key: &str) -> Answer<(u64, Option<String>)> {
        match self.call(node, &format!("get {key}")) {
            None => Answer::Refused(None),
            Some(Err(())) => Answer::Unknown,
            Some(Ok(text)) => match text.split(' ').collect::<Vec<_>>()[..] {
                ["value", term, value] => {
                    let value = Some(value.to_owned()).filter(|value| !value.is_empty());
                    Answer::Done((term.parse().unwrap(), value))
                }
                ref words => Answer::Refused(leader_in(words)),
            },
        }
    }

    fn put(&self, node: u64, term: Option<u64>, key: &str, value: &str) -> Answer<()> {
        match self.call(node, &format!("put {} {key} {value}", term.unwrap_or_default())) {
            None => Answer::Refused(None),
            Some(Err(())) => Answer::Unknown,
            Some(Ok(text)) => match text.split(' ').collect::<Vec<_>>()[..] {
                ["done"] => Answer::Done(()),
                ["unknown"] => Answer::Unknown,
                ref words => Answer::Refused(leader_in(words)),
            },
        }
    }
}

#[test]
fn killed_processes_lose_no_acknowledged_write() {
    let rounds = std::env::var(ROUNDS).map_or(2, |rounds| rounds.parse().unwrap());
    let seed = rounds;
    let mut rng = TestRng::new(seed);
    let root = tempfile::tempdir().unwrap();
    let processes = Processes::new();
    (1..=3).for_each(|node| processes.start(root.path(), node));
    let histories = Histories::default();
    histories.run(&processes, seed, || {
        for round in 0..rounds {
            histories.next_phase();
            let enough = histories.acknowledged() + 40;
            wait_for("writes", || histories.acknowledged() >= enough);
            // One process, mostly the leader; in every second round all at once.
            let leader = (1..=3).find(|&node| processes.leads(node));
            let victims = match round % 2 {
                0 => vec![leader.filter(|_| !rng.one_in(3)).unwrap_or(1 + rng.below(3))],
                _ => vec![1, 2, 3],
            };
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
            victims.iter().for_each(|&node| processes.kill(node));
            if victims.len() == 1 {
                let enough = histories.acknowledged() + 20;
                wait_for("writes with two nodes", || histories.acknowledged() >= enough);
            }
            victims.iter().for_each(|&node| processes.start(root.path(), node));
        }
    });
    histories.check(&processes);
}

impl Processes {
    fn leads(&self, node: u64) -> bool {
        matches!(self.get(node, "leads"), Answer::Done(_))
    }
}
