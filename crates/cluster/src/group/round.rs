//! A round of I/O: what `raft` has ready is persisted, applied and sent, in this order.

use std::collections::BTreeMap;

use protobuf::Message as _;
use raft::Ready;
use raft::eraftpb::{ConfChangeV2, Entry, EntryType, Message, MessageType};
use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_engine::{Durability, Error, Result, WriteBatch};

use super::{CatchUp, Group, GroupOptions};
use crate::applied::POINT_KEY;
use crate::directory_rows;
use crate::log::Marker;
use crate::packet::Packet;
use crate::planted::{Fault, is_planted};
use crate::requests::Event;
use crate::stream::{OutgoingSnapshot, StagedTable, no_applied_row, remove_table};

/// The longest data of an entry that marks a point, in bytes.
const MAX_POINT_BYTES: usize = 64;

impl Group {
    /// Works until Raft has nothing more to do.
    pub(super) fn process(&mut self, send: &mut dyn FnMut(Packet)) -> Result<()> {
        self.end_wait()?;
        while self.raft.has_ready() || self.propose_directories() {
            let mut ready = self.raft.ready();
            let mut messages = ready.take_messages();
            if self.is_term_durable() {
                let is_early =
                    |message: &mut Message| message.get_msg_type() != MessageType::MsgSnapshot;
                self.output.packets.extend(messages.extract_if(.., is_early).map(Packet::Raft));
            }
            self.send_packets(send);
            self.persist(&ready)?;
            messages.extend(ready.take_persisted_messages());
            for read in ready.take_read_states() {
                self.requests.confirmed(&read.request_ctx, read.index);
            }
            let mut committed = ready.take_committed_entries();
            // Before anything is applied: a leader that removes itself cannot count its own
            // entries.
            let mut light = self.raft.advance_append(ready);
            messages.extend(light.take_messages());
            committed.extend(light.take_committed_entries());
            self.apply(&committed)?;
            self.raft.advance_apply();
            self.follow_if_removed();
            messages.into_iter().try_for_each(|message| self.send(message))?;
            self.send_packets(send);
        }
        self.send_packets(send);
        let (leads, members) = (self.leads(), self.raft.raft.prs());
        self.outgoing.retain(|node, _| leads && members.get(*node).is_some());
        self.catching_up.retain(|_, _| leads);
        let leads = self.leads().then(|| self.term());
        let applied = self.raft.store().applied.index;
        self.requests.settle(applied, leads, &mut self.output.events);
        self.discard_ended_stream()?;
        self.filter_when_caught_up()?;
        self.compact()
    }

    /// Whether term and vote are those of the log. A sole voter leads at once in a new term: what
    /// it sends to learners must wait, or it could lead twice in that term with other entries.
    fn is_term_durable(&self) -> bool {
        let (now, durable) = (self.raft.raft.hard_state(), self.log().hard_state());
        is_planted(Fault::EarlyFirstAppend) || (now.term, now.vote) == (durable.term, durable.vote)
    }

    /// Makes durable what this round's messages acknowledge.
    fn persist(&mut self, ready: &Ready) -> Result<()> {
        let hard_state = self.raft.raft.hard_state();
        if !ready.snapshot().is_empty() {
            return self.install(ready);
        }
        if ready.must_sync() {
            let log = &mut self.raft.mut_store().log;
            if is_planted(Fault::LateSync) {
                log.sync()?;
                return log.append(&hard_state, ready.entries());
            }
            log.append(&hard_state, ready.entries())?;
            if is_planted(Fault::UnsyncedVote) && ready.entries().is_empty() {
                return Ok(());
            }
            log.sync()?;
        }
        Ok(())
    }

    /// Puts the complete table of an accepted snapshot into use.
    fn install(&mut self, ready: &Ready) -> Result<()> {
        let metadata = ready.snapshot().get_metadata();
        let marker = Marker { index: metadata.index, term: metadata.term };
        let is_of_snapshot = |staged: &mut StagedTable| {
            (staged.applied.index, staged.applied.term) == (marker.index, marker.term)
        };
        let staged = self.staged.take_if(is_of_snapshot).ok_or_else(no_applied_row)?;
        let hard_state = self.raft.raft.hard_state();
        let store = self.raft.mut_store();
        let old_number = store.log.table();
        store.applied = staged.applied;
        let old = std::mem::replace(&mut self.table, staged.table);
        if is_planted(Fault::EarlyTableRemoval) {
            remove_table(self.vfs.as_ref(), old, old_number)?;
            return store.log.replace(marker, staged.number, &hard_state, ready.entries());
        }
        store.log.replace(marker, staged.number, &hard_state, ready.entries())?;
        self.learn_directories()?;
        self.begin_without_filter();
        self.output.events.push(Event::Restored);
        remove_table(self.vfs.as_ref(), old, old_number)
    }

