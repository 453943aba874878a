//! Item layout.
//!
//! ```text
//! word   0            1         then, where the bits say so             then         then
//!        header       keyhash   expiry (ms)   cas     flags, marks      key, padded  value, padded
//!
//! header   63 .. 60  59 .. 56  55 .......... 35  34 ...... 18  17 ........ 0
//!          mark      bits      value's bytes     key's bytes   size in words, as first written
//! ```
//!
//! The access mark records for the log's head whether the item was used, or when (see
//! `cache_mode`). Flags are the low 32 bits of their word; server marks are the next 8. `cas`
//! is the CAS version of the item, which each write changes.
//!
//! The size does not change when a shorter value is written in place, because the log uses it to
//! find the next item. Keys and values are word-aligned, to be compared and copied by words; this
//! costs up to seven bytes for each. An item of 8 + 8 bytes takes 32.
//!
//! An item may be overwritten while it is read. Therefore a header is validated to stay within its
//! memory ([`Item::parse`]) before use, and everything else is trusted only after the caller has
//! rechecked the version or the tail.
//!
//! Source: Lim, thesis, section 5.3.3, "Circular Log".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::Timestamp;

use crate::lines;
use crate::words::{self, words_for};

const SIZE_BITS: u32 = 18;
const KEY_BITS: u32 = 17;
const VALUE_BITS: u32 = 21;
const KEY_AT: u32 = SIZE_BITS;
const VALUE_AT: u32 = SIZE_BITS + KEY_BITS;
const FLAG_AT: u32 = SIZE_BITS + KEY_BITS + VALUE_BITS;

const EXPIRES: u64 = 1 << FLAG_AT;
const HAS_CAS: u64 = 2 << FLAG_AT;
const FLAGGED: u64 = 4 << FLAG_AT;
/// Deleted, superseded, or filler: the head skips it without an eviction.
const DEAD: u64 = 8 << FLAG_AT;
const MARK_AT: u32 = FLAG_AT + 4;

/// Number of access marks.
pub(crate) const MARKS: u64 = 16;

/// The largest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Metadata of a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Meta {
    /// Expiry time, in milliseconds since 1970; the item is missing from then on.
    pub expires_at: Option<Timestamp>,
    /// Opaque client flags, as in memcached.
    pub flags: u32,
    /// Opaque bits for a server.
    pub marks: u8,
    /// CAS version, changed by each write; 0 in a store without CAS.
    pub cas: u64,
}

/// An item to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewItem<'a> {
    pub(crate) hash: u64,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) meta: Meta,
}

impl Meta {
    /// Flags and marks in one word.
    fn word(&self) -> u64 {
        u64::from(self.marks) << 32 | u64::from(self.flags)
    }
}

impl NewItem<'_> {
    fn bits(&self) -> u64 {
        let mut bits = 0;
        if self.meta.expires_at.is_some() {
            bits |= EXPIRES;
        }
        if self.meta.cas != 0 {
            bits |= HAS_CAS;
        }
        if self.meta.word() != 0 {
            bits |= FLAGGED;
        }
        bits
    }

    /// Its size in words.
    #[inline]
    pub(crate) fn words(&self) -> usize {
        key_at(self.bits()) + words_for(self.key.len()) + words_for(self.value.len())
    }

    /// Writes it to the first of `words`, with a total size of `size` words.
    #[inline]
    pub(crate) fn write(&self, words: &[AtomicU64], size: usize) {
        let bits = self.bits();
        let header = size as u64
            | (self.key.len() as u64) << KEY_AT
            | (self.value.len() as u64) << VALUE_AT
            | bits;
        lines::touch(&words[..2]);
        words[0].store(header, Relaxed);
        words[1].store(self.hash, Relaxed);
        let mut at = 2;
        let mut push = |word: u64| {
            words[at].store(word, Relaxed);
            at += 1;
        };
        if bits != 0 {
            if let Some(expires_at) = self.meta.expires_at {
                push(expires_at);
            }
            if self.meta.cas != 0 {
                push(self.meta.cas);
            }
            if self.meta.word() != 0 {
                push(self.meta.word());
            }
        }
        words::store(&words[at..], self.key);
        words::store(&words[at + words_for(self.key.len())..], self.value);
    }
}

