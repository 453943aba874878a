//! Proposals and reads of this incarnation of a node whose outcome is pending.
//!
//! A request travels as 24 bytes: `node | incarnation | id`, big endian. No other request of any
//! node has the same bytes, ever. So a late answer to an earlier incarnation is not taken for one
//! to this.
//!
//! ```text
//!   proposal   pending ─ applied here ─▶ Applied      leader until then, in one term
//!                      └ term or role changes ─▶ Unknown: it may be applied later, or never
//!   read       pending ─ majority confirmed ─▶ waiting for the applied index ─▶ ReadReady
//!                      └ term or role changes ─▶ ReadLost
//!   barrier    pending ─ leader has confirmed ─▶ waiting for the applied index ─▶ ReadReady
//!                      └ the next one begins ─▶ ReadLost
//! ```
//!
//! A barrier is a read that a follower has asked its leader for. The leader may drop it silently,
//! so at most one is pending: whoever waits begins another.

use std::collections::BTreeMap;

use siltstone_engine::Error;

use crate::packet::NodeMessage;
use crate::planted::{Fault, is_planted};

/// A request, unique in its incarnation of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The proposal is committed, and applied here.
    Applied(RequestId),
    /// The node does not lead any more: the proposal may be applied later, or never.
    Unknown(RequestId),
    /// A read of the table now is linearizable.
    ReadReady {
        /// The read.
        id: RequestId,
        /// The term for [`propose_at`](crate::Group::propose_at).
        term: u64,
    },
    /// The node does not lead any more: read elsewhere. Of a barrier: the next one has begun.
    ReadLost(RequestId),
    /// A snapshot has replaced the table: take [`table`](crate::Group::table) again.
    Restored,
    /// Another node has sent a message.
    Message(NodeMessage),
}

/// Why a request was not accepted. It has had no effect and will have none.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Rejection {
    /// This node does not lead.
    #[error("this node does not lead the group; the leader is {}", display_leader(*.leader))]
    NotLeader {
        /// The leader, if it is known.
        leader: Option<u64>,
    },
    /// The term is over in which the caller read what it wants to change.
    #[error("the term has changed since the read; read again")]
    OldTerm,
    /// The leader is new, a change of membership is pending, or too much is not committed yet.
    #[error("the group cannot accept this now: {0}; retry soon")]
    Busy(&'static str),
    /// The request is wrong.
    #[error("{0}")]
    Invalid(String),
    /// The node has failed.
    #[error("{0}")]
    Failed(Error),
}

fn display_leader(leader: Option<u64>) -> String {
    leader.map_or("not known".into(), |node| format!("node {node}"))
}

/// The pending requests.
pub(crate) struct Requests {
    node: u64,
    incarnation: u64,
    last: u64,
    /// The terms of pending proposals.
    proposals: BTreeMap<RequestId, u64>,
    /// The terms of pending reads.
    reads: BTreeMap<RequestId, u64>,
    /// The pending barrier, and the term in which it began.
    barrier: Option<(RequestId, u64)>,
    /// Barriers that were replaced.
    lost_barriers: Vec<RequestId>,
    /// Confirmed reads, their terms, and the index that must be applied first.
    waiting: Vec<(RequestId, u64, u64)>,
}

impl Requests {
    pub(crate) fn new(node: u64, incarnation: u64) -> Self {
        Requests {
            node,
            incarnation,
            last: 0,
            proposals: BTreeMap::new(),
            reads: BTreeMap::new(),
            barrier: None,
            lost_barriers: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// The next id and its bytes.
    pub(crate) fn next(&mut self) -> (RequestId, Vec<u8>) {
        self.last += 1;
        let numbers = [self.node, self.incarnation, self.last];
        (RequestId(self.last), numbers.map(u64::to_be_bytes).concat())
    }

    /// The id in these bytes, if they are of this incarnation.
    fn own(&self, bytes: &[u8]) -> Option<RequestId> {
        let number =
            |at: usize| bytes.get(at..)?.first_chunk().map(|chunk| u64::from_be_bytes(*chunk));
        let is_own = bytes.len() == 24
            && number(0) == Some(self.node)
            && number(8) == Some(self.incarnation);
        number(16).filter(|_| is_own).map(RequestId)
    }

    pub(crate) fn add_proposal(&mut self, id: RequestId, term: u64) {
        self.proposals.insert(id, term);
    }

    pub(crate) fn add_read(&mut self, id: RequestId, term: u64) {
        self.reads.insert(id, term);
    }

    /// Adds a barrier, which takes the place of a pending one.
    pub(crate) fn add_barrier(&mut self, id: RequestId, term: u64) {
        self.end_barrier();
        self.barrier = Some((id, term));
    }

    /// Ends a pending barrier without a result.
    pub(crate) fn end_barrier(&mut self) {
        self.lost_barriers.extend(self.barrier.take().map(|(id, _)| id));
    }

    /// A proposal with these bytes was applied; returns its id if it is pending here.
    pub(crate) fn applied(&mut self, bytes: &[u8]) -> Option<RequestId> {
        self.own(bytes).filter(|id| self.proposals.remove(id).is_some())
    }

    /// A majority has confirmed the leader since the read or barrier with these bytes began.
    pub(crate) fn confirmed(&mut self, bytes: &[u8], index: u64) {
        let Some(own) = self.own(bytes) else { return };
        if let Some((id, term)) = self.reads.remove_entry(&own) {
            self.waiting.push((id, term, index));
        } else if let Some((id, term)) = self.barrier.take_if(|(id, _)| *id == own) {
            let index = if is_planted(Fault::EarlyBarrier) { 0 } else { index };
            self.waiting.push((id, term, index));
        }
    }

    /// Adds the outcomes that follow from the applied index and from the term in which this node
    /// leads, if it does.
    pub(crate) fn settle(&mut self, applied: u64, leads: Option<u64>, events: &mut Vec<Event>) {
        let is_current = |term: u64| Some(term) == leads;
        self.proposals.retain(|id, term| {
            let is_pending = is_current(*term);
            let outcome = match is_planted(Fault::AckOfLostProposal) {
                true => Event::Applied(*id),
                false => Event::Unknown(*id),
            };
            events.extend((!is_pending).then_some(outcome));
            is_pending
        });
        self.reads.retain(|id, term| {
            let is_pending = is_current(*term);
            events.extend((!is_pending).then_some(Event::ReadLost(*id)));
            is_pending
        });
        events.extend(self.lost_barriers.drain(..).map(Event::ReadLost));
        let ready = self.waiting.extract_if(.., |(_, _, index)| *index <= applied);
        events.extend(ready.map(|(id, term, _)| Event::ReadReady { id, term }));
    }
}
