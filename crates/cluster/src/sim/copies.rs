//! The fault that a node's disk goes back to an older state: a copy of the disk of a running node
//! is put back later.
//!
//! The copy is put back where it must be recognized, or must have forgotten nothing that matters:
//!
//! | case | who knows what the copy has forgotten |
//! | --- | --- |
//! | a known copy | a node that runs has noted a later start |
//! | another one | all other nodes have run since, and the node has only followed |
//!
//! Those who know are first nodes and members as of the copy, so the node asks them whatever its
//! table has lost. Of members that have joined since it knows nothing.
//!
//! Then nothing else fails for a while, and the packets of the earlier process arrive first. These
//! are the conditions of the promise; what follows is up to the usual faults and invariants.

use siltstone_testkit::TestRng;

use super::network::Network;
use super::node::Node;
use super::world::World;
use crate::Group;

/// The steps without other faults after a copy was put back.
const CALM_STEPS: u64 = 60;

/// The state of the fault.
pub(super) struct CopyFault {
    /// Of its own, so that other schedules stay as they are.
    rng: TestRng,
    is_planned: bool,
    /// The known copy that was put back.
    known: Option<usize>,
}

impl CopyFault {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = TestRng::of(seed, 97);
        CopyFault { is_planned: rng.one_in(2), rng, known: None }
    }

    /// Whether a known copy was put back at this node.
    pub(super) fn is_known(&self, at: usize) -> bool {
        self.known == Some(at)
    }
}

impl World {
    /// Copies the disk of a node, or puts a copy back: once per schedule.
    pub(super) fn copy_or_put_back(&mut self) {
        if !self.copies.is_planned || self.has_wipe || self.counts.losses() > 0 {
            return;
        }
        let Some(at) = self.nodes.iter().position(|node| node.copy.is_some()) else {
            let at = self.copies.rng.index(self.nodes.len());
            let node = &self.nodes[at];
            if self.copies.rng.one_in(20) && node.is_registered && node.is_first() {
                let starts = self.nodes.iter().map(|node| (node.id, node.starts)).collect();
                self.nodes[at].copy_disk(self.copies.rng.draw(), starts);
            }
            return;
        };
        if !self.copies.rng.one_in(30) {
            return;
        }
        let is_known = self.is_known(at);
        if is_known || self.have_all_run(at) {
            self.put_back(at, is_known);
        }
    }

    /// Whether a node that runs has noted a later start than that of the copy.
    fn is_known(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let (Some(copy), Some(group)) = (&node.copy, &node.group) else { return false };
        let directory = group.directory();
        let mut asked = self.nodes.iter().filter(|other| copy.asks(other));
        asked.any(|other| {
            let knows = |group: &Group| group.knows_later_start(node.id, directory, copy.start);
            other.group.as_ref().is_some_and(knows)
        })
    }

    /// Whether all other nodes have run since the copy was made, of a node that has not led since.
    fn have_all_run(&self, at: usize) -> bool {
        let Some(copy) = &self.nodes[at].copy else { return false };
        let has_run = |node: &Node| {
            let starts = copy.starts.get(&node.id).copied().unwrap_or(1);
            copy.asks(node) && node.group.is_some() && node.starts == starts
        };
        let mut others = self.nodes.iter().filter(|node| node.id != self.nodes[at].id);
        !copy.has_led && others.all(has_run)
    }

    fn put_back(&mut self, at: usize, is_known: bool) {
        let (now, id) = (self.now, self.nodes[at].id);
        self.counts.copies += 1;
        self.counts.known_copies += u64::from(is_known);
        self.copies.known = is_known.then_some(at);
        self.note_loss();
        Network::heal(&mut self.network);
        self.network.hurry(now, id);
        self.calm_until = now + CALM_STEPS;
        for node in &mut self.nodes {
            node.resume();
            node.starts_at = node.starts_at.min(now + 1);
        }
        let starts_at = now + 3 + self.copies.rng.below(10);
        let pending = self.nodes[at].put_back(self.copies.rng.draw(), starts_at);
        pending.into_values().for_each(|operation| self.clients.lose(operation));
        self.invariants.forget(id);
    }
}
