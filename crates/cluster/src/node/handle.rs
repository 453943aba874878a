//! Handles of a running node.

use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Engine, WriteBatch};

use super::inputs::{Input, Inputs};
use super::messages::Messages;
use super::request::{Callback, Committed, InFlight, ReadIndex, Refusal, RequestError};
use super::status::{PublishedState, Status};
use crate::membership::Change;
use crate::packet::NodeMessage;

/// A handle of a running node. Clones are cheap, and it may be used from any thread.
///
/// No call blocks, but for [`next_message`](Self::next_message). Callbacks are called exactly once:
/// on the node's thread, or at once on the caller's if the node refuses. They must neither block
/// nor panic: the node waits for them.
#[derive(Clone)]
pub struct NodeHandle {
    pub(super) inputs: Arc<Inputs>,
    pub(super) messages: Arc<Messages>,
    pub(super) published: Arc<PublishedState>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) max_batch_bytes: usize,
}

impl NodeHandle {
    /// Proposes a batch. `term` is that of the [`ReadIndex`] whose read the batch depends on:
    /// another term is refused. `done` is called once the batch is committed, and applied here.
    ///
    /// Cost: a sync of the log at a majority. Batches that arrive while one syncs share the next.
    pub fn propose(
        &self,
        term: Option<u64>,
        batch: WriteBatch,
        done: impl FnOnce(Result<Committed, RequestError>) + Send + 'static,
    ) {
        let (bytes, limit) = (batch.as_bytes().len(), self.max_batch_bytes);
        let admitted = match bytes > limit {
            true => Err(Refusal::Invalid(format!(
                "the batch has {bytes} bytes, and the limit of a replicated table is {limit}; \
                 split it"
            ))),
            false => self.in_flight.admit(bytes),
        };
        match admitted {
            Err(refusal) => done(Err(RequestError::NotProposed(refusal))),
            Ok(permit) => {
                let callback = Callback::new(Box::new(done), not_proposed(), Some(permit));
                self.inputs.push(Input::Propose(term, batch, callback));
            }
        }
    }

    /// Begins a linearizable read. When `done` is called, a read of [`table`](Self::table) has
    /// everything that had been acknowledged anywhere before this call.
    ///
    /// Cost: a round of heartbeats, which reads that arrive together share. A new leader first
    /// commits an entry of its term; reads wait for that.
    pub fn read_index(&self, done: impl FnOnce(Result<ReadIndex, Refusal>) + Send + 'static) {
        match self.in_flight.admit(0) {
            Err(refusal) => done(Err(refusal)),
            Ok(permit) => {
                let callback = Callback::new(Box::new(done), Refusal::Stopped, Some(permit));
                self.inputs.push(Input::ReadIndex(callback));
            }
        }
    }

    /// Begins a barrier, at a node of any role. When `done` is called, [`table`](Self::table) has
    /// everything that had been acknowledged anywhere before this call.
    ///
    /// Cost: a round of heartbeats at the leader. If that is new or cut off, there may be no
    /// outcome until the next barrier begins, which refuses this one: repeat it after a while.
    pub fn barrier(&self, done: impl FnOnce(Result<ReadIndex, Refusal>) + Send + 'static) {
        let callback = Callback::new(Box::new(done), Refusal::Stopped, None);
        self.inputs.push(Input::Barrier(callback));
    }

    /// Changes the members: see [`Change`]. The transport must know the addresses of new ones.
    pub fn change_membership(
        &self,
        changes: Vec<Change>,
        done: impl FnOnce(Result<Committed, RequestError>) + Send + 'static,
    ) {
        let callback = Callback::new(Box::new(done), not_proposed(), None);
        self.inputs.push(Input::ChangeMembership(changes, callback));
    }

    /// Asks the leader, this node, to hand over to the voter `node`. `done` is called when the
    /// handover has begun; watch [`status`](Self::status) for its end. Writes are refused
    /// meanwhile. It is given up after an election timeout.
    pub fn transfer_leader(
        &self,
        node: u64,
        done: impl FnOnce(Result<(), Refusal>) + Send + 'static,
    ) {
        let callback = Callback::new(Box::new(done), Refusal::Stopped, None);
        self.inputs.push(Input::TransferLeader(node, callback));
    }

    /// Asks the leader to hand over to this node, a follower that votes. `done` is called when it
    /// has been asked; watch [`status`](Self::status) for its end. With `is_forced` this node holds
    /// an election at once instead, which it does not win while the others hear of a leader.
    pub fn take_over(
        &self,
        is_forced: bool,
        done: impl FnOnce(Result<(), Refusal>) + Send + 'static,
    ) {
        let callback = Callback::new(Box::new(done), Refusal::Stopped, None);
        self.inputs.push(Input::TakeOver(is_forced, callback));
    }

    /// Sends a message to the user of another node's handle. It arrives once or never: not without
    /// a connection, nor at a program that does not know such messages, nor where 64 wait.
    pub fn send_message(&self, to: u64, bytes: Vec<u8>) {
        let from = self.status().node;
        self.inputs.push(Input::Message(NodeMessage { from, to, bytes }));
    }

    /// Takes the next message of another node. Blocks up to `timeout` if there is none.
    pub fn next_message(&self, timeout: Duration) -> Option<NodeMessage> {
        self.messages.take(timeout)
    }

    /// The node at the end of its last round.
    pub fn status(&self) -> Arc<Status> {
        self.published.status.load_full()
    }

    /// The table, for reads. A received snapshot replaces it, and then closes the old one: take it
    /// again for every read. A write here, instead of a proposal, would be lost and worse.
    pub fn table(&self) -> Arc<dyn Engine> {
        self.published.table.load().engine.clone()
    }

    /// The requests in flight at this node, and the bytes of their batches.
    pub fn in_flight(&self) -> (usize, usize) {
        self.in_flight.counts()
    }

    /// Packets that were dropped because too many waited for this node.
    pub fn dropped_packets(&self) -> u64 {
        self.inputs.dropped_packets()
    }
}

fn not_proposed() -> RequestError {
    RequestError::NotProposed(Refusal::Stopped)
}
