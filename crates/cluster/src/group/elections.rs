//! When a node holds an election.
//!
//! The crate `raft` draws election timeouts from the thread's random numbers. Here they are drawn
//! from the seed, so that a run repeats.
//!
//! A node that has granted a pre-vote puts off its own election: the other one persists its vote
//! before it asks for this node's, and if this node voted for itself meanwhile, nobody would win.
//! With syncs that take as long as election timeouts differ, that would happen time and again.

use raft::eraftpb::MessageType;

use super::Group;

/// The longest wait for an election, one that was put off included, in the shortest waits.
pub(super) const MAX_ELECTION_WAITS: usize = 4;

impl Group {
    /// Puts a timeout from the seed in place of the one that Raft has drawn: a new one whenever
    /// Raft begins another wait.
    pub(super) fn draw_timeout(&mut self) {
        let raft = &mut self.raft.raft;
        if raft.election_elapsed == 0 {
            let least = self.options.election_ticks as u64;
            self.timeout_ticks = (least + self.random.below(least)) as usize;
        }
        raft.set_randomized_election_timeout(self.timeout_ticks);
    }

    /// Puts off this node's own election, for a node to which it has granted a pre-vote. Once in
    /// each wait: that node may never get a majority.
    pub(super) fn put_off_election(&mut self) {
        let least = self.options.election_ticks;
        if self.timeout_ticks < 2 * least {
            let wait = least + self.random.below(least as u64) as usize;
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
