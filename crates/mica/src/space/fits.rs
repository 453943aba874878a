//! Segregated fits: an allocator with free lists by size class.
//!
//! ```text
//! block in use   tag | item …                              tag: size in words, and two bits:
//! free block     tag | next | previous | … | size               it is free; the previous is free
//! ```
//!
//! Size classes are 8 bytes apart up to 1 KiB, and eight per doubling above. A block comes from the
//! smallest class that has one large enough; the remainder becomes a free block. A freed block is
//! merged with free neighbours: the next is found by the size in the tag, the previous by the size
//! in its last word, which only free blocks have.
//!
//! Invariant: blocks cover the space; no two neighbours are both free; every free block is in the
//! list of its class, and a class has its bit set if and only if its list is not empty. An
//! allocation fails only if no free block is large enough.
//!
//! Source: Lim, thesis, section 5.3.3, "Store Mode" and figure 5.8; boundary tags: Knuth, TAOCP 1,
//! section 2.5; classes within doublings: Masmano et al., "TLSF", ECRTS 2004.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::mapping::Region;

/// A free block has a tag, two links and its size at the end.
const MIN_BLOCK_WORDS: usize = 4;
/// Blocks up to this size have a class per size.
const MAX_EXACT_WORDS: usize = 128;
/// Size classes per doubling above that.
const CLASSES_PER_DOUBLING: usize = 8;
const CLASSES: usize = 7 * 64;

const IS_FREE: u64 = 1 << 62;
const PREVIOUS_IS_FREE: u64 = 1 << 63;
const SIZE: u64 = IS_FREE - 1;

/// The allocator, with its memory.
pub(crate) struct SegregatedFits {
    region: Region,
    lists: Mutex<Lists>,
}

struct Lists {
    /// The first free block of each class; 0 if there is none, since no block starts at word 0.
    first: [usize; CLASSES],
    nonempty: [u64; CLASSES / 64],
    free_words: usize,
    /// Number of blocks in use.
    blocks: u64,
}

/// The class of free blocks of this size, in words.
fn class_of(size: usize) -> usize {
    if size <= MAX_EXACT_WORDS {
        return size;
    }
    let doubling = size.ilog2();
    let step = (size >> (doubling - CLASSES_PER_DOUBLING.ilog2())) - CLASSES_PER_DOUBLING;
    MAX_EXACT_WORDS
        + 1
        + (doubling - MAX_EXACT_WORDS.ilog2()) as usize * CLASSES_PER_DOUBLING
        + step
}

impl SegregatedFits {
    /// One free block of `words`, minus two words.
    pub(crate) fn new(words: usize) -> io::Result<Self> {
        let region = Region::plain(words)?;
        let lists =
            Lists { first: [0; CLASSES], nonempty: [0; CLASSES / 64], free_words: 0, blocks: 0 };
        let fits = SegregatedFits { region, lists: Mutex::new(lists) };
        // Word 0 is unused; the last word is the tag of an empty block in use, which ends merging.
        fits.set(words - 1, 0);
        fits.insert_free(&mut fits.lists.lock(), 1, words - 2);
        Ok(fits)
    }

    /// The memory; an item is at its offset.
    #[inline(always)]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        &self.region
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    /// Bytes in free blocks.
    pub(crate) fn free_bytes(&self) -> u64 {
        (self.lists.lock().free_words * size_of::<u64>()) as u64
    }

    fn get(&self, at: usize) -> u64 {
        self.region[at].load(Relaxed)
    }

    fn set(&self, at: usize, word: u64) {
        self.region[at].store(word, Relaxed);
    }

    fn size(&self, block: usize) -> usize {
        (self.get(block) & SIZE) as usize
    }

    fn set_previous_is_free(&self, block: usize, is_free: bool) {
        let tag = self.get(block) & !PREVIOUS_IS_FREE;
        self.set(block, if is_free { tag | PREVIOUS_IS_FREE } else { tag });
    }

    /// Capacity of the block at this offset, in words.
    #[inline]
    pub(crate) fn capacity(&self, offset: u64) -> usize {
        self.size(offset as usize - 1) - 1
    }

