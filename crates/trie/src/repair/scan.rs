//! Finds the readable parts of an HTable without its footer.
//!
//! ```text
//!   special* zeros │ bucket*  │ special* zeros │ …  │ filter  special index … directory …  footer
//!   └──── gap ────┘            └──── gap ────┘       └─────────────── tail ───────────────┘
//! ```
//!
//! 1. Valid buckets are found on the grid of multiples of the bucket size, by their checksums,
//!    which are seeded with the file's number and the offset. The bucket size is the one with which
//!    the least is lost. The last bucket of the table may be short.
//! 2. The tail, behind the last bucket, has the large items of the last segments and then the
//!    frames of filter and indexes. An intact special index there names every item that is not in a
//!    bucket.
//! 3. The gaps between buckets, and the tail, are read as frames of one item each, and zeros up to
//!    the next multiple of the bucket size. With a special index exactly the frames that it names
//!    are items; a damaged one does not prevent the reading of the next. Without an index a frame
//!    is an item if it parses as one and not as a filter.
//!
//! Memory: one gap.
//!
//! Invariant: every byte that may belong to an item is in a bucket, in a special, or lost.

use std::collections::BTreeMap;
use std::ops::Range;

use siltstone_engine::{Purpose, Result};
use siltstone_table::{FileSum, SUM_BYTES};
use siltstone_vfs::File;

use crate::htable::{BucketHeader, Directory, FOOTER_BYTES, Filter, decode_specials};
use crate::item::Item;

/// The possible sizes of buckets: powers of two.
const BUCKET_BITS: Range<u32> = 8..16;

/// The frames of the specials by offset, with their ends.
type SpecialIndex = BTreeMap<u64, u64>;

/// A table file without a valid footer.
pub(super) struct TableFile<'a> {
    pub(super) file: &'a dyn File,
    pub(super) sum: FileSum,
    pub(super) len: u64,
}

/// The parts of a table.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TableParts {
    /// Valid buckets.
    pub(super) buckets: Vec<Range<u64>>,
    /// Valid frames of one item each.
    pub(super) specials: Vec<Range<u64>>,
    /// All other bytes that may have been items.
    pub(super) lost: Vec<Range<u64>>,
}

/// The result of a scan over consecutive frames of items: where it ended.
struct ScanEnd {
    /// The end of the last item.
    items: u64,
    /// The end of the zeros that follow the last item; `items` if there are none.
    padding: u64,
}