/// Offset of the key, in words.
#[inline(always)]
fn key_at(header: u64) -> usize {
    // A table lookup; a popcount takes fifteen instructions on CPUs without one.
    const KEY_OFFSET_BY_BITS: [u8; 8] = [2, 3, 3, 4, 3, 4, 4, 5];
    KEY_OFFSET_BY_BITS[(header >> FLAG_AT) as usize & 7] as usize
}

/// The item's size in words, from its header.
#[inline(always)]
pub(crate) fn size_of(header: u64) -> usize {
    (header & ((1 << SIZE_BITS) - 1)) as usize
}

/// Whether the item with this header is dead.
pub(crate) fn is_dead(header: u64) -> bool {
    header & DEAD != 0
}

/// Whether the item with this header has an expiry time.
pub(crate) fn may_expire(header: u64) -> bool {
    header & EXPIRES != 0
}

/// The access mark in a header.
#[inline(always)]
pub(crate) fn mark_of(header: u64) -> u64 {
    header >> MARK_AT
}

/// The header with another access mark.
#[inline(always)]
pub(crate) fn with_mark(header: u64, mark: u64) -> u64 {
    debug_assert!(mark < MARKS);
    header & !((MARKS - 1) << MARK_AT) | mark << MARK_AT
}

/// The header of a filler of this many words.
pub(crate) fn filler(words: usize) -> u64 {
    words as u64 | DEAD
}

/// An item in memory.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    words: &'a [AtomicU64],
    header: u64,
}

impl<'a> Item<'a> {
    /// Parses the item at the start of `words`; `None` if the header is invalid.
    #[inline]
    pub(crate) fn parse(words: &'a [AtomicU64]) -> Option<Self> {
        let first = words.first()?;
        lines::touch_one(first);
        let header = first.load(Relaxed);
        let size = size_of(header);
        let item = Item { words: words.get(..size)?, header };
        let needed = item.value_at() + words_for(item.value_len());
        (needed <= size).then_some(item)
    }

    #[inline(always)]
    fn key_len(&self) -> usize {
        (self.header >> KEY_AT) as usize & ((1 << KEY_BITS) - 1)
    }

    #[inline(always)]
    fn value_at(&self) -> usize {
        key_at(self.header) + words_for(self.key_len())
    }

    /// Length of the value in bytes.
    #[inline(always)]
    pub(crate) fn value_len(&self) -> usize {
        (self.header >> VALUE_AT) as usize & ((1 << VALUE_BITS) - 1)
    }

    /// Size in words.
    #[inline(always)]
    pub(crate) fn size(&self) -> usize {
        size_of(self.header)
    }

