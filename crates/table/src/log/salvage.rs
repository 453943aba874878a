//! Salvage: reads every intact record of a write-ahead log, however damaged.
//!
//! ```text
//!   log 7  [record record ~~~~~~ record]      ~ invalid: a gap; reading continues after it
//!   log 9  missing                            log 12's link names it and its length
//!   log 12 [~~~~ record record                its first whole record ends the gap
//! ```
//!
//! [`replay`](super::replay()) stops at the first damage, because recovery promises a prefix. A
//! repair also needs the rest. A fragment's checksum depends on the log's number and the offset, so
//! intact fragments are found after damage: at any byte of the damaged block, and from the start of
//! each later block.
//!
//! The length of a segment is stated by its seal, by the next segment's link, or by the manifest,
//! so truncation at a record boundary is detected except in an unsealed last segment. Bytes beyond
//! that length are ignored: a recovery has cut the segment there. Two segments with swapped file
//! names are read under their right numbers.
//!
//! Invariant: each byte before the end of a segment is in a whole record, in padding between two
//! consecutive records, or in a reported gap.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use siltstone_engine::{Loss, Purpose, Result};
use siltstone_vfs::{File, Mode, Vfs};

use super::format::{
    BLOCK_BYTES, FRAGMENT_HEADER_BYTES, HEADER_BYTES, HeaderFault, LogSum, Part, fits_fragment,
    parse_seal,
};
use super::part::PartRecord;
use super::reader::newer;
use super::replay::logs_from;
use super::wal::{KIND_LINK, SegmentLink};
use crate::{FileKind, FileNumber};

/// An item of a damaged log, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SalvageItem<'a> {
    /// An intact record of the engine.
    Record {
        /// Its offset in the segment.
        position: u64,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// Invalid or missing bytes that may have contained records.
    Gap(Range<u64>),
}

/// A segment of a write-ahead log, with its damage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSalvage {
    /// What it is: a segment, or a file of the same format.
    pub kind: FileKind,
    /// The segment's number.
    pub number: u64,
    /// The file with its bytes; `None` if the segment is missing.
    pub file: Option<String>,
    /// The first damage: offset and description; `None` if the segment passes verification.
    pub damage: Option<(u64, String)>,
    /// Invalid or missing byte ranges that may have contained records.
    pub gaps: Vec<Range<u64>>,
    /// Records are valid up to this offset.
    limit: u64,
}

impl LogSalvage {
    /// The segment's file name.
    pub fn name(&self) -> String {
        self.kind.name(FileNumber(self.number))
    }