impl TableFile<'_> {
    /// The parts of the table. `end` is its recorded length; a truncated file is shorter.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn scan(&self, end: u64) -> Result<TableParts> {
        let lost_bytes = |parts: &TableParts| -> u64 {
            parts.lost.iter().map(|range| range.end - range.start).sum()
        };
        let mut best: Option<TableParts> = None;
        for grid in BUCKET_BITS.map(|bits| 1 << bits) {
            let parts = self.scan_on(grid, end.max(self.len))?;
            if best.as_ref().is_none_or(|best| lost_bytes(&parts) < lost_bytes(best)) {
                best = Some(parts);
            }
            // With several buckets at most the last one is short: their size is certain.
            if best.as_ref().is_some_and(|best| best.lost.is_empty() || best.buckets.len() > 1) {
                break;
            }
        }
        Ok(best.unwrap_or_default())
    }

    /// The bytes of a range, as far as they are intact; `None` if they are unreadable.
    pub(super) fn read(&self, range: &Range<u64>) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        match self.file.read_lossy_at(range.start, &mut bytes, Purpose::Maintenance) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.is_corruption() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The parts of a table with buckets of `grid` bytes.
    fn scan_on(&self, grid: u64, end: u64) -> Result<TableParts> {
        let (mut parts, mut gaps) = (TableParts::default(), Vec::new());
        let (mut end_of_valid, mut is_short) = (0, false);
        let mut offsets = (0..self.len).step_by(grid as usize);
        while !is_short && let Some(offset) = offsets.next() {
            let Some(bytes) = self.bucket_at(offset, grid)? else { continue };
            if offset > end_of_valid {
                gaps.push(end_of_valid..offset);
            }
            end_of_valid = offset + bytes;
            is_short = bytes < grid;
            parts.buckets.push(offset..end_of_valid);
        }
        let footer = self.len.saturating_sub(FOOTER_BYTES as u64).max(end_of_valid);
        let tail = self.read(&(end_of_valid..footer))?.unwrap_or_default();
        let tail = Bytes { sum: self.sum, at: end_of_valid, bytes: &tail };
        // No item is behind a short bucket.
        let candidates = if is_short { Vec::new() } else { tail.item_frames(grid) };
        if parts.buckets.is_empty() && candidates.is_empty() {
            parts.lost.push(0..end);
            return Ok(parts);
        }
        let index = self.special_index(&tail, &candidates, grid)?;
        for gap in gaps {
            match self.read(&gap)? {
                Some(bytes) => {
                    let bytes = Bytes { sum: self.sum, at: gap.start, bytes: &bytes };
                    let walked = bytes.walk(grid, index.as_ref(), &mut parts);
                    if walked.padding < gap.end {
                        parts.lost.push(walked.items..gap.end);
                    }
                }
                None => parts.lost.push(gap),
            }
        }
        let walked = match (&index, is_short) {
            (None, true) => ScanEnd { items: end_of_valid, padding: end_of_valid },
            (index, _) => tail.walk(grid, index.as_ref(), &mut parts),
        };
        let is_complete = tail.ends_with_directory(walked.padding, grid)
            || walked.items < walked.padding && tail.ends_with_directory(walked.items, grid);
        if !is_complete {
            parts.lost.push(walked.items..end);
        }
        parts.lost.retain(|range| !range.is_empty());
        Ok(parts)
    }

    /// The size of the valid bucket at `offset`; the last one of a table may end with its items.
    fn bucket_at(&self, offset: u64, grid: u64) -> Result<Option<u64>> {
        let Some(mut bucket) = self.read(&(offset..self.len.min(offset + grid)))? else {
            return Ok(None);
        };
        let is_valid = |bucket: &[u8]| BucketHeader::open(self.sum, offset, bucket).is_some();
        if bucket.len() as u64 == grid && is_valid(&bucket) {
            return Ok(Some(grid));
        }
        let short = BucketHeader::min_bytes(&bucket).filter(|&least| least <= bucket.len());
        bucket.truncate(short.unwrap_or(0));
        Ok(is_valid(&bucket).then_some(bucket.len() as u64))
    }

    /// The special index in the tail of a table: of the frames that decode as one, the one that
    /// names the most readable items. `None`: the index is damaged, or there are no specials.
    fn special_index(
        &self,
        tail: &Bytes<'_>,
        candidates: &[Range<u64>],
        grid: u64,
    ) -> Result<Option<SpecialIndex>> {
        // Behind the items, and the padding if there is any; an index may parse as an item, too.
        let end = candidates.last().map_or(tail.at, |last| last.end);
        let starts = [Some(end), tail.skip_padding(end, grid)];
        let more = starts.into_iter().flatten().flat_map(|at| tail.frames(at).0);
        let mut best = (0, None);
        for frame in candidates.iter().cloned().chain(more) {
            let content = tail.content(&frame);
            let named = decode_specials(content, frame.start).unwrap_or_default();
            let index: SpecialIndex =
                named.iter().map(|it| (it.offset, it.offset + it.frame_bytes())).collect();
            let mut readable = 0;
            for (&start, &end) in &index {
                if let Some(bytes) = self.read(&(start..end))? {
                    let bytes = Bytes { sum: self.sum, at: start, bytes: &bytes };
                    readable += u64::from(bytes.item_frame(start) == Some(end));
                }
            }
            if readable > best.0 {
                best = (readable, Some(index));
            }
        }
        Ok(best.1)
    }
}

/// A part of the file in memory.
struct Bytes<'a> {
    sum: FileSum,
    /// Its offset in the file.
    at: u64,
    bytes: &'a [u8],
}

