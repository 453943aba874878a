//! One node of a replicated group.
//!
//! A [`Group`] is a synchronous state machine. The caller calls [`tick`](Group::tick) at a fixed
//! rate, [`step`](Group::step) for every packet, [`propose`](Group::propose) and
//! [`read_index`](Group::read_index) for its clients, and [`ready`](Group::ready) after every few
//! calls. All I/O happens in `ready`, and in `step` for chunks of a snapshot and for notes about
//! other nodes. Each round of `ready`:
//!
//! ```text
//!   1  a leader's packets are sent, if its term and vote are durable already
//!   2  a received snapshot: the log is replaced by one that names the new table (durable)
//!      or entries, term and vote: one append, one sync
//!   3  committed entries: one batch with the applied index; not synced, since the log is
//!   4  all other packets are sent, and events are returned
//! ```
//!
//! So a leader and its followers sync an entry at the same time. The leader counts its own copy
//! only when it is durable.
//!
//! What was written is the effect of a command, never the command. To change what it has read, a
//! caller locks its keys, reads at a [`ReadReady`](Event::ReadReady), and proposes in the same term
//! ([`propose_at`](Group::propose_at)). Followers do not forward proposals.
//!
//! After an I/O error the node answers nothing but that error, until it is opened again.
//!
//! Rejections of entries that a follower has acknowledged are dropped: they are late, and the crate
//! `raft` 0.7.0 would go back behind what is known to match (raft-rs #557).

mod barrier;
mod elections;
mod filtering;
mod first_start;
mod opening;
mod options;
mod registration;
#[cfg(test)]
mod registration_tests;
mod restore;
#[cfg(test)]
mod restore_tests;
mod round;
mod snapshots;
mod start_state;
mod starts;
#[cfg(test)]
mod starts_tests;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use raft::RawNode;
use raft::eraftpb::{Message, MessageType};
use siltstone_engine::{Engine, Error, Result, WriteBatch};
use siltstone_structures::SplitMix64;
use siltstone_vfs::Vfs;

use crate::applied::check_user_batch;
use crate::budget::Budget;
use crate::identities::Identities;
use crate::log::lost;
use crate::membership::{self, Change};
use crate::packet::{ChunkAck, Envelope, Packet};
use crate::planted::{Fault, is_planted};
use crate::requests::{Event, Rejection, RequestId, Requests};
use crate::store::Store;
use crate::stream::{CatchUp, IncomingSnapshot, OpenTable, OutgoingSnapshot, StagedTable};

pub use first_start::is_new;
pub use options::{GroupOptions, TableFilter};
pub use view::PeerStatus;

pub(crate) use first_start::LOCK_FILE;

use first_start::Registration;
use round::encode_batch;
use start_state::Starts;

/// The result of [`Group::ready`].
#[derive(Debug, Default)]
pub struct Output {
    /// To be sent, in this order; they may be lost.
    pub packets: Vec<Packet>,
    /// The outcomes of requests.
    pub events: Vec<Event>,
}

/// One node of a group.
pub struct Group {
    vfs: Arc<dyn Vfs>,
    open: OpenTable,
    options: GroupOptions,
    identities: Identities,
    registration: Registration,
    starts: Starts,
    raft: RawNode<Store>,
    table: Arc<dyn Engine>,
    requests: Requests,
    random: SplitMix64,
    /// The present election timeout.
    timeout_ticks: usize,
    /// Snapshots being sent, by receiver.
    outgoing: BTreeMap<u64, OutgoingSnapshot>,
    /// Followers that have received one, and do not have the log yet.
    catching_up: BTreeMap<u64, CatchUp>,
    last_stream: u64,
    /// Followers that the log was not retained for any more.
    given_up: u64,
    /// Limits the bytes of them that are sent per tick.
    budget: Budget,
    incoming: Option<IncomingSnapshot>,
    /// A complete table of a snapshot that Raft has accepted.
    staged: Option<StagedTable>,
    /// The stream that was received last, and the ack of its last chunk.
    received: Option<ChunkAck>,
    last_table: u64,
    /// The commit index that a leader has sent since the table was opened.
    heard_commit: Option<u64>,
    /// The table's compaction filter is in force.
    is_filtering: bool,
    output: Output,
    failure: Option<String>,
}

impl Group {
    /// Counts time: a fixed step of the caller's clock has passed.
    pub fn tick(&mut self) {
        if self.failure.is_some() {
            return;
        }
        self.tick_start();
        if !self.is_registered() {
            self.tick_registration();
        }
        if !self.takes_part() {
            return;
        }
        self.draw_timeout();
        self.raft.tick();
        self.tick_streams();
    }

    /// Campaigns at once, if this node is the only voter: there is no leader to wait for.
    pub fn campaign_if_alone(&mut self) {
        let members = &self.raft.store().applied.members;
        let is_alone = members.voters == [self.options.node] && members.voters_outgoing.is_empty();
        if is_alone && self.takes_part() {
            // Refused to a node that leads already.
            let _ = self.raft.campaign();
        }
    }

