//! Replaying a chain of logs: which of them count, and how far.
//!
//! ```text
//!   logs on the medium   4   7 ──▶ 9 ──╳ 12        first log needed: 7
//!                        │   └──┬──┘     └ 9 ends earlier than 12's link says: a power cut took
//!                        │      │          its tail, and 12 is not replayed
//!                        │      replayed, record by record
//!                        └ in tables: not read
//! ```
//!
//! That something is missing is a power cut's right only if nothing behind it had been synced: a
//! synced write syncs the logs before it first. So a log that is not replayed and was synced or
//! sealed is damage: not its own, but that of the log at which the chain breaks, which is named.
//!
//! Invariant: the records that are replayed are a prefix of those that were appended, and hold all
//! that were synced; or the answer is an error.
//!
//! Source: ours.

use std::collections::BTreeMap;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use super::chain::{KIND_LINK, Link};
use super::{LogMode, LogReader};
use crate::{FileKind, FileNumber, parse_file_name};

/// What takes the records of a chain, in order.
pub trait Replay {
    /// The log `number` comes next. What had begun in the log before and has no end never was.
    ///
    /// # Errors
    /// Whatever keeps it from being replayed.
    fn begin(&mut self, number: u64) -> Result<()>;

    /// The record that begins at `position` of the log begun last.
    ///
    /// # Errors
    /// Whatever keeps it from being replayed; [`malformed`] if its bytes make no sense.
    fn record(&mut self, position: u64, bytes: &[u8]) -> Result<()>;

    /// The log begun last holds records up to `end`, its number and length.
    fn end(&mut self, end: Link) {
        let _ = end;
    }
}

/// What was replayed.
#[derive(Debug, Default)]
pub struct Replayed {
    /// All logs that were found, in order, replayed or not: their numbers are taken.
    pub found: Vec<u64>,
    /// Those that were replayed.
    pub logs: Vec<u64>,
    /// The last of them and its length: what the next log must name.
    pub end: Link,
    /// They end with one that was not sealed. What they hold may be in doubt, because the run that
    /// wrote it may have seen a sync fail: no later sync repairs that.
    pub is_doubtful: bool,
}

/// A record that passed its checksum and still makes no sense.
pub fn malformed(log: u64, position: u64, reason: impl Into<String>) -> Error {
    Error::corruption(FileKind::Log.name(FileNumber(log)), position, reason)
}

/// Replays the logs from `first`, the first that is needed. `sealed` was sealed at a clean close.
/// Afterwards what was replayed is durable.
///
/// # Errors
/// Corruption, if what had been synced or sealed is not there; those of the medium and of `into`.
pub fn replay(
    vfs: &dyn Vfs,
    first: u64,
    sealed: Option<u64>,
    into: &mut dyn Replay,
) -> Result<Replayed> {
    replay_synced(vfs, first, sealed, None, into)
}

/// The same where it is known from elsewhere that a log, unless it is no longer needed, was durable
/// up to a length.
///
/// # Errors
/// Those of [`replay`](fn@replay); `Corruption` if so much is not there.
pub fn replay_synced(
    vfs: &dyn Vfs,
    first: u64,
    sealed: Option<u64>,
    synced: Option<(u64, u64)>,
    into: &mut dyn Replay,
) -> Result<Replayed> {
    let mut replayed = Replayed { found: logs_from(vfs, first)?, ..Replayed::default() };
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
    // What was read may be in the page cache only, if just the process had died. The next log is
    // about to claim that these are whole.
    for &number in &replayed.logs {
        let name = FileKind::Log.name(FileNumber(number));
        vfs.open(&name, Mode::ReadWrite)?.sync(Purpose::Recovery)?;
    }
    replayed.is_doubtful = replayed.logs.last().is_some_and(|&last| sealed != Some(last));
    Ok(replayed)
}

