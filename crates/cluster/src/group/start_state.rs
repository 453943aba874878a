//! What a node knows about its own start and about what others have had durably (see
//! `group/starts.rs`).

use std::collections::{BTreeMap, BTreeSet};

use siltstone_structures::SplitMix64;

use crate::packet::{ForgottenState, Packet, Start};

/// The part of a node's state that is about starts, besides [`crate::identities::Identities`].
#[derive(Default)]
pub(super) struct Starts {
    /// A random number of this process, if it is not the one in which the node was created.
    pub(super) process: Option<u64>,
    /// The other members that have noted its start.
    pub(super) noted_at: BTreeSet<u64>,
    /// Ticks since the start.
    pub(super) ticks: usize,
    pub(super) is_waiting: bool,
    /// What others had durably, as this node has heard.
    pub(super) heard: BTreeMap<u64, DurableState>,
}

/// What another node has had durably at some time.
#[derive(Default)]
pub(super) struct DurableState {
    pub(super) term: u64,
    /// The last term in which it has voted for this node.
    pub(super) vote_term: u64,
    /// The last entry that it has acknowledged to this node, after the term.
    pub(super) acknowledged: (u64, u64),
    /// The last entry that it has called committed. A node syncs an entry before it can hear that
    /// others have it.
    pub(super) committed: u64,
}

impl DurableState {
    /// What a node has forgotten that has only what `start` says.
    pub(super) fn forgotten_by(&self, start: &Start) -> Option<ForgottenState> {
        let (term, entry) = self.acknowledged;
        if start.term < self.term {
            Some(ForgottenState::Term(self.term))
        } else if start.term == self.vote_term && start.vote != start.to {
            Some(ForgottenState::Vote(self.vote_term))
        } else if start.term == term && start.last < entry {
            Some(ForgottenState::Entry(entry))
        } else if start.last < self.committed {
            Some(ForgottenState::Entry(self.committed))
        } else {
            None
        }
    }
}

impl Starts {
    /// Whether packets of Raft are exchanged with a node.
    pub(super) fn exchanges_with(&self, node: u64) -> bool {
        !self.is_waiting && (self.process.is_none() || self.noted_at.contains(&node))
    }

    /// Whether a packet may be sent.
    pub(super) fn lets_out(&self, packet: &Packet) -> bool {
        match packet {
            Packet::Register(_) | Packet::Registered(_) | Packet::Start(_) | Packet::Started(_) => {
                true
            }
            packet => self.exchanges_with(packet.to()),
        }
    }
}

/// The random number of a process and of the start that it begins. Two processes that open copies
/// of a directory have other seeds.
pub(super) fn random_of_start(seed: u64, incarnation: u64) -> u64 {
    SplitMix64::stream(seed, !incarnation).next_u64()
}
