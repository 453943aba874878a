//! The bytes of a version edit, as the manifest stores them.
//!
//! ```text
//! edit  := field*                         all integers varint unless said otherwise
//! field := 1 next_file                    the next free file number
//!        | 2 last_sequence                the newest one in any table or flushed memtable
//!        | 3 first_log                    logs below this number are in tables
//!        | 4 level 0 number bytes smallest largest            an added table
//!        | 5 level number                 a removed table, or a removed L0 run with all its files
//!        | 6 level key                    the compaction cursor of a level
//!        | 7 number bytes                 a log that was sealed at close: it must exist
//!        | 8 number bytes smallest largest inserted_at log log_bytes data_bytes     an L0 run
//!        | 9 key                          the L0 cursor
//!        | 10 number key                  `inserted_at` of an existing L0 run
//!        | 11 number bytes smallest largest inserted_at data_bytes page header_bytes
//!             header_checksum             an L0 run in persistent memory
//!        | 12 number bytes                a log that was durable up to this length: it must exist
//!        | 13 sequence start 0 | 13 sequence start 1 end        a range deletion, to the end of
//!             all keys or to before `end`
//!        | 14 sequence                    a range deletion that hides nothing any more
//!        | 15 number sequence             the added table or run `number` contains no key that a
//!             range deletion up to `sequence` hides
//!        | 16 name                        the merge operator of the table, in UTF-8
//!        | 17 number sequence identity    the added table or run `number` was ingested: all of its
//!             entries have this sequence number, and `identity` seeds its checksums
//!        | 18 number file kind file_bytes used_bytes          the added table or run `number`
//!             refers to values in the first `file_bytes` bytes of a file, and to about
//!             `used_bytes` of them; kind 0: a kept log, 1: a blob file
//!        | 32 batch                      batches over several tables up to here are durable
//! start, end, smallest, largest, key, name, inserted_at := length bytes
//! ```
//!
//! `inserted_at` of an L0 run is the L0 cursor at its insertion (see `live_range`). A run with a
//! `log` other than 0 is a CL-SSTable: its table contains positions in the first `log_bytes` bytes
//! of that log. `data_bytes` is the size of the keys and values of the run. For a run in persistent
//! memory `bytes` is the size of the pages that it was built in, and the last three fields are its
//! handle (see `rowtable`).
//!
//! Versions before range deletions refuse fields 13 to 15, those before merges field 16, those
//! before ingestion field 17, those before key-value separation field 18. A reader rejects unknown
//! field numbers, because skipping one could lose data. The manifest guarantees integrity, so a
//! parse error here means a bug or a newer version.

use std::sync::Arc;

use siltstone_durable::{EditHeader, VersionEdit};
use siltstone_engine::varint::{read_varint, write_varint};
use siltstone_table::kind::check_sequence;
use siltstone_table::{FileNumber, Ingestion};

use super::blob_files::{BlobFileId, BlobUse};
use super::edit::{Edit, FileEntry, L0RunEntry};
use crate::range_deletes::RangeDelete;
use crate::rowtable::RowHandle;

const NEXT_FILE: u64 = 1;
const LAST_SEQUENCE: u64 = 2;
const FIRST_LOG: u64 = 3;
const ADDED: u64 = 4;
const REMOVED: u64 = 5;
const CURSOR: u64 = 6;
const SEALED_LOG: u64 = 7;
const L0_RUN: u64 = 8;
const L0_CURSOR: u64 = 9;
const INSERTED_AT: u64 = 10;
const PMEM_RUN: u64 = 11;
const SYNCED_LOG: u64 = 12;
const RANGE_DELETE: u64 = 13;
const FORGOTTEN: u64 = 14;
const DELETES_APPLIED: u64 = 15;
const MERGE_OPERATOR: u64 = 16;
const INGESTED: u64 = 17;
const BLOBS: u64 = 18;
const DURABLE_BATCH: u64 = 32;
/// The only kind of table in field 4.
const PLAIN_TABLE: u64 = 0;
/// The maximum level; limits what corrupt bytes can make a reader allocate.
const MAX_LEVEL: u64 = 64;

