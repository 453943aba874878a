//! A node's first start, and whether the others are who they were.
//!
//! A node that was created again under its old id looks like one that has never run. One of the
//! first nodes of a group therefore takes part only once it is *registered*: all other first nodes
//! have noted its directory, durably. Until then it neither votes, nor acknowledges, nor campaigns.
//!
//! ```text
//!   new node        Register ─▶ each other first node       again and again
//!   each of them    notes the directory, if it knows none   (durable)
//!                   Registered, with the directory that it knows ─▶
//!   new node        its own, of all of them:      it is registered (durable)
//!                   its own, committed, of one:   the same
//!                   another one:                  it was created again, and stops
//! ```
//!
//! Any of the others that still has its directory knows the first one, so a node that was created
//! again is never registered. Fewer answers would not do: of three nodes, one that is down may have
//! committed entries with the one that was created again, and the third has heard of neither.
//!
//! A node that joins later begins without a vote. The leader has its directory committed before it
//! becomes a voter ([`crate::directory_rows`]), and those of all other members as soon as it knows
//! them. It serves nobody before its own is committed, so that nodes that are not registered yet
//! can rely on the group when another first node is lost.
//!
//! Packets of another directory than the known one are dropped, and answered by `Registered`: a
//! node that has been superseded stops.

use std::collections::BTreeMap;

use raft::eraftpb::ConfState;
use siltstone_engine::{Error, Result, WriteBatch};

use super::Group;
use super::first_start::{accepts_all, is_skipped};
use super::round::encode_batch;
use crate::directory_rows;
use crate::identities::Stage;
use crate::log::lost;
use crate::packet::{Packet, Register, Registered};
use crate::requests::Rejection;

/// Ticks until a node asks again.
const REPEAT_TICKS: u64 = 2;

pub(super) fn members(state: &ConfState) -> impl Iterator<Item = u64> {
    [&state.voters, &state.voters_outgoing, &state.learners, &state.learners_next]
        .into_iter()
        .flatten()
        .copied()
}

impl Group {
    /// Begins with the directories of the table, and with those that are missing.
    pub(super) fn begin_registration(&mut self) -> Result<()> {
        self.learn_directories()?;
        if self.identities.stage() == Stage::Created {
            self.registration.missing = self.others().collect();
            self.register_if_complete()?;
            self.ask_others();
        }
        Ok(())
    }

    /// Whether this node takes part in its group.
    pub fn is_registered(&self) -> bool {
        self.identities.stage() == Stage::Registered
    }

    /// The id of this node's directory.
    pub fn directory(&self) -> u64 {
        self.identities.own()
    }

    /// The other first nodes of the group that have not noted this node's directory. It takes no
    /// part in the group before they have.
    pub fn unregistered_at(&self) -> Vec<u64> {
        self.registration.missing.iter().copied().collect()
    }

    /// The directories that the group has committed, as far as this node knows.
    pub fn committed_directories(&self) -> &BTreeMap<u64, u64> {
        &self.registration.committed
    }

    /// Nodes that have sent from another directory than before.
    pub fn refused_nodes(&self) -> Vec<u64> {
        self.identities.refused()
    }

    /// Nodes that refuse this one, because they know it by another directory.
    pub fn refused_by(&self) -> Vec<u64> {
        self.registration.refused_by.iter().copied().collect()
    }

    /// Lets the packet of a directory in, if that is the sender's.
    pub(super) fn admit(&mut self, directory: u64, packet: Packet) -> Result<()> {
        let from = packet.from();
        let is_member = members(&self.raft.store().applied.members).any(|node| node == from);
        let is_known = self.identities.accept(from, directory, is_member)? || accepts_all();
        match packet {
            Packet::Register(_) => self.answer(from),
            Packet::Registered(answer) if is_known => return self.note_answer(&answer),
            Packet::Registered(_) => {}
            _ if !is_known => self.answer(from),
            Packet::Start(start) => return self.note_start(directory, &start),
            Packet::Started(answer) => return self.note_started(&answer),
            _ if !self.is_registered() => {}
            // It may be a member that this node does not know yet.
            _ if !self.starts.exchanges_with(from) => self.ask_to_note([from]),
            packet => return self.handle(packet),
        }
        Ok(())
    }

    /// Tells a node the directory by which it is known here.
    fn answer(&mut self, to: u64) {
        let Some(directory) = self.identities.known(to) else { return };
        let is_committed = self.registration.committed.contains_key(&to);
        let from = self.options.node;
        let answer = Registered { from, to, directory, is_committed };
        self.output.packets.push(Packet::Registered(answer));
    }

