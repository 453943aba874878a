//! Events of a store, and the listeners that hear of them.
//!
//! ```text
//!   flush, compaction    begun ──▶ completed     the same job, with files, duration and error
//!   write stall          begun ──▶ ended         the same cause, with the duration
//!   background error, read-only, corruption
//! ```
//!
//! Engines queue events (`siltstone_runtime::events`); a thread of the store calls the listeners.
//!
//! Compare RocksDB's `EventListener` and Pebble's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Damage, Error, Timestamp};

/// Receives the events of a store.
///
/// The store calls its listeners on a thread of its own, one event after the other, in the order
/// of the events. So a listener may take its time, and may call any method of the store and of its
/// tables. While it is busy, events wait in a queue, and nothing else waits for it but the close of
/// the store. The queue holds 4096 events; the next ones are counted and dropped, and
/// [`EventKind::Dropped`] says how many.
///
/// A panic of a listener is caught; it is called again for the next event.
pub trait EventListener: Send + Sync {
    /// Called once per event.
    fn on_event(&self, event: &Event);
}

impl<F: Fn(&Event) + Send + Sync> EventListener for F {
    fn on_event(&self, event: &Event) {
        self(event);
    }
}

/// Something that has happened in a table.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Event {
    /// The table, by the name that it was opened with; empty if it is no event of a table.
    pub table: Arc<str>,
    /// When, in milliseconds since 1970, by the clock of the store.
    pub at: Timestamp,
    /// What.
    pub kind: EventKind,
}

impl Event {
    /// An event of `table`.
    pub fn new(table: Arc<str>, at: Timestamp, kind: EventKind) -> Self {
        Event { table, at, kind }
    }
}

/// What has happened.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum EventKind {
    /// A memtable is being written to files.
    FlushBegun(Job),
    /// A flush has ended, successfully or not.
    FlushCompleted(Job),
    /// Files are being compacted. Of `trie`, also the collection of garbage; of `silt`, a merge of
    /// stores.
    CompactionBegun(Job),
    /// A compaction has ended, successfully or not.
    CompactionCompleted(Job),
    /// Writers are delayed or wait from now on.
    StallBegun {
        /// Why.
        cause: WriteStall,
    },
    /// Writers do not wait for this cause any more.
    StallEnded {
        /// Why they waited.
        cause: WriteStall,
        /// Since the stall began.
        duration: Duration,
    },
    /// A background job has failed. It is retried, unless [`ReadOnly`](Self::ReadOnly) follows.
    BackgroundError {
        /// The error.
        error: Error,
    },
    /// The table rejects writes until it is reopened.
    ReadOnly {
        /// The error that leaves its files in doubt.
        cause: String,
    },
    /// Damage was found: by a read, a background job, a verification, or when the table was opened.
    /// The same damage is reported each time that it is found.
    Corruption(Damage),
    /// Listeners were too slow: events were dropped here.
    Dropped {
        /// How many.
        count: u64,
    },
}

impl EventKind {
    /// The event of an error that reports damage.
    pub fn of_error(error: &Error) -> Option<EventKind> {
        let Error::Corruption { file, offset, reason } = error else { return None };
        let (file, offset, reason) = (file.clone(), *offset, reason.clone());
        Some(EventKind::Corruption(Damage { file, offset, reason }))
    }
}

/// A flush or a compaction.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Job {
    /// Both of its events have this number, and no other job of the store since it was opened.
    pub id: u64,
    /// Why it runs, for people: `memtable full`, `level size`, `range deletions`, ….
    pub reason: &'static str,
    /// The level from which a compaction takes its inputs; `None` for engines without levels.
    pub level: Option<usize>,
    /// The level to which it writes.
    pub output_level: Option<usize>,
    /// The files that are replaced or, of a compaction of a part of level 0, read; empty for a
    /// flush.
    pub inputs: Vec<FileInfo>,
    /// The files that were written, once completed. A file that was only moved to another level is
    /// among the inputs and here. Empty if nothing was left to write.
    pub outputs: Vec<FileInfo>,
    /// Since it began; zero in its first event.
    pub duration: Duration,
    /// Why it has failed. [`Error::Closed`]: the table was closed meanwhile.
    pub error: Option<Error>,
}

impl Job {
    /// A job that has not begun.
    pub fn new(reason: &'static str) -> Self {
        Job { reason, ..Job::default() }
    }

    /// With inputs of `level`, to write to `output_level`.
    #[must_use]
    pub fn on_levels(self, level: usize, output_level: usize) -> Self {
        Job { level: Some(level), output_level: Some(output_level), ..self }
    }

