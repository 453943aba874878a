//! A node's Raft log: entries, hard state, and where its compacted prefix ends.
//!
//! One file holds all of it, as records (`format`). Whatever cannot be appended is a new file,
//! which begins with a preamble of the whole state and replaces the old one:
//!
//! ```text
//!   open, compact, replace:
//!     create raft-000008.log ─ preamble ─ sync ─ sync_dir ─ remove raft-000007.log ─ sync_dir
//! ```
//!
//! Nothing is appended to the new file before the old one is durably gone. So after a power cut the
//! newest file counts if its preamble is whole, and otherwise the older one, which is complete.
//!
//! Damage: the record log recognizes damaged bytes that had been durable, by later records or
//! blocks. Such a log does not open. The bytes that were synced last have no later record: damage
//! there looks like a torn tail, unless the log was [closed](RaftLog::close). A log without a file
//! does not open, either. [`is_lost`] names these errors; the node is then rebuilt under a new id,
//! because it may have forgotten a vote or an entry that a majority counts on.
//!
//! All entries behind the marker are also in memory. The owner compacts before that is too much.
//!
//! Cost: an append is one write, [`sync`](RaftLog::sync) one sync. A new file costs a write of the
//! retained entries, one sync of the file and two of the directory.
//!
//! Invariant: entries are contiguous from `marker.index + 1` on. A reopened log has all that was
//! synced, and a prefix of the later appends.

mod format;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use raft::eraftpb::{Entry, HardState};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{LogMode, LogReader, LogWriter};
use siltstone_vfs::Vfs;

use crate::planted::{Fault, is_planted};
pub(crate) use format::{push_entries, take_bytes, take_entries, take_u8};

use format::{Preamble, Record, decode, encode_append, encode_preamble};

/// The advice for a node whose log is lost.
const REBUILD: &str = "this node must neither vote nor serve with it: remove the node from its \
     group, delete its directory, and let it join again under a new node id: 'siltstone cluster \
     remove ADDRESS NODE', then 'siltstone cluster join DIR ADDRESS --listen OWN_ADDRESS'";

/// Whose log it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LogIdentity {
    /// The group.
    pub group: u64,
    /// The node, unique in the group for all time.
    pub node: u64,
}

/// An entry's position: the last one of a compacted prefix.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marker {
    /// The index of the entry; 0 if there was none.
    pub index: u64,
    /// The term of the entry.
    pub term: u64,
}

/// The log of one node.
pub struct RaftLog {
    vfs: Arc<dyn Vfs>,
    /// The number of the file.
    number: u64,
    state: Preamble,
    hard_state: HardState,
    entries: VecDeque<Entry>,
    writer: LogWriter,
    /// The length of the file's preamble.
    preamble_bytes: u64,
}

/// The content of one file.
struct Content {
    state: Preamble,
    hard_state: HardState,
    entries: VecDeque<Entry>,
}

/// Whether the error means that a node has lost its log, and must be rebuilt under a new id.
pub fn is_lost(error: &Error) -> bool {
    match error {
        Error::Corruption { reason, .. } | Error::Refused { reason, .. } => {
            reason.ends_with(REBUILD)
        }
        _ => false,
    }
}

/// The error for a log that misses something.
pub(crate) fn lost(path: String, what: &str) -> Error {
    Error::Refused { path, reason: format!("{what}; {REBUILD}") }
}

impl RaftLog {
    /// Creates the log of a new node, which has applied `marker` in the table with the number
    /// `table`. It is durable once this returns.
    ///
    /// # Errors
    /// `Refused` if there is a log; I/O errors.
    pub fn create(
        vfs: Arc<dyn Vfs>,
        identity: LogIdentity,
        marker: Marker,
        table: u64,
    ) -> Result<Self> {
        if !files(vfs.as_ref())?.is_empty() {
            let reason =
                "a node lives here already; open it, or create the new one elsewhere".into();
            return Err(Error::Refused { path: vfs.name(), reason });
        }
        let mut hard_state = HardState::default();
        (hard_state.term, hard_state.commit) = (marker.term, marker.index);
        let state = Preamble { identity, incarnation: 1, table, marker };
        Self::begin(vfs, 1, Content { state, hard_state, entries: VecDeque::new() })
    }

