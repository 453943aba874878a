//! Reads by offset.
//!
//! The blocks of a file that grows by small appends hold different amounts of content, so an offset
//! does not determine its block. The creator of such a file knows the first offset of each block;
//! others find the block by interpolation between the offsets that blocks state. An SSTable takes
//! one or two reads for that, a log up to four.
//!
//! What is read is authenticated frame by frame. If a frame is not where it should be, the file is
//! damaged: then all of its authentic frames are determined, once, and what is not among them is
//! [`Error::Corruption`] or, in a lossy read, [`FILLER`].

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use super::content::{Content, Key};
use super::frame::{BLOCK_BYTES, Frame, MAX_CONTENT, frames};
use super::header::HEADER_BYTES;
use super::recover::{End, Extents, scan};
use crate::FILLER;
use crate::names::fault;

/// The most blocks that one request reads.
const MAX_BLOCKS: u64 = 64;

/// How bytes that are not authentic are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Damage {
    Reject,
    Fill,
}

impl Content {
    /// Fills `buf` from `offset`.
    pub(super) fn read(
        &self,
        offset: u64,
        buf: &mut [u8],
        purpose: Purpose,
        damage: Damage,
    ) -> Result<()> {
        let to = offset.checked_add(buf.len() as u64);
        let end = self.end()?;
        if to.is_none_or(|to| to > end.offset) && (to.is_none() || to > Some(self.len()?)) {
            return Err(fault("read", &*self.name, std::io::ErrorKind::UnexpectedEof));
        }
        let inside = end.offset.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (inside, behind) = buf.split_at_mut(inside);
        if !inside.is_empty() {
            let key = self.key.as_ref().map_err(|reason| self.corruption(offset, reason))?;
            let read = self.read_frames(key, offset, inside, end, purpose)?;
            if read < inside.len() {
                let at = offset + read as u64;
                self.read_damaged(key, at, &mut inside[read..], end, damage)?;
            }
        }
        if behind.is_empty() {
            return Ok(());
        }
        let at = offset + inside.len() as u64;
        if damage == Damage::Reject {
            let reason = self.key.as_ref().err().copied();
            return Err(self.corruption(at, reason.unwrap_or("no authentic frame is here")));
        }
        // Zeros stay zeros: they may have been preallocated. What else is there is not shown,
        // because anybody may have written it.
        let position = match self.key {
            Ok(_) => end.position + (at - end.offset),
            Err(_) => at,
        };
        self.inner.read_at(position, behind, purpose)?;
        behind.iter_mut().filter(|byte| **byte != 0).for_each(|byte| *byte = FILLER);
        Ok(())
    }

    /// Starts reading the blocks that have about `bytes` of content from `offset` on.
    pub(super) fn begin_read(&self, offset: u64, bytes: u64) {
        let Ok(end) = self.end() else { return };
        let blocks = end.position.saturating_sub(HEADER_BYTES) / BLOCK_BYTES;
        let place = u128::from(offset) * u128::from(blocks) / u128::from(end.offset.max(1));
        // The place is an estimate: one block more on each side.
        let first = (place as u64).min(blocks).saturating_sub(1);
        let count = bytes / MAX_CONTENT as u64 + 3;
        self.inner.begin_read(HEADER_BYTES + first * BLOCK_BYTES, count * BLOCK_BYTES);
    }

    fn corruption(&self, offset: u64, reason: &str) -> Error {
        Error::corruption(&*self.name, offset, reason)
    }

    /// Reads from intact frames; returns the number of bytes read before the first damaged one.
    fn read_frames(
        &self,
        key: &Key,
        offset: u64,
        out: &mut [u8],
        end: End,
        purpose: Purpose,
    ) -> Result<usize> {
        let mut blocks = Vec::new();
        let Some(mut at) = self.find(offset, out.len(), end, purpose, &mut blocks)? else {
            return Ok(0);
        };
        let mut read = 0;
        let mut content = [0; MAX_CONTENT];
        loop {
            for block in blocks.chunks(BLOCK_BYTES as usize) {
                for frame in frames(block) {
                    let wanted = offset + read as u64;
                    if frame.end_offset() <= wanted {
                        continue;
                    }
                    if frame.offset > wanted {
                        return Ok(read);
                    }
                    let skip = (wanted - frame.offset) as usize;
                    let rest = &mut out[read..];
                    let len = rest.len().min(frame.len - skip);
                    let is_whole = skip == 0 && len == frame.len;
                    let target =
                        if is_whole { &mut rest[..len] } else { &mut content[..frame.len] };
                    if !key.cipher.open(block, &frame, at, target) {
                        return Ok(read);
                    }
                    if !is_whole {
                        rest[..len].copy_from_slice(&content[skip..skip + len]);
                    }
                    read += len;
                    if read == out.len() {
                        return Ok(read);
                    }
                }
                at += block.len() as u64;
            }
            if at >= end.position {
                return Ok(read);
            }
            self.load(at, out.len() - read, end, purpose, &mut blocks)?;
        }
    }