/// The numbers of the logs from `first` on, ascending.
pub(super) fn logs_from(vfs: &dyn Vfs, first: u64) -> Result<Vec<u64>> {
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

/// What is known of the logs that were read so far.
#[derive(Default)]
struct Chain {
    /// The first log that is needed.
    first: u64,
    /// Where the whole records of each log end.
    ends: BTreeMap<u64, u64>,
    /// Which log lacks something, so that the next one does not follow it.
    broken: Option<Error>,
}

impl Chain {
    /// Why the log `number`, which begins with `link` if it has records, does not follow the one
    /// before: that one is missing or ends too early, or this is no log of the chain.
    fn blame(&self, number: u64, link: Option<Link>) -> Option<Error> {
        let name = FileKind::Log.name(FileNumber(number));
        let link = link?;
        if link.number < self.first.max(1) || link.number >= number {
            return Some(malformed(number, 0, "it does not follow the logs before it"));
        }
        let Some(&end) = self.ends.get(&link.number) else {
            return Some(malformed(link.number, 0, format!("it is missing: {name} follows it")));
        };
        let short = format!("it ends here, and {name} says that it had {} bytes", link.bytes);
        (end != link.bytes).then(|| malformed(link.number, end, short))
    }
}

fn replay_log(
    mut reader: LogReader,
    number: u64,
    chain: &mut Chain,
    replayed: &mut Replayed,
    into: &mut dyn Replay,
) -> Result<()> {
    let (mut first_link, mut is_chained) = (None, false);
    while let Some(record) = reader.next()? {
        let position = record.position;
        if first_link.is_none() {
            let link =
                Link::decode(record.bytes).map_err(|why| malformed(number, position, why))?;
            first_link = Some(link);
            is_chained = match replayed.logs.last() {
                Some(_) => link == replayed.end,
                // Logs below the first are not needed: whatever they held is elsewhere.
                None => link.number < chain.first.max(1),
            };
            if is_chained {
                replayed.logs.push(number);
                into.begin(number)?;
            }
        } else if record.bytes.first() == Some(&KIND_LINK) {
            return Err(malformed(number, position, "a link behind other records"));
        } else if is_chained {
            into.record(position, record.bytes)?;
        }
        // Else the reader goes on only to learn whether anything in it was synced.
    }
    chain.ends.insert(number, reader.valid_bytes());
    if is_chained {
        replayed.end = Link { number, bytes: reader.valid_bytes() };
        into.end(replayed.end);
        return Ok(());
    }
    if chain.broken.is_none() {
        chain.broken = chain.blame(number, first_link);
    }
    if reader.was_synced() {
        let lost = || malformed(number, 0, "the log before it lost writes that had been synced");
        return Err(chain.broken.clone().unwrap_or_else(lost));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{SpareSegment, WalWriter};
    use super::*;
    use siltstone_faults::{FaultKind, Faulty, Survival};
    use siltstone_vfs::Ram;
    use std::sync::Arc;

    /// Remembers what it is given.
    #[derive(Default)]
    struct Heard(Vec<(u64, Vec<u8>)>, u64);

    impl Replay for Heard {
        fn begin(&mut self, number: u64) -> Result<()> {
            self.1 = number;
            Ok(())
        }

        fn record(&mut self, _: u64, bytes: &[u8]) -> Result<()> {
            self.0.push((self.1, bytes.to_vec()));
            Ok(())
        }
    }

    /// Logs 3, 5 and 8 with two records each; `synced` syncs in the end.
    fn chain(synced: bool) -> Arc<dyn Vfs> {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = WalWriter::create(&vfs, 3, Link::default()).unwrap();
        for next in [5, 8, 0] {
            for record in [b"\x01one", b"\x01two"] {
                log.append(&[[&record[..1], &record[1..]]], &mut Vec::new()).unwrap();
            }
            if next > 0 {
                log.rotate(next).unwrap();
            }
        }
        if synced {
            log.sync().unwrap();
        }
        // More records after the sync prove what had been durable.
        log.append(&[[b"\x01", b"three"]], &mut Vec::new()).unwrap();
        vfs
    }

    #[test]
    fn is_a_log_that_was_only_prepared_no_part_of_the_chain() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut log = WalWriter::create(&vfs, 3, Link::default()).unwrap();
        log.append(&[[b"\x01", b"one"]], &mut Vec::new()).unwrap();
        let next = SpareSegment::create(vfs.as_ref(), 5).unwrap();
        // As if the process died now: the one that was prepared has no record.
        let (logs, records, replayed) = heard(&vfs, 3).unwrap();
        assert_eq!((logs, records, replayed.found), (vec![3], 1, vec![3, 5]));
        assert_eq!(replayed.logs, [3]);

        log.rotate_to(next).unwrap();
        log.append(&[[b"\x01", b"two"]], &mut Vec::new()).unwrap();
        log.sync().unwrap();
        let (logs, records, replayed) = heard(&vfs, 3).unwrap();
        assert_eq!((logs, records, replayed.logs), (vec![3, 5], 2, vec![3, 5]));
        let next = SpareSegment::create(vfs.as_ref(), 8).unwrap();
        next.remove(vfs.as_ref());
        assert_eq!(heard(&vfs, 3).unwrap().2.found, [3, 5]);
    }

    fn heard(vfs: &Arc<dyn Vfs>, first: u64) -> Result<(Vec<u64>, usize, Replayed)> {
        let mut heard = Heard::default();
        let replayed = replay(vfs.as_ref(), first, None, &mut heard)?;
        let mut logs: Vec<u64> = heard.0.iter().map(|&(log, _)| log).collect();
        logs.dedup();
        Ok((logs, heard.0.len(), replayed))
    }

    fn cut(vfs: &Arc<dyn Vfs>, number: u64) {
        let file = vfs.open(&FileKind::Log.name(FileNumber(number)), Mode::ReadWrite).unwrap();
        file.set_len(file.len().unwrap() - 3).unwrap();
    }

    #[test]
    fn is_a_whole_chain_replayed_and_what_is_not_needed_left() {
        let vfs = chain(true);
        let (logs, records, replayed) = heard(&vfs, 0).unwrap();
        assert_eq!((logs, records), (vec![3, 5, 8], 7));
        assert!(replayed.is_doubtful);
        let (logs, records, _) = heard(&vfs, 5).unwrap();
        assert_eq!((logs, records), (vec![5, 8], 5));
    }

    #[test]
    fn does_a_lost_tail_end_the_chain() {
        let vfs = chain(false);
        cut(&vfs, 5);
        let (logs, records, replayed) = heard(&vfs, 0).unwrap();
        assert_eq!((logs, records), (vec![3, 5], 3));
        assert_eq!((replayed.found, replayed.logs), (vec![3, 5, 8], vec![3, 5]));
    }

    #[test]
    fn is_the_loss_of_what_was_synced_damage() {
        let vfs = chain(true);
        cut(&vfs, 5);
        assert!(heard(&vfs, 0).unwrap_err().is_corruption());
        let vfs = chain(true);
        vfs.remove(&FileKind::Log.name(FileNumber(5))).unwrap();
        assert!(heard(&vfs, 5).unwrap_err().is_corruption());
        let sealed = replay(chain(true).as_ref(), 9, Some(9), &mut Heard::default());
        assert!(sealed.unwrap_err().is_corruption());
    }

    #[test]
    fn log_cut_back_after_failed_append_claims_nothing_of_logs_before_it() {
        let faulty = Faulty::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut log = WalWriter::create(&vfs, 3, Link::default()).unwrap();
        vfs.sync_dir(Purpose::Log).unwrap();
        log.append(&[[b"\x01", b"never synced"]], &mut Vec::new()).unwrap();
        log.rotate(5).unwrap();
        vfs.sync_dir(Purpose::Log).unwrap();
        faulty.fail_next(FaultKind::Write, 1);
        assert!(log.append(&[[b"\x01", b"refused"]], &mut Vec::new()).is_err());
        log.append(&[[b"\x01", b"taken"]], &mut Vec::new()).unwrap();
        let survivor: Arc<dyn Vfs> = Arc::new(faulty.survivors_as(Survival::LoseAll, 1));
        let (_, records, replayed) = heard(&survivor, 0).unwrap();
        assert_eq!((records, replayed.logs.len()), (0, 0), "log 3 was never synced");
    }

    #[test]
    fn chain_takes_no_more_after_next_log_that_could_not_be_undone() {
        let faulty = Faulty::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let mut log = WalWriter::create(&vfs, 3, Link::default()).unwrap();
        let next = SpareSegment::create(vfs.as_ref(), 5).unwrap();
        // The link, the cut, and the removal.
        faulty.fail_next(FaultKind::Any, 3);
        assert!(matches!(log.rotate_to(next), Err(Error::ReadOnly { .. })));
        let appended = log.append(&[[b"\x01", b"x"]], &mut Vec::new());
        assert!(matches!(appended, Err(Error::ReadOnly { .. })), "{appended:?}");
    }
}