    /// Applies committed entries, in one batch up to each marked point.
    fn apply(&mut self, entries: &[Entry]) -> Result<()> {
        entries.split_inclusive(marks_point).try_for_each(|entries| self.apply_batch(entries))
    }

    /// Applies committed entries in one batch with the applied index.
    fn apply_batch(&mut self, entries: &[Entry]) -> Result<()> {
        let Some(last) = entries.last() else { return Ok(()) };
        let mut applied = self.raft.store().applied.clone();
        (applied.index, applied.term) = (last.index, last.term);
        let (mut batch, mut directories) = (WriteBatch::new(), BTreeMap::new());
        for entry in entries {
            match entry.get_entry_type() {
                EntryType::EntryNormal if entry.data.is_empty() => {}
                EntryType::EntryNormal => {
                    let of_entry = decode_batch(&entry.data).ok_or_else(|| malformed(entry))?;
                    if entry.context == directory_rows::CONTEXT {
                        directories.append(&mut directory_rows::of_batch(&of_entry));
                    }
                    batch.append(&of_entry);
                }
                // Nothing here proposes Raft's first form.
                EntryType::EntryConfChange => return Err(malformed(entry)),
                EntryType::EntryConfChangeV2 => {
                    let change = ConfChangeV2::parse_from_bytes(&entry.data)
                        .map_err(|_| malformed(entry))?;
                    // A change that cannot be applied is skipped, by all nodes alike.
                    if let Ok(members) = self.raft.apply_conf_change(&change)
                        && !is_planted(Fault::ForgottenMembers)
                    {
                        applied.set_members(members);
                    }
                }
            }
        }
        if is_planted(Fault::SeparateAppliedIndex) {
            let mut separate = WriteBatch::new();
            applied.put_into(&mut separate);
            self.table.write(&separate, Durability::Buffered)?;
        } else {
            applied.put_into(&mut batch);
        }
        self.table.write(&batch, Durability::Buffered)?;
        self.raft.mut_store().applied = applied;
        if !directories.is_empty() {
            self.note_committed(directories)?;
        }
        let ids = entries.iter().filter_map(|entry| self.requests.applied(&entry.context));
        self.output.events.extend(ids.map(Event::Applied));
        Ok(())
    }

    /// A leader that was removed would lead on.
    fn follow_if_removed(&mut self) {
        let is_voter = |node| {
            let members = &self.raft.store().applied.members;
            members.voters.contains(&node) || members.voters_outgoing.contains(&node)
        };
        if self.leads() && !is_voter(self.options.node) {
            let term = self.term();
            self.raft.raft.become_follower(term, raft::INVALID_ID);
        }
    }

    /// The index after which compaction retains entries for any follower.
    pub(super) fn retained_from(&self) -> u64 {
        let GroupOptions { max_log_bytes, retained_entries, .. } = self.options;
        let store = self.raft.store();
        store.log.start_of(store.applied.index, retained_entries, max_log_bytes / 2)
    }

    /// Compacts the log if it has grown, up to what the table is made to hold durably.
    fn compact(&mut self) -> Result<()> {
        if self.log().appended_bytes() < self.options.max_log_bytes {
            return Ok(());
        }
        let retained_from = self.retained_from();
        if self.log().bytes() >= self.options.max_retained_log_bytes {
            self.give_up_followers(retained_from);
        }
        // A follower that has a snapshot needs what follows it.
        let streams = self.outgoing.values().map(OutgoingSnapshot::followed_from);
        let needed = streams.chain(self.catching_up.values().map(CatchUp::matched)).min();
        let to = needed.unwrap_or(u64::MAX).min(retained_from);
        if to < self.log().first_index() {
            return Ok(());
        }
        if !is_planted(Fault::EarlyCompaction) {
            self.table.sync()?;
        }
        self.raft.mut_store().log.compact(to)
    }
}

/// An entry's data: the number of operations as a varint, then the batch in its log form.
pub(super) fn encode_batch(batch: &WriteBatch) -> Vec<u8> {
    let mut out = Vec::with_capacity(batch.as_bytes().len() + 5);
    write_varint(&mut out, batch.len() as u64);
    out.extend_from_slice(batch.as_bytes());
    out
}

fn decode_batch(data: &[u8]) -> Option<WriteBatch> {
    let (count, used) = read_varint(data)?;
    WriteBatch::from_bytes_with_ranges(&data[used..], u32::try_from(count).ok()?).ok()
}

/// Whether an entry marks a point ([`POINT_KEY`]).
fn marks_point(entry: &Entry) -> bool {
    let is_small = entry.data.len() <= MAX_POINT_BYTES;
    let batch = is_small.then(|| decode_batch(&entry.data)).flatten();
    batch.is_some_and(|batch| {
        batch.len() == 1 && batch.iter().next().is_some_and(|op| op.key() == POINT_KEY)
    })
}

fn malformed(entry: &Entry) -> Error {
    let reason = format!("entry {} is malformed", entry.index);
    Error::corruption("the Raft log", 0, reason)
}
