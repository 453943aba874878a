//! One schedule of the simulator: a group of nodes, its clients, and random faults.
//!
//! ```text
//!   400 steps   ticks, packets, client operations; power cuts, I/O errors, partitions, changes
//!               of membership; invariants after each step
//!   heal        no more faults: the group must serve its clients again
//! ```
//!
//! Everything is drawn from the seed, so a violation is repeated by its seed.

use std::ops::AddAssign;

use siltstone_testkit::TestRng;

use super::clients::Clients;
use super::copies::CopyFault;
use super::invariants::{Invariants, table_digest};
use super::network::Network;
use super::node::Node;
use crate::log::is_lost;
use crate::{Change, Envelope, Group};

/// The steps with faults.
const STEPS: u64 = 400;
/// The steps after which a healed group must serve.
const RECOVERY_STEPS: u64 = 400;
/// The most nodes at a time.
const MAX_NODES: usize = 7;
const CLIENTS: usize = 4;
/// The clocks of nodes: ticks of ten steps.
const RATES: [u64; 4] = [4, 7, 9, 10];
/// The operations that a healed group must serve.
const LAST_OPERATIONS: u64 = 12;

/// The numbers of events that a schedule has exercised.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) operations: u64,
    pub(super) entries: u64,
    pub(super) power_cuts: u64,
    pub(super) io_errors: u64,
    pub(super) damaged: u64,
    pub(super) wiped: u64,
    /// Copies of disks that were put back.
    pub(super) copies: u64,
    /// Those of before a start that another node knew.
    pub(super) known_copies: u64,
    /// Those of them that were refused.
    pub(super) refused_copies: u64,
    pub(super) snapshots: u64,
    pub(super) changes: u64,
}

impl Counts {
    /// Nodes that have lost what they had acknowledged: one per schedule.
    pub(super) fn losses(&self) -> u64 {
        self.damaged + self.wiped + self.copies
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.operations += other.operations;
        self.entries += other.entries;
        self.power_cuts += other.power_cuts;
        self.io_errors += other.io_errors;
        self.damaged += other.damaged;
        self.wiped += other.wiped;
        self.copies += other.copies;
        self.known_copies += other.known_copies;
        self.refused_copies += other.refused_copies;
        self.snapshots += other.snapshots;
        self.changes += other.changes;
    }
}

pub(super) struct World {
    rng: TestRng,
    seed: u64,
    pub(super) now: u64,
    pub(super) nodes: Vec<Node>,
    pub(super) network: Network,
    pub(super) clients: Clients,
    pub(super) invariants: Invariants,
    pub(super) counts: Counts,
    last_node: u64,
    /// The mean number of steps between two faults.
    steps_per_fault: u64,
    has_churn: bool,
    /// One node is wiped and created again.
    pub(super) has_wipe: bool,
    /// A copy of a disk is put back.
    pub(super) copies: CopyFault,
    /// Nothing fails before this step.
    pub(super) calm_until: u64,
    /// A node was lost before all of the first ones were registered: the group may never serve.
    may_be_stuck: bool,
}

/// Runs the schedule of a seed.
pub(super) fn run(seed: u64) -> Result<Counts, String> {
    let mut world = World::new(seed).map_err(|error| error.to_string())?;
    let outcome = world.run();
    outcome.map_err(|violation| {
        format!("seed {seed}, step {}: {violation}\nreplay: SILTSTONE_SCHEDULE={seed}", world.now)
    })?;
    world.counts.operations = world.clients.completed;
    world.counts.entries = world.invariants.last_applied();
    Ok(world.counts)
}

