//! The write-ahead log of the tree: a chain of record logs.
//!
//! ```text
//! first record of a log := kind 0:u8  previous log:u64 LE  its length:u64 LE      (0, 0: none)
//! other records         := kind 1:u8  first sequence:varint  operations:varint  batch
//! ```
//!
//! The chain is what makes recovery a prefix. A log is left unsynced when the next one begins, so
//! that writers never wait for it; if a power cut then takes its tail, the next log's first record
//! tells that something is missing between them, and the next log is not replayed. A synced write
//! first syncs the logs before.

use std::sync::Arc;

use siltstone_engine::batch::{read_varint, write_varint};
use siltstone_engine::{Purpose, Result, WriteBatch};
use siltstone_media::Media;
use siltstone_table::{FileKind, FileNumber, LogWriter, MAX_SEQUENCE};

const KIND_CHAIN: u8 = 0;
const KIND_BATCH: u8 = 1;

/// Header and body of one record.
pub(crate) type LogRecord<'a> = [&'a [u8]; 2];

/// The log that is being written, and those before it that are not yet synced.
pub(crate) struct Log {
    number: u64,
    current: LogWriter,
    older: Vec<(u64, LogWriter)>,
    /// The directory knows the current log's name durably.
    is_named: bool,
    media: Arc<dyn Media>,
}

impl Log {
    /// Begins the log `number`, which follows `previous` (number and length).
    pub(crate) fn create(
        media: &Arc<dyn Media>,
        number: u64,
        previous: (u64, u64),
    ) -> Result<Self> {
        let current = begin(media.as_ref(), number, previous)?;
        Ok(Log { number, current, older: Vec::new(), is_named: false, media: media.clone() })
    }

    /// Bytes of the current log.
    pub(crate) fn len(&self) -> u64 {
        self.current.len()
    }

    /// Appends records with one request, all or none, and adds their positions to `positions`.
    pub(crate) fn append(
        &mut self,
        records: &[LogRecord<'_>],
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        self.current.append_group(records, positions)
    }

    /// Makes every record so far durable, those of older logs first.
    pub(crate) fn sync(&mut self) -> Result<()> {
        for (_, log) in &mut self.older {
            log.sync()?;
        }
        if !self.is_named {
            self.media.sync_dir(Purpose::Log)?;
            self.is_named = true;
        }
        self.older.clear();
        self.current.sync()
    }

    /// Goes on in the new log `number`. If that fails, goes on in the old one.
    pub(crate) fn rotate(&mut self, number: u64) -> Result<()> {
        let previous = (self.number, self.current.len());
        let next = begin(self.media.as_ref(), number, previous)?;
        self.older.push((self.number, std::mem::replace(&mut self.current, next)));
        self.number = number;
        self.is_named = false;
        Ok(())
    }

    /// Logs below `number` are no longer needed: their writes are in tables.
    pub(crate) fn forget_before(&mut self, number: u64) {
        self.older.retain(|&(older, _)| older >= number);
    }

    /// Syncs and seals the log; returns its number and length.
    pub(crate) fn seal(mut self) -> Result<(u64, u64)> {
        self.sync()?;
        let len = self.current.len();
        self.current.seal()?;
        Ok((self.number, len))
    }
}

fn begin(
    media: &dyn Media,
    number: u64,
    (previous, previous_len): (u64, u64),
) -> Result<LogWriter> {
    let number = FileNumber(number);
    let name = FileKind::Log.name(number);
    let write = || {
        let mut log = LogWriter::create(media, &name, number.0, Purpose::Log)?;
        let mut chain = vec![KIND_CHAIN];
        chain.extend_from_slice(&previous.to_le_bytes());
        chain.extend_from_slice(&previous_len.to_le_bytes());
        log.append(&[&chain])?;
        Ok(log)
    };
    let log = write();
    if log.is_err() {
        // A stump would only confuse the next open; if it cannot be removed it has no records.
        let _ = media.remove(&name);
    }
    log
}

/// Appends the header of a record that holds a batch.
pub(crate) fn encode_batch_header(out: &mut Vec<u8>, first_sequence: u64, operations: u32) {
    out.push(KIND_BATCH);
    write_varint(out, first_sequence);
    write_varint(out, u64::from(operations));
}

/// A record of the log, read back.
pub(crate) enum Record {
    /// The log before, and its length.
    Chain {
        previous: u64,
        previous_len: u64,
    },
    Batch {
        first_sequence: u64,
        batch: WriteBatch,
    },
}

impl Record {
    /// Parses a record; the error says what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Record, String> {
        match bytes.split_first() {
            Some((&KIND_CHAIN, body)) => {
                let (Some((previous, rest)), true) = (body.split_first_chunk(), body.len() == 16)
                else {
                    return Err("malformed chain record".to_owned());
                };
                let previous_len = rest.first_chunk().copied().unwrap_or_default();
                Ok(Record::Chain {
                    previous: u64::from_le_bytes(*previous),
                    previous_len: u64::from_le_bytes(previous_len),
                })
            }
            Some((&KIND_BATCH, body)) => {
                let cut = || "cut-off batch header".to_owned();
                let (first_sequence, used) = read_varint(body).ok_or_else(cut)?;
                let body = &body[used..];
                let (count, used) = read_varint(body).ok_or_else(cut)?;
                let count = u32::try_from(count).map_err(|_| cut())?;
                let batch = WriteBatch::from_bytes(&body[used..], count)?;
                if first_sequence.checked_add(u64::from(count)).is_none_or(|n| n > MAX_SEQUENCE) {
                    return Err("sequence number out of range".to_owned());
                }
                Ok(Record::Batch { first_sequence, batch })
            }
            Some((kind, _)) => Err(format!("unknown kind of record {kind}: a newer version's?")),
            None => Err("empty record".to_owned()),
        }
    }
}