    /// Handles a packet. Packets to other nodes, of other directories than the senders', and
    /// unexpected ones are ignored.
    ///
    /// # Errors
    /// `ReadOnly` after an earlier failure. If this node has lost what it had acknowledged
    /// ([`crate::log::is_lost`]). I/O errors: of the table that receives a snapshot, or of the file
    /// with the nodes' directories.
    pub fn step(&mut self, envelope: Envelope) -> Result<()> {
        self.check_usable()?;
        let Envelope { directory, packet, .. } = envelope;
        if packet.to() != self.options.node {
            return Ok(());
        }
        let outcome = self.admit(directory, packet);
        self.note_failure(outcome)
    }

    /// Handles a packet of the directory that its sender has.
    fn handle(&mut self, packet: Packet) -> Result<()> {
        if let Some(stream) = self.outgoing.get_mut(&packet.from()) {
            stream.note_life();
        }
        match packet {
            Packet::Raft(message) => self.step_message(message),
            Packet::Chunk(chunk) => self.receive(chunk),
            Packet::Ack(ack) => self.acknowledge(&ack),
            // They are about directories.
            Packet::Register(_) | Packet::Registered(_) => Ok(()),
            Packet::Start(_) | Packet::Started(_) => Ok(()),
            Packet::Message(message) => {
                self.output.events.push(Event::Message(message));
                Ok(())
            }
        }
    }

    fn step_message(&mut self, message: Message) -> Result<()> {
        use MessageType::{MsgAppendResponse, MsgHeartbeat, MsgPropose, MsgReadIndex};
        use MessageType::{MsgRequestPreVote, MsgSnapshot};
        let last = self.raft.raft.raft_log.last_index();
        if message.get_msg_type() == MsgHeartbeat
            && message.term >= self.term()
            && message.commit > last
        {
            let (leader, commit) = (message.from, message.commit);
            let what = format!(
                "its leader, node {leader}, counts on entry {commit} here, and the log ends at \
                 entry {last}"
            );
            return Err(lost(self.vfs.name(), &what));
        }
        let is_late = message.reject
            && message.get_msg_type() == MsgAppendResponse
            && self.matched(message.from).is_some_and(|matched| message.index <= matched);
        // Snapshots come in chunks, and proposals only from this node's own callers.
        let is_foreign = match message.get_msg_type() {
            MsgPropose | MsgSnapshot => true,
            MsgReadIndex => !self.may_confirm_barrier(),
            _ => false,
        };
        self.note_commit(&message);
        self.note_durable_state(&message);
        if !is_late && !is_foreign {
            let asks = (message.get_msg_type() == MsgRequestPreVote)
                .then_some((message.from, (message.log_term, message.index)));
            // Messages of strangers are rejected, which is no failure.
            let _ = self.raft.step(message);
            if let Some((node, log)) = asks.filter(|(node, _)| self.has_granted_pre_vote(*node)) {
                self.make_way(node, log);
            }
        }
        Ok(())
    }

    /// Proposes a batch. Its outcome is an [`Event`].
    ///
    /// # Errors
    /// The batch was not proposed.
    pub fn propose(&mut self, batch: &WriteBatch) -> Result<RequestId, Rejection> {
        self.propose_at(self.term(), batch)
    }

    /// Proposes a batch that depends on what was read in `term` ([`Event::ReadReady`]).
    ///
    /// # Errors
    /// The batch was not proposed; [`Rejection::OldTerm`] if the term is over.
    pub fn propose_at(&mut self, term: u64, batch: &WriteBatch) -> Result<RequestId, Rejection> {
        self.check_leads()?;
        self.check_recorded()?;
        if term != self.term() && !is_planted(Fault::OldTermProposal) {
            return Err(Rejection::OldTerm);
        }
        check_user_batch(batch).map_err(|error| Rejection::Invalid(error.to_string()))?;
        let max_value = self.table.capabilities().max_value_bytes;
        batch.check(max_value).map_err(|error| Rejection::Invalid(error.to_string()))?;
        let (id, context) = self.requests.next();
        let proposed = self.raft.propose(context, encode_batch(batch));
        self.accept(id, proposed)
    }

    /// Proposes a change of membership. Its outcome is an [`Event`].
    ///
    /// # Errors
    /// It was not proposed: it breaks a rule, or another change is pending.
    pub fn change_membership(&mut self, changes: &[Change]) -> Result<RequestId, Rejection> {
        self.check_leads()?;
        let members = &self.raft.store().applied.members;
        if self.raft.raft.has_pending_conf() || !members.voters_outgoing.is_empty() {
            return Err(Rejection::Busy("a change of membership is pending"));
        }
        for change in changes {
            if let Change::Promote(node) = change {
                self.check_may_vote(*node)?;
            }
        }
        let encoded =
            membership::encode(changes, members, self.options.node).map_err(Rejection::Invalid)?;
        let (id, context) = self.requests.next();
        let proposed = self.raft.propose_conf_change(context, encoded);
        self.accept(id, proposed)
    }