    /// Visits every intact record and every gap, in order, without links and beginnings of parts.
    /// Cost: reads the segment once.
    ///
    /// # Errors
    /// I/O errors; errors of `visit`.
    pub fn visit(
        &self,
        vfs: &dyn Vfs,
        mut visit: impl FnMut(SalvageItem<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut gaps = self.gaps.iter().cloned().peekable();
        if let Some(file) = &self.file {
            let file = vfs.open(file, Mode::Read)?;
            scan(file.as_ref(), self.number, self.limit, &mut |position, bytes| {
                while let Some(gap) = gaps.next_if(|gap| gap.start <= position) {
                    visit(SalvageItem::Gap(gap))?;
                }
                if bytes.first() == Some(&KIND_LINK) || PartRecord::is_in(bytes) {
                    return Ok(());
                }
                visit(SalvageItem::Record { position, bytes })
            })?;
        }
        gaps.try_for_each(|gap| visit(SalvageItem::Gap(gap)))
    }

    fn missing(number: u64, (bytes, source): &(u64, String)) -> Self {
        let damage = format!("it is missing: {source} states that it had {bytes} bytes");
        let gaps = std::iter::once(0..*bytes).collect();
        LogSalvage {
            kind: FileKind::Log,
            number,
            file: None,
            damage: Some((0, damage)),
            gaps,
            limit: *bytes,
        }
    }

    fn read(
        vfs: &dyn Vfs,
        number: u64,
        name: String,
        length: Option<&(u64, String)>,
        min_bytes: u64,
        is_sealed: bool,
    ) -> Result<Self> {
        let file = vfs.open(&name, Mode::Read)?;
        let limit = length.map_or(u64::MAX, |(bytes, _)| *bytes);
        let scan = scan(file.as_ref(), number, limit, &mut |_, _| Ok(()))?;
        Ok(scan.into_salvage(number, name, length, min_bytes, is_sealed))
    }
}

/// Finds all segments and their damage, in the order of their numbers. `first` is the first
/// segment needed; without it, missing segments cannot be determined. `sealed` is the segment
/// sealed by a clean close, and its length; `synced` is a segment and a length up to which it is
/// known to have been durable.
///
/// # Errors
/// I/O errors; `Refused` for a newer format.
pub fn salvage_chain(
    vfs: &dyn Vfs,
    first: Option<u64>,
    sealed: Option<(u64, u64)>,
    synced: Option<(u64, u64)>,
) -> Result<Vec<LogSalvage>> {
    let numbers = logs_from(vfs, first.unwrap_or(0))?;
    let files = find_files(vfs, &numbers)?;
    // Lengths of segments, from the next segment's link or from the manifest.
    let mut lengths: BTreeMap<u64, (u64, String)> = BTreeMap::new();
    for (&number, name) in &files {
        let file = vfs.open(name, Mode::Read)?;
        if let Some(link) = scan(file.as_ref(), number, u64::MAX, &mut |_, _| Ok(()))?.link {
            let source = FileKind::Log.name(FileNumber(number));
            lengths.insert(link.number, (link.bytes, source));
        }
    }
    if let Some((number, bytes)) = sealed {
        lengths.insert(number, (bytes, "the manifest".to_owned()));
    }
    let min_bytes =
        |number: u64| synced.filter(|(synced, _)| *synced == number).map_or(0, |(_, bytes)| bytes);
    let first = first.map(|first| first.max(1));
    let is_needed = |number: u64| first.is_some_and(|first| number >= first);
    let mut logs: Vec<LogSalvage> = (lengths.iter())
        .filter(|&(number, _)| is_needed(*number) && !files.contains_key(number))
        .map(|(&number, length)| LogSalvage::missing(number, length))
        .collect();
    // `bytes` is only its minimum length.
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
        logs.push(LogSalvage::read(vfs, number, name, length, min_bytes(number), is_sealed)?);
    }
    logs.sort_unstable_by_key(|log| log.number);
    Ok(logs)
}

/// The same for one segment, or one file of the same format, of which the first `bytes` are needed;
/// `None`: all of it.
///
/// # Errors
/// I/O errors; `Refused` for a newer format.
pub fn salvage_log(
    vfs: &dyn Vfs,
    (kind, number): (FileKind, u64),
    bytes: Option<u64>,
) -> Result<LogSalvage> {
    let name = kind.name(FileNumber(number));
    let length = bytes.map(|bytes| (bytes, "the manifest".to_owned()));
    let log = match (vfs.exists(&name)?, &length) {
        (false, Some(length)) => LogSalvage::missing(number, length),
        _ => LogSalvage::read(vfs, number, name, length.as_ref(), 0, false)?,
    };
    Ok(LogSalvage { kind, ..log })
}

/// Determines the lost operations of a gap from the sequence numbers around it.
#[derive(Debug, Default)]
pub struct GapTracker {
    last: Option<u64>,
    /// The sequence numbers of consecutive records are consecutive.
    are_consecutive: bool,
    open: Vec<Loss>,
    losses: Vec<Loss>,
}

impl GapTracker {
    /// Starts after `last`, up to which all operations are in tables.
    pub fn after(last: Option<u64>) -> Self {
        GapTracker { last: last.filter(|&last| last > 0), ..Self::default() }
    }

    /// The same for logs whose records have consecutive sequence numbers: a gap between consecutive
    /// operations then contained none and is not a loss.
    pub fn consecutive(last: u64) -> Self {
        GapTracker { are_consecutive: true, ..Self::after(Some(last)) }
    }

    /// Adds a gap in `file`.
    pub fn gap(&mut self, file: &str, bytes: Range<u64>) {
        self.open.push(Loss::entries(file, bytes));
    }