    /// The item's words.
    pub(crate) fn words(&self) -> &'a [AtomicU64] {
        self.words
    }

    /// The keyhash.
    pub(crate) fn hash(&self) -> u64 {
        self.words[1].load(Relaxed)
    }

    /// Whether the item has this key. An equal hash alone is never enough.
    #[inline]
    pub(crate) fn is_of(&self, hash: u64, key: &[u8]) -> bool {
        self.hash() == hash
            && self.key_len() == key.len()
            && words::equal(&self.words[key_at(self.header)..], key)
    }

    /// The metadata.
    #[inline]
    pub(crate) fn meta(&self) -> Meta {
        let mut meta = Meta::default();
        if self.header & (EXPIRES | HAS_CAS | FLAGGED) == 0 {
            return meta;
        }
        let mut rest = self.words[2..key_at(self.header)].iter().map(|word| word.load(Relaxed));
        if self.header & EXPIRES != 0 {
            meta.expires_at = rest.next();
        }
        if self.header & HAS_CAS != 0 {
            meta.cas = rest.next().unwrap_or_default();
        }
        if self.header & FLAGGED != 0 {
            let word = rest.next().unwrap_or_default();
            (meta.flags, meta.marks) = (word as u32, (word >> 32) as u8);
        }
        meta
    }

    /// Copies the value to `buffer`, which must have its length.
    #[inline]
    pub(crate) fn copy_value(&self, buffer: &mut [u8]) {
        words::load(&self.words[self.value_at()..], buffer);
    }

    /// A copy of the key.
    pub(crate) fn key(&self) -> Vec<u8> {
        let mut key = vec![0; self.key_len()];
        words::load(&self.words[key_at(self.header)..], &mut key);
        key
    }

    /// Marks the item as dead.
    pub(crate) fn mark_dead(&self) {
        self.words[0].store(self.header | DEAD, Relaxed);
    }

    /// The access mark.
    #[inline(always)]
    pub(crate) fn mark(&self) -> u64 {
        mark_of(self.header)
    }

    /// Sets the access mark.
    pub(crate) fn set_mark(&self, mark: u64) {
        self.words[0].store(with_mark(self.header, mark), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn item_matches_only_its_own_key() {
        let item = NewItem { hash: 5, key: b"key-1", value: b"v", meta: Meta::default() };
        let words: Vec<_> = (0..item.words()).map(|_| AtomicU64::new(0)).collect();
        item.write(&words, words.len());
        let item = Item::parse(&words).unwrap();
        assert!(item.is_of(5, b"key-1"));
        // The bytes after a shorter key and before a longer one are padding: zeros, as these are.
        for key in [&b"key-"[..], b"key-2", b"key-1\0", b"key-1\0\0\0", b"", b"key-12345"] {
            assert!(!item.is_of(5, key), "{}", key.escape_ascii());
        }
        assert!(!item.is_of(6, b"key-1"));
    }

    fn memory(words: usize) -> Vec<AtomicU64> {
        (0..words).map(|_| AtomicU64::new(0)).collect()
    }

    proptest! {
        #[test]
        fn item_round_trips(
            key in proptest::collection::vec(any::<u8>(), 0..40),
            value in proptest::collection::vec(any::<u8>(), 0..60),
            expires_at: Option<u64>,
            cas: u64,
            flags: u32,
            marks: u8,
            spare in 0usize..9,
        ) {
            let meta = Meta { expires_at, flags, marks, cas };
            let new = NewItem { hash: 77, key: &key, value: &value, meta };
            let size = new.words() + spare;
            let words = memory(size);
            new.write(&words, size);
            let item = Item::parse(&words).unwrap();
            prop_assert_eq!((item.size(), item.hash(), item.meta()), (size, 77, meta));
            prop_assert_eq!(item.key(), key.clone());
            prop_assert!(item.is_of(77, &key) && !item.is_of(78, &key));
            let mut back = vec![0; item.value_len()];
            item.copy_value(&mut back);
            prop_assert_eq!(back, value);
            let mut longer = key.clone();
            longer.push(0);
            prop_assert!(!item.is_of(77, &longer));
        }

        /// What a reader may see during a concurrent overwrite.
        #[test]
        fn arbitrary_header_stays_within_its_words(header: u64, len in 0usize..300) {
            let words = memory(len);
            if let Some(first) = words.first() {
                first.store(header, Relaxed);
            }
            if let Some(item) = Item::parse(&words) {
                item.copy_value(&mut vec![0; item.value_len()]);
                let key = item.key();
                item.is_of(0, &key);
                item.meta();
            }
        }
    }

    #[test]
    fn largest_key_and_value_fit_in_header() {
        let key = vec![1; siltstone_engine::MAX_KEY_BYTES];
        let value = vec![2; MAX_VALUE_BYTES];
        let meta = Meta { expires_at: Some(1), flags: 1, marks: 1, cas: 1 };
        let new = NewItem { hash: 5, key: &key, value: &value, meta };
        let words = memory(new.words());
        new.write(&words, new.words());
        let item = Item::parse(&words).unwrap();
        assert!(item.is_of(5, &key) && item.value_len() == value.len());
    }
}
