//! Replay of a write-ahead log: which segments are valid, and how far.
//!
//! ```text
//!   segments on disk     4   7 ──▶ 9 ──╳ 12        first segment needed: 7
//!                        │   └──┬──┘     └ 9 is shorter than 12's link states: a power cut took
//!                        │      │          its tail, and 12 is not replayed
//!                        │      replayed, record by record
//!                        └ flushed to tables: not read
//! ```
//!
//! A power cut may take a tail only if nothing after it was synced, because a synced write first
//! syncs all older segments. So if a segment is not replayed although it was synced or sealed, the
//! log is corrupt; the error names the segment at which the chain breaks.
//!
//! Invariant: the replayed records are a prefix of the appended ones that contains all synced
//! records; otherwise the result is an error.

use std::collections::BTreeMap;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use super::part::PartRecord;
use super::wal::{KIND_LINK, SegmentLink};
use super::{LogMode, LogReader};
use crate::{FileKind, FileNumber, parse_file_name};

/// Receives the records of a write-ahead log, in order.
pub trait ReplayHandler {
    /// The segment `number` starts. An incomplete group of the previous segment is void.
    ///
    /// # Errors
    /// Any reason not to replay it.
    fn begin(&mut self, number: u64) -> Result<()>;

    /// The record at `position` of the current segment.
    ///
    /// # Errors
    /// Any reason not to replay it; [`malformed`] if its contents are invalid.
    fn record(&mut self, position: u64, bytes: &[u8]) -> Result<()>;

    /// A part of a batch over several tables begins in the current segment, after `end` bytes. Its
    /// records follow.
    fn part(&mut self, part: PartRecord, end: u64) {
        let _ = (part, end);
    }

    /// The current segment has records up to `end`, its number and length.
    fn end(&mut self, end: SegmentLink) {
        let _ = end;
    }
}

/// The result of a replay.
#[derive(Debug, Default)]
pub struct ReplaySummary {
    /// All segments found, in order, replayed or not: their numbers are in use.
    pub found: Vec<u64>,
    /// The replayed segments.
    pub logs: Vec<u64>,
    /// The last replayed segment and its length: the link for the next one.
    pub end: SegmentLink,
    /// The last replayed segment was not sealed. Its durability is unconfirmed, because the process
    /// that wrote it may have seen a failed sync, which no later sync repairs.
    pub is_unconfirmed: bool,
    /// The last batch over several tables of which a part was replayed; 0 if there was none.
    pub last_batch: u64,
}

/// An error for a record with a valid checksum and invalid contents.
pub fn malformed(log: u64, position: u64, reason: impl Into<String>) -> Error {
    Error::corruption(FileKind::Log.name(FileNumber(log)), position, reason)
}

/// Replays the segments from `first`, the first one needed. `sealed` is the segment that a clean
/// close sealed; `synced` is one that, unless obsolete, is known to be durable up to a length. When
/// this returns, all replayed records are durable.
///
/// # Errors
/// `Corruption` if synced or sealed records are missing; I/O errors; errors of `into`.
pub fn replay(
    vfs: &dyn Vfs,
    first: u64,
    sealed: Option<u64>,
    synced: Option<(u64, u64)>,
    into: &mut dyn ReplayHandler,
) -> Result<ReplaySummary> {
    let mut replayed = ReplaySummary { found: logs_from(vfs, first)?, ..ReplaySummary::default() };
    let mut chain = Chain { first, ..Chain::default() };
    for number in replayed.found.clone() {
        let reader = open(vfs, number, sealed)?;
        replay_log(reader, number, &mut chain, &mut replayed, into)?;
    }
    if let Some(number) = sealed.filter(|number| !replayed.logs.contains(number)) {
        let missing = || malformed(number, 0, "it was sealed at close, and it is missing");
        return Err(chain.broken.unwrap_or_else(missing));
    }
    if let Some((number, bytes)) = synced.filter(|(number, _)| *number >= first) {
        let end = chain.ends.get(&number).copied().unwrap_or(0);
        let is_there = replayed.logs.contains(&number) && end >= bytes;
        let lost = || malformed(number, end, format!("it had been synced up to byte {bytes}"));
        if !is_there {
            return Err(chain.broken.unwrap_or_else(lost));
        }
    }
    // After a process crash the records may be only in the page cache, and the next segment is
    // about to state that these are complete.
    for &number in &replayed.logs {
        let name = FileKind::Log.name(FileNumber(number));
        vfs.open(&name, Mode::ReadWrite)?.sync(Purpose::Recovery)?;
    }
    replayed.is_unconfirmed = replayed.logs.last().is_some_and(|&last| sealed != Some(last));
    Ok(replayed)
}

