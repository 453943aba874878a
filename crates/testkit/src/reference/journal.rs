//! The storage of the reference engine: an append-only file of batches, and one that records
//! whether it was closed.
//!
//! ```text
//! IDENTITY := "reference open" | "reference closed " length    and a checksum in hex
//! JOURNAL  := record*
//! record   := sum:u64  synced_to:u64  len:u32  operations:u32  batch          little endian
//!   sum        over the record's offset and everything after the sum
//!   synced_to  the length of the file known to be durable when the record was written
//! ```
//!
//! Opening an unclosed journal keeps the records up to the first invalid one. If a valid record
//! after it shows that the gap was durable, it is corruption. The kept records are copied to a new
//! file, because a failed sync of the old one cannot be repaired.
//!
//! Invariant: replay returns a prefix of the appended batches with all synced ones, or an error.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result, WriteBatch};
use siltstone_structures::hash::mix64;
use siltstone_vfs::{File, Mode, Vfs};

use super::Bug;

const IDENTITY: &str = "IDENTITY";
const JOURNAL: &str = "JOURNAL";
const HEADER: usize = 24;

pub(super) struct Journal {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    end: u64,
    synced_to: u64,
    /// The missing part of the file, with [`Bug::ForgetsBuffered`].
    unwritten: Vec<u8>,
    bug: Option<Bug>,
}

impl Journal {
    /// Opens the journal and returns all its batches, or creates one.
    pub(super) fn open(vfs: Arc<dyn Vfs>, bug: Option<Bug>) -> Result<(Self, Vec<WriteBatch>)> {
        let closed_at = match vfs.exists(IDENTITY)? {
            true => read_identity(vfs.as_ref())?,
            false => {
                begin(vfs.as_ref())?;
                None
            }
        };
        let bytes = read_journal(vfs.as_ref())?;
        let (batches, end) = match parse(&bytes, bug) {
            Err(Error::Corruption { reason, .. }) if bug == Some(Bug::PanicsOnDamage) => {
                panic!("planted: {reason}")
            }
            parsed => parsed?,
        };
        match closed_at {
            Some(len) if (end, bytes.len() as u64) != (len, len) => {
                if bug == Some(Bug::PanicsOnDamage) {
                    panic!("planted: the journal was closed with {len} bytes");
                }
                let reason = format!("the journal was closed with {len} bytes");
                return Err(Error::corruption(JOURNAL, end, reason));
            }
            Some(_) => {}
            None => replace(vfs.as_ref(), JOURNAL, &bytes[..end as usize])?,
        }
        // Even if it is already there: its sync may have failed.
        write_identity(vfs.as_ref(), "reference open")?;
        let file = vfs.open(JOURNAL, Mode::ReadWrite)?;
        let journal = Journal { vfs, file, end, synced_to: end, unwritten: Vec::new(), bug };
        Ok((journal, batches))
    }

    pub(super) fn append(&mut self, batch: &WriteBatch) -> Result<()> {
        let record = encode(self.end, self.synced_to, batch);
        if self.bug == Some(Bug::ForgetsBuffered) {
            self.unwritten.extend_from_slice(&record);
        } else if let Err(error) = self.file.write_at(self.end, &record, Purpose::Log) {
            if self.bug != Some(Bug::KeepsRefused) {
                self.cut_back(&error)?;
            }
            return Err(error);
        }
        self.end += record.len() as u64;
        Ok(())
    }

    /// Removes durably what a failed append may have left, which may be a valid record.
    fn cut_back(&mut self, cause: &Error) -> Result<()> {
        let cut = self.file.set_len(self.end).and_then(|()| self.file.sync(Purpose::Log));
        cut.map_err(|error| Error::ReadOnly { cause: format!("{cause}, and then: {error}") })?;
        self.synced_to = self.end;
        Ok(())
    }

    pub(super) fn sync(&mut self) -> Result<()> {
        if !self.unwritten.is_empty() {
            let at = self.end - self.unwritten.len() as u64;
            self.file.write_at(at, &self.unwritten, Purpose::Log)?;
            self.unwritten.clear();
        }
        self.file.sync(Purpose::Log)?;
        self.synced_to = self.end;
        Ok(())
    }

    pub(super) fn close(&mut self) -> Result<()> {
        // Bytes of a failed append may follow the end.
        self.file.set_len(self.end)?;
        self.sync()?;
        write_identity(self.vfs.as_ref(), &format!("reference closed {}", self.end))
    }

    /// Checks every byte, as opening would.
    pub(super) fn verify(&self) -> Result<u64> {
        read_identity(self.vfs.as_ref())?;
        let bytes = read_journal(self.vfs.as_ref())?;
        let (_, end) = parse(&bytes, self.bug)?;
        if end < self.end - self.unwritten.len() as u64 {
            return Err(Error::corruption(JOURNAL, end, "a written record is missing"));
        }
        Ok(end)
    }
}

