//! The first data blocks of a file, which wait for the dictionary that is trained from them.
//!
//! A writer with `dictionary_bytes` keeps blocks here until they are enough to train a dictionary,
//! or the file ends. Then it frames them all, and later blocks as they are closed.
//!
//! Memory: up to 100 bytes per byte of the dictionary, and never more than 16 MiB and one block.

use crate::block::dictionary;

/// Blocks without frames, in order.
pub(super) struct SampledBlocks {
    dictionary_bytes: usize,
    contents: Vec<u8>,
    sizes: Vec<usize>,
    bounds: Vec<Bounds>,
}

/// A block that waits.
pub(super) struct SampledBlock<'a> {
    pub(super) contents: &'a [u8],
    /// The last key with its sequence number.
    pub(super) last: &'a (Vec<u8>, u64),
    /// The first key after the block.
    pub(super) next: Option<&'a [u8]>,
}

/// The last key of a block with its sequence number, and the first key after it.
struct Bounds {
    last: (Vec<u8>, u64),
    next: Option<Vec<u8>>,
}

impl SampledBlocks {
    pub(super) fn new(dictionary_bytes: usize) -> Self {
        let (contents, sizes, bounds) = Default::default();
        SampledBlocks { dictionary_bytes, contents, sizes, bounds }
    }

    pub(super) fn add(&mut self, contents: &[u8], last: &(Vec<u8>, u64), next: Option<&[u8]>) {
        self.contents.extend_from_slice(contents);
        self.sizes.push(contents.len());
        self.bounds.push(Bounds { last: last.clone(), next: next.map(<[u8]>::to_vec) });
    }

    /// Whether more blocks would not improve the dictionary.
    pub(super) fn are_enough(&self) -> bool {
        self.contents.len() >= dictionary::sample_bytes(self.dictionary_bytes)
    }

    /// The bytes of all blocks.
    pub(super) fn bytes(&self) -> usize {
        self.contents.len()
    }

    /// The dictionary of these blocks, if they have enough in common.
    pub(super) fn train(&self) -> Option<Vec<u8>> {
        dictionary::train(&self.contents, &self.sizes, self.dictionary_bytes)
    }

    /// The blocks in order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = SampledBlock<'_>> {
        let mut at = 0;
        self.sizes.iter().zip(&self.bounds).map(move |(size, bounds)| {
            let contents = &self.contents[at..at + size];
            at += size;
            SampledBlock { contents, last: &bounds.last, next: bounds.next.as_deref() }
        })
    }
}