impl VersionEdit for Edit {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |values: &[u64]| put_all(&mut out, values);
        if let Some(number) = self.header.next_file {
            put(&[NEXT_FILE, number]);
        }
        if let Some(sequence) = self.header.last_sequence {
            put(&[LAST_SEQUENCE, sequence]);
        }
        if let Some(number) = self.header.first_log {
            put(&[FIRST_LOG, number]);
        }
        if let Some((number, bytes)) = self.header.sealed_log {
            put(&[SEALED_LOG, number, bytes]);
        }
        if let Some((number, bytes)) = self.header.synced_log {
            put(&[SYNCED_LOG, number, bytes]);
        }
        if let Some(batch) = self.header.durable_batch {
            put(&[DURABLE_BATCH, batch]);
        }
        for &(level, number) in &self.removed {
            put(&[REMOVED, level as u64, number]);
        }
        for (level, key) in &self.cursors {
            write_varint(&mut out, CURSOR);
            write_varint(&mut out, *level as u64);
            put_bytes(&mut out, key);
        }
        for file in &self.added {
            match &file.run {
                None => put_all(&mut out, &[ADDED, file.level as u64, PLAIN_TABLE]),
                Some(run) => {
                    put_all(&mut out, &[if run.pmem.is_some() { PMEM_RUN } else { L0_RUN }])
                }
            }
            put_all(&mut out, &[file.number, file.bytes]);
            put_bytes(&mut out, &file.smallest);
            put_bytes(&mut out, &file.largest);
            if let Some(run) = &file.run {
                put_run(&mut out, run);
            }
            if file.deletes_applied > 0 {
                put_all(&mut out, &[DELETES_APPLIED, file.number, file.deletes_applied]);
            }
            if let Some(Ingestion { sequence, identity }) = file.ingested {
                put_all(&mut out, &[INGESTED, file.number, sequence, identity.0]);
            }
            for &BlobUse { file: blob, used_bytes } in &file.blobs {
                let kind = u64::from(!blob.is_log);
                put_all(&mut out, &[BLOBS, file.number, blob.number, kind, blob.bytes, used_bytes]);
            }
        }
        if let Some(key) = &self.cursor {
            put_all(&mut out, &[L0_CURSOR]);
            put_bytes(&mut out, key);
        }
        for (number, key) in &self.insertions {
            put_all(&mut out, &[INSERTED_AT, *number]);
            put_bytes(&mut out, key);
        }
        for delete in &self.range_deletes {
            put_all(&mut out, &[RANGE_DELETE, delete.sequence]);
            put_bytes(&mut out, &delete.start);
            put_all(&mut out, &[u64::from(delete.end.is_some())]);
            if let Some(end) = &delete.end {
                put_bytes(&mut out, end);
            }
        }
        self.forgotten.iter().for_each(|&sequence| put_all(&mut out, &[FORGOTTEN, sequence]));
        if let Some(name) = &self.merge_operator {
            put_all(&mut out, &[MERGE_OPERATOR]);
            put_bytes(&mut out, name.as_bytes());
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        let mut edit = Edit::default();
        while !reader.0.is_empty() {
            match reader.number()? {
                NEXT_FILE => edit.header.next_file = Some(reader.number()?),
                LAST_SEQUENCE => {
                    edit.header.last_sequence = Some(check_sequence(reader.number()?)?)
                }
                FIRST_LOG => edit.header.first_log = Some(reader.number()?),
                SEALED_LOG => edit.header.sealed_log = Some((reader.number()?, reader.number()?)),
                SYNCED_LOG => edit.header.synced_log = Some((reader.number()?, reader.number()?)),
                DURABLE_BATCH => edit.header.durable_batch = Some(reader.number()?),
                REMOVED => edit.removed.push((reader.level()?, reader.number()?)),
                CURSOR => edit.cursors.push((reader.level()?, reader.bytes()?)),
                ADDED => {
                    let level = reader.level()?;
                    let kind = reader.number()?;
                    if kind != PLAIN_TABLE {
                        return Err(format!("unknown kind of table {kind}: a newer version's?"));
                    }
                    // Version before the L0 cursor stored L0 runs in field 4.
                    let run = (level == 0).then(L0RunEntry::default);
                    edit.added.push(FileEntry { run, ..reader.table(level)? });
                }
                L0_RUN => {
                    let table = reader.table(0)?;
                    let inserted_at = reader.bytes()?;
                    let log = Some((reader.number()?, reader.number()?)).filter(|log| log.0 > 0);
                    let run =
                        L0RunEntry { inserted_at, log, pmem: None, data_bytes: reader.number()? };
                    edit.added.push(FileEntry { run: Some(run), ..table });
                }
                PMEM_RUN => {
                    let table = reader.table(0)?;
                    let (inserted_at, data_bytes) = (reader.bytes()?, reader.number()?);
                    let (page, bytes, checksum) = (reader.u32()?, reader.u32()?, reader.u32()?);
                    let pmem = Some(RowHandle { page, bytes, checksum });
                    let run = L0RunEntry { inserted_at, log: None, pmem, data_bytes };
                    edit.added.push(FileEntry { run: Some(run), ..table });
                }
                L0_CURSOR => edit.cursor = Some(reader.bytes()?),
                INSERTED_AT => edit.insertions.push((reader.number()?, reader.bytes()?)),
                RANGE_DELETE => edit.range_deletes.push(Arc::new(reader.range_delete()?)),
                FORGOTTEN => edit.forgotten.push(reader.number()?),
                MERGE_OPERATOR => {
                    let name = String::from_utf8(reader.bytes()?);
                    let name = name.map_err(|_| "the name of a merge operator is not UTF-8")?;
                    edit.merge_operator = Some(name.into());
                }
                DELETES_APPLIED => {
                    let (number, sequence) = (reader.number()?, reader.number()?);
                    edit.added_file(number)?.deletes_applied = sequence;
                }
                INGESTED => {
                    let (number, sequence) = (reader.number()?, check_sequence(reader.number()?)?);
                    let identity = FileNumber(reader.number()?);
                    edit.added_file(number)?.ingested = Some(Ingestion { sequence, identity });
                }
                BLOBS => {
                    let table = reader.number()?;
                    let blob = reader.blob_use()?;
                    edit.added_file(table)?.blobs.push(blob);
                }
                other => return Err(format!("unknown field {other}: a newer version's?")),
            }
        }
        Ok(edit)
    }

