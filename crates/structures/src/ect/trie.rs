//! The tries of virtual buckets: encode sorted paths, descend to a key, validate and skip.
//!
//! ```text
//!  Rep(T) = nothing                                            if T has one key, or none
//!         = EC(|Left(T)|, |T|)  Rep(Left(T))  Rep(Right(T))    otherwise
//! ```
//!
//! Encoder and decoder know the number of keys of a subtrie from those above it, so no end marker
//! is needed.
//!
//! Invariant: a subtrie at depth 160 has one key, since hashes are distinct. Validation rejects
//! other tries, which bounds the recursion.
//!
//! Source: Lim, thesis, section 3.1.4, algorithms 1 and 2.

use super::coder::{Coder, MAX_SMALL, SMALL_BITS};
use super::cursor::Cursor;
use super::key::{PATH_BITS, Path};
use crate::bits::BitWriter;

/// The bits are not those of a trie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MalformedTrie;

/// The encoding of tries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tries<'a> {
    coder: &'a Coder,
}

impl<'a> Tries<'a> {
    /// Tries with the code of a coder.
    pub(super) fn new(coder: &'a Coder) -> Self {
        Self { coder }
    }

    /// Appends the trie of sorted, distinct paths.
    pub(super) fn encode(&self, paths: &[Path], writer: &mut BitWriter) {
        self.encode_below(paths, 0, writer);
    }

    fn encode_below(&self, paths: &[Path], depth: u32, writer: &mut BitWriter) {
        // A bucket has at most 2^32 keys.
        let n = paths.len() as u32;
        if n < 2 {
            return;
        }
        let left = paths.partition_point(|path| !path.bit(depth));
        self.coder.write(n, left as u32, writer);
        self.encode_below(&paths[..left], depth + 1, writer);
        self.encode_below(&paths[left..], depth + 1, writer);
    }

    /// The rank among n keys of the one with this path; of some key if there is none. The bits were
    /// checked before.
    #[inline]
    pub(super) fn descend(
        &self,
        path: &Path,
        mut n: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<u32, MalformedTrie> {
        let (mut rank, mut depth) = (0, 0);
        while n > 1 {
            let left = self.read(n, end, cursor)?;
            // 0 keys on the left may be none on the right: the bit is a wildcard here.
            if left > 0 && !path.bit(depth) {
                n = left;
            } else if left > 0 {
                self.skip(left, end, cursor)?;
                rank += left;
                n -= left;
            }
            depth += 1;
        }
        Ok(rank)
    }

    /// Validates and skips a trie of n keys, which ends before a position.
    #[inline]
    pub(super) fn skip(
        &self,
        n: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), MalformedTrie> {
        self.walk(n, 0, end, cursor)
    }

    /// Skips below a depth, small subtries by table.
    fn walk(
        &self,
        mut n: u32,
        mut depth: u32,
        end: u64,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), MalformedTrie> {
        while n > 1 {
            // A table covers at most one level per bit, and none of them below the last.
            let has_table = n <= MAX_SMALL && depth <= PATH_BITS - SMALL_BITS;
            if has_table && self.coder.skip_small(n, cursor) {
                return if cursor.is_past(end) { Err(MalformedTrie) } else { Ok(()) };
            }
            if depth == PATH_BITS {
                return Err(MalformedTrie);
            }
            depth += 1;
            let left = self.read(n, end, cursor)?;
            if left > 0 {
                self.walk(left, depth, end, cursor)?;
                n -= left;
            }
        }
        Ok(())
    }

    /// Reads the number of keys on the left, of n ≥ 2, from the bits before a position.
    #[inline]
    fn read(&self, n: u32, end: u64, cursor: &mut Cursor<'_>) -> Result<u32, MalformedTrie> {
        let left = self.coder.read(n, cursor)?;
        if cursor.is_past(end) { Err(MalformedTrie) } else { Ok(left) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::ect::key::place;
    use crate::ect::key::tests::paths;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn descent_finds_rank(
            paths in paths(),
            hmax in 0u32..=64,
        ) {
            let tries = Tries::new(Coder::shared(hmax));
            let mut writer = BitWriter::new();
            tries.encode(&paths, &mut writer);
            let bits = writer.len();
            let bytes = writer.finish();
            let cursor = Cursor::new(&bytes, 0);
            let n = paths.len() as u32;
            for (rank, path) in (0..).zip(&paths) {
                let found = tries.descend(path, n, bits, &mut cursor.clone());
                prop_assert_eq!(found, Ok(rank));
            }
            let mut skipped = cursor.clone();
            prop_assert_eq!(tries.skip(n, bits, &mut skipped), Ok(()));
            prop_assert_eq!(skipped.position(), bits);
        }

        #[test]
        fn skipping_arbitrary_bits_terminates(
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(255)], 0..100),
            hash in any::<[u8; 20]>(),
            n in prop_oneof![0u32..300, any::<u32>()],
            hmax in 0u32..=64,
        ) {
            let tries = Tries::new(Coder::shared(hmax));
            let (cursor, end) = (Cursor::new(&bytes, 0), bytes.len() as u64 * 8);
            let path = place(&hash, 1).1;
            let skipped = tries.skip(n, end, &mut cursor.clone());
            let found = tries.descend(&path, n, end, &mut cursor.clone());
            if skipped.is_ok() {
                prop_assert!(found.is_ok());
            }
            if let Ok(found) = found {
                prop_assert!(found < n.max(1));
            }
        }
    }

    #[test]
    fn trie_deeper_than_hashes_is_rejected() {
        // Two keys that differ only below depth 160: a wildcard for every bit, and never a split.
        let coder = Coder::shared(64);
        let tries = Tries::new(coder);
        for (depth, result) in [(159, Ok(())), (160, Err(MalformedTrie))] {
            let mut writer = BitWriter::new();
            (0..depth).for_each(|_| coder.write(2, 0, &mut writer));
            coder.write(2, 1, &mut writer);
            let bytes = writer.finish();
            let end = bytes.len() as u64 * 8;
            assert_eq!(tries.skip(2, end, &mut Cursor::new(&bytes, 0)), result);
        }
    }
}