    fn note_answer(&mut self, answer: &Registered) -> Result<()> {
        let Registered { from, directory, is_committed, .. } = *answer;
        if directory == self.directory() {
            self.registration.refused_by.remove(&from);
            self.registration.missing.remove(&from);
            if is_committed {
                self.registration.missing.clear();
            }
            return self.register_if_complete();
        }
        if !is_committed && self.is_registered() {
            // That node has heard of another directory first.
            self.registration.refused_by.insert(from);
            return Ok(());
        }
        match accepts_all() {
            true => Ok(()),
            false => Err(self.superseded(&format!("node {from}"))),
        }
    }

    fn superseded(&self, by: &str) -> Error {
        let what = format!(
            "{by} knows node {} by another directory: this one was created again, so it has \
             forgotten what the node has acknowledged and voted for",
            self.options.node
        );
        lost(self.vfs.name(), &what)
    }

    fn register_if_complete(&mut self) -> Result<()> {
        match self.registration.missing.is_empty() && !self.is_registered() {
            true => self.identities.set_stage(Stage::Registered),
            false => Ok(()),
        }
    }

    /// The other first nodes, of a node that is not registered.
    fn others(&self) -> impl Iterator<Item = u64> + use<> {
        let own = self.options.node;
        let voters = self.raft.store().applied.members.voters.clone();
        voters.into_iter().filter(move |node| *node != own)
    }

    /// Asks those that have answered, too: meanwhile the directory may be committed.
    fn ask_others(&mut self) {
        let from = self.options.node;
        let ask = |to| Packet::Register(Register { from, to });
        self.output.packets.extend(self.others().map(ask));
    }

    /// Counts time for a node that is not registered.
    pub(super) fn tick_registration(&mut self) {
        self.registration.ticks += 1;
        if self.registration.ticks.is_multiple_of(REPEAT_TICKS) {
            self.ask_others();
        }
    }

    /// Takes over the directories of a table that has just been put into use.
    pub(super) fn learn_directories(&mut self) -> Result<()> {
        let committed = directory_rows::read(self.table.as_ref())?;
        self.note_committed(committed)
    }

    /// Notes directories that the group has committed.
    pub(super) fn note_committed(&mut self, mut committed: BTreeMap<u64, u64>) -> Result<()> {
        if accepts_all() {
            self.registration.committed.append(&mut committed);
            return Ok(());
        }
        let own = committed.get(&self.options.node).copied();
        if own.is_some_and(|own| own != self.directory()) {
            return Err(self.superseded("the group"));
        }
        self.registration.committed.extend(committed.iter());
        committed.remove(&self.options.node);
        self.identities.learn(&committed)?;
        if own.is_some() {
            self.registration.missing.clear();
            self.register_if_complete()?;
        }
        Ok(())
    }

    /// Refuses a request while the group might not know this leader's directory.
    pub(super) fn check_recorded(&self) -> Result<(), Rejection> {
        match is_skipped() || self.registration.committed.contains_key(&self.options.node) {
            true => Ok(()),
            false => Err(Rejection::Busy("the leader's directory is not committed yet")),
        }
    }

    /// Refuses to make a node a voter while the group might not know its directory.
    pub(super) fn check_may_vote(&self, node: u64) -> Result<(), Rejection> {
        match is_skipped() || self.registration.committed.contains_key(&node) {
            true => Ok(()),
            false => Err(Rejection::Busy("the learner's directory is not committed yet")),
        }
    }

    /// Proposes the directories of members that are known and not committed; at the leader, once it
    /// has applied what earlier ones have proposed. Whether it has.
    pub(super) fn propose_directories(&mut self) -> bool {
        let (term, applied) = (self.term(), &self.raft.store().applied);
        if !self.leads() || applied.term != term || is_skipped() {
            return false;
        }
        let is_pending = |(of_term, index)| of_term == term && index > applied.index;
        if self.registration.proposed.is_some_and(is_pending) {
            return false;
        }
        let own = self.options.node;
        let missing = members(&applied.members).filter_map(|node| {
            let is_missing = !self.registration.committed.contains_key(&node);
            let known = || match node == own {
                true => Some(self.directory()),
                false => self.identities.known(node),
            };
            Some((node, is_missing.then(known).flatten()?))
        });
        let mut batch = WriteBatch::new();
        missing.for_each(|(node, directory)| directory_rows::put(&mut batch, node, directory));
        let context = directory_rows::CONTEXT.to_vec();
        if batch.is_empty() || self.raft.propose(context, encode_batch(&batch)).is_err() {
            return false;
        }
        self.registration.proposed = Some((term, self.raft.raft.raft_log.last_index()));
        true
    }

    /// Takes part at once, for tests of other things.
    #[cfg(test)]
    pub(crate) fn assume_registered(mut self) -> Self {
        self.registration.missing.clear();
        self.register_if_complete().expect("the disk works");
        self.output.packets.clear();
        self
    }
}