/// The files of a closed store with one batch.
pub(super) fn files_with(batch: &WriteBatch) -> [(&'static str, Vec<u8>); 2] {
    let journal = if batch.is_empty() { Vec::new() } else { encode(0, 0, batch) };
    let identity = identity(&format!("reference closed {}", journal.len()));
    [(JOURNAL, journal), (IDENTITY, identity)]
}

fn begin(vfs: &dyn Vfs) -> Result<()> {
    if !vfs.exists(JOURNAL)? {
        vfs.create(JOURNAL)?;
    } else if !vfs.open(JOURNAL, Mode::Read)?.is_empty()? {
        let reason = "the journal has batches, but its IDENTITY is missing".to_owned();
        return Err(Error::Refused { path: IDENTITY.to_owned(), reason });
    }
    vfs.sync_dir(Purpose::Manifest)?;
    write_identity(vfs, "reference open")
}

fn identity(text: &str) -> Vec<u8> {
    format!("{text} {:016x}\n", hash(0, text.as_bytes())).into_bytes()
}

fn write_identity(vfs: &dyn Vfs, text: &str) -> Result<()> {
    replace(vfs, IDENTITY, &identity(text))
}

/// The length at which the journal was closed, or `None`.
fn read_identity(vfs: &dyn Vfs) -> Result<Option<u64>> {
    let bytes = read(vfs, IDENTITY)?;
    let text = String::from_utf8_lossy(&bytes);
    let text = text.rsplit_once(' ').map_or("", |(text, _)| text);
    if identity(text) != bytes {
        return Err(Error::corruption(IDENTITY, 0, "checksum"));
    }
    Ok(text.strip_prefix("reference closed ").and_then(|len| len.parse().ok()))
}

fn read_journal(vfs: &dyn Vfs) -> Result<Vec<u8>> {
    read(vfs, JOURNAL).map_err(|error| match error.is_not_found() {
        true => Error::corruption(JOURNAL, 0, "the journal is missing"),
        false => error,
    })
}

fn read(vfs: &dyn Vfs, name: &str) -> Result<Vec<u8>> {
    let file = vfs.open(name, Mode::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    Ok(bytes)
}

/// Replaces the file `name` atomically and durably.
fn replace(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Result<()> {
    let temporary = format!("{name}.tmp");
    if vfs.exists(&temporary)? {
        vfs.remove(&temporary)?;
    }
    let file = vfs.create(&temporary)?;
    file.write_at(0, bytes, Purpose::Manifest)?;
    file.sync(Purpose::Manifest)?;
    vfs.rename(&temporary, name)?;
    vfs.sync_dir(Purpose::Manifest)
}

fn encode(offset: u64, synced_to: u64, batch: &WriteBatch) -> Vec<u8> {
    let mut record = vec![0; 8];
    record.extend_from_slice(&synced_to.to_le_bytes());
    record.extend_from_slice(&(batch.as_bytes().len() as u32).to_le_bytes());
    record.extend_from_slice(&(batch.len() as u32).to_le_bytes());
    record.extend_from_slice(batch.as_bytes());
    let sum = hash(offset, &record[8..]);
    record[..8].copy_from_slice(&sum.to_le_bytes());
    record
}

/// The batches before the first invalid record, and where they end.
fn parse(bytes: &[u8], bug: Option<Bug>) -> Result<(Vec<WriteBatch>, u64)> {
    let mut batches = Vec::new();
    let mut at = 0;
    while let Some((batch, _, next)) = record(bytes, at, bug) {
        batches.push(batch);
        at = next;
    }
    let mut after = at + 1;
    while after < bytes.len() && bug != Some(Bug::DropsBehindDamage) {
        match record(bytes, after, None) {
            Some((_, synced_to, _)) if synced_to > at as u64 => {
                let reason = format!("checksum, and this was durable up to byte {synced_to}");
                return Err(Error::corruption(JOURNAL, at as u64, reason));
            }
            Some((_, _, next)) => after = next,
            None => after += 1,
        }
    }
    Ok((batches, at as u64))
}

/// The valid record at `at`: its batch, its `synced_to` and its end.
fn record(bytes: &[u8], at: usize, bug: Option<Bug>) -> Option<(WriteBatch, u64, usize)> {
    let header = bytes.get(at..at + HEADER)?;
    let sum = u64::from_le_bytes(header[..8].try_into().ok()?);
    let synced_to = u64::from_le_bytes(header[8..16].try_into().ok()?);
    let len = u32::from_le_bytes(header[16..20].try_into().ok()?);
    let count = u32::from_le_bytes(header[20..].try_into().ok()?);
    let next = at.checked_add(HEADER)?.checked_add(len as usize)?;
    let body = bytes.get(at + 8..next)?;
    if hash(at as u64, body) != sum && bug != Some(Bug::TrustsBytes) {
        return None;
    }
    let batch = WriteBatch::from_bytes(&bytes[at + HEADER..next], count).ok()?;
    (!batch.is_empty()).then_some((batch, synced_to, next))
}

/// Sufficient against the random damage of tests.
fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let word = |chunk: &[u8]| chunk.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
    let add = |sum: u64, chunk| mix64(sum.rotate_left(5) ^ mix64(word(chunk)));
    bytes.chunks(8).fold(mix64(seed ^ mix64(bytes.len() as u64)), add)
}
