//! The faults of rounds, and the cluster that they hit.
//!
//! Each fault leaves a majority of the nodes alive and connected. [`Cluster::heal`] undoes
//! whatever fault there was.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use siltstone_testkit::TestRng;

use super::load::TAGS;
use super::machine::{Machine, compile_shim};
use super::network::Network;
use crate::three_nodes::client::{ClusterClient, Connection};
use crate::three_nodes::nodes::{Host, Nodes, tls, wait_for};

const MEMBERS: usize = 3;
/// The members, and one that can join.
const HOSTS: usize = MEMBERS + 1;
const HOUR: i64 = 3600;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL.
    KillLeader,
    KillFollower,
    /// SIGSTOP, and SIGCONT some election timeouts later.
    PauseLeader,
    PauseFollower,
    /// Neither of two sides reaches the other; clients reach both.
    CutLeader,
    CutFollower,
    CutLeaderFromOneFollower,
    /// One side does not hear the other.
    MuteLeader,
    DeafenLeader,
    MuteFollower,
    /// Neither nodes nor clients reach the leader.
    UnplugLeader,
    FillDiskOfLeader,
    FillDiskOfFollower,
    /// The leader's clock jumps by an hour.
    ClockOfLeaderAhead,
    ClockOfLeaderBehind,
    ClockOfFollowerAhead,
    /// `cluster move-leader`.
    MoveLeader,
    /// Another node joins, and a member is removed.
    Replace,
}

impl Fault {
    pub const ALL: [Fault; 18] = [
        Fault::KillLeader,
        Fault::KillFollower,
        Fault::PauseLeader,
        Fault::PauseFollower,
        Fault::CutLeader,
        Fault::CutFollower,
        Fault::CutLeaderFromOneFollower,
        Fault::MuteLeader,
        Fault::DeafenLeader,
        Fault::MuteFollower,
        Fault::UnplugLeader,
        Fault::FillDiskOfLeader,
        Fault::FillDiskOfFollower,
        Fault::ClockOfLeaderAhead,
        Fault::ClockOfLeaderBehind,
        Fault::ClockOfFollowerAhead,
        Fault::MoveLeader,
        Fault::Replace,
    ];

    /// Whether another node leads afterwards, and the old leader may go on for a while.
    pub fn deposes_leader(self) -> bool {
        use Fault::{CutLeader, DeafenLeader, KillLeader, MuteLeader, PauseLeader, UnplugLeader};
        [CutLeader, DeafenLeader, KillLeader, MuteLeader, PauseLeader, UnplugLeader].contains(&self)
    }
}

/// Nodes, each on a machine of its own.
pub struct Cluster {
    pub nodes: Nodes,
    machines: Vec<Machine>,
    network: Network,
    groups: usize,
    /// The host that is no member.
    spare: usize,
}

impl Cluster {
    /// Starts the cluster in a directory. This thread is in its network from then on.
    pub fn start(dir: &Path, logs: Option<&Path>, groups: usize) -> Self {
        let shim = compile_shim(dir);
        let machine = |node: usize| Machine::create(&dir.join(node.to_string()), &shim);
        let machines: Vec<_> = (0..HOSTS).map(machine).collect();
        let network = Network::create(HOSTS);
        let host = |(node, machine): (usize, &Machine)| {
            let [client, bus] = network.addresses(node);
            Host {
                client,
                bus,
                dir: machine.dir(),
                wrapper: network.wrapper(node),
                environment: machine.environment(),
                log: logs.map(|logs| logs.join(format!("node-{node}.log"))),
            }
        };
        let hosts = machines.iter().enumerate().map(host).collect();
        let mut options = tls();
        options.extend(["--groups".to_owned(), groups.to_string()]);
        options.extend(["--table".to_owned(), "default=lsm,memtable=1MiB".to_owned()]);
        let nodes = Nodes::on(hosts, MEMBERS, &options);
        let cluster = Cluster { nodes, machines, network, groups, spare: MEMBERS };
        cluster.wait_until_whole();
        cluster
    }

    /// Injects a fault, and waits as long as it should last.
    pub fn inject(&mut self, fault: Fault, rng: &mut TestRng) {
        let leader = self.nodes.leader();
        let members = (0..HOSTS).filter(|node| *node != self.spare);
        let followers: Vec<_> = members.filter(|node| *node != leader).collect();
        let follower = *rng.pick(&followers);
        let is_leader_filled = fault == Fault::FillDiskOfLeader;
        match fault {
            Fault::KillLeader => self.nodes.kill(leader),
            Fault::KillFollower => self.nodes.kill(follower),
            Fault::PauseLeader => self.nodes.signal(leader, Signal::STOP),
            Fault::PauseFollower => self.nodes.signal(follower, Signal::STOP),
            Fault::CutLeader => self.cut(&[leader], &followers, true),
            Fault::CutFollower => {
                let others = [&[leader], &followers[..]].concat();
                self.cut(&[follower], &others, true);
            }
            Fault::CutLeaderFromOneFollower => self.cut(&[leader], &[follower], true),
            Fault::MuteLeader => self.cut(&[leader], &followers, false),
            Fault::DeafenLeader => self.cut(&followers, &[leader], false),
            Fault::MuteFollower => {
                let others = [&[leader], &followers[..]].concat();
                self.cut(&[follower], &others, false);
            }
            Fault::UnplugLeader => self.network.unplug(leader),
            Fault::FillDiskOfLeader | Fault::FillDiskOfFollower => {
                let full = if is_leader_filled { leader } else { follower };
                self.machines[full].fill();
                self.write_until_failure(full);
            }
            Fault::ClockOfLeaderAhead => self.set_clock(leader, HOUR),
            Fault::ClockOfLeaderBehind => self.set_clock(leader, -HOUR),
            Fault::ClockOfFollowerAhead => self.set_clock(follower, HOUR),
            Fault::MoveLeader => {
                let number = self.nodes.number(follower);
                let moved = self.nodes.cluster("move-leader", &[&number]);
                assert!(moved.status.success(), "{moved:?}");
            }
            Fault::Replace => self.replace(follower),
        }
        std::thread::sleep(Duration::from_millis(800 + rng.below(1700)));
    }

