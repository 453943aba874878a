//! The change feed: reads the committed batches of the table from its logs.
//!
//! ```text
//!   000004.archive ◀─ 000007.log ◀─ 000009.log    each names the one before, and its length
//!   1 … 90            91 … 200      201 … 240     240 is visible
//!                          └ position 120: 121 … 200, then log 9
//! ```
//!
//! A feed begins in the last log whose first sequence number is not after the wanted one, and
//! follows the chain. Records up to the newest visible, or durable, sequence number are in the logs
//! and are never undone, so the feed reads up to there and no further. What was read ahead beyond
//! it may be undone meanwhile, and is read again. If no whole record follows, the next log
//! continues it.
//!
//! Nothing is pinned: a log that is archived meanwhile is opened again under its new name, and one
//! that was removed is an error. Writers do nothing for feeds.
//!
//! Invariant: the sequence numbers of the changes follow one another. Where a number is missing
//! (the record of a removal of all keys or of an ingestion was not written), the feed ends with an
//! error, and can be resumed after the gap.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::Ordering::Acquire;

use siltstone_engine::{
    Change, ChangeBatch, ChangeCursor, ChangeOptions, ChangePart, Error, Result, WriteBatch,
};
use siltstone_table::log::{LogFollower, malformed, parse_archive_name};
use siltstone_table::{FileKind, LogMode, LogReader, PartRecord, SegmentLink, parse_file_name};

use crate::engine::Tree;
use crate::record::Record;

/// Attempts to open a log that may be renamed meanwhile: by a flush, and by a change of options.
const MAX_ATTEMPTS: usize = 5;

/// A position in the changes of a table.
pub(crate) struct Feed {
    tree: Weak<Tree>,
    includes_unsynced: bool,
    /// The sequence number of the last change that was returned, or where the feed began.
    position: u64,
    log: LogFollower,
    /// The newest sequence number that was visible before the bytes at hand were read.
    final_to: u64,
    /// The sequence number of the next change in the log; `None` before the first one.
    next: Option<u64>,
    pending: PartialChange,
    /// A change that was read, and is not durable yet.
    ready: Option<ChangeBatch>,
    /// A missing change: the feed cannot go on.
    gap: Option<Error>,
}

/// The records of a change that is not complete.
#[derive(Default)]
struct PartialChange {
    /// The operations so far, and the first sequence number.
    batch: Option<(u64, WriteBatch)>,
    /// The batch over several tables to which the next records belong, and their number.
    part: Option<(ChangePart, u32)>,
}

/// A log of the chain.
struct Segment {
    log: LogFollower,
    link: SegmentLink,
    /// The sequence number of its first change.
    first: Option<u64>,
}

impl Tree {
    /// See [`siltstone_engine::Engine::changes`].
    pub(crate) fn feed(&self, options: ChangeOptions) -> Result<Feed> {
        let ChangeOptions { since, include_unsynced } = options;
        let newest = self.visible.load(Acquire);
        if since > newest {
            return Err(self.unavailable(since)?);
        }
        for _ in 0..MAX_ATTEMPTS {
            let Some(chain) = read_chain(self, since + 1)? else { continue };
            let start = chain.into_iter().rev().find(|(first, _)| *first <= since + 1);
            let Some((_, log)) = start else { return Err(self.unavailable(since)?) };
            return Ok(Feed {
                tree: self.me.clone(),
                includes_unsynced: include_unsynced,
                position: since,
                log,
                final_to: 0,
                next: None,
                pending: PartialChange::default(),
                ready: None,
                gap: None,
            });
        }
        Err(unstable())
    }

    /// The error for changes after `since`, which the logs do not have.
    fn unavailable(&self, since: u64) -> Result<Error> {
        for _ in 0..MAX_ATTEMPTS {
            let newest = self.visible.load(Acquire);
            if let Some(chain) = read_chain(self, 0)? {
                let oldest = chain.first().map_or(newest, |(first, _)| first - 1);
                return Ok(Error::ChangesUnavailable { since, oldest, newest });
            }
        }
        Err(unstable())
    }
}

fn unstable() -> Error {
    Error::Invalid("logs were removed faster than the feed could open them: try again".to_owned())
}

/// The logs of the table by their numbers, with the names that they have now.
fn list(tree: &Tree) -> Result<BTreeMap<u64, String>> {
    let names = tree.vfs.list()?.into_iter().filter_map(|name| {
        let archived = parse_archive_name(&name).map(|(number, _)| number);
        let number = archived.or_else(|| match parse_file_name(&name)? {
            (FileKind::Log, number) => Some(number.0),
            _ => None,
        });
        Some((number?, name))
    });
    Ok(names.collect())
}

