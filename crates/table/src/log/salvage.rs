//! Reading every whole record of a chain of logs, however damaged the logs are.
//!
//! ```text
//!   log 7  [record record ~~~~~~ record]      ~ does not hold: a gap; the walk goes on behind it
//!   log 9  missing                            log 12's link says so, and how long log 9 was
//!   log 12 [~~~~ record record                its first whole record ends the gap
//! ```
//!
//! [`replay`](super::replay()) stops at the first damage, because recovery promises a prefix. A
//! repair wants the rest, too. A fragment is under a checksum of its own that depends on the log's
//! number and the place, so whole fragments are found behind damage: byte by byte in the damaged
//! block, at the boundary of each later one.
//!
//! How long a log was is told by its seal, by the link in the next log, or by the manifest. So a
//! log that was cut off between two records is noticed, unless it is the last one and was not
//! sealed. Two logs that have changed places are read under each other's names.
//!
//! Behind the length that is told for a log nothing is read: a recovery has cut the log off there,
//! and what still stands behind it never was.
//!
//! Invariant: each byte before the end of a log is in a whole record, in padding between two that
//! follow each other, or in a reported gap.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use siltstone_engine::{Loss, Purpose, Result};
use siltstone_vfs::{File, Mode, Vfs};

use super::chain::{KIND_LINK, Link};
use super::format::{
    BLOCK, FRAGMENT, HEADER, HeaderFault, LogSum, Part, fits_fragment, parse_seal,
};
use super::reader::newer;
use super::replay::logs_from;
use crate::{FileKind, FileNumber};

/// What a walk over a damaged log meets, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Salvaged<'a> {
    /// A whole record of the engine.
    Record {
        /// Where it begins in the log.
        position: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// Bytes in which records may have been, and which do not hold or are missing.
    Gap(Range<u64>),
}

/// A log of a chain, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSalvage {
    /// The log's number.
    pub number: u64,
    /// The file that has its bytes; `None` if the log is missing.
    pub file: Option<String>,
    /// What does not hold, and where; `None` if the log is sound.
    pub damage: Option<(u64, String)>,
    /// Bytes in which records may have been, and which do not hold or are missing.
    pub gaps: Vec<Range<u64>>,
    /// Records end here at the latest.
    limit: u64,
}

impl LogSalvage {
    /// The log's own name.
    pub fn name(&self) -> String {
        FileKind::Log.name(FileNumber(self.number))
    }

