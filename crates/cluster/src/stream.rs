//! Snapshots as streams of chunks.
//!
//! ```text
//!   leader                                   follower
//!   MsgSnapshot held back
//!   read snapshot of the table
//!   chunk 0 ────────────────────────────▶    new table, beside the one in use
//!           ◀──────────────────── ack 1      rows written, not synced
//!   …
//!   chunk n with MsgSnapshot ───────────▶    applied row, synced: the table is complete
//!                                            Raft accepts ─ log replaced (names the new table)
//!           ◀────────────────── ack n+1      old table removed
//! ```
//!
//! One chunk is in flight per stream. It is sent again after [`RESEND_TICKS`] if the receiver has
//! shown that it is alive meanwhile: while the receiver's thread waits for its disk, nothing is
//! sent that would wait there. The stream goes on as long as chunks are acknowledged. It fails
//! after [`MAX_TICKS`] without an ack, or after [`UNREACHABLE_TICKS`] if the network has lost the
//! receiver; Raft then begins another. Memory: one chunk on each side.
//!
//! Until the stream ends, and then as long as the receiver catches up with the log, entries behind
//! the snapshot are not compacted: else the receiver would need another snapshot, and so on. That
//! ends when the log is larger than [`max_retained_log_bytes`]: a node with a follower that is too
//! slow must not run out of memory.
//!
//! [`max_retained_log_bytes`]: crate::GroupOptions::max_retained_log_bytes

use std::sync::Arc;

use raft::eraftpb::Message;
use siltstone_engine::{Durability, Engine, Error, ReadPoint, Result, WriteBatch};
use siltstone_vfs::Vfs;

use crate::applied::{Applied, is_reserved, keys_after};
use crate::packet::{Chunk, ChunkAck, Row, StreamId};
use crate::planted::{Fault, is_planted};

/// Opens the table in a directory, or creates it. The engine must be ordered, durable and
/// versioned. It sets no compaction filter: that is an option of the group.
pub type OpenTable = Arc<dyn Fn(Arc<dyn Vfs>) -> Result<Arc<dyn Engine>> + Send + Sync>;

/// Ticks until a chunk is sent again.
const RESEND_TICKS: u64 = 4;
/// Ticks without an ack until the stream fails. The receiver may have to flush and to compact
/// first, and syncs everything before the last ack.
const MAX_TICKS: u64 = 600;
/// Ticks until the stream fails if the network has lost the receiver, and it is silent since.
const UNREACHABLE_TICKS: u64 = 40;

/// A follower that has received a snapshot and needs what the log has grown by meanwhile.
pub(crate) struct CatchUp {
    /// The last entry that it is known to have.
    matched: u64,
    /// Ticks since that has last advanced.
    ticks: u64,
}

impl CatchUp {
    /// Begins at an index that the snapshot has.
    pub(crate) fn begin(matched: u64) -> Self {
        CatchUp { matched, ticks: 0 }
    }

    /// The index after which it needs the log.
    pub(crate) fn matched(&self) -> u64 {
        self.matched
    }

    /// Notes the last entry that it is now known to have. `false` if it is not to be waited for any
    /// more, since it does not advance.
    pub(crate) fn tick(&mut self, matched: u64) -> bool {
        self.ticks += 1;
        if matched > self.matched {
            *self = CatchUp::begin(matched);
        }
        self.ticks <= MAX_TICKS
    }
}

/// A snapshot that this node sends.
pub(crate) struct OutgoingSnapshot {
    table: Arc<dyn Engine>,
    at: ReadPoint,
    /// The last key sent.
    position: Option<Vec<u8>>,
    /// The index after which Raft will send entries: the snapshot may reach further.
    followed_from: u64,
    message: Message,
    in_flight: Chunk,
    /// Ticks since the chunk in flight was sent first.
    ticks: u64,
    /// The tick at which it was sent last.
    sent_at: u64,
    /// The tick at which the stream fails.
    fails_at: u64,
    /// Whether the receiver has sent anything since the chunk was sent last.
    is_heard: bool,
    /// The chunk in flight waits until it may be sent.
    is_held: bool,
    max_chunk_bytes: usize,
}

