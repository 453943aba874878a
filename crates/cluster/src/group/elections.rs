//! When a node holds an election.
//!
//! The crate `raft` draws election timeouts from the thread's random numbers. Here they are drawn
//! from the seed, so that a run repeats.
//!
//! Of two nodes that campaign at the same time both vote for themselves, nobody wins, and the group
//! has no leader for another election timeout. Between a pre-vote and the request for votes a
//! candidate syncs its own vote, which may take long. So a node that grants a pre-vote makes way:
//!
//! | the node | makes way by |
//! | --- | --- |
//! | does not campaign | putting off its own election, for half a timeout to a whole one |
//! | asks for pre-votes, too | giving up, if the other's log or, with equal logs, its id comes first |
//!
//! An election is put off to at most [`MAX_ELECTION_WAITS`] timeouts after the last heartbeat: the
//! other node may never get a majority.

use raft::eraftpb::MessageType;
use raft::{INVALID_ID, StateRole};

use super::Group;
use super::options::MAX_ELECTION_WAITS;

impl Group {
    /// Puts a timeout from the seed in place of the one that Raft has drawn: a new one whenever
    /// Raft begins another wait.
    pub(super) fn draw_timeout(&mut self) {
        let state = &mut self.raft.raft;
        if state.election_elapsed == 0 {
            let least = self.options.election_ticks as u64;
            self.timeout_ticks = (least + self.random.below(least)) as usize;
        }
        state.set_randomized_election_timeout(self.timeout_ticks);
    }

    /// Makes way for a node to which this one has granted a pre-vote. `log` are the term and the
    /// index of its last entry.
    pub(super) fn make_way(&mut self, node: u64, log: (u64, u64)) {
        let state = &mut self.raft.raft;
        if state.state != StateRole::PreCandidate {
            self.put_off_election();
            return;
        }
        let own = (state.raft_log.last_term(), state.raft_log.last_index());
        if log > own || node < self.options.node {
            let term = state.term;
            state.become_follower(term, INVALID_ID);
        }
    }

    fn put_off_election(&mut self) {
        let least = self.options.election_ticks;
        if self.timeout_ticks < 2 * least {
            let half = least / 2;
            let wait = half + self.random.below(half as u64) as usize;
            let until = self.raft.raft.election_elapsed + wait;
            let last = MAX_ELECTION_WAITS * least - 1;
            self.timeout_ticks = self.timeout_ticks.max(until.min(last));
        }
    }

    /// Whether the last message that Raft has put out grants a pre-vote to this node.
    pub(super) fn has_granted_pre_vote(&self, node: u64) -> bool {
        self.raft.raft.msgs.last().is_some_and(|message| {
            message.get_msg_type() == MessageType::MsgRequestPreVoteResponse
                && message.to == node
                && !message.reject
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::print_stderr)]

    use std::sync::Arc;

    use siltstone_engine::{Engine, ManualClock};
    use siltstone_lsm::{Lsm, Options};
    use siltstone_runtime::Env;
    use siltstone_structures::SplitMix64;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::{GroupOptions, Packet};

    /// Steps of a tick. A packet takes one.
    const STEPS: u64 = 10;

    /// A node whose thread waits for its disk now and then.
    struct SlowNode {
        group: Group,
        phase: u64,
        inputs: Vec<Packet>,
        busy_until: u64,
    }

    /// The steps without a leader after that of a group of `nodes` has died, if a sync takes up to
    /// `sync_steps`.
    fn steps_without_a_leader(nodes: u64, sync_steps: u64, seed: u64) -> u64 {
        let mut random = SplitMix64::new(seed);
        let voters: Vec<u64> = (1..=nodes).collect();
        let create = |&id: &u64| {
            let open: crate::OpenTable = Arc::new(|vfs| {
                let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
                Ok(Arc::new(Lsm::open(vfs, env, Options::default())?) as Arc<dyn Engine>)
            });
            let options = GroupOptions::new(1, id, 100 * seed + id);
            let group = Group::create(Arc::new(Ram::new()), open, options, &voters).unwrap();
            let group = group.assume_registered();
            SlowNode { group, phase: id, inputs: Vec::new(), busy_until: 0 }
        };
        let mut nodes: Vec<SlowNode> = voters.iter().map(create).collect();
        for _ in 0..60 {
            nodes[0].group.tick();
            for _ in 0..4 {
                let ready = nodes.iter_mut().flat_map(|node| node.group.ready().unwrap().packets);
                for packet in ready.collect::<Vec<_>>() {
                    nodes[packet.to() as usize - 1].group.handle(packet).unwrap();
                }
            }
        }
        assert!(nodes.remove(0).group.leads());
        nodes.iter_mut().for_each(|node| node.phase = random.below(STEPS));
        let mut under_way: Vec<(u64, Packet)> = Vec::new();
        for step in 1..1000 * STEPS {
            let (due, later): (Vec<_>, Vec<_>) =
                under_way.into_iter().partition(|(at, _)| *at <= step);
            under_way = later;
            for (_, packet) in due {
                let node = nodes.iter_mut().find(|node| node.group.node() == packet.to());
                node.into_iter().for_each(|node| node.inputs.push(packet.clone()));
            }
            for node in nodes.iter_mut().filter(|node| node.busy_until <= step) {
                let inputs = std::mem::take(&mut node.inputs);
                inputs.into_iter().for_each(|packet| node.group.handle(packet).unwrap());
                if step % STEPS == node.phase {
                    node.group.tick();
                }
                let before = node.group.log().bytes();
                let packets = node.group.ready().unwrap().packets;
                if node.group.log().bytes() > before {
                    node.busy_until = step + 1 + random.below(sync_steps);
                }
                let at = step.max(node.busy_until) + 1;
                under_way.extend(packets.into_iter().map(|packet| (at, packet)));
                if node.group.leads() {
                    return step;
                }
            }
        }
        panic!("seed {seed}: no leader");
    }

    #[test]
    fn leader_is_replaced_within_three_election_timeouts() {
        let count = std::env::var("SILTSTONE_ELECTIONS").map_or(40, |text| text.parse().unwrap());
        for (nodes, sync_steps) in [(3, 3), (3, 20), (5, 3), (5, 20)] {
            let run = |seed| steps_without_a_leader(nodes, sync_steps, seed);
            let mut steps: Vec<_> = (0..count).map(run).collect();
            steps.sort_unstable();
            let (median, longest) = (steps[steps.len() / 2], steps[steps.len() - 1]);
            eprintln!("{nodes} nodes, syncs of {sync_steps} steps: {median}, at most {longest}");
            assert!(longest <= 3 * 10 * STEPS, "{nodes} nodes, {sync_steps}: {longest} steps");
        }
    }
}