    /// A file on the disk of each host.
    pub fn synced(&self) -> Vec<PathBuf> {
        self.machines.iter().map(Machine::synced).collect()
    }

    /// Undoes all faults, and waits until all members are in step.
    pub fn heal(&mut self) {
        self.network.heal();
        for node in (0..HOSTS).filter(|node| *node != self.spare) {
            self.machines[node].free();
            self.machines[node].set_clock(0);
            if self.nodes.running().contains(&node) {
                self.nodes.signal(node, Signal::CONT);
            }
        }
        for node in (0..HOSTS).filter(|node| *node != self.spare) {
            if !self.nodes.running().contains(&node) {
                self.nodes.restart(node);
            } else if !self.failure(node).is_empty() {
                self.nodes.kill(node);
                self.nodes.restart(node);
            }
        }
        self.wait_until_whole();
    }

    /// Drops what some nodes send to others, and the other way round.
    fn cut(&self, some: &[usize], others: &[usize], both_ways: bool) {
        for (one, other) in some.iter().flat_map(|one| others.iter().map(move |other| (one, other)))
        {
            if one != other {
                self.network.cut(*one, *other);
                if both_ways {
                    self.network.cut(*other, *one);
                }
            }
        }
    }

    fn set_clock(&self, node: usize, seconds: i64) {
        let time = || -> i64 {
            let mut client = Connection::open(self.nodes.clients[node]).unwrap();
            client.call(&["TIME"]).unwrap().split(',').next().unwrap().parse().unwrap()
        };
        let before = time();
        self.machines[node].set_clock(seconds);
        let jump = time() - before;
        assert!((jump - seconds).abs() < 60, "the node does not see its clock: {jump} s");
    }

    /// Writes large values until a node with a full disk has noticed it.
    fn write_until_failure(&self, node: usize) {
        let value = "x".repeat(64 << 10);
        let mut clients = TAGS.map(|tag| (tag, ClusterClient::impatient(&self.nodes.clients)));
        wait_for("the failure of the full node", || {
            for (tag, client) in &mut clients {
                client.call(&["SET", &format!("{{{tag}}}large"), &value]);
            }
            !self.failure(node).is_empty()
        });
    }

    /// Adds the spare node and removes another one, which is the spare one then.
    fn replace(&mut self, removed: usize) {
        self.nodes.restart(self.spare);
        wait_for("the votes of the new node", || {
            let status = self.nodes.cluster("status", &[]);
            let shown = String::from_utf8_lossy(&status.stdout).into_owned();
            shown.matches("4 of 4 voters answer").count() == self.groups
        });
        let number = self.nodes.number(removed);
        // It may lead by now.
        wait_for("the removal", || {
            let output = self.nodes.cluster("remove", &[&number]);
            if !output.status.success() && removed == self.nodes.leader() {
                let other = (0..HOSTS).find(|node| *node != removed).unwrap();
                self.nodes.cluster("move-leader", &[&self.nodes.number(other)]);
            }
            String::from_utf8_lossy(&output.stdout).contains("its directory is as it was")
        });
        self.nodes.forget(removed);
        self.spare = removed;
    }

    /// The lines of CLUSTER STATUS.
    fn status(&self, node: usize, group: usize) -> Option<String> {
        let mut client = Connection::open(self.nodes.clients[node]).ok()?;
        client.call(&["CLUSTER", "STATUS", &group.to_string()])
    }

    /// Why a node has stopped working; empty if it has not.
    fn failure(&self, node: usize) -> String {
        let failure_of = |group: usize| {
            let status = self.status(node, group).unwrap_or_default();
            let failure = status.lines().find_map(|line| line.strip_prefix("failure:"));
            failure.unwrap_or("no answer").to_owned()
        };
        (0..self.groups).map(failure_of).collect()
    }

    /// Waits until each group has a leader that reaches all members, none of which lags.
    fn wait_until_whole(&self) {
        let is_whole = |status: &str| {
            let lags = |line: &str| {
                let lag = line.split("lag=").nth(1).and_then(|rest| rest.split(',').next());
                !line.contains("alive=1") || lag.is_none_or(|lag| lag.parse::<u64>().unwrap() > 50)
            };
            let mut peers = status.lines().filter(|line| line.starts_with("peer:"));
            status.lines().any(|line| line == "role:leader")
                && status.lines().filter(|line| line.starts_with("peer:")).count() == MEMBERS - 1
                && !peers.any(lags)
        };
        wait_for("all members in step", || {
            (0..self.groups).all(|group| {
                let mut members = (0..HOSTS).filter(|node| *node != self.spare);
                members.any(|node| self.status(node, group).is_some_and(|text| is_whole(&text)))
            })
        });
    }
}