/// The numbers of the existing segments from `first` on, ascending.
///
/// # Errors
/// I/O errors.
pub fn logs_from(vfs: &dyn Vfs, first: u64) -> Result<Vec<u64>> {
    let names = vfs.list()?;
    let logs = names.iter().filter_map(|name| match parse_file_name(name) {
        Some((FileKind::Log, number)) if number.0 >= first => Some(number.0),
        _ => None,
    });
    let mut logs: Vec<u64> = logs.collect();
    logs.sort_unstable();
    Ok(logs)
}

fn open(vfs: &dyn Vfs, number: u64, sealed: Option<u64>) -> Result<LogReader> {
    let mode = if sealed == Some(number) { LogMode::Sealed } else { LogMode::Recover };
    LogReader::open(vfs, &FileKind::Log.name(FileNumber(number)), number, mode)
}

/// State of the segments read so far.
#[derive(Default)]
struct Chain {
    /// The first segment that is needed.
    first: u64,
    /// The end of the whole records of each segment.
    ends: BTreeMap<u64, u64>,
    /// The first break of the chain.
    broken: Option<Error>,
}

impl Chain {
    /// The reason why the segment `number`, which starts with `link` if it has records, does not
    /// follow: its predecessor is missing or too short, or it is not part of the chain.
    fn break_reason(&self, number: u64, link: Option<SegmentLink>) -> Option<Error> {
        let name = FileKind::Log.name(FileNumber(number));
        let link = link?;
        if link.number < self.first.max(1) || link.number >= number {
            return Some(malformed(number, 0, "it does not follow the previous logs"));
        }
        let Some(&end) = self.ends.get(&link.number) else {
            return Some(malformed(link.number, 0, format!("it is missing: {name} follows it")));
        };
        let short = format!("it ends here, and {name} states that it had {} bytes", link.bytes);
        (end != link.bytes).then(|| malformed(link.number, end, short))
    }
}