    /// Adds the operations `first` to `last`.
    pub fn operations(&mut self, first: u64, last: u64) {
        let (after, before) = (self.last.unwrap_or(0) + 1, first.saturating_sub(1));
        let was_empty = self.are_consecutive && after > before;
        let lost = self.open.drain(..).filter(|_| !was_empty);
        self.losses.extend(lost.map(|loss| loss.with_sequences(after, before)));
        self.last = Some(self.last.unwrap_or(0).max(last));
    }

    /// All losses, in order. For gaps after the last record only the byte range is known.
    pub fn finish(mut self) -> Vec<Loss> {
        self.losses.append(&mut self.open);
        self.losses
    }
}

/// The file of each segment: its own, unless two files were swapped.
fn find_files(vfs: &dyn Vfs, numbers: &[u64]) -> Result<BTreeMap<u64, String>> {
    let name = |number: u64| FileKind::Log.name(FileNumber(number));
    let (mut written_as, mut empty) = (BTreeMap::new(), BTreeSet::new());
    for &number in numbers {
        let file = vfs.open(&name(number), Mode::Read)?;
        let mut header = [0; HEADER_BYTES as usize];
        if file.len()? >= HEADER_BYTES {
            file.read_lossy_at(0, &mut header, Purpose::Maintenance)?;
            let stated = u64::from_le_bytes(std::array::from_fn(|i| header[8 + i]));
            let holds = LogSum::new(stated).parse_header(0, &header).is_ok();
            written_as.insert(number, if holds { stated } else { number });
        } else {
            empty.insert(number);
        }
    }
    // Only if the swap is mutual: a segment of another keyspace must not be accepted.
    let place = |number: u64| match written_as.get(&number) {
        Some(other) if written_as.get(other) == Some(&number) => *other,
        Some(other) if empty.contains(other) => *other,
        None => {
            let mut others = written_as.iter().filter(|(_, stated)| **stated == number);
            others.next().map_or(number, |(other, _)| *other)
        }
        _ => number,
    };
    Ok(numbers.iter().map(|&number| (number, name(place(number)))).collect())
}

/// The result of scanning one file.
#[derive(Default)]
struct Scan {
    link: Option<SegmentLink>,
    gaps: Vec<Range<u64>>,
    /// The end of the last whole record.
    end: u64,
    /// The end of the last nonzero byte.
    dirty_to: u64,
    /// The length of the file.
    bytes: u64,
    /// The seal's `data_end`, and the end of the seal.
    seal: Option<(u64, u64)>,
    /// The first invalid bytes.
    fault: Option<(u64, String)>,
}

impl Scan {
    /// Compares the file's contents with the length stated elsewhere.
    fn into_salvage(
        mut self,
        number: u64,
        file: String,
        length: Option<&(u64, String)>,
        min_bytes: u64,
        is_sealed: bool,
    ) -> LogSalvage {
        let end = self.end;
        let mut fault = |at: u64, what: String| {
            self.fault.get_or_insert((at, what));
        };
        let data_end = length.map(|(bytes, _)| *bytes).or(self.seal.map(|(data_end, _)| data_end));
        if let Some((bytes, source)) = length
            && *bytes != end
        {
            fault(
                end,
                format!("its records end here, and {source} states that it had {bytes} bytes"),
            );
        }
        if length.is_none() && min_bytes > end {
            fault(end, format!("its records end here, and {min_bytes} bytes had been synced"));
        }
        match self.seal {
            None if is_sealed => {
                fault(end, "it was sealed at close, and its seal is missing".into())
            }
            // After a clean close not even zeros may follow; they may after a failed sealing.
            Some((_, ends_at)) if self.dirty_to > ends_at || is_sealed && self.bytes > ends_at => {
                fault(ends_at, "there are bytes after its seal".to_owned());
            }
            // Without a seal, trailing invalid bytes are an interrupted write at best.
            None if self.dirty_to > end => fault(end, "bytes after the last record".to_owned()),
            _ => {}
        }
        // If the length is unknown, any number of bytes may be missing.
        let is_torn = self.dirty_to > end || min_bytes > end;
        let lost_to = data_end.unwrap_or(if is_torn { u64::MAX } else { end });
        if lost_to > end {
            self.gaps.push(end..lost_to);
        }
        if file != FileKind::Log.name(FileNumber(number)) {
            self.fault = Some((0, format!("its contents are in {file}")));
        }
        let limit = length.map_or(u64::MAX, |(bytes, _)| *bytes);
        LogSalvage {
            kind: FileKind::Log,
            number,
            file: Some(file),
            damage: self.fault,
            gaps: self.gaps,
            limit,
        }
    }
}

