//! One change of the set of files, in the form in which the manifest keeps it.
//!
//! ```text
//! edit  := field*                         all integers varint unless said otherwise
//! field := 1 next_file                    the next file number that is free
//!        | 2 last_sequence                the newest sequence number in any table
//!        | 3 first_log                    logs below this number are in tables
//!        | 4 level 0 number bytes smallest largest            a table that is added
//!        | 5 level number                 a table, or a row with all its files, that is removed
//!        | 6 level key                    where the next compaction of a level begins
//!        | 7 number bytes                 a log that was sealed at close: it must be there
//!        | 8 number bytes smallest largest arrival log log_bytes data_bytes     a row of level 0
//!        | 9 key                          where the cursor over level 0 stands
//!        | 10 number key                  the arrival of a row that is there already
//!        | 11 number bytes smallest largest arrival data_bytes page header_bytes header_checksum
//!                                         a row of level 0 in persistent memory
//!        | 12 number bytes                a log that was durable up to there: it must be there
//! smallest, largest, key, arrival := length bytes
//! ```
//!
//! A row's `arrival` is where the cursor over level 0 stood when it came (see `live_range`). Its
//! `log`, if not 0, makes it a CL-SSTable: the table holds positions in the first `log_bytes` bytes of
//! that log. `data_bytes` counts the keys and values that the row stands for. Of a row in persistent
//! memory `bytes` counts the pages that it took when it was built, and the last three fields are its
//! handle (see `rowtable`).
//!
//! A reader refuses field numbers that it does not know: to skip one could lose data. The manifest
//! gives integrity; a parse that fails here is a bug or an unknown version, and is refused.

use siltstone_engine::batch::{read_varint, write_varint};
use siltstone_table::TableMeta;
use siltstone_table::kind::in_range;

use crate::rowtable::RowHandle;

/// One change of the set of files; what is `None` or empty stays as it was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) next_file: Option<u64>,
    pub(crate) last_sequence: Option<u64>,
    pub(crate) first_log: Option<u64>,
    pub(crate) added: Vec<FileEntry>,
    /// Level and number.
    pub(crate) removed: Vec<(usize, u64)>,
    /// Level and the key after which its next compaction begins.
    pub(crate) cursors: Vec<(usize, Vec<u8>)>,
    /// Number and length of the log that a clean close sealed.
    pub(crate) sealed_log: Option<(u64, u64)>,
    /// Where the cursor over level 0 moves.
    pub(crate) cursor: Option<Vec<u8>>,
    /// Number and length of a log that was durable so far when a flush left keys of a table to it.
    /// Nothing in the log may prove that.
    pub(crate) synced_log: Option<(u64, u64)>,
    /// Rows that are there already, by number, and their arrivals from now on.
    pub(crate) arrivals: Vec<(u64, Vec<u8>)>,
}

/// A table as the manifest knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileEntry {
    pub(crate) level: usize,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) smallest: Vec<u8>,
    pub(crate) largest: Vec<u8>,
    /// What makes it a row; of tables of level 0 only.
    pub(crate) row: Option<RowEntry>,
}

/// What the manifest knows of a row beside its table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RowEntry {
    /// Where the cursor over level 0 stood when the row came.
    pub(crate) arrival: Vec<u8>,
    /// The log whose positions the table holds, and how many of its bytes are the row's.
    pub(crate) log: Option<(u64, u64)>,
    /// Where the row is in persistent memory, if it is there; there is no table then.
    pub(crate) nvm: Option<RowHandle>,
    /// Keys and values that the row stands for, in bytes.
    pub(crate) data_bytes: u64,
}

impl FileEntry {
    /// Whether it is a row in persistent memory.
    pub(crate) fn is_in_nvm(&self) -> bool {
        self.row.as_ref().is_some_and(|row| row.nvm.is_some())
    }

    /// A table just written, on `level`; on level 0 a row that holds its values itself.
    pub(crate) fn of(meta: &TableMeta, level: usize) -> Self {
        let row = RowEntry { data_bytes: meta.user_bytes, ..RowEntry::default() };
        FileEntry {
            row: (level == 0).then_some(row),
            level,
            number: meta.number.0,
            bytes: meta.bytes,
            smallest: meta.smallest.clone(),
            largest: meta.largest.clone(),
        }
    }
}