/// The next step of a stream.
pub(crate) enum Progress {
    /// This chunk is to be sent.
    Send(Chunk),
    /// Nothing to do.
    Wait,
    /// The receiver has everything.
    Done,
    /// The stream is given up.
    Failed,
}

impl OutgoingSnapshot {
    /// Begins the stream that `message` announces, with the table as it is now.
    pub(crate) fn begin(
        table: Arc<dyn Engine>,
        mut message: Message,
        stream: StreamId,
        max_chunk_bytes: usize,
    ) -> Result<Self> {
        let at = table.snapshot()?;
        let applied = Applied::read(table.as_ref(), Some(&at))?.ok_or_else(no_applied_row)?;
        let metadata = message.mut_snapshot().mut_metadata();
        let followed_from = metadata.index.min(applied.index);
        (metadata.index, metadata.term) = (applied.index, applied.term);
        metadata.set_conf_state(applied.members);
        let in_flight = Chunk {
            stream,
            to: message.to,
            term: message.term,
            sequence: 0,
            rows: vec![],
            last: None,
        };
        let mut outgoing = OutgoingSnapshot {
            table,
            at,
            position: None,
            followed_from,
            message,
            in_flight,
            ticks: 0,
            sent_at: 0,
            fails_at: MAX_TICKS,
            is_heard: false,
            is_held: false,
            max_chunk_bytes,
        };
        outgoing.fill()?;
        Ok(outgoing)
    }

    /// Reads the rows of the chunk in flight.
    fn fill(&mut self) -> Result<()> {
        let range = keys_after(self.position.as_deref());
        let at = (!is_planted(Fault::MovingSnapshot)).then_some(&self.at);
        let mut cursor = self.table.range(range, at)?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        let mut is_there = cursor.first()?;
        while is_there && bytes < self.max_chunk_bytes {
            if is_reserved(cursor.key()) {
                is_there = cursor.next()?;
                continue;
            }
            let (key, value) = (cursor.key().to_vec(), cursor.value().to_vec());
            bytes += key.len() + value.len();
            rows.push(Row { key, value, expires_at: cursor.expires_at() });
            is_there = cursor.next()?;
        }
        self.position = rows.last().map(|row| row.key.clone()).or(self.position.take());
        self.in_flight.rows = rows;
        self.in_flight.last = (!is_there).then(|| Box::new(self.message.clone()));
        Ok(())
    }

    pub(crate) fn chunk(&self) -> Chunk {
        self.in_flight.clone()
    }

    /// The size of the rows of the chunk in flight.
    pub(crate) fn bytes(&self) -> usize {
        self.in_flight.rows.iter().map(|row| row.key.len() + row.value.len()).sum()
    }

    /// Sets whether the chunk in flight waits until it may be sent. Time does not count meanwhile.
    pub(crate) fn set_held(&mut self, is_held: bool) {
        self.is_held = is_held;
    }

    pub(crate) fn is_held(&self) -> bool {
        self.is_held
    }

    /// The index after which the receiver needs the log.
    pub(crate) fn followed_from(&self) -> u64 {
        self.followed_from
    }

    pub(crate) fn acknowledge(&mut self, ack: &ChunkAck) -> Result<Progress> {
        if ack.stream != self.in_flight.stream {
            return Ok(Progress::Wait);
        }
        if ack.next == 0 {
            return Ok(Progress::Failed);
        }
        if ack.next != self.in_flight.sequence + 1 || self.is_held {
            return Ok(Progress::Wait);
        }
        if self.in_flight.last.is_some() {
            return Ok(Progress::Done);
        }
        self.in_flight.sequence += 1;
        (self.ticks, self.sent_at, self.fails_at) = (0, 0, MAX_TICKS);
        self.is_heard = false;
        self.fill()?;
        Ok(Progress::Send(self.chunk()))
    }

    /// The receiver has sent something.
    pub(crate) fn note_life(&mut self) {
        (self.is_heard, self.fails_at) = (true, MAX_TICKS);
    }

