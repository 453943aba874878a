//! Salvage of a damaged SSTable, block by block.
//!
//! ```text
//!   valid index        blocks are where the index states; an invalid one is a lost extent
//!   damaged index      [block][block][~~~~~][block] [filter][index][footer]
//!                      a block ends where its checksum matches; after an invalid one the next
//!                      is searched for; a valid frame that is no block ends the data
//! ```
//!
//! A block has one checksum, so damage costs the entries of its own block only. The checksum
//! depends on the file's number and the block's offset. Without the index, the block's length is
//! unknown: every length is tried, and accepted only if the checksum matches, the block decodes
//! completely, and its keys follow those of the previous block.
//!
//! The dictionary of a file is searched for by its first bytes if the directory does not state
//! where it is. If it is damaged, every block that needs it is lost.
//!
//! Invariant: every visited entry had a matching checksum; entries are visited in order. Memory:
//! one block, or the whole file if the index is damaged.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, Result};
use siltstone_vfs::File;

use super::footer::{FOOTER_BYTES, Footer, decode_directory};
use super::frames::{read_dictionary, read_frame};
use super::index::{self, Index};
use super::writer::DICTIONARY;
use crate::FileSum;
use crate::block::codec::FrameError;
use crate::block::dictionary::{self, Dictionary, MAX_DICTIONARY_BYTES};
use crate::block::frame::{TRAILER, WITH_DICTIONARY, open_frame};
use crate::block::{Block, BlockIter};
use crate::kind::{EntryRef, compare};
use crate::number::{FileKind, FileNumber, Ingestion};

/// Minimum number of bytes searched for a block after damage.
const MIN_WINDOW_BYTES: usize = 64 << 10;
/// Bytes searched, as a multiple of the longest block so far.
const WINDOW_FACTOR: usize = 4;
/// Maximum size of a block: a single entry of maximum size.
const MAX_BLOCK_BYTES: usize = siltstone_engine::MAX_VALUE_BYTES + (16 << 20);
/// After damage, compressed blocks with longer contents are not searched for.
const MAX_CONTENTS_BYTES: usize = 16 << 20;

/// Visits every entry of every valid block of the SSTable in `file`, in order; returns the lost
/// extents. The SSTable has this kind and `number` and, if known, had `bytes` bytes.
///
/// # Errors
/// I/O errors; errors of `visit`; `Refused` for a newer format, and for an intact block whose
/// compression this build lacks. Corruption is in the result.
pub fn salvage_table(
    file: &dyn File,
    name: &str,
    (kind, number): (FileKind, FileNumber),
    bytes: Option<u64>,
    mut visit: impl FnMut(EntryRef<'_>) -> Result<()>,
) -> Result<Vec<Loss>> {
    let number = kind.written_as(number);
    let mut visit = |entry: EntryRef<'_>| match kind {
        FileKind::Ingested(Ingestion { sequence, .. }) => visit(EntryRef { sequence, ..entry }),
        FileKind::Table | FileKind::Log | FileKind::Blob | FileKind::Staged => visit(entry),
    };
    let sum = FileSum::new(number.0);
    let mut salvage = Salvage {
        name,
        visit: &mut visit,
        last: None,
        open: None,
        losses: Vec::new(),
        dictionary: None,
    };
    match read_index(file, name, number, sum)? {
        Some((index, dictionary)) => {
            salvage.dictionary = dictionary;
            for i in 0..index.blocks() {
                let range = index.range(i);
                let mut frame = vec![0; (range.end - range.start) as usize];
                file.read_lossy_at(range.start, &mut frame, Purpose::Maintenance)?;
                match salvage.parse_block(frame, sum, range.start)? {
                    Some(block) => salvage.block(&Arc::new(block))?,
                    None => salvage.add_loss(range),
                }
            }
        }
        None => {
            let mut contents = vec![0; file.len()? as usize];
            file.read_lossy_at(0, &mut contents, Purpose::Maintenance)?;
            salvage.dictionary = find_dictionary(&contents, sum);
            salvage.scan(&contents, sum, bytes)?;
        }
    }
    Ok(salvage.finish())
}