    /// Loads blocks for about `bytes` of content from `position` on.
    fn load(
        &self,
        position: u64,
        bytes: usize,
        end: End,
        purpose: Purpose,
        blocks: &mut Vec<u8>,
    ) -> Result<()> {
        let count = (bytes as u64 / MAX_CONTENT as u64 + 2).min(MAX_BLOCKS);
        blocks.resize((count * BLOCK_BYTES).min(end.position - position) as usize, 0);
        self.inner.read_at(position, blocks, purpose)
    }

    /// Finds the block with the byte at `offset`, and loads it and those behind it for `bytes`;
    /// `None` if the blocks on the way are damaged.
    fn find(
        &self,
        offset: u64,
        bytes: usize,
        end: End,
        purpose: Purpose,
        blocks: &mut Vec<u8>,
    ) -> Result<Option<u64>> {
        // Block `i` is at `HEADER_BYTES + i * BLOCK_BYTES`. The block is in `low..high`.
        let (mut low, mut low_offset) = (0, 0);
        let mut high = (end.position - HEADER_BYTES).div_ceil(BLOCK_BYTES);
        let mut high_offset = end.offset;
        if let Some(starts) = &self.starts {
            let after = starts.read().partition_point(|&start| start <= offset) as u64;
            low = after.saturating_sub(1);
            high = after.max(1);
        }
        for step in 0.. {
            if low >= high || offset >= high_offset {
                break;
            }
            let blocks_left = u128::from(high - low);
            let share = u128::from(offset - low_offset) * blocks_left
                / u128::from((high_offset - low_offset).max(1));
            // Interpolation can be slow if the content is distributed unevenly.
            let guess = if step % 4 == 3 { low + (high - low) / 2 } else { low + share as u64 };
            let guess = guess.min(high - 1);
            let position = HEADER_BYTES + guess * BLOCK_BYTES;
            self.load(position, bytes, end, purpose, blocks)?;
            let block = &blocks[..blocks.len().min(BLOCK_BYTES as usize)];
            let Some(first) = Frame::parse(block, 0) else { break };
            if first.offset > offset {
                (high, high_offset) = (guess, first.offset);
                continue;
            }
            let block_end = frames(block).last().map_or(0, |last| last.end_offset());
            if offset < block_end {
                return Ok(Some(position));
            }
            (low, low_offset) = (guess + 1, block_end.max(low_offset));
            if low_offset > offset {
                break;
            }
        }
        Ok(None)
    }

    /// The end of the frame whose content ends at `len`, if there is one.
    pub(super) fn frame_boundary(&self, len: u64) -> Result<Option<End>> {
        let (end, mut blocks) = (*self.end.read(), Vec::new());
        let Some(at) = self.find(len - 1, 1, end, Purpose::Recovery, &mut blocks)? else {
            return Ok(None);
        };
        let block = &blocks[..blocks.len().min(BLOCK_BYTES as usize)];
        let last = frames(block).find(|frame| frame.end_offset() == len);
        Ok(last.map(|last| End { offset: len, position: at + last.end() as u64 }))
    }

    /// Reads from the authentic frames of a damaged file.
    fn read_damaged(
        &self,
        key: &Key,
        mut at: u64,
        mut out: &mut [u8],
        end: End,
        damage: Damage,
    ) -> Result<()> {
        let extents = self.extents(key, end)?;
        let mut block = Vec::new();
        while !out.is_empty() {
            let next = extents.partition_point(|extent| extent.frame.end_offset() <= at);
            let gap_end = extents.get(next).map_or(end.offset, |extent| extent.frame.offset);
            if gap_end > at {
                if damage == Damage::Reject {
                    return Err(self.corruption(at, "no authentic frame is here"));
                }
                let len = out.len().min((gap_end - at) as usize);
                out[..len].fill(FILLER);
                at += len as u64;
                out = &mut out[len..];
                continue;
            }
            let extent = extents[next];
            block.resize(extent.frame.end(), 0);
            self.inner.read_at(extent.block, &mut block, Purpose::Recovery)?;
            let mut content = vec![0; extent.frame.len];
            if !key.cipher.open(&block, &extent.frame, extent.block, &mut content) {
                return Err(self.corruption(at, "it changed while it was read"));
            }
            let content = &content[(at - extent.frame.offset) as usize..];
            let len = content.len().min(out.len());
            out[..len].copy_from_slice(&content[..len]);
            at += len as u64;
            out = &mut out[len..];
        }
        Ok(())
    }

    fn extents(&self, key: &Key, end: End) -> Result<Arc<Extents>> {
        let mut known = self.extents.lock();
        if let Some((for_end, extents)) = &*known
            && *for_end == end
        {
            return Ok(extents.clone());
        }
        let extents = Arc::new(scan(self.inner.as_ref(), &key.cipher, end)?);
        *known = Some((end, extents.clone()));
        Ok(extents)
    }
}