/// Reads the start of the log `name`. `None` if it has no record, or was renamed or removed.
fn open_segment(tree: &Tree, number: u64, name: &str) -> Result<Option<Segment>> {
    let opened = || -> Result<Option<Segment>> {
        let mut log = LogFollower::open(tree.vfs.as_ref(), name, number)?;
        let Some(record) = log.next()? else { return Ok(None) };
        let link = SegmentLink::decode(record.bytes);
        let link = link.map_err(|reason| malformed(number, record.position, reason))?;
        if link.number >= number {
            let reason = format!("the log before it is said to be {}", link.number);
            return Err(Error::corruption(name, record.position, reason));
        }
        let mut first = None;
        while first.is_none()
            && let Some(record) = log.next()?
        {
            if PartRecord::is_in(record.bytes) {
                continue;
            }
            let decoded = Record::decode(record.bytes);
            first = match decoded.map_err(|reason| malformed(number, record.position, reason))? {
                Record::Batch { first_sequence, .. } => Some(first_sequence),
                Record::Ingested(sequence) | Record::Cleared(sequence) => Some(sequence),
                Record::Link(_) | Record::Retained { .. } => None,
            };
        }
        let log = LogFollower::open(tree.vfs.as_ref(), name, number)?;
        Ok(Some(Segment { log, link, first }))
    };
    match opened() {
        Err(error) if error.is_not_found() => Ok(None),
        opened => opened,
    }
}

/// The logs that the feed can read one after the other, the oldest first, each with the sequence
/// number of the first change in it or after it; no logs before the one that has the change
/// `wanted`. `None` if a log was renamed meanwhile.
fn read_chain(tree: &Tree, wanted: u64) -> Result<Option<Vec<(u64, LogFollower)>>> {
    let active = match tree.writer.lock().as_ref() {
        Some(writer) => writer.log.number(),
        None => return Err(Error::Closed),
    };
    let newest = tree.visible.load(Acquire);
    let logs = list(tree)?;
    let mut chain = Vec::new();
    let (mut number, mut first_after) = (active, newest + 1);
    while let Some(name) = logs.get(&number) {
        let Some(segment) = open_segment(tree, number, name)? else {
            let is_unchanged = list(tree)?.get(&number) == Some(name);
            if is_unchanged { break } else { return Ok(None) }
        };
        // The active log may have a first change that is not visible yet.
        first_after = segment.first.unwrap_or(first_after).min(first_after);
        chain.push((first_after, segment.log));
        if first_after <= wanted {
            break;
        }
        number = segment.link.number;
    }
    if chain.is_empty() {
        return Ok(None);
    }
    chain.reverse();
    Ok(Some(chain))
}

impl Feed {
    /// Reads the next change; `None` if no whole one follows in this log.
    fn read(&mut self) -> Result<Option<ChangeBatch>> {
        loop {
            let number = self.log.number();
            let before = self.log.end();
            let Some(record) = self.log.next()? else { return Ok(None) };
            let position = record.position;
            let damaged = |reason: &str| malformed(number, position, reason);
            if PartRecord::is_in(record.bytes) {
                let part = PartRecord::decode(record.bytes).map_err(|why| damaged(&why))?;
                let PartRecord { batch, records, tables } = part;
                self.pending.part = Some((ChangePart { batch, tables }, records));
                continue;
            }
            let record = Record::decode(record.bytes).map_err(|reason| damaged(&reason))?;
            let (first, last, change) = match record {
                Record::Link(_) if before == 0 => continue,
                Record::Link(_) => return Err(damaged("a link after other records")),
                // Repeats earlier writes.
                Record::Retained { .. } => continue,
                Record::Ingested(sequence) => (sequence, sequence, Change::Ingested),
                Record::Cleared(sequence) => (sequence, sequence, Change::Cleared),
                Record::Batch { first_sequence, batch, is_last } => {
                    let (first, batch) = match self.pending.batch.take() {
                        None => (first_sequence, batch),
                        Some((first, mut before)) => {
                            if first + before.len() as u64 != first_sequence {
                                return Err(damaged("sequence numbers go astray"));
                            }
                            before.append(&batch);
                            (first, before)
                        }
                    };
                    if !is_last {
                        self.pending.batch = Some((first, batch));
                        continue;
                    }
                    (first, first + batch.len() as u64 - 1, Change::Write(batch))
                }
            };
            let part = self.pending.part.take().map(|(part, _)| part);
            return Ok(Some(ChangeBatch { first_sequence: first, sequence: last, part, change }));
        }
    }