impl World {
    fn new(seed: u64) -> siltstone_engine::Result<Self> {
        let mut rng = TestRng::new(seed);
        let voters: Vec<u64> = (1..=3 + 2 * rng.below(2)).collect();
        let nodes = voters
            .iter()
            .map(|&id| Node::create(id, seed, &voters, *rng.pick(&RATES)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(World {
            network: Network::new(&mut rng),
            clients: Clients::new(CLIENTS),
            invariants: Invariants::default(),
            counts: Counts::default(),
            last_node: voters.len() as u64,
            steps_per_fault: *rng.pick(&[10, 20, 50]),
            has_churn: rng.one_in(2),
            has_wipe: rng.one_in(3),
            copies: CopyFault::new(seed),
            calm_until: 0,
            may_be_stuck: false,
            now: 0,
            nodes,
            seed,
            rng,
        })
    }

    fn run(&mut self) -> Result<(), String> {
        for _ in 0..STEPS {
            let is_calm = self.now < self.calm_until;
            if !is_calm && self.rng.one_in(self.steps_per_fault) {
                self.inject_fault()?;
            }
            if !is_calm && self.has_churn && self.rng.one_in(15) {
                self.change_members()?;
            }
            self.copy_or_put_back();
            self.step(true, !is_calm)?;
        }
        self.network.heal();
        self.nodes.iter_mut().for_each(Node::heal);
        let required = self.clients.completed + LAST_OPERATIONS;
        for _ in 0..RECOVERY_STEPS {
            self.step(self.clients.completed < required, false)?;
            if self.clients.completed >= required && self.has_recovered()? {
                return self.clients.check();
            }
        }
        // What clients saw explains more than that the group does not agree.
        self.clients.check()?;
        if self.may_be_stuck && self.clients.completed == 0 {
            return Ok(());
        }
        Err("the healed group has not recovered in time".into())
    }

    fn step(&mut self, has_load: bool, may_fail: bool) -> Result<(), String> {
        self.now += 1;
        let now = self.now;
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            if node.group.is_none() && !node.is_gone && node.starts_at <= now {
                node.start(self.rng.draw(), now, may_fail)?;
            }
            let ticks = self.rng.below(10) < node.tick_rate;
            if let Some(group) = node.group.as_mut().filter(|_| ticks && node.stopped_until <= now)
            {
                group.tick();
            }
        }
        for envelope in self.network.arrivals(now) {
            let to = envelope.packet.to();
            let Some(at) = self.nodes.iter().position(|node| node.id == to) else {
                continue;
            };
            // What reaches a stopped process waits in its socket.
            if self.nodes[at].stopped_until > now {
                self.network.send(self.nodes[at].stopped_until, envelope, &mut self.rng);
                continue;
            }
            let Some(group) = &mut self.nodes[at].group else { continue };
            let outcome = group.step(envelope);
            self.check_io(at, outcome)?;
            if self.rng.one_in(3) {
                self.round(at)?;
            }
        }
        self.clients.give_up(now, &mut self.nodes);
        for node in self.nodes.iter_mut().filter(|node| node.runs(now)) {
            self.clients.propose_swaps(now, node, &mut self.rng);
        }
        for client in 0..CLIENTS {
            let at = self.believed_leader();
            if has_load && self.nodes[at].runs(now) {
                self.clients.begin(now, client, &mut self.nodes[at], &mut self.rng);
            }
        }
        (0..self.nodes.len()).try_for_each(|at| self.round(at))
    }

    /// A node does its I/O; its packets are sent and its events handled.
    fn round(&mut self, at: usize) -> Result<(), String> {
        if !self.nodes[at].runs(self.now) {
            return Ok(());
        }
        let Some(group) = &mut self.nodes[at].group else { return Ok(()) };
        let mut packets = Vec::new();
        let outcome = group.ready_with(&mut |packet| packets.push(packet));
        // Those that were sent before the power failed, too.
        let directory = group.directory();
        for packet in packets {
            let envelope = Envelope { group: 7, directory, packet };
            self.network.send(self.now, envelope, &mut self.rng);
        }
        let Some(events) = self.check_io(at, outcome)? else { return Ok(()) };
        let node = &mut self.nodes[at];
        node.note_log();
        node.is_registered = node.group.as_ref().is_some_and(Group::is_registered);
        if let (Some(copy), Some(group)) = (&mut node.copy, &node.group) {
            copy.has_led |= group.leads();
        }
        if let Some(group) = &node.group {
            self.invariants.check(node.id, node.starts, group)?;
        }
        for event in &events {
            self.counts.snapshots += u64::from(*event == crate::Event::Restored);
            self.clients.handle(event, self.now, node, &mut self.rng)?;
        }
        Ok(())
    }

    /// An error is a violation unless the disk has failed; then the node goes down.
    fn check_io<T>(
        &mut self,
        at: usize,
        outcome: siltstone_engine::Result<T>,
    ) -> Result<Option<T>, String> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(_) if self.nodes[at].power_is_off() => {
                self.fail_power(at);
                Ok(None)
            }
            Err(_) if self.nodes[at].may_report_error => {
                self.counts.io_errors += 1;
                self.kill(at);
                Ok(None)
            }
            // It learns that it was created again, or is an older copy.
            Err(error) if self.nodes[at].may_be_lost() && is_lost(&error) => {
                self.kill(at);
                self.counts.refused_copies += u64::from(self.copies.is_known(at));
                self.nodes[at].is_gone = true;
                Ok(None)
            }
            Err(error) => Err(format!("node {}: {error}", self.nodes[at].id)),
        }
    }

    fn close(&mut self, at: usize) -> Result<(), String> {
        let starts_at = self.now + 1 + self.rng.below(30);
        let outcome = self.nodes[at].close(self.rng.draw(), starts_at);
        if let Some(pending) = self.check_io(at, outcome)? {
            pending.into_values().for_each(|operation| self.clients.lose(operation));
        }
        Ok(())
    }

    fn kill(&mut self, at: usize) {
        let starts_at = self.now + 1 + self.rng.below(30);
        let pending = self.nodes[at].kill(self.rng.draw(), starts_at);
        pending.into_values().for_each(|operation| self.clients.lose(operation));
    }

    fn fail_power(&mut self, at: usize) {
        self.counts.power_cuts += 1;
        let starts_at = self.now + 1 + self.rng.below(40);
        let pending = self.nodes[at].fail_power(self.rng.draw(), starts_at);
        pending.into_values().for_each(|operation| self.clients.lose(operation));
    }

    /// Empties the directory of a node, and has it created again under its old id: one node per
    /// schedule, and none if the log of one was damaged.
    fn wipe(&mut self, at: usize) {
        if self.counts.losses() > 0 {
            return;
        }
        self.counts.wiped += 1;
        self.note_loss();
        let starts_at = self.now + 1 + self.rng.below(30);
        let pending = self.nodes[at].wipe(self.rng.draw(), starts_at);
        pending.into_values().for_each(|operation| self.clients.lose(operation));
        self.invariants.forget(self.nodes[at].id);
    }

    /// A node is lost.
    pub(super) fn note_loss(&mut self) {
        let is_new = |node: &Node| node.is_first() && !node.is_registered;
        self.may_be_stuck |= self.nodes.iter().any(is_new);
    }

    fn leader(&self) -> Option<usize> {
        let leads =
            |node: &Node| node.group.as_ref().filter(|group| group.leads()).map(|g| g.term());
        let leaders =
            self.nodes.iter().enumerate().filter_map(|(at, node)| Some((leads(node)?, at)));
        leaders.max().map(|(_, at)| at)
    }

    /// A node that a client takes for the leader: one that does so itself, mostly.
    fn believed_leader(&mut self) -> usize {
        let now = self.now;
        let leads =
            |node: &Node| node.runs(now) && node.group.as_ref().is_some_and(|group| group.leads());
        let leaders: Vec<_> = (0..self.nodes.len()).filter(|&at| leads(&self.nodes[at])).collect();
        match leaders.is_empty() || self.rng.one_in(10) {
            true => self.rng.index(self.nodes.len()),
            false => *self.rng.pick(&leaders),
        }
    }

    fn inject_fault(&mut self) -> Result<(), String> {
        let at = match self.leader() {
            Some(leader) if self.rng.one_in(3) => leader,
            _ => self.rng.index(self.nodes.len()),
        };
        match self.rng.below(14) {
            0 | 1 => {
                let ids: Vec<_> = self.nodes.iter().map(|node| node.id).collect();
                self.network.cut_some(&ids, &mut self.rng);
            }
            2 | 3 => self.network.mend(),
            4..7 if self.nodes[at].group.is_some() => {
                self.nodes[at].cut_power_soon(self.rng.below(40));
            }
            7 if self.nodes[at].group.is_some() => {
                match self.rng.one_in(2) {
                    true => self.kill(at),
                    false => self.close(at)?,
                }
                let may_damage = self.counts.losses() == 0 && self.rng.one_in(3);
                if may_damage && self.nodes[at].damage_log(&mut self.rng) {
                    self.counts.damaged += 1;
                    self.note_loss();
                }
            }
            8 => {
                // A leader that was stopped leads again when it continues, until it learns of the
                // next one.
                let at = self.leader().filter(|_| self.rng.one_in(2)).unwrap_or(at);
                self.nodes[at].stopped_until = self.now + self.rng.below(80);
            }
            9 => {
                // All power fails at once.
                let running: Vec<_> =
                    (0..self.nodes.len()).filter(|&at| self.nodes[at].group.is_some()).collect();
                running.into_iter().for_each(|at| self.fail_power(at));
            }
            10 => {
                if let Some(group) = &mut self.nodes[at].group {
                    // The clock jumps.
                    (0..self.rng.below(30)).for_each(|_| group.tick());
                }
            }
            11 => self.nodes[at].fail_io_soon(&mut self.rng),
            12 if self.has_wipe && !self.nodes[at].is_gone => self.wipe(at),
            _ => {
                let node = self.nodes[at].id;
                if let Some(leader) = self.leader() {
                    let leader = &mut self.nodes[leader];
                    leader.group.iter_mut().for_each(|group| group.transfer_leadership(node));
                }
            }
        }
        Ok(())
    }

    /// The administrator: adds, promotes, replaces and removes nodes.
    fn change_members(&mut self) -> Result<(), String> {
        let now = self.now;
        let Some(at) = self.leader().filter(|&at| self.nodes[at].runs(now)) else { return Ok(()) };
        let own = self.nodes[at].id;
        let gone: Vec<u64> =
            self.nodes.iter().filter(|node| node.is_gone).map(|node| node.id).collect();
        let Some(group) = &self.nodes[at].group else { return Ok(()) };
        let members = group.applied().members.clone();
        let is_caught_up = |node: &u64| group.matched(*node) >= Some(group.applied().index);
        let ready = members.learners.iter().copied().find(is_caught_up);
        let lost = members.voters.iter().copied().find(|node| gone.contains(node));
        let other = *self.rng.pick(&members.voters);
        let changes = match (ready, lost) {
            (Some(learner), Some(lost)) => vec![Change::Promote(learner), Change::Remove(lost)],
            (Some(learner), None) if self.rng.one_in(3) && other != own => {
                vec![Change::Promote(learner), Change::Remove(other)]
            }
            (Some(learner), None) => vec![Change::Promote(learner)],
            (None, Some(lost)) if members.voters.len() > 3 => vec![Change::Remove(lost)],
            (None, _) if members.voters.len() > 3 && self.rng.one_in(2) && other != own => {
                vec![Change::Remove(other)]
            }
            _ if members.learners.is_empty() && self.live_nodes() < MAX_NODES => {
                self.last_node += 1;
                let node = Node::create(self.last_node, self.seed, &[], *self.rng.pick(&RATES))
                    .map_err(|error| error.to_string())?;
                self.nodes.push(node);
                vec![Change::AddLearner(self.last_node)]
            }
            _ => return Ok(()),
        };
        if let Some(group) = &mut self.nodes[at].group {
            self.counts.changes += u64::from(group.change_membership(&changes).is_ok());
        }
        Ok(())
    }

    fn live_nodes(&self) -> usize {
        self.nodes.iter().filter(|node| !node.is_gone).count()
    }

    /// Whether there is a leader, clients are served, no change of membership is pending, and all
    /// members agree.
    fn has_recovered(&mut self) -> Result<bool, String> {
        let Some(leader) = self.leader() else { return Ok(false) };
        let Some(group) = &self.nodes[leader].group else { return Ok(false) };
        if !self.clients.are_idle() {
            return Ok(false);
        }
        let applied = group.applied();
        if !applied.members.voters_outgoing.is_empty() {
            // Still in a joint configuration.
            return Ok(false);
        }
        let expected = table_digest(group)?;
        for node in applied.members.voters.iter().chain(&applied.members.learners) {
            let Some(node) = self.nodes.iter().find(|found| found.id == *node) else {
                return Err(format!("member {node} does not exist"));
            };
            // One that was created again takes no part, unless nobody had heard of it before.
            if node.is_gone || node.is_recreated {
                continue;
            }
            let Some(member) = &node.group else { return Ok(false) };
            if member.applied() != applied || table_digest(member)? != expected {
                return Ok(false);
            }
        }
        Ok(applied.index >= self.invariants.last_applied())
    }
}