/// The index, if footer, directory and index are valid and all blocks are within the file; and the
/// dictionary, if there is one and it is valid.
fn read_index(
    file: &dyn File,
    name: &str,
    number: FileNumber,
    sum: FileSum,
) -> Result<Option<(Index, Option<Dictionary>)>> {
    let bytes = file.len()?;
    let read = || -> Result<Option<(Index, Option<Dictionary>)>> {
        let mut tail = vec![0; bytes.min(FOOTER_BYTES as u64) as usize];
        file.read_lossy_at(bytes - tail.len() as u64, &mut tail, Purpose::Maintenance)?;
        let footer = Footer::decode(&tail, name, number, bytes)?;
        let frame = |at: u64, len: u32| -> Result<Vec<u8>> {
            let (mut contents, len) =
                read_frame(file, name, sum, at, len as usize, Vec::new(), Purpose::Maintenance)?;
            contents.truncate(len);
            Ok(contents)
        };
        let at = footer.directory_offset;
        let directory = frame(at, footer.directory_bytes)?;
        let Ok((data_bytes, metas)) = decode_directory(&directory, at) else { return Ok(None) };
        let Some(place) = metas.iter().find(|meta| meta.name == index::NAME) else {
            return Ok(None);
        };
        let index = Index::decode(&frame(place.offset, place.bytes)?).ok();
        let dictionary = match metas.iter().find(|meta| meta.name == DICTIONARY) {
            Some(place) if footer.has_dictionary => match read_dictionary(file, name, sum, place) {
                Ok(dictionary) => Some(dictionary),
                Err(Error::Corruption { .. }) => None,
                Err(error) => return Err(error),
            },
            _ => None,
        };
        let index = index.filter(|index| index.data_bytes() == data_bytes && data_bytes <= bytes);
        Ok(index.map(|index| (index, dictionary)))
    };
    match read() {
        Err(Error::Corruption { .. }) => Ok(None),
        found => found,
    }
}

/// The dictionary in a file whose directory is damaged.
fn find_dictionary(contents: &[u8], sum: FileSum) -> Option<Dictionary> {
    let magic = dictionary::MAGIC;
    let starts = contents.windows(magic.len()).enumerate().filter(|(_, bytes)| *bytes == magic);
    // The meta blocks follow the data blocks.
    starts.map(|(start, _)| start).rev().find_map(|start| {
        let bytes = &contents[start..];
        let mut running = sum.begin(start as u64);
        let valid = bytes.iter().enumerate().take(MAX_DICTIONARY_BYTES + 1).find(|&(len, kind)| {
            running = crc32c::crc32c_append(running, &[*kind]);
            let crc = bytes.get(len + 1..len + TRAILER);
            *kind == 0 && crc.is_some_and(|crc| *crc == running.to_le_bytes())
        });
        valid.and_then(|(len, _)| Dictionary::decode(&bytes[..len]).ok())
    })
}

/// A frame at some offset of the file.
enum Frame {
    /// A data block, and the size of its frame.
    Block(Arc<Block>, usize),
    /// A data block that needs the dictionary, which is lost, and the size of its frame.
    Unreadable(usize),
    /// A valid frame that is no data block.
    Other,
}

struct Salvage<'a> {
    name: &'a str,
    visit: &'a mut dyn FnMut(EntryRef<'_>) -> Result<()>,
    /// The last visited entry.
    last: Option<(Vec<u8>, u64)>,
    /// A lost extent whose end is not yet known.
    open: Option<Range<u64>>,
    losses: Vec<Loss>,
    dictionary: Option<Dictionary>,
}

