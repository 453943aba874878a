//! The thread of a node: it owns the group, counts time, and does the I/O.
//!
//! ```text
//!   loop   wait for inputs, or for the next tick
//!          packets, proposals, reads ─▶ Group        all waiting ones
//!          tick, if it is due                        at most one per round
//!          Group::ready_with                         one sync for all proposals of the round
//!            packets ─▶ network
//!          status, table ─▶ handles
//!          outcomes ─▶ callbacks
//! ```
//!
//! Inputs come before the tick, and ticks that were missed are not made up for: a node that was
//! held up reads the packets of its leader before it holds an election.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use siltstone_engine::{Error, Result};

use super::inputs::{Input, Inputs};
use super::messages::Messages;
use super::options::NodeOptions;
use super::request::{Callback, Committed, Leader, ReadIndex, Refusal, RequestError};
use super::status::{PublishedState, PublishedTable, Role, Status};
use crate::group::Group;
use crate::network::Network;
use crate::packet::{Envelope, Packet};
use crate::requests::{Event, Rejection, RequestId};

/// A proposal that Raft has accepted.
struct Proposal {
    term: u64,
    callback: Callback<Committed, RequestError>,
}

/// The state of the thread.
pub(super) struct Driver {
    group: Group,
    options: NodeOptions,
    network: Arc<dyn Network>,
    inputs: Arc<Inputs>,
    published: Arc<PublishedState>,
    messages: Arc<Messages>,
    proposals: HashMap<RequestId, Proposal>,
    /// Reads that wait for the next round.
    new_reads: Vec<Callback<ReadIndex, Refusal>>,
    /// Reads that share a round of heartbeats.
    reads: HashMap<RequestId, Vec<Callback<ReadIndex, Refusal>>>,
    snapshots: u64,
    /// How many committed directories the network knows.
    known_directories: Option<usize>,
    /// When a node that stops does not wait any more.
    stops_at: Option<Instant>,
}

impl Driver {
    pub(super) fn new(
        group: Group,
        options: NodeOptions,
        network: Arc<dyn Network>,
        inputs: Arc<Inputs>,
        (published, messages): (Arc<PublishedState>, Arc<Messages>),
    ) -> Self {
        Driver {
            group,
            options,
            network,
            inputs,
            published,
            messages,
            proposals: HashMap::new(),
            new_reads: Vec::new(),
            reads: HashMap::new(),
            snapshots: 0,
            known_directories: None,
            stops_at: None,
        }
    }

    /// Runs until the node is stopped or fails.
    ///
    /// # Errors
    /// The failure, or what closing the group has met.
    pub(super) fn run(mut self) -> Result<()> {
        let outcome = self.serve();
        self.network.detach(self.group.id());
        if let Err(error) = outcome {
            self.fail(&error);
            return Err(error);
        }
        self.inputs.close();
        self.reads.clear();
        self.new_reads.clear();
        self.proposals.clear();
        self.group.close()
    }