fn replay_log(
    mut reader: LogReader,
    number: u64,
    chain: &mut Chain,
    replayed: &mut ReplaySummary,
    into: &mut dyn ReplayHandler,
) -> Result<()> {
    let (mut first_link, mut is_chained) = (None, false);
    loop {
        let end = reader.valid_bytes();
        let Some(record) = reader.next()? else { break };
        let position = record.position;
        if first_link.is_none() {
            let link = SegmentLink::decode(record.bytes)
                .map_err(|why| malformed(number, position, why))?;
            first_link = Some(link);
            is_chained = match replayed.logs.last() {
                Some(_) => link == replayed.end,
                // Segments below the first are not needed.
                None => link.number < chain.first.max(1),
            };
            if is_chained {
                replayed.logs.push(number);
                into.begin(number)?;
            }
        } else if record.bytes.first() == Some(&KIND_LINK) {
            return Err(malformed(number, position, "a link after other records"));
        } else if is_chained && PartRecord::is_in(record.bytes) {
            let part =
                PartRecord::decode(record.bytes).map_err(|why| malformed(number, position, why))?;
            replayed.last_batch = replayed.last_batch.max(part.batch);
            into.part(part, end);
        } else if is_chained {
            into.record(position, record.bytes)?;
        }
        // Otherwise the reader continues only to learn whether anything in it was synced.
    }
    chain.ends.insert(number, reader.valid_bytes());
    if is_chained {
        replayed.end = SegmentLink { number, bytes: reader.valid_bytes() };
        into.end(replayed.end);
        return Ok(());
    }
    if chain.broken.is_none() {
        chain.broken = chain.break_reason(number, first_link);
    }
    if reader.was_synced() {
        let lost = || malformed(number, 0, "the previous log lost writes that had been synced");
        return Err(chain.broken.clone().unwrap_or_else(lost));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{SpareSegment, WalWriter};
    use super::*;
    use siltstone_faults::{FaultKind, FaultyVfs, Survival};
    use siltstone_vfs::Ram;
    use std::sync::Arc;

    /// Collects the records.
    #[derive(Default)]
    struct Collector(Vec<(u64, Vec<u8>)>, u64);

    impl ReplayHandler for Collector {
        fn begin(&mut self, number: u64) -> Result<()> {
            self.1 = number;
            Ok(())
        }

        fn record(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
            self.0.push((self.1, bytes.to_vec()));
            Ok(())
        }
    }

    /// Segments 3, 5 and 8 with two records each; `synced` syncs at the end.
    fn chain(synced: bool) -> Arc<dyn Vfs> {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = WalWriter::create(&vfs, 3, SegmentLink::default()).unwrap();
        for next in [5, 8, 0] {
            for record in [b"\x01one", b"\x01two"] {
                log.append([[&record[..1], &record[1..]]], &mut Vec::new()).unwrap();
            }
            if next > 0 {
                log.rotate(next).unwrap();
            }
        }
        if synced {
            log.sync().unwrap();
        }
        // A record after the sync proves what was durable.
        log.append([[&b"\x01"[..], b"three"]], &mut Vec::new()).unwrap();
        vfs
    }

    #[test]
    fn spare_segment_is_not_part_of_log() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = WalWriter::create(&vfs, 3, SegmentLink::default()).unwrap();
        log.append([[&b"\x01"[..], b"one"]], &mut Vec::new()).unwrap();
        let next = SpareSegment::create(vfs.as_ref(), 5).unwrap();
        // As after a crash now: the spare segment has no record.
        let (logs, records, replayed) = replay_all(&vfs, 3).unwrap();
        assert_eq!((logs, records, replayed.found), (vec![3], 1, vec![3, 5]));
        assert_eq!(replayed.logs, [3]);

        log.rotate_to(next).unwrap();
        log.append([[&b"\x01"[..], b"two"]], &mut Vec::new()).unwrap();
        log.sync().unwrap();
        let (logs, records, replayed) = replay_all(&vfs, 3).unwrap();
        assert_eq!((logs, records, replayed.logs), (vec![3, 5], 2, vec![3, 5]));
        let next = SpareSegment::create(vfs.as_ref(), 8).unwrap();
        next.remove(vfs.as_ref());
        assert_eq!(replay_all(&vfs, 3).unwrap().2.found, [3, 5]);
    }

    fn replay_all(vfs: &Arc<dyn Vfs>, first: u64) -> Result<(Vec<u64>, usize, ReplaySummary)> {
        let mut collector = Collector::default();
        let replayed = replay(vfs.as_ref(), first, None, None, &mut collector)?;
        let mut logs: Vec<u64> = collector.0.iter().map(|&(log, _)| log).collect();
        logs.dedup();
        Ok((logs, collector.0.len(), replayed))
    }

    fn truncate_log(vfs: &Arc<dyn Vfs>, number: u64) {
        let file = vfs.open(&FileKind::Log.name(FileNumber(number)), Mode::ReadWrite).unwrap();
        file.set_len(file.len().unwrap() - 3).unwrap();
    }

    #[test]
    fn obsolete_segments_are_not_replayed() {
        let vfs = chain(true);
        let (logs, records, replayed) = replay_all(&vfs, 0).unwrap();
        assert_eq!((logs, records), (vec![3, 5, 8], 7));
        assert!(replayed.is_unconfirmed);
        let (logs, records, _) = replay_all(&vfs, 5).unwrap();
        assert_eq!((logs, records), (vec![5, 8], 5));
    }

    #[test]
    fn lost_tail_ends_replay() {
        let vfs = chain(false);
        truncate_log(&vfs, 5);
        let (logs, records, replayed) = replay_all(&vfs, 0).unwrap();
        assert_eq!((logs, records), (vec![3, 5], 3));
        assert_eq!((replayed.found, replayed.logs), (vec![3, 5, 8], vec![3, 5]));
    }

    #[test]
    fn loss_of_synced_records_is_corruption() {
        let vfs = chain(true);
        truncate_log(&vfs, 5);
        assert!(replay_all(&vfs, 0).unwrap_err().is_corruption());
        let vfs = chain(true);
        vfs.remove(&FileKind::Log.name(FileNumber(5))).unwrap();
        assert!(replay_all(&vfs, 5).unwrap_err().is_corruption());
        let sealed = replay(chain(true).as_ref(), 9, Some(9), None, &mut Collector::default());
        assert!(sealed.unwrap_err().is_corruption());
    }

    #[test]
    fn truncated_append_does_not_claim_earlier_segments_synced() {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut log = WalWriter::create(&vfs, 3, SegmentLink::default()).unwrap();
        vfs.sync_dir(Purpose::Log).unwrap();
        log.append([[&b"\x01"[..], b"never synced"]], &mut Vec::new()).unwrap();
        log.rotate(5).unwrap();
        vfs.sync_dir(Purpose::Log).unwrap();
        faulty.fail_next(FaultKind::Write, 1);
        assert!(log.append([[&b"\x01"[..], b"refused"]], &mut Vec::new()).is_err());
        log.append([[&b"\x01"[..], b"taken"]], &mut Vec::new()).unwrap();
        let survivor: Arc<dyn Vfs> = Arc::new(faulty.survivors_as(Survival::LoseAll, 1));
        let (_, records, replayed) = replay_all(&survivor, 0).unwrap();
        assert_eq!((records, replayed.logs.len()), (0, 0), "log 3 was never synced");
    }

    #[test]
    fn wal_is_read_only_after_failed_rotation_that_cannot_be_undone() {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut log = WalWriter::create(&vfs, 3, SegmentLink::default()).unwrap();
        let next = SpareSegment::create(vfs.as_ref(), 5).unwrap();
        // The link, the cut, and the removal.
        faulty.fail_next(FaultKind::Any, 3);
        assert!(matches!(log.rotate_to(next), Err(Error::ReadOnly { .. })));
        let appended = log.append([[&b"\x01"[..], b"x"]], &mut Vec::new());
        assert!(matches!(appended, Err(Error::ReadOnly { .. })), "{appended:?}");
    }
}