    fn header(&self) -> &EditHeader {
        &self.header
    }

    fn header_mut(&mut self) -> &mut EditHeader {
        &mut self.header
    }

    fn merge_files(&mut self, newer: Edit) -> Result<(), String> {
        self.merge_newer(newer)
    }
}

fn put_all(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|&value| write_varint(out, value));
}

fn put_run(out: &mut Vec<u8>, run: &L0RunEntry) {
    put_bytes(out, &run.inserted_at);
    match run.pmem {
        Some(RowHandle { page, bytes, checksum }) => {
            put_all(out, &[run.data_bytes]);
            put_all(out, &[page, bytes, checksum].map(u64::from));
        }
        None => {
            let (log, log_bytes) = run.log.unwrap_or((0, 0));
            put_all(out, &[log, log_bytes, run.data_bytes]);
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self) -> Result<u64, String> {
        let (value, used) = read_varint(self.0).ok_or("an edit is cut off")?;
        self.0 = &self.0[used..];
        Ok(value)
    }

    fn u32(&mut self) -> Result<u32, String> {
        u32::try_from(self.number()?).map_err(|_| "the handle of a run is out of range".to_owned())
    }

    fn table(&mut self, level: usize) -> Result<FileEntry, String> {
        Ok(FileEntry {
            level,
            number: self.number()?,
            bytes: self.number()?,
            smallest: self.bytes()?,
            largest: self.bytes()?,
            deletes_applied: 0,
            run: None,
            ingested: None,
            blobs: Vec::new(),
        })
    }

    fn blob_use(&mut self) -> Result<BlobUse, String> {
        let number = self.number()?;
        let is_log = match self.number()? {
            0 => true,
            1 => false,
            other => return Err(format!("unknown kind of file with values {other}")),
        };
        let file = BlobFileId { number, is_log, bytes: self.number()? };
        Ok(BlobUse { file, used_bytes: self.number()? })
    }

    fn range_delete(&mut self) -> Result<RangeDelete, String> {
        let (sequence, start) = (check_sequence(self.number()?)?, self.bytes()?);
        let end = match self.number()? {
            0 => None,
            1 => Some(self.bytes()?),
            other => return Err(format!("a range deletion has the flag {other}")),
        };
        Ok(RangeDelete { start, end, sequence })
    }

    fn level(&mut self) -> Result<usize, String> {
        match self.number()? {
            level if level <= MAX_LEVEL => Ok(level as usize),
            level => Err(format!("level {level} is too deep")),
        }
    }

    fn bytes(&mut self) -> Result<Vec<u8>, String> {
        let len = self.number()?;
        let len = usize::try_from(len).map_err(|_| "an edit is cut off")?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or("an edit is cut off")?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_number_without_successor_is_rejected() {
        for (last, holds) in [(u64::MAX, false), (1 << 61, false), ((1 << 61) - 1, true)] {
            let mut edit = Edit::default();
            edit.header.last_sequence = Some(last);
            assert_eq!(Edit::decode(&edit.encode()).is_ok(), holds, "{last}");
        }
    }

    fn sample() -> Edit {
        Edit {
            header: EditHeader {
                next_file: Some(300),
                last_sequence: Some(1 << 40),
                first_log: Some(12),
                sealed_log: Some((12, 32768)),
                synced_log: Some((14, 4096)),
                durable_batch: Some(1 << 33),
            },
            added: vec![
                FileEntry {
                    level: 2,
                    number: 299,
                    bytes: 1 << 26,
                    smallest: b"a".to_vec(),
                    largest: vec![0xff; 300],
                    deletes_applied: 88,
                    run: None,
                    ingested: Some(Ingestion { sequence: 1 << 50, identity: FileNumber::LAST }),
                    blobs: [(290, true), (295, false)]
                        .map(|(number, is_log)| BlobUse {
                            file: BlobFileId { number, is_log, bytes: 1 << 25 },
                            used_bytes: number << 10,
                        })
                        .to_vec(),
                },
                FileEntry {
                    level: 0,
                    number: 298,
                    bytes: 77,
                    smallest: b"b".to_vec(),
                    largest: b"c".to_vec(),
                    deletes_applied: 0,
                    run: Some(L0RunEntry {
                        inserted_at: b"k".to_vec(),
                        log: Some((290, 1 << 26)),
                        pmem: None,
                        data_bytes: 5000,
                    }),
                    ingested: None,
                    blobs: Vec::new(),
                },
                FileEntry {
                    level: 0,
                    number: 297,
                    bytes: 8192,
                    smallest: b"b".to_vec(),
                    largest: b"d".to_vec(),
                    deletes_applied: 1 << 40,
                    run: Some(L0RunEntry {
                        inserted_at: Vec::new(),
                        log: None,
                        pmem: Some(RowHandle { page: 7, bytes: 88, checksum: u32::MAX }),
                        data_bytes: 6000,
                    }),
                    ingested: None,
                    blobs: Vec::new(),
                },
            ],
            removed: vec![(0, 7), (1, 8)],
            cursors: vec![(1, b"m".to_vec())],
            cursor: Some(b"q".to_vec()),
            insertions: vec![(290, Vec::new())],
            range_deletes: [None, Some(b"e".to_vec())]
                .map(|end| Arc::new(RangeDelete { start: b"d".to_vec(), end, sequence: 77 }))
                .to_vec(),
            forgotten: vec![5, 6],
            merge_operator: Some("siltstone.counter".into()),
        }
    }

    #[test]
    fn edit_survives_encoding() {
        for edit in [sample(), Edit::default()] {
            assert_eq!(Edit::decode(&edit.encode()).unwrap(), edit);
        }
    }

    #[test]
    fn malformed_bytes_are_rejected_or_harmless() {
        let good = sample().encode();
        for at in 0..good.len() {
            let _ = Edit::decode(&good[..at]);
            for value in [0, 0x7f, 0x80, 0xff] {
                let mut bad = good.clone();
                bad[at] = value;
                let _ = Edit::decode(&bad);
            }
        }
        assert!(Edit::decode(&[99]).is_err());
        assert!(Edit::decode(&[4, 1, 1]).unwrap_err().contains("kind of table"));
    }
}
