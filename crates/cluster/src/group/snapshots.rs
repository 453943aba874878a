//! Sending and receiving snapshots: Raft's messages about them, and the streams of their rows.

use raft::SnapshotStatus;
use raft::eraftpb::{Message, MessageType};
use siltstone_engine::Result;

use super::Group;
use crate::packet::{Chunk, ChunkAck, Packet, StreamId};
use crate::stream::{CatchUp, IncomingSnapshot, OutgoingSnapshot, Progress, StagedTable};

impl Group {
    /// Sends a message; one that announces a snapshot begins a stream instead.
    pub(super) fn send(&mut self, message: Message) -> Result<()> {
        if message.get_msg_type() != MessageType::MsgSnapshot {
            self.output.packets.push(Packet::Raft(message));
            return Ok(());
        }
        self.last_stream += 1;
        let incarnation = self.raft.store().log.incarnation();
        let stream = StreamId { node: self.options.node, incarnation, number: self.last_stream };
        let to = message.to;
        let max_bytes = self.options.max_chunk_bytes;
        let outgoing = OutgoingSnapshot::begin(self.table.clone(), message, stream, max_bytes)?;
        self.output.packets.push(Packet::Chunk(outgoing.chunk()));
        self.outgoing.insert(to, outgoing);
        self.catching_up.remove(&to);
        Ok(())
    }

    pub(super) fn acknowledge(&mut self, ack: &ChunkAck) -> Result<()> {
        let Some(stream) = self.outgoing.get_mut(&ack.from) else { return Ok(()) };
        match stream.acknowledge(ack)? {
            Progress::Send(chunk) => match self.budget.take(stream.bytes()) {
                true => self.output.packets.push(Packet::Chunk(chunk)),
                false => stream.set_held(true),
            },
            Progress::Wait => {}
            Progress::Done => self.end_stream(ack.from, SnapshotStatus::Finish),
            Progress::Failed => self.end_stream(ack.from, SnapshotStatus::Failure),
        }
        Ok(())
    }

    /// Counts time for the streams, and sends the chunks that wait.
    pub(super) fn tick_streams(&mut self) {
        self.budget.tick();
        self.tick_catching_up();
        let mut failed = Vec::new();
        for (to, stream) in &mut self.outgoing {
            let progress = match stream.is_held() {
                false => stream.tick(),
                true if self.budget.take(stream.bytes()) => {
                    stream.set_held(false);
                    Progress::Send(stream.chunk())
                }
                true => Progress::Wait,
            };
            match progress {
                Progress::Send(chunk) => self.output.packets.push(Packet::Chunk(chunk)),
                Progress::Failed => failed.push(*to),
                Progress::Wait | Progress::Done => {}
            }
        }
        failed.into_iter().for_each(|to| self.end_stream(to, SnapshotStatus::Failure));
    }

    pub(super) fn end_stream(&mut self, to: u64, status: SnapshotStatus) {
        if let Some(stream) = self.outgoing.remove(&to)
            && status == SnapshotStatus::Finish
        {
            self.catching_up.insert(to, CatchUp::begin(stream.followed_from()));
        }
        self.raft.report_snapshot(to, status);
    }

    /// Gives up the followers that need entries up to this index: the log has become too large.
    /// Raft sends them another snapshot.
    pub(super) fn give_up_followers(&mut self, index: u64) {
        let streams = self.outgoing.iter();
        let is_behind = |(_, stream): &(&u64, &OutgoingSnapshot)| stream.followed_from() < index;
        let behind: Vec<u64> = streams.filter(is_behind).map(|(node, _)| *node).collect();
        let before = self.catching_up.len();
        self.catching_up.retain(|_, follower| follower.matched() >= index);
        self.given_up += (behind.len() + before - self.catching_up.len()) as u64;
        behind.into_iter().for_each(|node| self.end_stream(node, SnapshotStatus::Failure));
    }

    /// Forgets followers that have all but what compaction retains, and those that do not advance.
    fn tick_catching_up(&mut self) {
        if self.catching_up.is_empty() {
            return;
        }
        let (members, retained_from) = (self.raft.raft.prs(), self.retained_from());
        self.catching_up.retain(|node, follower| {
            let matched = members.get(*node).map(|progress| progress.matched);
            matched.is_some_and(|matched| follower.tick(matched) && matched < retained_from)
        });
    }

    /// Writes a chunk; the last one is given to Raft.
    pub(super) fn receive(&mut self, chunk: Chunk) -> Result<()> {
        let Chunk { stream, term, sequence, rows, last, .. } = chunk;
        let is_stale = |known: StreamId| {
            (known.node, known.incarnation) == (stream.node, stream.incarnation)
                && known.number > stream.number
        };
        let known = self.incoming.as_ref().map(|incoming| incoming.stream);
        let finished = self.received.map(|ack| ack.stream);
        if term < self.term()
            || self.leads()
            || [known, finished].into_iter().flatten().any(is_stale)
        {
            return Ok(());
        }
        if let Some(ack) = self.received.filter(|ack| ack.stream == stream) {
            self.output.packets.push(Packet::Ack(ack));
            return Ok(());
        }
        if known != Some(stream) && sequence == 0 {
            if let Some(old) = self.incoming.take() {
                old.discard(self.vfs.as_ref())?;
            }
            self.last_table += 1;
            let (vfs, number) = (self.vfs.as_ref(), self.last_table);
            let begun = IncomingSnapshot::begin(vfs, &self.open, number, stream, term)?;
            self.incoming = Some(begun);
        }
        let from = self.options.node;
        let Some(mut incoming) = self.incoming.take_if(|incoming| incoming.stream == stream) else {
            self.output.packets.push(Packet::Ack(ChunkAck { stream, from, next: 0 }));
            return Ok(());
        };
        if sequence == incoming.next {
            incoming.write(&rows)?;
        }
        let ack = ChunkAck { stream, from, next: incoming.next };
        self.output.packets.push(Packet::Ack(ack));
        match last.filter(|_| sequence + 1 == incoming.next) {
            None => self.incoming = Some(incoming),
            Some(message) => {
                self.received = Some(ack);
                self.offer(incoming.complete(&message)?, *message)?;
            }
        }
        Ok(())
    }

    /// Removes the table of a snapshot whose sender does not lead any more: no chunk of it is
    /// accepted now.
    pub(super) fn discard_ended_stream(&mut self) -> Result<()> {
        let term = self.term();
        let ended = self.incoming.take_if(|incoming| incoming.term < term);
        ended.map_or(Ok(()), |incoming| incoming.discard(self.vfs.as_ref()))
    }

    /// Offers a complete snapshot to Raft, and keeps its table if that accepts it.
    fn offer(&mut self, staged: StagedTable, message: Message) -> Result<()> {
        let _ = self.raft.step(message);
        let is_accepted = self.raft.snap().is_some_and(|snapshot| {
            let metadata = snapshot.get_metadata();
            (metadata.index, metadata.term) == (staged.applied.index, staged.applied.term)
        });
        let unused = match is_accepted {
            // It may take the place of one that was accepted since the last round.
            true => self.staged.replace(staged),
            false => Some(staged),
        };
        unused.map_or(Ok(()), |unused| unused.discard(self.vfs.as_ref()))
    }
}