/// Scans the segment `number` in `file`; `visit` receives each whole record before `limit` with
/// its position.
fn scan(
    file: &dyn File,
    number: u64,
    limit: u64,
    visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
) -> Result<Scan> {
    let (sum, len) = (LogSum::new(number), file.len()?);
    let found = Scan { bytes: len, ..Scan::default() };
    let mut scanner =
        Scanner { found, limit, expected: HEADER_BYTES, partial: None, has_gap: false };
    let mut block = vec![0; BLOCK_BYTES as usize];
    for block_at in (0..len).step_by(BLOCK_BYTES as usize) {
        block.resize(BLOCK_BYTES.min(len - block_at) as usize, 0);
        file.read_lossy_at(block_at, &mut block, Purpose::Maintenance)?;
        let Some(last) = block.iter().rposition(|&byte| byte != 0) else { continue };
        scanner.found.dirty_to = block_at + last as u64 + 1;
        match sum.parse_header(block_at, &block) {
            Ok(_) => {}
            Err(HeaderFault::Newer(version)) => {
                return Err(newer(&FileKind::Log.name(FileNumber(number)), version));
            }
            Err(HeaderFault::Damaged(reason)) => scanner.fault(block_at, reason),
        }
        let mut at = HEADER_BYTES as usize;
        while at <= last && fits_fragment(at as u64) {
            let position = block_at + at as u64;
            match sum.parse_fragment(position, &block[at..]) {
                Ok(fragment) => {
                    let payload = at + FRAGMENT_HEADER_BYTES as usize;
                    at = payload + fragment.len;
                    let end = block_at + at as u64;
                    scanner.fragment(fragment.part, position..end, &block[payload..at], visit)?;
                }
                // Zeros up to the next fragment were never written, or were lost.
                Err(_)
                    if block[at] == 0
                        && block[at..]
                            .iter()
                            .take(FRAGMENT_HEADER_BYTES as usize)
                            .all(|&b| b == 0) =>
                {
                    at += 1;
                }
                Err(reason) => {
                    scanner.fault(position, reason);
                    at += 1;
                }
            }
        }
        if at <= last {
            scanner.fault(block_at + at as u64, "the padding of a block is not zero");
        }
    }
    Ok(scanner.found)
}

struct Scanner {
    found: Scan,
    /// Fragments at or beyond this offset are ignored.
    limit: u64,
    /// The offset of the next fragment if nothing is missing before it.
    expected: u64,
    /// A partly read record: its offset and its bytes so far.
    partial: Option<(u64, Vec<u8>)>,
    /// There were invalid bytes after the last whole record.
    has_gap: bool,
}

impl Scanner {
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
            self.has_gap = true;
            self.fault(self.expected, "there is no fragment");
        }
        self.expected = match fits_fragment(place.end % BLOCK_BYTES)
            && !place.end.is_multiple_of(BLOCK_BYTES)
        {
            true => place.end,
            false => place.end.next_multiple_of(BLOCK_BYTES) + HEADER_BYTES,
        };
        let mut partial = self.partial.take().filter(|_| follows);
        match part {
            Part::Full | Part::First => {
                self.has_gap |= partial.is_some();
                if part == Part::First {
                    self.partial = Some((place.start, payload.to_vec()));
                    return Ok(());
                }
                self.record(place.start, place.end, payload, visit)
            }
            Part::Middle | Part::Last => {
                let Some((position, mut bytes)) = partial.take() else {
                    self.has_gap = true;
                    return Ok(());
                };
                bytes.extend_from_slice(payload);
                if part == Part::Middle {
                    self.partial = Some((position, bytes));
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
        if std::mem::take(&mut self.has_gap) {
            self.found.gaps.push(self.found.end..position);
        }
        if position == HEADER_BYTES {
            self.found.link = SegmentLink::decode(bytes).ok();
        }
        self.found.end = end;
        visit(position, bytes)
    }
}