    /// Opens the log of a node, as a new incarnation of it, and removes remains of older files.
    ///
    /// # Errors
    /// `Corruption` and `Refused` if anything that was durable is damaged or missing ([`is_lost`]),
    /// or if the log is another node's; then nothing has changed. `Refused` for a newer format. I/O
    /// errors.
    pub fn open(vfs: Arc<dyn Vfs>, identity: LogIdentity) -> Result<Self> {
        let numbers = files(vfs.as_ref())?;
        let content = read_newest(vfs.as_ref(), &numbers)?;
        let (Some(mut content), Some(last)) = (content, numbers.last()) else {
            return Err(lost(vfs.name(), "the node's log is missing or damaged"));
        };
        let found = content.state.identity;
        if found != identity {
            let reason = format!(
                "the log belongs to node {} of group {}, not to node {} of group {}; check the \
                 directory and the configured ids",
                found.node, found.group, identity.node, identity.group
            );
            return Err(Error::Refused { path: vfs.name(), reason });
        }
        content.state.incarnation += u64::from(!is_planted(Fault::ReusedIncarnation));
        Self::begin(vfs, last + 1, content)
    }

    /// Whose log a directory has; `None` if it has no log.
    ///
    /// # Errors
    /// As from [`RaftLog::open`].
    pub fn identity_in(vfs: &dyn Vfs) -> Result<Option<LogIdentity>> {
        let content = read_newest(vfs, &files(vfs)?)?;
        Ok(content.map(|content| content.state.identity))
    }

    /// Whether the log in a directory has entries, or follows a snapshot. A node that joins a group
    /// has neither before it has received its first snapshot.
    ///
    /// # Errors
    /// As from [`RaftLog::open`].
    pub fn has_entries_in(vfs: &dyn Vfs) -> Result<bool> {
        let content = read_newest(vfs, &files(vfs)?)?;
        Ok(content.is_some_and(|content| {
            content.state.marker != Marker::default() || !content.entries.is_empty()
        }))
    }

    /// Writes the file `number`, then removes all older ones.
    fn begin(vfs: Arc<dyn Vfs>, number: u64, content: Content) -> Result<Self> {
        let Content { state, hard_state, entries } = content;
        let writer = write_file(vfs.as_ref(), number, &state, &hard_state, &entries)?;
        let preamble_bytes = writer.len();
        Ok(RaftLog { vfs, number, state, hard_state, entries, writer, preamble_bytes })
    }

    /// Appends entries, which replace those from the first one's index on, and the hard state.
    ///
    /// # Errors
    /// `Invalid` for a gap: nothing has changed. After an I/O error the log must be reopened.
    pub fn append(&mut self, hard_state: &HardState, entries: &[Entry]) -> Result<()> {
        let first = entries.first().map_or(self.last_index() + 1, |entry| entry.index);
        if first <= self.state.marker.index || first > self.last_index() + 1 {
            return Err(Error::Invalid(format!(
                "entry {first} does not follow the log, which has {} to {}",
                self.first_index(),
                self.last_index()
            )));
        }
        if !is_planted(Fault::ForgottenVote) {
            self.hard_state = hard_state.clone();
        }
        self.writer.append(&[&encode_append(&self.hard_state, first, entries)])?;
        self.hard_state = hard_state.clone();
        replace_suffix(&mut self.entries, self.state.marker, first, entries.iter().cloned());
        Ok(())
    }

    /// Makes all appends durable.
    ///
    /// # Errors
    /// I/O errors: the log must be reopened.
    pub fn sync(&mut self) -> Result<()> {
        if is_planted(Fault::SkippedSync) {
            return Ok(());
        }
        self.writer.sync()
    }