    /// Allocates a block; returns the offset of its first usable word.
    pub(crate) fn allocate(&self, words: usize) -> Option<u64> {
        let needed = (words + 1).max(MIN_BLOCK_WORDS);
        let mut lists = self.lists.lock();
        let block = self.find_free(&lists, needed)?;
        self.unlink_free(&mut lists, block);
        let size = self.size(block);
        if size - needed >= MIN_BLOCK_WORDS {
            self.insert_free(&mut lists, block + needed, size - needed);
            self.set(block, needed as u64);
        } else {
            self.set(block, size as u64);
            self.set_previous_is_free(block + size, false);
        }
        lists.blocks += 1;
        Some(block as u64 + 1)
    }

    /// Number of blocks in use.
    pub(crate) fn blocks(&self) -> u64 {
        self.lists.lock().blocks
    }

    /// Frees the block at this offset.
    pub(crate) fn free(&self, offset: u64) {
        let mut lists = self.lists.lock();
        let mut block = offset as usize - 1;
        let tag = self.get(block);
        let mut size = (tag & SIZE) as usize;
        let next = block + size;
        if self.get(next) & IS_FREE != 0 {
            self.unlink_free(&mut lists, next);
            size += self.size(next);
        }
        if tag & PREVIOUS_IS_FREE != 0 {
            let previous_size = self.get(block - 1) as usize;
            block -= previous_size;
            size += previous_size;
            self.unlink_free(&mut lists, block);
        }
        self.insert_free(&mut lists, block, size);
        lists.blocks -= 1;
    }

    /// Finds a free block with at least `needed` words.
    fn find_free(&self, lists: &Lists, needed: usize) -> Option<usize> {
        let class = class_of(needed);
        // Above the exact classes, a block of the same class may be too small.
        if class > MAX_EXACT_WORDS {
            let mut block = lists.first[class];
            while block != 0 {
                if self.size(block) >= needed {
                    return Some(block);
                }
                block = self.get(block + 1) as usize;
            }
        }
        let from = if class > MAX_EXACT_WORDS { class + 1 } else { class };
        let mut group = from / 64;
        let mut some = *lists.nonempty.get(group)? & (u64::MAX << (from % 64));
        while some == 0 {
            group += 1;
            some = *lists.nonempty.get(group)?;
        }
        Some(lists.first[group * 64 + some.trailing_zeros() as usize])
    }

    /// Creates a free block between blocks in use, and adds it to its list.
    fn insert_free(&self, lists: &mut Lists, block: usize, size: usize) {
        let class = class_of(size);
        let next = lists.first[class];
        self.set(block, size as u64 | IS_FREE);
        self.set(block + 1, next as u64);
        self.set(block + 2, 0);
        self.set(block + size - 1, size as u64);
        if next != 0 {
            self.set(next + 2, block as u64);
        }
        self.set_previous_is_free(block + size, true);
        lists.first[class] = block;
        lists.nonempty[class / 64] |= 1 << (class % 64);
        lists.free_words += size;
    }

    /// Removes a free block from its list; its size stays in its tag.
    fn unlink_free(&self, lists: &mut Lists, block: usize) {
        let size = self.size(block);
        let class = class_of(size);
        let (next, previous) = (self.get(block + 1) as usize, self.get(block + 2) as usize);
        if next != 0 {
            self.set(next + 2, previous as u64);
        }
        if previous == 0 {
            lists.first[class] = next;
            if next == 0 {
                lists.nonempty[class / 64] &= !(1 << (class % 64));
            }
        } else {
            self.set(previous + 1, next as u64);
        }
        lists.free_words -= size;
    }