    /// Hands out every whole record and every gap, in order; links are not handed out. Cost: reads
    /// the log once.
    ///
    /// # Errors
    /// The medium's, and those of `visit`.
    pub fn visit(
        &self,
        vfs: &dyn Vfs,
        mut visit: impl FnMut(Salvaged<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut gaps = self.gaps.iter().cloned().peekable();
        if let Some(file) = &self.file {
            let file = vfs.open(file, Mode::Read)?;
            scan(file.as_ref(), self.number, self.limit, &mut |position, bytes| {
                while let Some(gap) = gaps.next_if(|gap| gap.start <= position) {
                    visit(Salvaged::Gap(gap))?;
                }
                if bytes.first() == Some(&KIND_LINK) {
                    return Ok(());
                }
                visit(Salvaged::Record { position, bytes })
            })?;
        }
        gaps.try_for_each(|gap| visit(Salvaged::Gap(gap)))
    }

    fn missing(number: u64, (bytes, says): &(u64, String)) -> Self {
        let damage = format!("it is missing: {says} says that it had {bytes} bytes");
        let gaps = std::iter::once(0..*bytes).collect();
        LogSalvage { number, file: None, damage: Some((0, damage)), gaps, limit: *bytes }
    }

    fn read(
        vfs: &dyn Vfs,
        number: u64,
        name: String,
        length: Option<&(u64, String)>,
        least: u64,
        is_sealed: bool,
    ) -> Result<Self> {
        let file = vfs.open(&name, Mode::Read)?;
        let limit = length.map_or(u64::MAX, |(bytes, _)| *bytes);
        let scan = scan(file.as_ref(), number, limit, &mut |_, _| Ok(()))?;
        Ok(scan.judge(number, name, length, least, is_sealed))
    }
}

/// Looks for all logs of a chain and for what is wrong with each, in the order of their numbers.
/// `first` is the first log that is needed; without it nothing tells which logs are missing.
/// `sealed` is the log that a clean close sealed, and its length; `synced` one that is known to
/// have been durable up to a length at least.
///
/// # Errors
/// The medium's; `Refused` for a newer format.
pub fn salvage_chain(
    vfs: &dyn Vfs,
    first: Option<u64>,
    sealed: Option<(u64, u64)>,
    synced: Option<(u64, u64)>,
) -> Result<Vec<LogSalvage>> {
    let numbers = logs_from(vfs, first.unwrap_or(0))?;
    let files = places(vfs, &numbers)?;
    // What the next log's link or the manifest says of each log.
    let mut lengths: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    for (&number, name) in &files {
        let file = vfs.open(name, Mode::Read)?;
        if let Some(link) = scan(file.as_ref(), number, u64::MAX, &mut |_, _| Ok(()))?.link {
            let says = FileKind::Log.name(FileNumber(number));
            lengths.insert(link.number, (link.bytes, says));
        }
    }
    if let Some((number, bytes)) = sealed {
        lengths.insert(number, (bytes, "the manifest".to_owned()));
    }
    let least =
        |number: u64| synced.filter(|(synced, _)| *synced == number).map_or(0, |(_, bytes)| bytes);
    let first = first.map(|first| first.max(1));
    let is_needed = |number: u64| first.is_some_and(|first| number >= first);
    let mut logs: Vec<LogSalvage> = (lengths.iter())
        .filter(|&(number, _)| is_needed(*number) && !files.contains_key(number))
        .map(|(&number, length)| LogSalvage::missing(number, length))
        .collect();
    // At least so long; it may have been longer.
    let is_unknown = |number: u64| {
        is_needed(number) && !files.contains_key(&number) && !lengths.contains_key(&number)
    };
    if let Some((number, bytes)) = synced.filter(|(number, _)| is_unknown(*number)) {
        let missing = LogSalvage::missing(number, &(bytes, "the manifest".to_owned()));
        logs.push(LogSalvage { gaps: std::iter::once(0..u64::MAX).collect(), ..missing });
    }
    for (number, name) in files {
        let length = lengths.get(&number);
        let is_sealed = sealed.is_some_and(|(sealed, _)| sealed == number);
        logs.push(LogSalvage::read(vfs, number, name, length, least(number), is_sealed)?);
    }
    logs.sort_unstable_by_key(|log| log.number);
    Ok(logs)
}

/// The same for a single log whose first `bytes` are needed.
///
/// # Errors
/// The medium's; `Refused` for a newer format.
pub fn salvage_log(vfs: &dyn Vfs, number: u64, bytes: u64) -> Result<LogSalvage> {
    let name = FileKind::Log.name(FileNumber(number));
    let length = (bytes, "the manifest".to_owned());
    match vfs.exists(&name)? {
        true => LogSalvage::read(vfs, number, name, Some(&length), 0, false),
        false => Ok(LogSalvage::missing(number, &length)),
    }
}

/// Finds out which operations a gap between records held, from the sequence numbers around it.
#[derive(Debug, Default)]
pub struct GapTracker {
    last: Option<u64>,
    /// Every record holds operations that follow those of the record before.
    are_consecutive: bool,
    open: Vec<Loss>,
    losses: Vec<Loss>,
}

impl GapTracker {
    /// Operations up to `last` are known to be in tables.
    pub fn behind(last: Option<u64>) -> Self {
        GapTracker { last: last.filter(|&last| last > 0), ..Self::default() }
    }

    /// The same for logs in which every record holds operations that follow those of the record
    /// before: a gap between consecutive operations is then known to have held none, and is no
    /// loss.
    pub fn consecutive(last: u64) -> Self {
        GapTracker { are_consecutive: true, ..Self::behind(Some(last)) }
    }

    /// A gap in `file` comes next.
    pub fn gap(&mut self, file: &str, bytes: Range<u64>) {
        self.open.push(Loss::entries(file, bytes));
    }

    /// The operations `first` to `last` come next.
    pub fn operations(&mut self, first: u64, last: u64) {
        let (after, before) = (self.last.unwrap_or(0) + 1, first.saturating_sub(1));
        let was_empty = self.are_consecutive && after > before;
        let lost = self.open.drain(..).filter(|_| !was_empty);
        self.losses.extend(lost.map(|loss| loss.with_sequences(after, before)));
        self.last = Some(self.last.unwrap_or(0).max(last));
    }