impl Bytes<'_> {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// The bytes from `at` of the file.
    fn rest(&self, at: u64) -> &[u8] {
        at.checked_sub(self.at).and_then(|at| self.bytes.get(at as usize..)).unwrap_or_default()
    }

    /// The content of a frame.
    fn content(&self, frame: &Range<u64>) -> &[u8] {
        let bytes = (frame.end - frame.start) as usize;
        &self.rest(frame.start)[..bytes - SUM_BYTES]
    }

    /// The end of the valid frame at `at`, if it contains exactly one item.
    fn item_frame(&self, at: u64) -> Option<u64> {
        let bytes = self.rest(at);
        let (_, used) = Item::parse(bytes)?;
        let frame = bytes.get(..used + SUM_BYTES)?;
        self.sum.open(at, frame).map(|_| at + frame.len() as u64)
    }

    /// The multiple of the bucket size behind `at`, if there are only zeros up to it.
    fn skip_padding(&self, at: u64, grid: u64) -> Option<u64> {
        let next = at.next_multiple_of(grid);
        let zeros = self.rest(at).get(..(next - at) as usize)?;
        (next > at && zeros.iter().all(|&byte| byte == 0)).then_some(next)
    }

    /// All frames at the beginning that parse as items: perhaps also a filter or an index.
    fn item_frames(&self, grid: u64) -> Vec<Range<u64>> {
        let (mut frames, mut at) = (Vec::new(), self.at);
        loop {
            if let Some(end) = self.item_frame(at) {
                frames.push(at..end);
                at = end;
            } else if let Some(next) = self.skip_padding(at, grid) {
                at = next;
            } else {
                return frames;
            }
        }
    }

    /// Adds the specials to `parts`, and the damaged ones that the index names.
    fn walk(&self, grid: u64, index: Option<&SpecialIndex>, parts: &mut TableParts) -> ScanEnd {
        let (mut items, mut at) = (self.at, self.at);
        loop {
            let item = self.item_frame(at);
            let frame = match index {
                Some(index) => index.get(&at).copied().filter(|&end| end <= self.end()),
                None => item.filter(|&end| Filter::from_bytes(self.content(&(at..end))).is_none()),
            };
            if let Some(end) = frame {
                let list = if item == frame { &mut parts.specials } else { &mut parts.lost };
                list.push(at..end);
                (items, at) = (end, end);
            } else if let Some(next) = self.skip_padding(at, grid) {
                at = next;
            } else {
                // After damage the reading continues at the next item that the index names.
                let mut rest = index.into_iter().flat_map(|index| index.range(at..self.end()));
                let Some((&next, _)) = rest.find(|&(&next, _)| next > at) else {
                    return ScanEnd { items, padding: at };
                };
                parts.lost.push(items..next);
                (items, at) = (next, next);
            }
        }
    }

    /// The valid frames from `at` on, and their end.
    fn frames(&self, mut at: u64) -> (Vec<Range<u64>>, u64) {
        let mut frames = Vec::new();
        while let Some(bytes) = frame_len(self.rest(at), self.sum, at) {
            frames.push(at..at + bytes as u64);
            at += bytes as u64;
        }
        (frames, at)
    }

    /// Whether everything from `at` on is valid frames, and one of the last two is the directory
    /// of the segments before: a table has a directory, and behind it at most a page index.
    fn ends_with_directory(&self, at: u64, grid: u64) -> bool {
        let (frames, end) = self.frames(at);
        let is_directory = |frame| Directory::is_valid(self.content(frame), grid as u32, at);
        end == self.end() && frames.iter().rev().take(2).any(is_directory)
    }
}

