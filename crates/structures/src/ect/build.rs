//! Trie builder: takes sorted hashes one by one, and encodes a virtual bucket when the next starts.
//!
//! ```text
//!  push ─▶ paths of the bucket ──bucket is complete─▶ bits of its trie, start in the index ─▶ Ect
//! ```
//!
//! Besides the finished trie it buffers the paths of one bucket (24 bytes per key, about 6 KiB), so
//! that a store can feed it from a merge while the merge writes.
//!
//! Invariant: bits and index are those of the buckets before the current one.
//!
//! Source: Lim, thesis, section 3.1 (figure 3.1).

use super::coder::MAX_HMAX;
use super::index::{BucketIndex, Start};
use super::key::{HashKey, Path, place};
use super::lookup::{Ect, Form};
use super::stored::MAX_ENTRIES_PER_BLOCK;
use super::{EctError, EctOptions};
use crate::bits::BitWriter;

/// Maximum number of keys of a bucket on average.
const MAX_KEYS_PER_BUCKET: u32 = 1 << 16;

/// Builds a trie from sorted hashes in one pass.
#[derive(Debug)]
pub struct EctBuilder {
    form: Form,
    hmax: u32,
    buckets: u32,
    /// The bucket of the paths.
    bucket: u32,
    paths: Vec<Path>,
    last: Option<HashKey>,
    /// Number of keys in earlier buckets.
    rank: u64,
    writer: BitWriter,
    index: BucketIndex,
}

impl EctBuilder {
    /// A builder for about `expected_keys` keys, which determine the number of buckets.
    ///
    /// With fewer keys the index of buckets costs more bits per key. With more keys, up to 1.5
    /// times as many, lookups take longer; beyond that building fails.
    ///
    /// # Errors
    ///
    /// [`EctError::Option`] if an option is out of range, or there would be 2^32 buckets.
    pub fn new(options: EctOptions, expected_keys: u64) -> Result<Self, EctError> {
        let EctOptions { keys_per_bucket, hmax, entries_per_block } = options;
        for (what, value, range) in [
            ("keys a bucket of", keys_per_bucket, 1..=MAX_KEYS_PER_BUCKET),
            ("an hmax of", hmax, 0..=MAX_HMAX),
            ("entries a block of", entries_per_block, 1..=MAX_ENTRIES_PER_BLOCK),
        ] {
            if !range.contains(&value) {
                return Err(EctError::Option { what, value: value.into() });
            }
        }
        let buckets = expected_keys.div_ceil(keys_per_bucket.into()).max(1);
        let too_many = EctError::Option { what: "buckets in the number of", value: buckets };
        // One less than fits, because the end of the last bucket is in the index too.
        let buckets = u32::try_from(buckets).ok().filter(|&n| n < u32::MAX).ok_or(too_many)?;
        let mut builder = Self {
            form: Form::new(hmax, entries_per_block),
            hmax,
            buckets,
            bucket: 0,
            paths: Vec::new(),
            last: None,
            rank: 0,
            writer: BitWriter::new(),
            index: BucketIndex::new(keys_per_bucket),
        };
        builder.push_start()?;
        Ok(builder)
    }

    /// Adds the next hash.
    ///
    /// # Errors
    ///
    /// [`EctError::Order`] if it is not above the last one; the builder is unchanged.
    /// [`EctError::Crowded`] if there are far more keys than expected; the builder is then
    /// unusable.
    pub fn push(&mut self, hash: &HashKey) -> Result<(), EctError> {
        if self.last.is_some_and(|last| *hash <= last) {
            return Err(EctError::Order { at: self.len() });
        }
        let (bucket, path) = place(hash, self.buckets);
        while self.bucket < bucket {
            self.close_bucket()?;
        }
        self.last = Some(*hash);
        self.paths.push(path);
        Ok(())
    }

    /// The number of hashes added.
    pub fn len(&self) -> u64 {
        self.rank + self.paths.len() as u64
    }

    /// Whether no hash was added.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The trie of the hashes added.
    ///
    /// # Errors
    ///
    /// [`EctError::Crowded`] if there were far more keys than expected.
    pub fn finish(mut self) -> Result<Ect, EctError> {
        while self.bucket < self.buckets {
            self.close_bucket()?;
        }
        Ok(Ect::new(self.form, self.hmax, self.buckets, self.index, self.writer.finish()))
    }

    /// Encodes the current bucket and starts the next.
    fn close_bucket(&mut self) -> Result<(), EctError> {
        let place = self.rank % u64::from(self.form.block());
        self.form.encode(&self.paths, place as u32, &mut self.writer);
        self.rank += self.paths.len() as u64;
        self.paths.clear();
        self.bucket += 1;
        self.push_start()
    }

    fn push_start(&mut self) -> Result<(), EctError> {
        let start = Start { bits: self.writer.len(), rank: self.rank };
        let crowded = EctError::Crowded { bucket: self.bucket };
        self.index.push(start).then_some(()).ok_or(crowded)
    }
}
