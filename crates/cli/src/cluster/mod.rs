//! `cluster`: creates and operates replicated tables (experimental).
//!
//! ```text
//! create   starts several `serve` processes and waits for a signal
//! join     becomes `serve --join`
//! others   send commands to the nodes' ports for clients: CLUSTER STATUS, REMOVE-NODE, …
//! ```
//!
//! A command that changes a group asks the leader for the change, and polls until it is done.

mod access;
mod backup;
mod check;
mod create;
mod nodes;
mod status;

use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use siltstone_server::{NodeAccess, Reply};

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::store::key_file_arguments;
use access::{Access, POLL_INTERVAL};
use nodes::{NodeStatus, call_leader, leader_status};

/// How long a change may take.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Create and operate replicated tables (experimental)
#[derive(Args)]
pub(crate) struct Cluster {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Run a whole group on this machine, to try it out: Ctrl-C stops it, the same command starts
    /// it again
    Create(create::Create),
    /// Add a new node to a group, and serve it: as siltstone serve DIR --join
    Join(Join),
    /// Show the nodes of a group: who leads, who lags behind, how large they are
    Status(status::ShowStatus),
    /// Hand the leadership over to another node
    MoveLeader(MoveLeader),
    /// Remove a node from its group for all time; its directory stays as it is
    Remove(Remove),
    /// Compare the tables of all nodes as of one entry of the log (exit status 1 if they differ)
    Check(check::Check),
    /// Have a node back up the whole cluster into its repository, and wait until it has
    Backup(backup::Backup),
}

/// Add a new node to a group, and serve it: as siltstone serve DIR --join
#[derive(Args)]
struct Join {
    /// The directory of the new node
    dir: PathBuf,
    /// The address for clients of any node of the group
    #[arg(value_name = "HOST:PORT")]
    through: String,
    /// The address of the new node for clients
    #[arg(long, value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Other options of serve, such as --cluster-tls-cert
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// Hand the leadership over to another node
#[derive(Args)]
struct MoveLeader {
    #[command(flatten)]
    access: Access,
    /// The number of the node that is to lead
    node: u64,
    /// The group, if there are several, counted from 0. The node is to lead it from now on, also
    /// after failures
    #[arg(long, default_value_t = 0)]
    group: u64,
}

/// Remove a node from its group for all time; its directory stays as it is
///
/// A node that leads hands over first. A removal that would leave no majority of running nodes is
/// refused. A removed node can join again in an empty directory, under a new number.
#[derive(Args)]
struct Remove {
    #[command(flatten)]
    access: Access,
    /// The number of the node
    node: u64,
    /// Remove it even if no majority of running nodes is left: the group then stops serving
    #[arg(long)]
    force: bool,
}

impl Cluster {
    pub(crate) fn run(self) -> CommandResult {
        match self.command {
            ClusterCommand::Create(command) => command.run(),
            ClusterCommand::Join(command) => command.run(),
            ClusterCommand::Status(command) => command.run(),
            ClusterCommand::MoveLeader(command) => command.run(),
            ClusterCommand::Remove(command) => command.run(),
            ClusterCommand::Check(command) => command.run(),
            ClusterCommand::Backup(command) => command.run(),
        }
    }
}

impl Join {
    fn run(self) -> CommandResult {
        let program =
            std::env::current_exe().map_err(|e| Failure::file("find", "siltstone", &e))?;
        let mut serve = Command::new(program);
        serve.arg("serve").arg(&self.dir).args(["--join", &self.through]);
        serve.args(["--listen", &self.listen.to_string()]).args(key_file_arguments());
        serve.args(&self.options);
        // Only returns if it fails.
        Err(Failure::file("run", "siltstone serve", &serve.exec()))
    }
}

impl MoveLeader {
    fn run(self) -> CommandResult {
        let access = self.access.node_access();
        move_leader(&access, &self.access.address, self.node, self.group)?;
        println!("node {} leads", self.node);
        Ok(Outcome::Done)
    }
}

/// Hands over to a node, and waits until it leads.
fn move_leader(access: &NodeAccess, address: &str, node: u64, group: u64) -> Result<(), Failure> {
    let (name, number) = (node.to_string(), group.to_string());
    let command = ["CLUSTER", "MOVE-LEADER", &name, &number];
    // Earlier versions have one group, and no such argument.
    let command = if group == 0 { &command[..3] } else { &command[..] };
    let deadline = Instant::now() + CHANGE_TIMEOUT;
    while Instant::now() < deadline {
        call_leader(access, address, command)?;
        // The handover takes some round trips, and is given up after an election timeout.
        for _ in 0..10 {
            std::thread::sleep(POLL_INTERVAL);
            if leader_status(access, address, group)?.node == node {
                return Ok(());
            }
        }
    }
    Err(Failure::Store(format!("node {node} has not taken over; see siltstone cluster status")))
}

impl Remove {
    fn run(self) -> CommandResult {
        let (access, address) = (self.access.node_access(), &self.access.address);
        let leader = leader_status(&access, address, 0)?;
        if leader.node == self.node {
            let next =
                leader.peers.iter().filter(|peer| peer.is_alive && leader.is_voter(peer.node));
            let next = next.min_by_key(|peer| peer.lag).ok_or_else(|| {
                Failure::Usage(format!("node {} leads, and no other node can", self.node))
            })?;
            println!("node {} leads: moving the leadership to node {}", self.node, next.node);
            move_leader(&access, address, next.node, 0)?;
        }
        let node = self.node.to_string();
        let mut command = vec!["CLUSTER", "REMOVE-NODE", &node];
        if self.force {
            command.push("FORCE");
        }
        let is_member = |status: &NodeStatus| status.members.iter().any(|m| m.node == self.node);
        if !is_member(&leader) {
            return Err(Failure::Usage(format!("node {node} is not a member of the group")));
        }
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        while Instant::now() < deadline {
            match call_leader(&access, address, &command)? {
                Reply::Int(0)
                    if is_gone_from_others(&access, address, self.node, leader.groups)? =>
                {
                    println!("node {node} is removed; its directory is as it was");
                    return Ok(Outcome::Done);
                }
                _ if self.force && Instant::now() + CHANGE_TIMEOUT / 2 > deadline => break,
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
        Err(Failure::Store(format!("node {node} is not removed yet; see siltstone cluster status")))
    }
}

/// Whether the groups after the first have removed a node, as they do once the first has.
fn is_gone_from_others(
    access: &NodeAccess,
    address: &str,
    node: u64,
    groups: u64,
) -> Result<bool, Failure> {
    for group in 1..groups {
        let leader = leader_status(access, address, group)?;
        if leader.node == node || leader.peers.iter().any(|peer| peer.node == node) {
            return Ok(false);
        }
    }
    Ok(true)
}