const NEXT_FILE: u64 = 1;
const LAST_SEQUENCE: u64 = 2;
const FIRST_LOG: u64 = 3;
const ADDED: u64 = 4;
const REMOVED: u64 = 5;
const CURSOR: u64 = 6;
const SEALED_LOG: u64 = 7;
const ROW: u64 = 8;
const LEVEL0_CURSOR: u64 = 9;
const ARRIVAL: u64 = 10;
const NVM_ROW: u64 = 11;
const SYNCED_LOG: u64 = 12;
/// The only kind of table there is in a field 4.
const PLAIN: u64 = 0;
/// No tree is this deep; bounds what damaged bytes can make us allocate.
const MAX_LEVEL: u64 = 64;

impl Edit {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut put = |values: &[u64]| put_all(&mut out, values);
        if let Some(number) = self.next_file {
            put(&[NEXT_FILE, number]);
        }
        if let Some(sequence) = self.last_sequence {
            put(&[LAST_SEQUENCE, sequence]);
        }
        if let Some(number) = self.first_log {
            put(&[FIRST_LOG, number]);
        }
        if let Some((number, bytes)) = self.sealed_log {
            put(&[SEALED_LOG, number, bytes]);
        }
        if let Some((number, bytes)) = self.synced_log {
            put(&[SYNCED_LOG, number, bytes]);
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
            match &file.row {
                None => put_all(&mut out, &[ADDED, file.level as u64, PLAIN]),
                Some(row) => put_all(&mut out, &[if row.nvm.is_some() { NVM_ROW } else { ROW }]),
            }
            put_all(&mut out, &[file.number, file.bytes]);
            put_bytes(&mut out, &file.smallest);
            put_bytes(&mut out, &file.largest);
            let Some(row) = &file.row else { continue };
            put_bytes(&mut out, &row.arrival);
            match row.nvm {
                Some(RowHandle { page, bytes, checksum }) => {
                    let handle = [page, bytes, checksum].map(u64::from);
                    put_all(&mut out, &[row.data_bytes]);
                    put_all(&mut out, &handle);
                }
                None => {
                    let (log, log_bytes) = row.log.unwrap_or((0, 0));
                    put_all(&mut out, &[log, log_bytes, row.data_bytes]);
                }
            }
        }
        if let Some(key) = &self.cursor {
            put_all(&mut out, &[LEVEL0_CURSOR]);
            put_bytes(&mut out, key);
        }
        for (number, key) in &self.arrivals {
            put_all(&mut out, &[ARRIVAL, *number]);
            put_bytes(&mut out, key);
        }
        out
    }

    /// Reads an edit back; the error says what is malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        let mut edit = Edit::default();
        while !reader.0.is_empty() {
            match reader.number()? {
                NEXT_FILE => edit.next_file = Some(reader.number()?),
                LAST_SEQUENCE => edit.last_sequence = Some(in_range(reader.number()?)?),
                FIRST_LOG => edit.first_log = Some(reader.number()?),
                SEALED_LOG => edit.sealed_log = Some((reader.number()?, reader.number()?)),
                SYNCED_LOG => edit.synced_log = Some((reader.number()?, reader.number()?)),
                REMOVED => edit.removed.push((reader.level()?, reader.number()?)),
                CURSOR => edit.cursors.push((reader.level()?, reader.bytes()?)),
                ADDED => {
                    let level = reader.level()?;
                    let kind = reader.number()?;
                    if kind != PLAIN {
                        return Err(format!("unknown kind of table {kind}: a newer version's?"));
                    }
                    // Rows had no field of their own before there was a cursor over level 0.
                    let row = (level == 0).then(RowEntry::default);
                    edit.added.push(FileEntry { row, ..reader.table(level)? });
                }
                ROW => {
                    let table = reader.table(0)?;
                    let arrival = reader.bytes()?;
                    let log = Some((reader.number()?, reader.number()?)).filter(|log| log.0 > 0);
                    let row = RowEntry { arrival, log, nvm: None, data_bytes: reader.number()? };
                    edit.added.push(FileEntry { row: Some(row), ..table });
                }
                NVM_ROW => {
                    let table = reader.table(0)?;
                    let (arrival, data_bytes) = (reader.bytes()?, reader.number()?);
                    let (page, bytes, checksum) = (reader.half()?, reader.half()?, reader.half()?);
                    let nvm = Some(RowHandle { page, bytes, checksum });
                    let row = RowEntry { arrival, log: None, nvm, data_bytes };
                    edit.added.push(FileEntry { row: Some(row), ..table });
                }
                LEVEL0_CURSOR => edit.cursor = Some(reader.bytes()?),
                ARRIVAL => edit.arrivals.push((reader.number()?, reader.bytes()?)),
                other => return Err(format!("unknown field {other}: a newer version's?")),
            }
        }
        Ok(edit)
    }
}