    /// With these inputs.
    #[must_use]
    pub fn with_inputs(self, inputs: Vec<FileInfo>) -> Self {
        Job { inputs, ..self }
    }

    /// The bytes of all inputs.
    pub fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|file| file.bytes).sum()
    }

    /// The bytes of all outputs.
    pub fn output_bytes(&self) -> u64 {
        self.outputs.iter().map(|file| file.bytes).sum()
    }
}

/// A file of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileInfo {
    /// Its name in the table's directory.
    pub name: String,
    /// Its length.
    pub bytes: u64,
}

impl FileInfo {
    /// A file with this name and length.
    pub fn new(name: impl Into<String>, bytes: u64) -> Self {
        FileInfo { name: name.into(), bytes }
    }
}

/// The cause of a write stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStall {
    /// Delayed in proportion to the backlog.
    Slowdown,
    /// Stopped until a memtable is flushed.
    Flush,
    /// Stopped until background work is no longer at its hard limit.
    Compaction,
}

impl WriteStall {
    /// Its name: `slowdown`, `flush` or `compaction`.
    pub fn name(self) -> &'static str {
        match self {
            WriteStall::Slowdown => "slowdown",
            WriteStall::Flush => "flush",
            WriteStall::Compaction => "compaction",
        }
    }
}

/// One line for a log, without the time.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.table.is_empty() {
            write!(f, "table '{}': ", self.table)?;
        }
        match &self.kind {
            EventKind::FlushBegun(job) => write!(f, "flush {} begun", job.id),
            EventKind::FlushCompleted(job) => {
                write!(f, "flush {}", job.id)?;
                job.write_outcome(f)
            }
            EventKind::CompactionBegun(job) => {
                write!(f, "compaction {} begun ({}", job.id, job.reason)?;
                if let (Some(level), Some(output_level)) = (job.level, job.output_level) {
                    write!(f, ", level {level} to {output_level}")?;
                }
                write!(f, ") of {}", Files(&job.inputs))
            }
            EventKind::CompactionCompleted(job) => {
                write!(f, "compaction {}", job.id)?;
                job.write_outcome(f)
            }
            EventKind::StallBegun { cause } => write!(f, "write stall ({}) begun", cause.name()),
            EventKind::StallEnded { cause, duration } => {
                write!(f, "write stall ({}) ended after {duration:.1?}", cause.name())
            }
            EventKind::BackgroundError { error } => write!(f, "background work failed: {error}"),
            EventKind::ReadOnly { cause } => write!(f, "read-only: {cause}"),
            EventKind::Corruption(Damage { file, offset, reason }) => {
                write!(f, "corruption in {file} at byte {offset}: {reason}")
            }
            EventKind::Dropped { count } => {
                write!(f, "{count} events were dropped: a listener is too slow")
            }
        }
    }
}

impl Job {
    fn write_outcome(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            None => write!(f, " completed in {:.1?}: {}", self.duration, Files(&self.outputs)),
            Some(error) => write!(f, " failed after {:.1?}: {error}", self.duration),
        }
    }
}

/// Files as text: their number and size, and the names of a few.
struct Files<'a>(&'a [FileInfo]);

impl fmt::Display for Files<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MAX_NAMES: usize = 4;
        let bytes: u64 = self.0.iter().map(|file| file.bytes).sum();
        let plural = if self.0.len() == 1 { "" } else { "s" };
        write!(f, "{} file{plural} of {bytes} bytes", self.0.len())?;
        for (at, file) in self.0.iter().take(MAX_NAMES).enumerate() {
            write!(f, "{} {}", if at == 0 { ":" } else { "," }, file.name)?;
        }
        if self.0.len() > MAX_NAMES { f.write_str(", …") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_is_one_line_with_its_files() {
        let inputs = (0..6).map(|i| FileInfo::new(format!("{i}.sst"), 10)).collect();
        let job = Job { id: 7, ..Job::new("level size").on_levels(1, 2).with_inputs(inputs) };
        let event = Event::new("t".into(), 0, EventKind::CompactionBegun(job));
        assert_eq!(
            event.to_string(),
            "table 't': compaction 7 begun (level size, level 1 to 2) of 6 files of 60 bytes: \
             0.sst, 1.sst, 2.sst, 3.sst, …"
        );
        let failed = Job { error: Some(Error::Closed), ..Job::new("memtable full") };
        let event = Event::new("".into(), 0, EventKind::FlushCompleted(failed));
        assert_eq!(event.to_string(), "flush 0 failed after 0.0ns: the store is closed");
    }
}