    /// Continues in the log after the present one, which has no more records.
    fn next_log(&mut self, tree: &Tree) -> Result<()> {
        let (number, end) = (self.log.number(), self.log.end());
        for _ in 0..MAX_ATTEMPTS {
            let logs = list(tree)?;
            for (&later, name) in logs.range(number + 1..) {
                let Some(segment) = open_segment(tree, later, name)? else { continue };
                if segment.link.number != number {
                    continue;
                }
                if segment.link.bytes != end {
                    return Err(self.lost_tail(tree, segment.link.bytes)?);
                }
                self.log = segment.log;
                self.pending = PartialChange::default();
                return Ok(());
            }
        }
        // A removed log, a change at the end that was not logged, or damage: the chain from the
        // newest log shows which.
        let newest = tree.visible.load(Acquire);
        match tree.unavailable(self.position)? {
            removed @ Error::ChangesUnavailable { oldest, .. } if oldest > self.position => {
                Err(removed)
            }
            _ if self.log.is_blank_after_end()? => {
                let since = self.position;
                Err(Error::ChangesUnavailable { since, oldest: newest, newest })
            }
            _ => {
                let reason = "the next change is missing here";
                Err(Error::corruption(self.log.name(), end, reason))
            }
        }
    }

    /// The error for a log that ends before the `bytes` that its successor states. A power cut may
    /// have taken the end of a log that was recovered after a process crash: then its sync before
    /// the crash may have failed, and the table has its writes in other files.
    fn lost_tail(&self, tree: &Tree, bytes: u64) -> Result<Error> {
        let (number, end) = (self.log.number(), self.log.end());
        let mut reader =
            LogReader::open(tree.vfs.as_ref(), self.log.name(), number, LogMode::Recover)?;
        // Reports damage to what was durable.
        while reader.next()?.is_some() {}
        if end > bytes {
            let reason = format!("the next log states that this one had {bytes} bytes");
            return Ok(Error::corruption(self.log.name(), bytes, reason));
        }
        let newest = tree.visible.load(Acquire);
        for _ in 0..MAX_ATTEMPTS {
            if let Some(chain) = read_chain(tree, 0)? {
                let later = chain.iter().find(|(_, log)| log.number() > number);
                let oldest = later.map_or(newest, |(first, _)| first - 1);
                return Ok(Error::ChangesUnavailable { since: self.position, oldest, newest });
            }
        }
        Err(unstable())
    }

    /// Opens the present log again under the name that it has now.
    fn reopen(&mut self, tree: &Tree) -> Result<()> {
        let number = self.log.number();
        for _ in 0..MAX_ATTEMPTS {
            let Some(name) = list(tree)?.remove(&number) else {
                return Err(tree.unavailable(self.position)?);
            };
            match self.log.reopen(tree.vfs.as_ref(), &name) {
                Err(error) if error.is_not_found() => {}
                reopened => return reopened,
            }
        }
        Err(unstable())
    }

    /// The error if `change` does not follow the previous one.
    fn check_order(&self, change: &ChangeBatch, newest: u64) -> Result<()> {
        let expected = self.next.unwrap_or_else(|| change.first_sequence.min(self.position + 1));
        match change.first_sequence.cmp(&expected) {
            std::cmp::Ordering::Equal => Ok(()),
            std::cmp::Ordering::Less => {
                let reason = "sequence numbers go astray";
                Err(malformed(self.log.number(), self.log.end(), reason))
            }
            std::cmp::Ordering::Greater => {
                let oldest = change.first_sequence - 1;
                Err(Error::ChangesUnavailable { since: self.position, oldest, newest })
            }
        }
    }

    /// The newest sequence number that may be shown. An ingestion is durable by its manifest edit
    /// before its record is in the log, and visible after that.
    fn limit(&self, tree: &Tree) -> u64 {
        let visible = tree.visible.load(Acquire);
        if self.includes_unsynced { visible } else { visible.min(tree.durable.load(Acquire)) }
    }

    /// Reads on up to the first change after the position.
    fn advance(&mut self, tree: &Tree) -> Result<Option<ChangeBatch>> {
        loop {
            // Visible changes are whole in the log; later records may still be undone.
            if self.next.unwrap_or(0).max(self.position + 1) > self.limit(tree) {
                return Ok(None);
            }
            if self.next.unwrap_or(self.position + 1) > self.final_to {
                self.final_to = tree.visible.load(Acquire);
                self.log.forget();
            }
            let Some(change) = self.read()? else {
                self.next_log(tree)?;
                continue;
            };
            self.check_order(&change, tree.visible.load(Acquire))
                .inspect_err(|error| self.gap = Some(error.clone()))?;
            self.next = Some(change.sequence + 1);
            if change.sequence > self.position {
                return Ok(Some(change));
            }
        }
    }
}

impl ChangeCursor for Feed {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        let tree = self.tree.upgrade().ok_or(Error::Closed)?;
        tree.background.check_open()?;
        if let Some(gap) = &self.gap {
            return Err(gap.clone());
        }
        if self.ready.is_none() {
            self.ready = match self.advance(&tree) {
                Err(error) if error.is_not_found() => {
                    self.reopen(&tree)?;
                    self.advance(&tree)?
                }
                advanced => advanced?,
            };
        }
        let limit = self.limit(&tree);
        let change = self.ready.take_if(|change| change.sequence <= limit);
        if let Some(change) = &change {
            self.position = change.sequence;
        }
        Ok(change)
    }
}