impl std::fmt::Display for Edit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = Vec::new();
        words.extend(self.added.iter().map(|t| format!("+{} L{} {}B", t.number, t.level, t.bytes)));
        words.extend(self.removed.iter().map(|(level, number)| format!("-{number} L{level}")));
        words.extend(self.first_log.map(|number| format!("logs from {number}")));
        words.extend(self.sealed_log.map(|(number, len)| format!("log {number} sealed at {len}")));
        words.extend(self.synced_log.map(|(number, len)| format!("log {number} synced to {len}")));
        words.extend(self.cursor.as_ref().map(|key| format!("cursor at {}", key.escape_ascii())));
        words.extend(
            self.arrivals
                .iter()
                .map(|(number, key)| format!("row {number} arrived at {}", key.escape_ascii())),
        );
        words.extend(self.last_sequence.map(|sequence| format!("sequence {sequence}")));
        f.write_str(&words.join(", "))
    }
}

fn put_all(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|&value| write_varint(out, value));
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

    fn half(&mut self) -> Result<u32, String> {
        u32::try_from(self.number()?).map_err(|_| "a row's handle is out of range".to_owned())
    }

    fn table(&mut self, level: usize) -> Result<FileEntry, String> {
        Ok(FileEntry {
            level,
            number: self.number()?,
            bytes: self.number()?,
            smallest: self.bytes()?,
            largest: self.bytes()?,
            row: None,
        })
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
    fn is_a_sequence_number_that_no_write_could_follow_refused() {
        for (last, holds) in [(u64::MAX, false), (1 << 61, false), ((1 << 61) - 1, true)] {
            let edit = Edit { last_sequence: Some(last), ..Edit::default() };
            assert_eq!(Edit::decode(&edit.encode()).is_ok(), holds, "{last}");
        }
    }

    fn sample() -> Edit {
        Edit {
            next_file: Some(300),
            last_sequence: Some(1 << 40),
            first_log: Some(12),
            synced_log: Some((14, 4096)),
            added: vec![
                FileEntry {
                    level: 2,
                    number: 299,
                    bytes: 1 << 26,
                    smallest: b"a".to_vec(),
                    largest: vec![0xff; 300],
                    row: None,
                },
                FileEntry {
                    level: 0,
                    number: 298,
                    bytes: 77,
                    smallest: b"b".to_vec(),
                    largest: b"c".to_vec(),
                    row: Some(RowEntry {
                        arrival: b"k".to_vec(),
                        log: Some((290, 1 << 26)),
                        nvm: None,
                        data_bytes: 5000,
                    }),
                },
                FileEntry {
                    level: 0,
                    number: 297,
                    bytes: 8192,
                    smallest: b"b".to_vec(),
                    largest: b"d".to_vec(),
                    row: Some(RowEntry {
                        arrival: Vec::new(),
                        log: None,
                        nvm: Some(RowHandle { page: 7, bytes: 88, checksum: u32::MAX }),
                        data_bytes: 6000,
                    }),
                },
            ],
            removed: vec![(0, 7), (1, 8)],
            cursors: vec![(1, b"m".to_vec())],
            sealed_log: Some((12, 32768)),
            cursor: Some(b"q".to_vec()),
            arrivals: vec![(290, Vec::new())],
        }
    }

    #[test]
    fn an_edit_reads_back() {
        for edit in [sample(), Edit::default()] {
            assert_eq!(Edit::decode(&edit.encode()).unwrap(), edit);
        }
    }

    #[test]
    fn hostile_bytes_are_refused_or_harmless() {
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