    /// Checks the invariants; returns the number of blocks in use.
    ///
    /// # Errors
    /// The position in words and a description of the inconsistency.
    pub(crate) fn check(&self) -> Result<u64, (usize, String)> {
        let lists = self.lists.lock();
        let (mut block, mut was_free, mut free, mut in_use) = (1, false, 0, 0);
        let end = self.region.len() - 1;
        while block < end {
            let tag = self.get(block);
            let size = (tag & SIZE) as usize;
            if size < MIN_BLOCK_WORDS || block + size > end {
                return Err((block, format!("a block of {size} words")));
            }
            let is_free = tag & IS_FREE != 0;
            if was_free != (tag & PREVIOUS_IS_FREE != 0) {
                return Err((block, "the tag is wrong about the previous block".to_owned()));
            }
            if is_free && was_free {
                return Err((block, "two free neighbours".to_owned()));
            }
            if is_free {
                free += size;
                if self.get(block + size - 1) as usize != size {
                    return Err((block, "the size at the end is not that in the tag".to_owned()));
                }
            } else {
                in_use += 1;
            }
            (was_free, block) = (is_free, block + size);
        }
        let mut listed = 0;
        for (class, &first) in lists.first.iter().enumerate() {
            let mut block = first;
            while block != 0 {
                if self.get(block) & IS_FREE == 0 || class_of(self.size(block)) != class {
                    return Err((block, format!("a foreign block in the list of class {class}")));
                }
                listed += self.size(block);
                block = self.get(block + 1) as usize;
            }
        }
        if (free, free) != (lists.free_words, listed) {
            let counted = lists.free_words;
            return Err((0, format!("{free} free words, {listed} in lists, {counted} counted")));
        }
        if in_use != lists.blocks {
            return Err((0, format!("{in_use} blocks in use, {} counted", lists.blocks)));
        }
        Ok(in_use)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compared with a map of the allocated blocks.
        #[test]
        fn blocks_do_not_overlap_and_allocation_fails_only_without_room(
            words in 40usize..4000,
            steps in proptest::collection::vec((1usize..700, 0usize..100, any::<bool>()), 1..300),
        ) {
            let fits = SegregatedFits::new(words).unwrap();
            let mut model: BTreeMap<u64, usize> = BTreeMap::new();
            for (size, which, frees) in steps {
                if frees {
                    if let Some(&offset) = model.keys().nth(which % model.len().max(1)) {
                        model.remove(&offset);
                        fits.free(offset);
                    }
                } else if let Some(offset) = fits.allocate(size) {
                    let at = offset as usize;
                    prop_assert!(fits.capacity(offset) >= size && at + size < words);
                    let before = model.range(..=offset).next_back();
                    prop_assert!(before.is_none_or(|(&from, &len)| from as usize + len < at));
                    let after = model.range(offset..).next();
                    prop_assert!(after.is_none_or(|(&from, _)| at + size < from as usize));
                    fits.words()[at..at + size].iter().for_each(|w| w.store(u64::MAX, Relaxed));
                    model.insert(offset, size);
                } else {
                    // The largest gap of the model is too small.
                    let starts = model.keys().map(|&from| from as usize - 1).chain([words - 1]);
                    let ends = std::iter::once(1).chain(
                        model.keys().map(|&from| from as usize + fits.capacity(from)));
                    let gap = starts.zip(ends).map(|(start, end)| start - end).max();
                    prop_assert!(gap.unwrap_or(0) < (size + 1).max(MIN_BLOCK_WORDS));
                }
                prop_assert_eq!(fits.check(), Ok(model.len() as u64));
            }
            for offset in model.into_keys() {
                fits.free(offset);
            }
            prop_assert_eq!(fits.check(), Ok(0));
            prop_assert!(fits.allocate(words - 3).is_some(), "free space is one block again");
        }
    }

    #[test]
    fn size_classes_are_monotonic() {
        let classes: Vec<_> = (MIN_BLOCK_WORDS..1 << 20).map(class_of).collect();
        assert!(classes.windows(2).all(|pair| pair[0] <= pair[1] && pair[1] - pair[0] <= 1));
        assert!((MIN_BLOCK_WORDS..=MAX_EXACT_WORDS).all(|size| class_of(size) == size));
        assert!(class_of(1 << 40) < CLASSES, "the largest memory, eight tebibytes, has a class");
    }
}