    /// All gaps, in order. Of those behind the last record only the bytes are known.
    pub fn finish(mut self) -> Vec<Loss> {
        self.losses.append(&mut self.open);
        self.losses
    }
}

/// The file of each log: its own, unless two logs have changed places.
fn places(vfs: &dyn Vfs, numbers: &[u64]) -> Result<BTreeMap<u64, String>> {
    let name = |number: u64| FileKind::Log.name(FileNumber(number));
    let (mut written_as, mut empty) = (BTreeMap::new(), BTreeSet::new());
    for &number in numbers {
        let file = vfs.open(&name(number), Mode::Read)?;
        let mut header = [0; HEADER as usize];
        if file.len()? >= HEADER {
            file.read_at(0, &mut header, Purpose::Maintenance)?;
            let told = u64::from_le_bytes(std::array::from_fn(|i| header[8 + i]));
            let holds = LogSum::new(told).parse_header(0, &header).is_ok();
            written_as.insert(number, if holds { told } else { number });
        } else {
            empty.insert(number);
        }
    }
    // Only where the exchange is mutual: a log of another table must not be taken for one of this.
    let place = |number: u64| match written_as.get(&number) {
        Some(other) if written_as.get(other) == Some(&number) => *other,
        Some(other) if empty.contains(other) => *other,
        None => {
            let mut others = written_as.iter().filter(|(_, told)| **told == number);
            others.next().map_or(number, |(other, _)| *other)
        }
        _ => number,
    };
    Ok(numbers.iter().map(|&number| (number, name(place(number)))).collect())
}

/// What a walk over one file found.
#[derive(Default)]
struct Scan {
    link: Option<Link>,
    gaps: Vec<Range<u64>>,
    /// Behind the last whole record.
    end: u64,
    /// Behind the last byte that is not zero.
    dirty_to: u64,
    /// The length of the file.
    bytes: u64,
    /// The seal's `data_end`, and where the seal ends.
    seal: Option<(u64, u64)>,
    /// The first bytes that do not hold.
    fault: Option<(u64, String)>,
}

impl Scan {
    /// Puts together what the file says with what others say of its length.
    fn judge(
        mut self,
        number: u64,
        file: String,
        length: Option<&(u64, String)>,
        least: u64,
        is_sealed: bool,
    ) -> LogSalvage {
        let end = self.end;
        let mut fault = |at: u64, what: String| {
            self.fault.get_or_insert((at, what));
        };
        let data_end = length.map(|(bytes, _)| *bytes).or(self.seal.map(|(data_end, _)| data_end));
        if let Some((bytes, says)) = length
            && *bytes != end
        {
            fault(end, format!("its records end here, and {says} says that it had {bytes} bytes"));
        }
        if length.is_none() && least > end {
            fault(end, format!("its records end here, and {least} bytes had been synced"));
        }
        match self.seal {
            None if is_sealed => {
                fault(end, "it was sealed at close, and its seal is missing".into())
            }
            // Zeros, too, where the power was not cut amid sealing.
            Some((_, ends_at)) if self.dirty_to > ends_at || is_sealed && self.bytes > ends_at => {
                fault(ends_at, "there are bytes behind its seal".to_owned());
            }
            // Without a seal bytes that are no record are a write that was cut off, at best.
            None if self.dirty_to > end => fault(end, "bytes behind the last record".to_owned()),
            _ => {}
        }
        // Of a log that nothing tells the length of, more may be missing than is there.
        let is_torn = self.dirty_to > end || least > end;
        let lost_to = data_end.unwrap_or(if is_torn { u64::MAX } else { end });
        if lost_to > end {
            self.gaps.push(end..lost_to);
        }
        if file != FileKind::Log.name(FileNumber(number)) {
            self.fault = Some((0, format!("it is in the place of {file}")));
        }
        let limit = length.map_or(u64::MAX, |(bytes, _)| *bytes);
        LogSalvage { number, file: Some(file), damage: self.fault, gaps: self.gaps, limit }
    }
}

/// Walks the log `number` in `file`; `visit` gets each whole record before `limit` and its
/// position.
fn scan(
    file: &dyn File,
    number: u64,
    limit: u64,
    visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Scan> {
    let (sum, len) = (LogSum::new(number), file.len()?);
    let found = Scan { bytes: len, ..Scan::default() };
    let mut walk = Walk { found, limit, expected: HEADER, begun: None, is_broken: false };
    let mut block = vec![0; BLOCK as usize];
    for block_at in (0..len).step_by(BLOCK as usize) {
        block.resize(BLOCK.min(len - block_at) as usize, 0);
        file.read_at(block_at, &mut block, Purpose::Maintenance)?;
        let Some(last) = block.iter().rposition(|&byte| byte != 0) else { continue };
        walk.found.dirty_to = block_at + last as u64 + 1;
        match sum.parse_header(block_at, &block) {
            Ok(_) => {}
            Err(HeaderFault::Newer(version)) => {
                return Err(newer(&FileKind::Log.name(FileNumber(number)), version));
            }
            Err(HeaderFault::Damaged(reason)) => walk.fault(block_at, reason),
        }
        let mut at = HEADER as usize;
        while at <= last && fits_fragment(at as u64) {
            let position = block_at + at as u64;
            match sum.parse_fragment(position, &block[at..]) {
                Ok(fragment) => {
                    let payload = at + FRAGMENT as usize;
                    at = payload + fragment.len;
                    let end = block_at + at as u64;
                    walk.fragment(fragment.part, position..end, &block[payload..at], visit)?;
                }
                // Zeros up to the next fragment were never written, or are gone.
                Err(_)
                    if block[at] == 0
                        && block[at..].iter().take(FRAGMENT as usize).all(|&b| b == 0) =>
                {
                    at += 1;
                }
                Err(reason) => {
                    walk.fault(position, reason);
                    at += 1;
                }
            }
        }
        if at <= last {
            walk.fault(block_at + at as u64, "the padding of a block is not zero");
        }
    }
    Ok(walk.found)
}

struct Walk {
    found: Scan,
    /// Fragments begin before this.
    limit: u64,
    /// Where the next fragment begins if nothing is missing before it.
    expected: u64,
    /// A record of which a part was read: where it begins, and its bytes.
    begun: Option<(u64, Vec<u8>)>,
    /// Something behind the last whole record does not hold.
    is_broken: bool,
}

impl Walk {
    fn fault(&mut self, at: u64, reason: &str) {
        self.found.fault.get_or_insert_with(|| (at, reason.to_owned()));
    }

    fn fragment(
        &mut self,
        part: Part,
        place: Range<u64>,
        payload: &[u8],
        visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if part == Part::Seal {
            self.found.seal = parse_seal(payload).map(|(data_end, _)| (data_end, place.end));
            return Ok(());
        }
        if place.start >= self.limit {
            return Ok(());
        }
        let follows = place.start == self.expected;
        if !follows {
            self.is_broken = true;
            self.fault(self.expected, "there is no fragment");
        }
        self.expected = match fits_fragment(place.end % BLOCK) && !place.end.is_multiple_of(BLOCK) {
            true => place.end,
            false => place.end.next_multiple_of(BLOCK) + HEADER,
        };
        let mut begun = self.begun.take().filter(|_| follows);
        match part {
            Part::Full | Part::First => {
                self.is_broken |= begun.is_some();
                if part == Part::First {
                    self.begun = Some((place.start, payload.to_vec()));
                    return Ok(());
                }
                self.record(place.start, place.end, payload, visit)
            }
            Part::Middle | Part::Last => {
                let Some((position, mut bytes)) = begun.take() else {
                    self.is_broken = true;
                    return Ok(());
                };
                bytes.extend_from_slice(payload);
                if part == Part::Middle {
                    self.begun = Some((position, bytes));
                    return Ok(());
                }
                self.record(position, place.end, &bytes, visit)
            }
            Part::Seal => Ok(()),
        }
    }

    fn record(
        &mut self,
        position: u64,
        end: u64,
        bytes: &[u8],
        visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        if std::mem::take(&mut self.is_broken) {
            self.found.gaps.push(self.found.end..position);
        }
        if position == HEADER {
            self.found.link = Link::decode(bytes).ok();
        }
        self.found.end = end;
        visit(position, bytes)
    }
}