    /// Removes the entries up to `index`, which the table must hold durably. Everything appended is
    /// durable once this returns.
    ///
    /// # Errors
    /// `Invalid` for an index outside of the log. I/O errors: the log must be reopened.
    pub fn compact(&mut self, index: u64) -> Result<()> {
        let Some(term) = self.term(index) else {
            return Err(Error::Invalid(format!("entry {index} is not in the log")));
        };
        self.entries.drain(..(index - self.state.marker.index) as usize);
        self.state.marker = Marker { index, term };
        self.rewrite()
    }

    /// Replaces all entries by a snapshot up to `marker`, which the table with the number `table`
    /// holds durably, and by the entries that follow it. Atomic over power cuts, and durable once
    /// this returns.
    ///
    /// # Errors
    /// I/O errors: the log must be reopened.
    pub fn replace(
        &mut self,
        marker: Marker,
        table: u64,
        hard_state: &HardState,
        entries: &[Entry],
    ) -> Result<()> {
        (self.state.marker, self.state.table) = (marker, table);
        self.hard_state = hard_state.clone();
        self.entries = entries.iter().cloned().collect();
        self.rewrite()
    }

    fn rewrite(&mut self) -> Result<()> {
        let Self { vfs, number, state, hard_state, entries, .. } = self;
        *number += 1;
        self.writer = write_file(vfs.as_ref(), *number, state, hard_state, entries)?;
        self.preamble_bytes = self.writer.len();
        Ok(())
    }

    /// Seals the log: when it is opened again, any missing or damaged byte is recognized.
    ///
    /// # Errors
    /// I/O errors. The log can be opened all the same.
    pub fn close(self) -> Result<()> {
        self.writer.seal()
    }

    /// The hard state as it was last appended.
    pub fn hard_state(&self) -> &HardState {
        &self.hard_state
    }

    /// The last entry of the compacted prefix.
    pub fn marker(&self) -> Marker {
        self.state.marker
    }

    /// The number of the table that applies this log.
    pub fn table(&self) -> u64 {
        self.state.table
    }

    /// How often the log was created or opened: with the node's id it names this incarnation.
    pub fn incarnation(&self) -> u64 {
        self.state.incarnation
    }

    /// The index of the first entry that the log may have.
    pub fn first_index(&self) -> u64 {
        self.state.marker.index + 1
    }

    /// The index of the last entry, or of the marker.
    pub fn last_index(&self) -> u64 {
        self.state.marker.index + self.entries.len() as u64
    }

    /// The term of an entry or of the marker; `None` outside of the log.
    pub fn term(&self, index: u64) -> Option<u64> {
        if index == self.state.marker.index {
            return Some(self.state.marker.term);
        }
        self.entry(index).map(|entry| entry.term)
    }

    /// An entry; `None` outside of the log.
    pub fn entry(&self, index: u64) -> Option<&Entry> {
        let at = index.checked_sub(self.first_index())?;
        self.entries.get(usize::try_from(at).ok()?)
    }

    /// The index before the entries up to `last` that number at most `max_entries` and take at most
    /// `max_bytes`; at least the marker's.
    pub fn start_of(&self, last: u64, max_entries: u64, max_bytes: u64) -> u64 {
        let (mut index, mut bytes) = (last, 0);
        while let Some(entry) = self.entry(index) {
            bytes += (entry.data.len() + entry.context.len()) as u64;
            if last - index >= max_entries || bytes > max_bytes {
                break;
            }
            index -= 1;
        }
        index
    }

    /// The length of the file in bytes, replaced entries included.
    pub fn bytes(&self) -> u64 {
        self.writer.len()
    }

    /// The bytes that were appended since the log was opened or last compacted or replaced.
    pub fn appended_bytes(&self) -> u64 {
        self.writer.len() - self.preamble_bytes
    }
}

