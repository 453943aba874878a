//! Barriers: a node of any role makes sure that its table is not behind its group.
//!
//! ```text
//!   follower                               leader
//!   barrier ─ MsgReadIndex ─────────────▶  notes its commit index
//!                                          asks a majority whether it still leads
//!           ◀────────── MsgReadIndexResp   that index
//!   has applied it: ReadReady
//! ```
//!
//! At the leader a barrier is a read. A leader that cannot confirm, because it has not committed in
//! its term yet or has lost it, drops the request, and so does one of an earlier version. So a
//! barrier may have no outcome: the caller repeats it, and the next one ends the one before.

use super::Group;
use crate::planted::{Fault, is_planted};
use crate::requests::{Rejection, RequestId};

impl Group {
    /// Begins a barrier. When [`Event::ReadReady`](crate::Event::ReadReady) arrives, the table of
    /// this node has everything that had been acknowledged anywhere before this call. Cost: a round
    /// of heartbeats at the leader, and two packets.
    ///
    /// # Errors
    /// There will be no event: no leader is known, or the node does not take part in its group yet.
    pub fn barrier(&mut self) -> Result<RequestId, Rejection> {
        self.requests.end_barrier();
        if self.leads() || is_planted(Fault::FollowerRead) {
            return self.read_index();
        }
        self.check_usable().map_err(Rejection::Failed)?;
        if self.leader().is_none() || !self.is_registered() {
            return Err(Rejection::NotLeader { leader: None });
        }
        let (id, context) = self.requests.next();
        self.requests.add_barrier(id, self.term());
        self.raft.read_index(context);
        Ok(id)
    }

    /// Whether this node may answer a barrier of another one: it leads, and serves reads itself.
    pub(super) fn may_confirm_barrier(&self) -> bool {
        self.leads() && self.check_recorded().is_ok()
    }
}