/// The length of the frame at the beginning of `bytes`, at offset `at` of the file: the first
/// length with a valid checksum.
fn frame_len(bytes: &[u8], sum: FileSum, at: u64) -> Option<usize> {
    let mut running = sum.of(at, &[]);
    let last = (0..bytes.len().saturating_sub(SUM_BYTES)).find(|&last| {
        running = crc32c::crc32c_append(running, &bytes[last..=last]);
        running.to_le_bytes() == bytes[last + 1..last + 1 + SUM_BYTES]
    });
    last.map(|last| last + 1 + SUM_BYTES)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::BTreeSet;

    use siltstone_runtime::RateLimiter;
    use siltstone_vfs::{Mode, Ram, Vfs};

    use super::*;
    use crate::files::Kind;
    use crate::hash::{Hash, HashKind};
    use crate::htable::{Build, ExpectedSize, Layout, Origin, TableWriter};

    const NUMBER: u64 = 7;

    /// A table of 8 segments and its keys; in segments of `large` all items are large.
    fn table(bucket_bytes: u32, layout: Layout, large: &[u64]) -> (Vec<u8>, BTreeSet<Vec<u8>>) {
        let build = Build {
            bucket_bytes,
            segment: 4,
            fill: 0.95,
            columns: 4,
            filter_bits: 16.0,
            cached_migrations: 0.2,
            layout,
        };
        let kind = HashKind { seed: 3, weak_bits: 0 };
        let mut items: Vec<(Hash, Vec<u8>)> =
            (0..60u32).map(|n| (kind.hash(&n.to_le_bytes()), n.to_le_bytes().to_vec())).collect();
        items.sort_unstable();
        let expected = ExpectedSize { items: 60, bytes: 32 * u64::from(bucket_bytes) };
        let (vfs, rate) = (Ram::new(), RateLimiter::unlimited());
        let origin = Origin::default();
        let purpose = Purpose::Flush;
        let mut writer =
            TableWriter::create(&vfs, NUMBER, build, origin, expected, &rate, purpose).unwrap();
        for (hash, key) in &items {
            let is_large = large.contains(&(hash.suffix >> 61));
            let bytes = bucket_bytes as usize + usize::from(key[0]);
            let value = vec![9; if is_large { bytes } else { 30 }];
            writer.push(*hash, &Item { key, value: Some(&value), expires_at: None }).unwrap();
        }
        writer.finish().unwrap();
        let file = vfs.open(&Kind::HTable.name(NUMBER), Mode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, purpose).unwrap();
        (bytes, items.into_iter().map(|(_, key)| key).collect())
    }

    /// The parts of a table and the keys in them.
    fn scan(bytes: &[u8], end: usize) -> (TableParts, BTreeSet<Vec<u8>>) {
        let file = Ram::new().create("table").unwrap();
        file.write_at(0, bytes, Purpose::Flush).unwrap();
        let sum = FileSum::new(NUMBER);
        let file = TableFile { file: file.as_ref(), sum, len: bytes.len() as u64 };
        let parts = file.scan(end as u64).unwrap();
        let mut keys = BTreeSet::new();
        for range in &parts.buckets {
            let bucket = file.read(range).unwrap().unwrap();
            let (header, items) = BucketHeader::open(sum, range.start, &bucket).unwrap();
            keys.extend(header.items(items).map(|item| item.unwrap().2.key.to_vec()));
        }
        for range in &parts.specials {
            let frame = file.read(range).unwrap().unwrap();
            keys.insert(Item::parse(&frame).unwrap().0.key.to_vec());
        }
        (parts, keys)
    }

    #[test]
    fn table_without_footer_loses_nothing_wherever_large_items_are() {
        let all: Vec<u64> = (0..8).collect();
        let choices: [&[u64]; 8] =
            [&[], &[7], &[0], &[2, 3], &[6, 7], &[0, 1, 4, 7], &all[..7], &all];
        for layout in [Layout::Buckets, Layout::Run, Layout::Sorted] {
            for (bucket_bytes, large) in
                [256, 512, 4096].into_iter().flat_map(|bytes| choices.map(|it| (bytes, it)))
            {
                let (mut bytes, written) = table(bucket_bytes, layout, large);
                let at = bytes.len() - 20;
                bytes[at] ^= 1;
                let (parts, keys) = scan(&bytes, bytes.len());
                let case = format!("{layout:?} {bucket_bytes} {large:?}");
                assert!(parts.lost.is_empty(), "{case}: {:?}", parts.lost);
                assert_eq!(keys, written, "{case}");
            }
        }
    }

    /// The index names the items between buckets. It is not found behind a damaged one in the tail.
    #[test]
    fn damaged_large_item_between_buckets_loses_only_itself() {
        let (mut bytes, written) = table(512, Layout::Buckets, &[0, 1, 4, 7]);
        let at = bytes.len() - 20;
        bytes[at] ^= 1;
        let TableParts { buckets, specials, .. } = scan(&bytes, bytes.len()).0;
        for frame in &specials {
            let mut bytes = bytes.clone();
            bytes[frame.start as usize..frame.end as usize].fill(0);
            let (parts, keys) = scan(&bytes, bytes.len());
            if buckets.iter().any(|bucket| bucket.start > frame.start) {
                assert_eq!(parts.lost, std::slice::from_ref(frame));
                assert_eq!(keys.len(), written.len() - 1);
            } else {
                let rest = frame.start..bytes.len() as u64;
                assert_eq!(parts.lost, std::slice::from_ref(&rest));
            }
        }
    }

    #[test]
    fn every_item_of_a_truncated_table_is_saved_or_lost() {
        for large in [&[7][..], &[0, 1, 4, 6, 7], &[]] {
            let (bytes, written) = table(512, Layout::Buckets, large);
            let (parts, _) = scan(&bytes[..bytes.len() - 1], bytes.len());
            let items = [&parts.buckets[..], &parts.specials].concat();
            assert!(parts.lost.iter().all(|lost| items.iter().all(|it| it.end <= lost.start)));
            for len in (0..bytes.len()).step_by(13).chain(items.iter().map(|it| it.end as usize)) {
                let with_footer = (len + FOOTER_BYTES).min(bytes.len() - 1);
                for len in [len, with_footer] {
                    let (parts, keys) = scan(&bytes[..len], bytes.len());
                    assert!(keys.is_subset(&written));
                    for item in &items {
                        let is_saved =
                            parts.buckets.contains(item) || parts.specials.contains(item);
                        let is_lost = parts
                            .lost
                            .iter()
                            .any(|lost| lost.start <= item.start && item.end <= lost.end);
                        assert_ne!(is_saved, is_lost, "{item:?} of {len}");
                    }
                }
            }
        }
    }

    #[test]
    fn filter_that_parses_as_an_item_is_no_item() {
        let sum = FileSum::new(NUMBER);
        let mut filter = vec![2, 1, 0, 0, 0, 20, 0];
        filter.extend_from_slice(&[0, 0, 0, 0, 15]);
        filter.extend_from_slice(&[6; 15]);
        assert_eq!(Item::parse(&filter).unwrap().1, filter.len());
        assert!(Filter::from_bytes(&filter).is_some());
        let mut bytes = Vec::new();
        sum.seal(&mut bytes, 512, &filter);
        let bytes = Bytes { sum, at: 512, bytes: &bytes };
        assert_eq!(bytes.item_frames(256).len(), 1);
        let mut parts = TableParts::default();
        let walked = bytes.walk(256, None, &mut parts);
        assert_eq!((walked.items, parts), (512, TableParts::default()));
    }
}