fn replace_suffix(
    entries: &mut VecDeque<Entry>,
    marker: Marker,
    first: u64,
    suffix: impl Iterator<Item = Entry>,
) {
    entries.truncate((first - marker.index - 1) as usize);
    entries.extend(suffix);
}

fn file_name(number: u64) -> String {
    format!("raft-{number:06}.log")
}

/// The numbers of all files, ascending.
fn files(vfs: &dyn Vfs) -> Result<Vec<u64>> {
    let number = |name: &String| name.strip_prefix("raft-")?.strip_suffix(".log")?.parse().ok();
    let mut numbers: Vec<u64> = vfs.list()?.iter().filter_map(number).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Removes all files, of a node that was not created to the end. Whether there were any.
pub(crate) fn remove_logs(vfs: &dyn Vfs) -> Result<bool> {
    let numbers = files(vfs)?;
    numbers.iter().try_for_each(|number| vfs.remove(&file_name(*number)))?;
    Ok(!numbers.is_empty())
}

/// Creates the file `number` durably, and removes all others.
fn write_file(
    vfs: &dyn Vfs,
    number: u64,
    state: &Preamble,
    hard_state: &HardState,
    entries: &VecDeque<Entry>,
) -> Result<LogWriter> {
    let name = file_name(number);
    let mut writer = LogWriter::create_append(vfs, &name, number, Purpose::Log)?;
    writer.append(&[&encode_preamble(state, hard_state, entries.iter())])?;
    if !is_planted(Fault::EarlyLogRemoval) {
        writer.sync()?;
    }
    if !is_planted(Fault::SkippedDirectorySync) {
        vfs.sync_dir(Purpose::Log)?;
    }
    let mut is_removed = false;
    for old in files(vfs)?.into_iter().filter(|&old| old != number) {
        vfs.remove(&file_name(old))?;
        is_removed = true;
    }
    if is_removed {
        vfs.sync_dir(Purpose::Log)?;
    }
    Ok(writer)
}

/// Reads the newest file whose preamble is whole.
fn read_newest(vfs: &dyn Vfs, numbers: &[u64]) -> Result<Option<Content>> {
    for &number in numbers.iter().rev() {
        let content = read(vfs, number)?;
        if content.is_some() {
            return Ok(content);
        }
    }
    Ok(None)
}

/// Reads a file; `None` if not even its preamble is whole.
fn read(vfs: &dyn Vfs, number: u64) -> Result<Option<Content>> {
    let name = file_name(number);
    let damaged = |error| match error {
        Error::Corruption { file, offset, reason } => {
            Error::Corruption { file, offset, reason: format!("{reason}; {REBUILD}") }
        }
        other => other,
    };
    let mut reader = LogReader::open(vfs, &name, number, LogMode::Recover)?;
    let mut content: Option<Content> = None;
    loop {
        let record = match reader.next() {
            Err(error) if error.is_corruption() && is_planted(Fault::TruncatedLog) => break,
            record => record.map_err(damaged)?,
        };
        let Some(record) = record else { break };
        let malformed =
            || damaged(Error::corruption(name.clone(), record.position, "the record is malformed"));
        match (decode(record.bytes).ok_or_else(malformed)?, &mut content) {
            (Record::Newer(version), _) => {
                let reason = format!(
                    "the log has format version {version}, which this program does not know; run a \
                     newer one"
                );
                return Err(Error::Refused { path: name, reason });
            }
            (Record::Preamble(state, hard_state, entries), None) => {
                content = Some(Content { state, hard_state, entries: entries.into() });
            }
            (Record::Append(hard_state, entries), Some(content)) => {
                let (marker, len) = (content.state.marker, content.entries.len() as u64);
                if let Some(first) = entries.first().map(|entry| entry.index) {
                    if first <= marker.index || first > marker.index + len + 1 {
                        return Err(malformed());
                    }
                    replace_suffix(&mut content.entries, marker, first, entries.into_iter());
                }
                content.hard_state = hard_state;
            }
            _ => return Err(malformed()),
        }
    }
    Ok(content)
}