impl Salvage<'_> {
    /// The block in this frame, if it is valid.
    ///
    /// # Errors
    /// `Refused` if it is intact and this build lacks its compression.
    fn parse_block(&self, frame: Vec<u8>, sum: FileSum, offset: u64) -> Result<Option<Block>> {
        match open_frame(frame, sum, offset, self.dictionary.as_ref()) {
            Ok((contents, len)) => Ok(Self::check_block(contents, len)),
            Err(FrameError::Damaged(_)) => Ok(None),
            Err(missing) => Err(missing.at(self.name, offset)),
        }
    }

    /// The block with these contents, if it is valid.
    fn check_block(contents: Vec<u8>, len: usize) -> Option<Block> {
        let block = Arc::new(Block::parse(contents, len).ok()?);
        let mut iter = BlockIter::new(block.clone());
        let mut before: Option<(Vec<u8>, u64)> = None;
        let mut there = iter.first().ok()?;
        while there {
            let entry = iter.entry();
            let is_above = before.as_ref().is_none_or(|(key, sequence)| {
                compare((key, *sequence), (entry.key, entry.sequence)).is_lt()
            });
            if !is_above {
                return None;
            }
            before = Some((entry.key.to_vec(), entry.sequence));
            there = iter.next().ok()?;
        }
        drop(iter);
        Arc::into_inner(block)
    }

    /// Visits the entries of a block.
    fn block(&mut self, block: &Arc<Block>) -> Result<()> {
        let mut iter = BlockIter::new(block.clone());
        let mut there = iter.first();
        while let Ok(true) = there {
            let entry = iter.entry();
            if let Some(lost) = self.open.take() {
                let after = self.last.as_ref().map(|(key, _)| &key[..]);
                let loss = Loss::entries(self.name, lost).with_keys(after, Some(entry.key));
                self.losses.push(loss);
            }
            (self.visit)(entry)?;
            let (key, sequence) = self.last.get_or_insert_default();
            key.clear();
            key.extend_from_slice(entry.key);
            *sequence = entry.sequence;
            there = iter.next();
        }
        Ok(())
    }

    fn add_loss(&mut self, bytes: Range<u64>) {
        match &mut self.open {
            Some(open) if open.end == bytes.start => open.end = bytes.end,
            open => *open = Some(bytes),
        }
    }

    fn finish(mut self) -> Vec<Loss> {
        if let Some(lost) = self.open.take() {
            let after = self.last.as_ref().map(|(key, _)| &key[..]);
            self.losses.push(Loss::entries(self.name, lost).with_keys(after, None));
        }
        self.losses
    }

    /// Scans an SSTable without its index. `bytes` is the file's original length.
    fn scan(&mut self, contents: &[u8], sum: FileSum, bytes: Option<u64>) -> Result<()> {
        let (mut at, mut longest) = (0, 0);
        while at < contents.len() {
            match self.frame(contents, sum, at, contents.len())? {
                Some(Frame::Block(block, len)) => {
                    longest = longest.max(len);
                    self.block(&block)?;
                    at += len;
                    continue;
                }
                Some(Frame::Unreadable(len)) => {
                    self.add_loss(at as u64..(at + len) as u64);
                    at += len;
                    continue;
                }
                Some(Frame::Other) => return Ok(()),
                None => {}
            }
            let window = MIN_WINDOW_BYTES.max(WINDOW_FACTOR * longest);
            let mut next = None;
            for start in at + 1..contents.len() {
                if !may_begin(&contents[start..]) {
                    continue;
                }
                let end = contents.len().min(start + window);
                let found = self.frame(contents, sum, start, end)?;
                if matches!(found, Some(Frame::Block(..) | Frame::Unreadable(_))) {
                    next = Some(start);
                    break;
                }
            }
            let end = next.unwrap_or(contents.len());
            self.add_loss(at as u64..end as u64);
            at = end;
        }
        // Filter and index are missing, so more blocks may be.
        let end = bytes.unwrap_or(u64::MAX);
        if end > at as u64 {
            self.add_loss(at as u64..end);
        }
        Ok(())
    }

    /// The frame that starts at `start` and ends before `end`.
    ///
    /// # Errors
    /// As from [`parse_block`](Self::parse_block).
    fn frame(
        &self,
        contents: &[u8],
        sum: FileSum,
        start: usize,
        end: usize,
    ) -> Result<Option<Frame>> {
        let bytes = &contents[start..end];
        let mut running = sum.begin(start as u64);
        for (len, &kind) in bytes.iter().enumerate().take(MAX_BLOCK_BYTES) {
            running = crc32c::crc32c_append(running, &[kind]);
            let covered = len + 1;
            let Some(crc) = bytes.get(covered..covered + 4) else { break };
            if running.to_le_bytes() != *crc || kind > WITH_DICTIONARY {
                continue;
            }
            let len = covered - 1 + TRAILER;
            let frame = bytes[..len].to_vec();
            let Some(block) = self.parse_block(frame, sum, start as u64)? else {
                if kind == WITH_DICTIONARY {
                    return Ok(Some(Frame::Unreadable(len)));
                }
                // A shorter length may match by chance; no block is given up for it.
                return Ok(Some(Frame::Other));
            };
            let block = Arc::new(block);
            return Ok(self.follows(&block).then_some(Frame::Block(block, len)));
        }
        Ok(None)
    }

    /// Whether the block's first entry is above the last visited one.
    fn follows(&self, block: &Arc<Block>) -> bool {
        let mut iter = BlockIter::new(block.clone());
        let Ok(true) = iter.first() else { return false };
        let entry = iter.entry();
        self.last.as_ref().is_none_or(|(key, sequence)| {
            compare((key, *sequence), (entry.key, entry.sequence)).is_lt()
        })
    }
}

/// Whether a data block may start with these bytes: its first entry shares nothing and has a key
/// or, if the key is empty, a tag other than 0; if the block is compressed, it states its length.
fn may_begin(bytes: &[u8]) -> bool {
    let Some(&[a, b, c, d]) = bytes.first_chunk() else { return false };
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    (a == 0 && (b != 0 || c != 0)) || (TRAILER..MAX_CONTENTS_BYTES).contains(&len)
}
