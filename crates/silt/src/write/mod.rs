//! How a write travels: group commit, log, LogStores.
//!
//! ```text
//!   write(batch) ─ group ─ leader: room? ─ where keys lie ─ log append ─ [sync] ─ LogStores
//!                                   │
//!                                   └ a LogStore full: next log, next LogStores, queue a conversion
//! ```
//!
//! Where a key of the batch lies in its LogStore is asked before anything is written, because the
//! answer may need a read that fails: a tag says that the key may be there, the log whether it is.
//!
//! What goes wrong before the append changes nothing. A failed append of a full disk changes nothing
//! either. After any other fault of the log the outcome is unknown, and the table refuses writes
//! until it is opened anew.
//!
//! Source: ours; the steps behind the log are the thesis's, section 2.2.1.

mod room;

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Durability, Error, Purpose, Result, WriteBatch};
use siltstone_runtime::group_commit::Size;
use siltstone_structures::HashKey;
use siltstone_table::WalWriter;

use crate::engine::Inner;
use crate::generation::{Generation, IndexInsert};
use crate::keys::cuckoo_bits;
use crate::{item, record};

/// What the one writer at a time owns.
pub(crate) struct Writer {
    pub(crate) log: WalWriter,
    /// The newest generation, which takes writes.
    pub(crate) active: std::sync::Arc<Generation>,
}

/// A write left in line for another thread to lead.
pub(crate) struct Queued {
    batch: WriteBatch,
    durability: Durability,
}

impl Size for Queued {
    fn size_bytes(&self) -> usize {
        self.batch.as_bytes().len()
    }
}

/// A batch may take this much of a log, whose places are told in 32 bits.
const MAX_LOGGED_BYTES: u64 = 2_000_000_000;
/// Bytes that the log spends on an operation beside its own.
const RECORD_BYTES: u64 = 8;

/// Bytes that a batch takes in the log, at most.
fn logged_bytes(batch: &WriteBatch) -> u64 {
    let bytes = batch.as_bytes().len() as u64;
    // A header a block of 32 KiB, and a fragment's where a record goes on behind it.
    let framing = bytes + RECORD_BYTES * batch.len() as u64;
    framing + framing / 512 + 64
}

impl Inner {
    /// Applies `batch` whole.
    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.background.check_writable()?;
        batch.check(crate::MAX_VALUE_BYTES)?;
        let size = logged_bytes(batch);
        if size > MAX_LOGGED_BYTES {
            return Err(Error::TooLarge { what: "batch", size, limit: MAX_LOGGED_BYTES });
        }
        if batch.is_empty() && durability == Durability::Buffered {
            return Ok(());
        }
        self.group.commit(
            || Queued { batch: batch.clone(), durability },
            |others| self.lead(batch, durability, others),
        )
    }

    /// Writes this thread's batch and those of `others` as one group.
    fn lead(&self, own: &WriteBatch, durability: Durability, others: &[Queued]) -> Result<()> {
        let mut writer = self.writer.lock();
        self.background.check_writable()?;
        let batches = || std::iter::once(own).chain(others.iter().map(|queued| &queued.batch));
        // A sync alone takes no room, and does not fail for want of any.
        let is_sync_alone = batches().all(|batch| batch.is_empty());
        match self.make_room(&mut writer, batches().map(logged_bytes).sum()) {
            Err(error) if is_sync_alone && error.is_transient() => {}
            made => made?,
        }
        let writer = writer.as_mut().ok_or(Error::Closed)?;
        let wants_sync = durability == Durability::Synced
            || others.iter().any(|queued| queued.durability == Durability::Synced);

        let mut group = self.look_up(&writer.active, batches())?;
        let mut places = Vec::with_capacity(group.records.len());
        if !group.records.is_empty() {
            writer.log.append(&group.records, &mut places).map_err(|error| {
                self.background.poison_unless_transient("appending to the log", error)
            })?;
        }
        if wants_sync {
            writer.log.sync().map_err(|e| self.background.poison("syncing the log", e))?;
        }
        let base = writer.active.base();
        for (entering, record) in group.entering.iter_mut().zip(&group.last_record) {
            let position = u32::try_from(base + places[*record]);
            // Room was made for the group, and no position in it is beyond 32 bits.
            entering.position = position.map_err(|_| {
                self.background
                    .poison("entering", Error::Invalid("a log is too long for its LogStore".into()))
            })?;
        }
        writer.active.insert(&group.entering);
        for batch in batches() {
            self.counters.user_bytes_written.fetch_add(batch.user_bytes(), Relaxed);
            self.counters.writes.fetch_add(batch.len() as u64, Relaxed);
        }
        Ok(())
    }

    /// The records of a group of batches, and what is to be entered for each of their keys.
    fn look_up<'b>(
        &self,
        active: &Generation,
        batches: impl Iterator<Item = &'b WriteBatch>,
    ) -> Result<Group<'b>> {
        let keys = self.versions.keys();
        let mut group = Group::default();
        // Keys of the group by hash; of two keys with one hash each is entered.
        let mut seen: HashMap<HashKey, Vec<(&[u8], usize)>> = HashMap::new();
        for batch in batches {
            let mut left = batch.len();
            for (bytes, _) in batch.pieces(1) {
                left -= 1;
                group.records.push([record::head(left == 0), bytes]);
                let Some((op, _)) = item::first(bytes) else { continue };
                let record = group.records.len() - 1;
                let hash = keys.hash(op.key());
                let same = seen.entry(hash).or_default();
                if let Some((_, at)) = same.iter().find(|(key, _)| *key == op.key()) {
                    group.last_record[*at] = record;
                    group.entering[*at].bytes = bytes.len() as u32;
                    continue;
                }
                same.push((op.key(), group.entering.len()));
                let partition = keys.partition(&hash);
                let old = active.find(partition, &hash, op.key(), Purpose::Log)?;
                group.last_record.push(record);
                group.entering.push(IndexInsert {
                    partition,
                    bits: cuckoo_bits(&hash),
                    old: old.map(|(position, _)| position),
                    position: 0,
                    bytes: bytes.len() as u32,
                });
            }
        }
        Ok(group)
    }

    /// Makes every write that has returned durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }
}

/// A group of batches on its way.
#[derive(Default)]
struct Group<'b> {
    records: Vec<[&'b [u8]; 2]>,
    /// One for each key.
    entering: Vec<IndexInsert>,
    /// Of each key the last of its records.
    last_record: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_table::LogWriter;
    use siltstone_vfs::Ram;

    #[test]
    fn is_a_batch_never_longer_in_the_log_than_was_reckoned() {
        for (operations, value_bytes) in [(20_000, 0), (5000, 40), (300, 3000), (3, 200_000)] {
            let mut batch = WriteBatch::new();
            (0..operations).for_each(|i: u32| {
                batch.put(&i.to_le_bytes(), &vec![7; value_bytes]);
            });
            let mut log = LogWriter::create(&Ram::new(), "log", 1, Purpose::Log).unwrap();
            let records: Vec<_> = batch.pieces(1).map(|(op, _)| [record::head(true), op]).collect();
            log.append_group(&records, &mut Vec::new()).unwrap();
            assert!(log.len() <= logged_bytes(&batch), "{} of {operations}", log.len());
        }
    }
}
