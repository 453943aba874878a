//! `cluster create`: a whole group on this machine, as processes of this program.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use siltstone_server::NodeAccess;

use super::access::POLL_INTERVAL;
use super::nodes::NodeStatus;
use crate::access::{PASSWORD_VARIABLE, password_or_variable};
use crate::interrupt::Interrupt;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::key_file_arguments;

/// How long the nodes may take to elect a leader.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How long they may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// As in Redis Cluster.
const BUS_PORT_OFFSET: u16 = 10_000;

/// Run a whole group on this machine, to try it out: Ctrl-C stops it, the same command starts it
/// again
///
/// Node N has the directory DIR/node-N and the log DIR/node-N.log. In production nodes are on
/// machines of their own: see siltstone serve --initial-cluster.
#[derive(Args)]
pub(super) struct Create {
    /// The directory of the nodes' directories
    dir: PathBuf,
    /// The number of nodes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9))]
    nodes: u16,
    /// The number of groups among which the slots are split; fixed when the cluster is made, by
    /// default 1
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=64))]
    groups: Option<u16>,
    /// The port for clients of the first node; the others follow. Ports for nodes are 10000 higher
    #[arg(long, default_value_t = 7001, value_parser = clap::value_parser!(u16).range(1..=55_000))]
    port: u16,
    /// Options of serve for each node, such as --election-timeout 300ms
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// The processes. They are stopped if this is dropped.
struct Processes(Vec<(u16, Child)>);

impl Create {
    pub(super) fn run(self) -> CommandResult {
        let interrupt = Interrupt::watch()?;
        std::fs::create_dir_all(&self.dir)
            .map_err(|e| Failure::file("create", &self.dir.display().to_string(), &e))?;
        let address =
            |node: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port + node - 1);
        let member = |node: u16| {
            let address = address(node);
            format!("{node}={address}@{}", address.port() + BUS_PORT_OFFSET)
        };
        let members: Vec<_> = (1..=self.nodes).map(member).collect();
        let mut processes = Processes(Vec::new());
        for node in 1..=self.nodes {
            processes.0.push((node, self.start(node, &members.join(","))?));
        }
        let deadline = Instant::now() + START_TIMEOUT;
        let leaders = loop {
            interrupt.check()?;
            processes.check(&self.dir)?;
            let access = NodeAccess {
                password: password_or_variable(None, PASSWORD_VARIABLE),
                ..NodeAccess::default()
            };
            let addresses: Vec<_> =
                (1..=self.nodes).map(|node| address(node).to_string()).collect();
            if let Some(leaders) = leaders(&access, &addresses) {
                break leaders;
            }
            if Instant::now() > deadline {
                return Err(Failure::Store(format!(
                    "the nodes do not answer; see the logs in {}",
                    self.dir.display()
                )));
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        match leaders.as_slice() {
            [leader] => println!("{} nodes serve, node {leader} leads. Try", self.nodes),
            leaders => println!("{} nodes serve, {} groups. Try", self.nodes, leaders.len()),
        }
        println!("  redis-cli -c -p {} set greeting hello", self.port);
        println!("  siltstone cluster status {}", address(1));
        println!("Ctrl-C stops them.");
        while interrupt.check().is_ok() {
            processes.report_ended(&self.dir);
            std::thread::sleep(POLL_INTERVAL);
        }
        drop(processes);
        Ok(Outcome::Done)
    }

    fn start(&self, node: u16, members: &str) -> Result<Child, Failure> {
        let program =
            std::env::current_exe().map_err(|e| Failure::file("find", "siltstone", &e))?;
        let path = log_of(&self.dir, node);
        let log = File::options().create(true).append(true).open(&path);
        let log = log.map_err(|e| Failure::file("open", &path.display().to_string(), &e))?;
        Command::new(program)
            .arg("serve")
            .arg(self.dir.join(format!("node-{node}")))
            .args(["--node-id", &node.to_string(), "--initial-cluster", members])
            .args(self.groups.map(|groups| format!("--groups={groups}")))
            .args(key_file_arguments())
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|e| Failure::file("run", "siltstone serve", &e))
    }
}

/// The leaders of all groups, once all nodes answer and each group has one.
fn leaders(access: &NodeAccess, addresses: &[String]) -> Option<Vec<u64>> {
    let mut leaders = Vec::new();
    let mut groups = 1;
    while leaders.len() < groups {
        let group = leaders.len() as u64;
        let statuses = addresses.iter().map(|address| NodeStatus::of(access, address, group).ok());
        let statuses = statuses.collect::<Option<Vec<_>>>()?;
        let leader = statuses.iter().find(|status| status.role == "leader")?;
        leaders.push(leader.node);
        groups = leader.groups as usize;
    }
    Some(leaders)
}

fn log_of(dir: &Path, node: u16) -> PathBuf {
    dir.join(format!("node-{node}.log"))
}

impl Processes {
    /// Fails if a process has ended.
    fn check(&mut self, dir: &Path) -> Result<(), Failure> {
        for (node, child) in &mut self.0 {
            if let Ok(Some(status)) = child.try_wait() {
                let path = log_of(dir, *node);
                let log = std::fs::read_to_string(&path).unwrap_or_default();
                let last = log.lines().last().unwrap_or_default();
                return Err(Failure::Store(format!(
                    "node {node} has ended with {status}: {last} (all of it is in {})",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Reports processes that have ended, once each.
    fn report_ended(&mut self, dir: &Path) {
        self.0.retain_mut(|(node, child)| match child.try_wait() {
            Ok(Some(status)) => {
                let log = log_of(dir, *node);
                eprintln!("node {node} has ended with {status}; its log is {}", log.display());
                false
            }
            _ => true,
        });
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &self.0 {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                // It may have ended already.
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        for (_, child) in &mut self.0 {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() > deadline {
                    // It may have ended already.
                    let _ = child.kill();
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
