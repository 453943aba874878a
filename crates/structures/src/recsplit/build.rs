//! RecSplit builder: takes sorted hashes, and finds the seeds of a bucket when the next starts.
//!
//! ```text
//!  push ─▶ paths of the bucket ──bucket complete──▶ search ─▶ bits, end in the ranks
//!                                                     └─────▶ order of its entries, for the writer
//! ```
//!
//! Besides the finished index it buffers the paths of one bucket (24 bytes per key), plus memory of
//! the search.
//!
//! A bucket without a solution is retried with a salt, which changes all its keys; so is one in
//! which two keys fold to the same 64 bits. Both are rarer than one in millions. Salts are stored
//! in a list.
//!
//! Invariant: bits and ranks are those of the buckets before the current one, and every order
//! returned covers all entries up to there.

use super::lookup::{PADDING, RecSplit, Salt, fold};
use super::ranks::{MAX_KEYS, Ranks};
use super::search::Search;
use super::shape::Shape;
use super::{RecSplitError, RecSplitOptions};
use crate::bits::BitWriter;
use crate::rank::key::{HashKey, Path, place};

/// Maximum number of salts tried per bucket.
const MAX_SALT: u32 = 100;

/// Builds an index from sorted hashes in one pass.
#[derive(Debug)]
pub struct RecSplitBuilder {
    shape: Shape,
    buckets: u32,
    /// The bucket of the paths.
    bucket: u32,
    paths: Vec<Path>,
    last: Option<HashKey>,
    /// Number of keys in earlier buckets.
    rank: u64,
    ranks: Ranks,
    writer: BitWriter,
    /// The last bits written.
    before: u64,
    salts: Vec<Salt>,
    /// The first salt of a search: 0, except in tests of salts.
    first_salt: u32,
    search: Search,
    /// The order of the entries of the buckets that the last push completed.
    order: Vec<u32>,
}

impl RecSplitBuilder {
    /// A builder for about `expected_keys` keys, which determine the number of buckets.
    ///
    /// With fewer keys the ranks of buckets cost more bits per key; with more, up to twice as many,
    /// building takes longer, and beyond that it may fail.
    ///
    /// # Errors
    ///
    /// [`RecSplitError::Option`] if an option is out of range, or there would be 2^32 buckets.
    pub fn new(options: RecSplitOptions, expected_keys: u64) -> Result<Self, RecSplitError> {
        let shape = Shape::new(options)?;
        let buckets = expected_keys.div_ceil(options.keys_per_bucket.into()).max(1);
        let too_many = RecSplitError::Option { what: "buckets in the number of", value: buckets };
        let buckets = u32::try_from(buckets).ok().filter(|&n| n < u32::MAX).ok_or(too_many)?;
        let mut writer = BitWriter::new();
        writer.write(0, PADDING as u32 * 8);
        Ok(Self {
            shape,
            buckets,
            bucket: 0,
            paths: Vec::new(),
            last: None,
            rank: 0,
            ranks: Ranks::new(options.keys_per_bucket, buckets),
            writer,
            before: 0,
            salts: Vec::new(),
            first_salt: 0,
            search: Search::default(),
            order: Vec::new(),
        })
    }

    /// Adds the next hash. If it starts a bucket, returns the order of the entries before it: for
    /// each position the entry at it, counted from the first of the last bucket with any.
    ///
    /// # Errors
    ///
    /// [`RecSplitError::Order`] if it is not above the last one; the builder is unchanged.
    /// [`RecSplitError::Crowded`] if there are far more keys than expected, or uneven ones, and
    /// [`RecSplitError::Unsplittable`]; the builder is then unusable.
    pub fn push(&mut self, hash: &HashKey) -> Result<&[u32], RecSplitError> {
        if self.last.is_some_and(|last| *hash <= last) {
            return Err(RecSplitError::Order { at: self.len() });
        }
        let (bucket, path) = place(hash, self.buckets);
        self.order.clear();
        while self.bucket < bucket {
            self.close_bucket()?;
        }
        if self.paths.len() == self.shape.limit() as usize || self.len() + 1 >= MAX_KEYS {
            return Err(RecSplitError::Crowded { bucket });
        }
        self.last = Some(*hash);
        self.paths.push(path);
        Ok(&self.order)
    }

    /// The number of hashes added.
    pub fn len(&self) -> u64 {
        self.rank + self.paths.len() as u64
    }

    /// Whether no hash was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The index of the hashes added, and the order of the entries of the last bucket.
    ///
    /// # Errors
    ///
    /// As [`RecSplitBuilder::push`], except for the order of hashes.
    pub fn finish(mut self) -> Result<(RecSplit, Vec<u32>), RecSplitError> {
        self.order.clear();
        while self.bucket < self.buckets {
            self.close_bucket()?;
        }
        let crowded = RecSplitError::Crowded { bucket: self.buckets - 1 };
        self.ranks.finish().then_some(()).ok_or(crowded)?;
        let bits = self.writer.finish();
        let index = RecSplit::new(self.shape, self.buckets, self.ranks, self.salts, bits);
        Ok((index, self.order))
    }

    /// Finds the seeds of the current bucket and starts the next.
    fn close_bucket(&mut self) -> Result<(), RecSplitError> {
        let bucket = self.bucket;
        let end = self.rank + self.paths.len() as u64;
        let bits = self.shape.start(bucket, self.rank)..self.shape.start(bucket + 1, end);
        let keys = |salt| self.paths.iter().map(move |path| fold(path, salt));
        let salt = (self.first_salt..=MAX_SALT)
            .find(|&salt| self.search.run(&self.shape, keys(salt), bits.clone(), self.before));
        let salt = salt.ok_or(RecSplitError::Unsplittable { bucket })?;
        if salt > 0 {
            self.salts.push(Salt { bucket, salt });
        }
        self.before = self.search.write(self.before, &mut self.writer);
        self.search.order(&mut self.order);
        self.rank = end;
        self.paths.clear();
        self.bucket += 1;
        self.ranks.push(end).then_some(()).ok_or(RecSplitError::Crowded { bucket })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::hash::hash64;

    #[test]
    fn keys_of_salted_buckets_are_found_before_and_after_storing() {
        let mut hashes: Vec<HashKey> = (0..2_000u64)
            .map(|i| {
                let mut hash = [0; 20];
                hash[..8].copy_from_slice(&hash64(&i.to_le_bytes()).to_be_bytes());
                hash
            })
            .collect();
        hashes.sort_unstable();
        let mut builder = RecSplitBuilder::new(RecSplitOptions::default(), 2_000).unwrap();
        let mut written = Vec::new();
        for (at, hash) in hashes.iter().enumerate() {
            // About every other bucket.
            builder.first_salt = u32::from(at % 512 < 256) * 7;
            let order = builder.push(hash).unwrap();
            let from = written.len();
            written.extend(order.iter().map(|&at| hashes[from + at as usize]));
        }
        let (index, order) = builder.finish().unwrap();
        let from = written.len();
        written.extend(order.iter().map(|&at| hashes[from + at as usize]));
        assert!((1..8).contains(&index.salts.len()), "{:?}", index.salts);
        let read = RecSplit::from_bytes(&index.to_bytes()).unwrap();
        for (position, hash) in (0..).zip(&written) {
            assert_eq!((index.lookup(hash), read.lookup(hash)), (position, position));
        }
    }
}
