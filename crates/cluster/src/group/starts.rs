//! Whether a node's directory is the present one, or an older copy that was put back.
//!
//! An older copy has the same id, and has forgotten what the node has acknowledged and voted for
//! since. So a node that is started again has each other member note this start before it exchanges
//! packets with that member:
//!
//! ```text
//!   started node   begins start 8                               (durable)
//!                  Start, with its term, vote and last entry ─▶ each other member, again and again
//!   each of them   knows start 8 of another process than this, or a later one:   Started, forgotten
//!                  has heard of a later term, vote or acknowledged entry:        Started, forgotten
//!                  otherwise notes start 8 (durable):                            Started
//!   started node   waits for all of them, up to an election timeout
//!                  takes part (durable), with those that have noted its start
//! ```
//!
//! | the copy was made | it is recognized by a node that |
//! | --- | --- |
//! | before the last start | has noted a later start than that of the copy |
//! | since, of a running node | has run since then, and has heard what the copy has forgotten |
//!
//! Whoever recognizes it exchanges no packets of Raft with it, and answers what it has forgotten.
//! It then stops for all time, also if it takes part with others already.
//!
//! A node waits no longer than an election timeout, since a majority is to be enough.
//!
//! Only the first answer of a node counts. Before it that node has received nothing else from this
//! process, so what it has heard is of earlier ones. Assumed: no packet of an earlier process
//! arrives after the first answer to a later one.

use raft::eraftpb::{Message, MessageType};
use siltstone_engine::Result;

use super::Group;
use super::registration::members;
use super::start_state::random_of_start;
use crate::identities::Stage;
use crate::log::lost;
use crate::packet::{ForgottenState, Packet, Start, StartId, Started};
use crate::planted::{Fault, is_planted};

impl Group {
    /// Begins with what the directory says, before anything else.
    pub(super) fn begin_start(&mut self) {
        if self.identities.takes_part() {
            return;
        }
        self.starts.process = Some(random_of_start(self.options.seed, self.incarnation()));
        self.starts.is_waiting = true;
        self.ask_to_note(self.not_noted_at());
    }

    /// The number of this node's start, for the simulator.
    #[cfg(test)]
    pub(crate) fn start_number(&self) -> u64 {
        self.identities.start().number
    }

    /// Whether this node has noted a later start of another one's directory than this, for the
    /// simulator.
    #[cfg(test)]
    pub(crate) fn knows_later_start(&self, node: u64, directory: u64, number: u64) -> bool {
        self.identities.noted_start(node, directory).is_some_and(|noted| noted.number > number)
    }

    /// Whether this node takes part in its group.
    pub(super) fn takes_part(&self) -> bool {
        self.is_registered() && !self.starts.is_waiting
    }

    /// The other members that have not noted this node's start.
    fn not_noted_at(&self) -> Vec<u64> {
        let others = members(&self.raft.store().applied.members);
        let is_open =
            |node: &u64| *node != self.options.node && !self.starts.noted_at.contains(node);
        others.filter(is_open).collect()
    }

    /// Asks nodes to note this start.
    pub(super) fn ask_to_note(&mut self, nodes: impl IntoIterator<Item = u64>) {
        let Some(process) = self.starts.process else { return };
        let (from, id) = (self.options.node, self.identities.start());
        let (state, last) = (self.log().hard_state(), self.log().last_index());
        let (term, vote) = (state.term, state.vote);
        let ask = |to| Packet::Start(Start { from, to, id, process, term, vote, last });
        self.output.packets.extend(nodes.into_iter().map(ask));
    }

    /// Counts time since the start.
    pub(super) fn tick_start(&mut self) {
        self.starts.ticks = self.starts.ticks.saturating_add(1);
        self.ask_to_note(self.not_noted_at());
    }

    /// Takes part once the wait is over.
    pub(super) fn end_wait(&mut self) -> Result<()> {
        let has_waited = self.starts.ticks >= self.options.election_ticks;
        if !self.starts.is_waiting || !(has_waited || self.not_noted_at().is_empty()) {
            return Ok(());
        }
        self.identities.take_part()?;
        self.starts.is_waiting = false;
        self.campaign_if_alone();
        Ok(())
    }

    /// Sends what may be sent.
    pub(super) fn send_packets(&mut self, send: &mut dyn FnMut(Packet)) {
        let starts = &self.starts;
        self.output.packets.drain(..).filter(|packet| starts.lets_out(packet)).for_each(send);
    }

    /// Answers a node that has been started, which has this directory.
    pub(super) fn note_start(&mut self, directory: u64, start: &Start) -> Result<()> {
        let Start { from, process, id, .. } = *start;
        let forgotten = match is_planted(Fault::AcceptedCopy) {
            true => None,
            false => self.forgotten_by(directory, start),
        };
        if forgotten.is_none() && self.identities.noted_start(from, directory) != Some(id) {
            self.identities.note_start(from, directory, id)?;
        }
        let answer = Started { from: self.options.node, to: from, process, forgotten };
        self.output.packets.push(Packet::Started(answer));
        Ok(())
    }

    fn forgotten_by(&self, directory: u64, start: &Start) -> Option<ForgottenState> {
        let is_later = |noted: &StartId| noted.number >= start.id.number && *noted != start.id;
        if let Some(noted) = self.identities.noted_start(start.from, directory).filter(is_later) {
            return Some(ForgottenState::Start(noted.number));
        }
        self.starts.heard.get(&start.from)?.forgotten_by(start)
    }

    /// Takes the answer to a [`Start`].
    pub(super) fn note_started(&mut self, answer: &Started) -> Result<()> {
        let is_noted = self.starts.noted_at.contains(&answer.from);
        if is_noted || self.starts.process != Some(answer.process) {
            return Ok(());
        }
        let Some(forgotten) = answer.forgotten else {
            self.starts.noted_at.insert(answer.from);
            return Ok(());
        };
        self.identities.set_stage(Stage::Superseded)?;
        let (from, own) = (answer.from, self.options.node);
        let what = format!(
            "the directory is an older copy of that of node {own}, which has forgotten {forgotten}, \
             as node {from} knows"
        );
        Err(lost(self.vfs.name(), &what))
    }

    /// Notes that a node runs an earlier version, which notes no starts.
    pub fn note_earlier_version(&mut self, node: u64) {
        self.starts.noted_at.insert(node);
    }

    /// Notes what the sender of a message has durably.
    pub(super) fn note_durable_state(&mut self, message: &Message) {
        use MessageType::{MsgAppendResponse, MsgRequestVoteResponse};
        use MessageType::{MsgRequestPreVote, MsgRequestPreVoteResponse};
        let kind = message.get_msg_type();
        // Their terms are those that a candidate would have.
        if matches!(kind, MsgRequestPreVote | MsgRequestPreVoteResponse) {
            return;
        }
        let (term, leads) = (self.term(), self.leads());
        let heard = self.starts.heard.entry(message.from).or_default();
        heard.term = heard.term.max(message.term);
        heard.committed = heard.committed.max(message.commit);
        if message.reject || message.term != term {
            return;
        }
        match kind {
            MsgRequestVoteResponse => heard.vote_term = term,
            MsgAppendResponse if leads => {
                heard.acknowledged = heard.acknowledged.max((term, message.index));
            }
            _ => {}
        }
    }
}