    /// The network has lost the receiver.
    pub(crate) fn note_unreachable(&mut self) {
        self.fails_at = self.fails_at.min(self.ticks + UNREACHABLE_TICKS);
    }

    pub(crate) fn tick(&mut self) -> Progress {
        self.ticks += 1;
        if self.ticks > self.fails_at {
            return Progress::Failed;
        }
        if !self.is_heard || self.ticks < self.sent_at + RESEND_TICKS {
            return Progress::Wait;
        }
        (self.sent_at, self.is_heard) = (self.ticks, false);
        Progress::Send(self.chunk())
    }
}

/// A snapshot that this node receives, into a table of its own.
pub(crate) struct IncomingSnapshot {
    pub(crate) stream: StreamId,
    /// The sender's term. The stream ends with it.
    pub(crate) term: u64,
    /// The next chunk.
    pub(crate) next: u64,
    staged: StagedTable,
}

/// A table that is not in use yet.
pub(crate) struct StagedTable {
    pub(crate) number: u64,
    pub(crate) table: Arc<dyn Engine>,
    /// The state that it reaches, once it is complete.
    pub(crate) applied: Applied,
}

impl IncomingSnapshot {
    /// Begins with an empty table of this number.
    pub(crate) fn begin(
        vfs: &dyn Vfs,
        open: &OpenTable,
        number: u64,
        stream: StreamId,
        term: u64,
    ) -> Result<Self> {
        let table = open_table(vfs, open, number)?;
        let staged = StagedTable { number, table, applied: Applied::default() };
        Ok(IncomingSnapshot { stream, term, next: 0, staged })
    }

    /// Writes the rows of the next chunk.
    pub(crate) fn write(&mut self, rows: &[Row]) -> Result<()> {
        let mut batch = WriteBatch::new();
        for Row { key, value, expires_at } in rows {
            match expires_at {
                None => batch.put(key, value),
                Some(at) => batch.put_until(key, value, *at),
            };
        }
        self.next += 1;
        self.staged.table.write(&batch, Durability::Buffered)
    }

    /// Completes the table and makes it durable.
    pub(crate) fn complete(mut self, message: &Message) -> Result<StagedTable> {
        let metadata = message.get_snapshot().get_metadata();
        let members = metadata.get_conf_state().clone();
        self.staged.applied = Applied { index: metadata.index, term: metadata.term, members };
        let mut batch = WriteBatch::new();
        self.staged.applied.put_into(&mut batch);
        let durability = match is_planted(Fault::EarlyLogReset) {
            true => Durability::Buffered,
            false => Durability::Synced,
        };
        self.staged.table.write(&batch, durability)?;
        Ok(self.staged)
    }

    /// Removes the table.
    pub(crate) fn discard(self, vfs: &dyn Vfs) -> Result<()> {
        self.staged.discard(vfs)
    }
}

impl StagedTable {
    pub(crate) fn discard(self, vfs: &dyn Vfs) -> Result<()> {
        remove_table(vfs, self.table, self.number)
    }
}

/// Opens the table with this number, or creates it.
pub(crate) fn open_table(vfs: &dyn Vfs, open: &OpenTable, number: u64) -> Result<Arc<dyn Engine>> {
    open(vfs.subdirectory(&table_name(number))?)
}

/// Closes a table that is not in use any more, and removes its directory.
pub(crate) fn remove_table(vfs: &dyn Vfs, table: Arc<dyn Engine>, number: u64) -> Result<()> {
    table.close()?;
    vfs.remove_subdirectory(&table_name(number))
}

/// The directory of the table with this number.
pub(crate) fn table_name(number: u64) -> String {
    format!("table-{number:06}")
}

/// The number of the table in the directory with this name.
pub(crate) fn table_number(name: &str) -> Option<u64> {
    name.strip_prefix("table-")?.parse().ok()
}

/// Whether a directory of this name is that of a table.
pub(crate) fn is_table_name(name: &str) -> bool {
    name.starts_with("table-")
}

pub(crate) fn no_applied_row() -> Error {
    Error::corruption("the replicated table", 0, "the row of the applied index is missing")
}