    fn accept(
        &mut self,
        id: RequestId,
        proposed: raft::Result<()>,
    ) -> Result<RequestId, Rejection> {
        match proposed {
            Ok(()) => {}
            Err(raft::Error::ProposalDropped) => {
                return Err(Rejection::Busy("too much is not committed, or the leader changes"));
            }
            Err(error) => return Err(Rejection::Invalid(error.to_string())),
        }
        if is_planted(Fault::AckBeforeCommit) {
            self.output.events.push(Event::Applied(id));
            return Ok(id);
        }
        self.requests.add_proposal(id, self.term());
        Ok(id)
    }

    /// Begins a linearizable read: when [`Event::ReadReady`] arrives, a read of the table has
    /// everything that had been acknowledged anywhere before this call. Cost: a round of
    /// heartbeats, shared by the reads that began before it ends.
    ///
    /// # Errors
    /// There will be no event.
    pub fn read_index(&mut self) -> Result<RequestId, Rejection> {
        if is_planted(Fault::FollowerRead) && !self.leads() {
            let (id, _) = self.requests.next();
            self.output.events.push(Event::ReadReady { id, term: self.term() });
            return Ok(id);
        }
        self.check_leads()?;
        if !self.raft.raft.commit_to_current_term() {
            return Err(Rejection::Busy("the leader has not committed in its term yet"));
        }
        self.check_recorded()?;
        let (id, context) = self.requests.next();
        self.requests.add_read(id, self.term());
        match is_planted(Fault::SkippedReadIndex) {
            true => self.requests.confirmed(&context, 0),
            false => self.raft.read_index(context),
        }
        Ok(id)
    }

    /// Notes that packets to `node` have been lost.
    pub fn report_unreachable(&mut self, node: u64) {
        if self.failure.is_none() {
            if let Some(stream) = self.outgoing.get_mut(&node) {
                stream.note_unreachable();
            }
            self.raft.report_unreachable(node);
        }
    }

    /// Asks the leader, this node, to hand over to `node`. There is no event: watch
    /// [`leader`](Group::leader).
    pub fn transfer_leadership(&mut self, node: u64) {
        self.raft.transfer_leader(node);
    }

    /// Asks the leader to hand over to this node. With `is_forced` it holds an election at once,
    /// which it does not win while the others hear of a leader. There is no event: watch
    /// [`leads`](Group::leads).
    ///
    /// # Errors
    /// This node leads or has no vote, or no leader is known.
    pub fn take_over(&mut self, is_forced: bool) -> Result<(), Rejection> {
        self.check_usable().map_err(Rejection::Failed)?;
        let own = self.options.node;
        if self.leads() || !self.raft.raft.promotable() || !self.takes_part() {
            return Err(Rejection::Invalid(format!("node {own} leads already, or has no vote")));
        }
        if is_forced {
            // Refused if a change of membership is not applied yet.
            return self.raft.campaign().map_err(|_| Rejection::Busy("it does not campaign"));
        }
        if self.leader().is_none() {
            return Err(Rejection::NotLeader { leader: None });
        }
        // Raft sends it to the leader.
        self.raft.transfer_leader(own);
        Ok(())
    }

    /// Does the I/O that is due and returns packets and events.
    ///
    /// # Errors
    /// I/O errors of log and table, and `Corruption` of an entry. The node then has to be opened
    /// again; the outcome of its pending requests is unknown.
    pub fn ready(&mut self) -> Result<Output> {
        let mut packets = Vec::new();
        let events = self.ready_with(&mut |packet| packets.push(packet))?;
        Ok(Output { packets, events })
    }

    /// As [`ready`](Group::ready), but gives each packet to `send` as soon as it may be sent: the
    /// entries of a leader before its own sync.
    ///
    /// # Errors
    /// The same. What was sent before stays sent.
    pub fn ready_with(&mut self, send: &mut dyn FnMut(Packet)) -> Result<Vec<Event>> {
        self.check_usable()?;
        let outcome = self.process(send);
        self.note_failure(outcome)?;
        Ok(std::mem::take(&mut self.output).events)
    }

    /// Closes table and log, so that damage of any of their bytes is recognized later.
    ///
    /// # Errors
    /// I/O errors. The node can be opened all the same.
    pub fn close(mut self) -> Result<()> {
        if let Some(incoming) = self.incoming.take() {
            incoming.discard(self.vfs.as_ref())?;
        }
        self.table.close()?;
        let Group { raft, .. } = self;
        raft.raft.r.raft_log.store.log.close()
    }

    fn check_leads(&self) -> Result<(), Rejection> {
        self.check_usable().map_err(Rejection::Failed)?;
        match self.leads() {
            true => Ok(()),
            false => Err(Rejection::NotLeader { leader: self.leader() }),
        }
    }

    fn check_usable(&self) -> Result<()> {
        match &self.failure {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    fn note_failure<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            self.failure = Some(error.to_string());
        }
        outcome
    }
}