    fn serve(&mut self) -> Result<()> {
        let mut next_tick = Instant::now() + self.options.tick;
        self.group.campaign_if_alone();
        self.round()?;
        loop {
            for input in self.inputs.take(next_tick) {
                self.handle(input)?;
            }
            let now = Instant::now();
            if now >= next_tick {
                self.group.tick();
                next_tick = now + self.options.tick;
            }
            self.begin_reads();
            self.round()?;
            if self.stops_at.is_some_and(|at| at <= now || self.may_stop()) {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, input: Input) -> Result<()> {
        match input {
            Input::Packet(envelope) => self.group.step(envelope)?,
            Input::Unreachable(node) => self.group.report_unreachable(node),
            Input::EarlierVersion(node) => self.group.note_earlier_version(node),
            Input::Message(message) => {
                let (group, directory) = (self.group.id(), self.group.directory());
                let packet = Packet::Message(message);
                self.network.send(Envelope { group, directory, packet });
            }
            Input::Stop => self.begin_stop(),
            // Refused as their callbacks say.
            _ if self.stops_at.is_some() => {}
            Input::Propose(term, batch, callback) => {
                let term = term.unwrap_or(self.group.term());
                let proposed = self.group.propose_at(term, &batch);
                self.note_proposal(proposed, callback);
            }
            Input::ChangeMembership(changes, callback) => {
                let proposed = self.group.change_membership(&changes);
                self.note_proposal(proposed, callback);
            }
            Input::ReadIndex(callback) => self.new_reads.push(callback),
            Input::Barrier(callback) => match self.group.barrier() {
                Ok(id) => drop(self.reads.insert(id, vec![callback])),
                Err(rejection) => callback.complete(Err(self.refusal(rejection))),
            },
            Input::TransferLeader(node, callback) => {
                let outcome = self.transfer_leader(node);
                callback.complete(outcome);
            }
            Input::TakeOver(is_forced, callback) => {
                let outcome = self.take_over(is_forced);
                callback.complete(outcome);
            }
        }
        Ok(())
    }

    fn note_proposal(
        &mut self,
        proposed: Result<RequestId, Rejection>,
        mut callback: Callback<Committed, RequestError>,
    ) {
        match proposed {
            Ok(id) => {
                callback.set_dropped(RequestError::OutcomeUnknown("the node has stopped"));
                self.proposals.insert(id, Proposal { term: self.group.term(), callback });
            }
            Err(rejection) => {
                let refusal = self.refusal(rejection);
                callback.complete(Err(RequestError::NotProposed(refusal)));
            }
        }
    }

    /// Begins the reads that wait, all with one round of heartbeats.
    fn begin_reads(&mut self) {
        if self.new_reads.is_empty() {
            return;
        }
        match self.group.read_index() {
            Ok(id) => {
                self.reads.insert(id, std::mem::take(&mut self.new_reads));
            }
            // The leader is new: it commits an entry of its term first.
            Err(Rejection::Busy(_)) => {}
            Err(rejection) => {
                let refusal = self.refusal(rejection);
                for read in std::mem::take(&mut self.new_reads) {
                    read.complete(Err(refusal.clone()));
                }
            }
        }
    }

    fn transfer_leader(&mut self, node: u64) -> Result<(), Refusal> {
        if !self.group.leads() {
            return Err(self.refusal(Rejection::NotLeader { leader: self.group.leader() }));
        }
        if !self.group.applied().members.voters.contains(&node) {
            return Err(Refusal::Invalid(format!("node {node} is no voter of the group")));
        }
        self.group.transfer_leadership(node);
        Ok(())
    }

    fn take_over(&mut self, is_forced: bool) -> Result<(), Refusal> {
        let taken = self.group.take_over(is_forced);
        taken.map_err(|rejection| self.refusal(rejection))
    }

    /// Stops once the writes in flight are done, and a leader has handed over.
    fn begin_stop(&mut self) {
        self.stops_at.get_or_insert(Instant::now() + self.options.drain);
    }

    /// Whether nothing keeps the node from stopping. A leader hands over to the voter that has most
    /// of its log: otherwise the group would be without a leader for an election timeout.
    fn may_stop(&mut self) -> bool {
        if !self.proposals.is_empty() {
            return false;
        }
        let peers = self.group.peers();
        // None is active for a moment after each check of the quorum.
        let voters = peers.iter().filter(|peer| peer.is_voter);
        let best = voters.max_by_key(|peer| (peer.is_active, peer.matched));
        let Some(next) = best else { return true };
        // One that was given up is begun again.
        if !self.group.is_transferring() {
            self.group.transfer_leadership(next.node);
        }
        false
    }

    /// Does the I/O, and completes what is done.
    fn round(&mut self) -> Result<()> {
        let (group, directory) = (self.group.id(), self.group.directory());
        let network = self.network.clone();
        let mut send = |packet| network.send(Envelope { group, directory, packet });
        let events = self.group.ready_with(&mut send)?;
        let committed = self.group.committed_directories();
        if self.known_directories != Some(committed.len()) {
            self.known_directories = Some(committed.len());
            self.network.set_directories(group, directory, committed);
        }
        if events.contains(&Event::Restored) {
            self.snapshots += 1;
            self.published.table.store(Arc::new(PublishedTable::of(&self.group)));
        }
        self.published.publish(self.status());
        let index = self.group.applied().index;
        for event in events {
            match event {
                Event::Applied(id) => {
                    if let Some(Proposal { term, callback }) = self.proposals.remove(&id) {
                        callback.complete(Ok(Committed { term, index }));
                    }
                }
                Event::Unknown(id) => {
                    if let Some(proposal) = self.proposals.remove(&id) {
                        let reason = "the leader has changed before the write was committed";
                        proposal.callback.complete(Err(RequestError::OutcomeUnknown(reason)));
                    }
                }
                Event::ReadReady { id, term } => {
                    for read in self.reads.remove(&id).into_iter().flatten() {
                        read.complete(Ok(ReadIndex { term, index }));
                    }
                }
                Event::ReadLost(id) => {
                    let leader = self.group.leader();
                    let refusal = self.refusal(Rejection::NotLeader { leader });
                    for read in self.reads.remove(&id).into_iter().flatten() {
                        read.complete(Err(refusal.clone()));
                    }
                }
                Event::Message(message) => self.messages.push(message),
                Event::Restored => {}
            }
        }
        Ok(())
    }

    /// Answers everything, and publishes why.
    fn fail(&mut self, error: &Error) {
        let mut status = self.status();
        (status.role, status.failure) = (Role::Outsider, Some(error.to_string()));
        self.published.publish(status);
        for (_, proposal) in self.proposals.drain() {
            let reason = "the node has failed before the write was committed";
            proposal.callback.complete(Err(RequestError::OutcomeUnknown(reason)));
        }
        let reads = self.reads.drain().flat_map(|(_, reads)| reads).chain(self.new_reads.drain(..));
        for read in reads {
            read.complete(Err(Refusal::Failed(error.clone())));
        }
        self.inputs.close();
    }

    fn status(&self) -> Status {
        let mut status = Status::of(&self.group, |node| self.leader(node));
        status.snapshots = self.snapshots;
        status
    }

    fn leader(&self, node: u64) -> Leader {
        Leader { node, client_address: self.network.client_address(node) }
    }

    fn refusal(&self, rejection: Rejection) -> Refusal {
        Refusal::of(rejection, |node| self.leader(node))
    }
}
