//! The ranks of buckets: start and end of each among all keys, in one cache line.
//!
//! ```text
//!  line   word 0      44 bits: keys before the line │ 20 bits: keys of its m buckets
//!         words 1-7   ⌊64 / f⌋ fields of f bits each, from the lowest; bits left over are zero
//!
//!  field i   the end of bucket i, as its distance from ⌊keys · (i + 1) · ⌊2^32 / m⌋ / 2^32⌋, plus
//!            2^(f-1). The last bucket of a line ends with the line, and has none. In the last line
//!            m is the number of buckets left.
//! ```
//!
//! Between the ends of a line, the sums of n uniform keys deviate from a straight line by √(n/4) on
//! average. 10 bits cover more than six deviations up to 600 keys per bucket, so that 43 buckets
//! share a line: 11.9 bits per bucket. The density of a line does not matter, only unevenness
//! within it.
//!
//! Invariant: ends never decrease, and a line starts where the last ends.
//!
//! Source: a variation of the thesis's two levels (section 3.1.3).

/// Words of a line.
const WORDS: usize = 8;
/// The bytes of a line in the stored form.
pub(super) const LINE: usize = WORDS * 8;
/// Bits of the number of keys before a line.
const BASE_BITS: u32 = 44;
/// Exclusive limit of the number of keys.
pub(super) const MAX_KEYS: u64 = 1 << BASE_BITS;

/// A cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Line([u64; WORDS]);

/// The layout of lines for a bucket size.
#[derive(Clone, Copy, Debug)]
struct Form {
    field_bits: u32,
    fields_a_word: u32,
}

impl Form {
    fn new(keys_per_bucket: u32) -> Self {
        // Six and a half deviations, √(keys · 43) / 2 each.
        let field_bits = match keys_per_bucket {
            0..=575 => 10,
            576..=10_000 => 12,
            _ => 16,
        };
        Self { field_bits, fields_a_word: u64::BITS / field_bits }
    }

    /// Buckets per line.
    #[inline]
    fn buckets(&self) -> u32 {
        self.fields_a_word * (WORDS as u32 - 1) + 1
    }
}

/// The buckets of a line: m, or fewer in the last.
#[derive(Clone, Copy, Debug)]
struct Share {
    buckets: u32,
    /// 2^32 divided by the number of buckets.
    each: u64,
}

impl Share {
    fn of(buckets: u32) -> Self {
        Self { buckets, each: (1 << 32) / u64::from(buckets.max(1)) }
    }

    /// The end of the first of them if all had the same number of keys.
    #[inline]
    fn expected(&self, keys: u64, buckets: u32) -> u64 {
        (keys * u64::from(buckets) * self.each) >> 32
    }
}

/// The span of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Number of keys before it.
    pub(super) start: u64,
    /// Number of keys before the next.
    pub(super) end: u64,
}

/// The ranks of all buckets.
#[derive(Clone, Debug)]
pub(super) struct Ranks {
    form: Form,
    /// All lines but the last.
    share: Share,
    /// The last line.
    last: Share,
    lines: Vec<Line>,
    /// The ends of the buckets of an incomplete line.
    pending: Vec<u64>,
    end: u64,
}

impl Ranks {
    /// No ranks yet, for a number of buckets of an average size.
    pub(super) fn new(keys_per_bucket: u32, buckets: u32) -> Self {
        let form = Form::new(keys_per_bucket);
        let m = form.buckets();
        let last = Share::of(buckets.saturating_sub(1) % m + 1);
        Self { form, share: Share::of(m), last, lines: Vec::new(), pending: Vec::new(), end: 0 }
    }

    /// Adds the end of the next bucket; returns whether its line, if now complete, could store it.
    #[must_use]
    pub(super) fn push(&mut self, end: u64) -> bool {
        self.pending.push(end);
        self.pending.len() < self.share.buckets as usize || self.flush(self.share)
    }

    /// Ends the last line; returns whether it could store its buckets.
    #[must_use]
    pub(super) fn finish(&mut self) -> bool {
        self.pending.is_empty() || self.flush(self.last)
    }

    fn flush(&mut self, share: Share) -> bool {
        let base = self.end;
        let end = self.pending.last().copied().unwrap_or(base);
        let keys = end - base;
        if end >= MAX_KEYS || keys >> (64 - BASE_BITS) != 0 {
            return false;
        }
        let mut line = Line([base << (64 - BASE_BITS) | keys, 0, 0, 0, 0, 0, 0, 0]);
        let Form { field_bits, fields_a_word } = self.form;
        for (i, &end) in (0..share.buckets - 1).zip(&self.pending) {
            let raised = end - base + (1 << (field_bits - 1));
            let field = raised.checked_sub(share.expected(keys, i + 1));
            let Some(field) = field.filter(|&field| field >> field_bits == 0) else { return false };
            line.0[1 + (i / fields_a_word) as usize] |= field << (i % fields_a_word * field_bits);
        }
        self.lines.push(line);
        self.end = end;
        self.pending.clear();
        true
    }

    /// The span of a bucket; costs a cache line.
    ///
    /// # Panics
    ///
    /// If there is no such bucket.
    #[inline]
    pub(super) fn span(&self, bucket: u32) -> Span {
        let m = self.share.buckets;
        let (at, i) = ((bucket / m) as usize, bucket % m);
        let line = &self.lines[at];
        let share = if at + 1 == self.lines.len() { &self.last } else { &self.share };
        let start = if i == 0 { 0 } else { self.end_in(line, share, i - 1) };
        let base = line.0[0] >> (64 - BASE_BITS);
        Span { start: base + start, end: base + self.end_in(line, share, i) }
    }

    /// The end of a bucket of a line, relative to the line's start; wraps around if the line is
    /// invalid.
    #[inline]
    fn end_in(&self, line: &Line, share: &Share, at: u32) -> u64 {
        let Form { field_bits, fields_a_word } = self.form;
        let keys = line.0[0] & ((1 << (64 - BASE_BITS)) - 1);
        if at + 1 >= share.buckets {
            return keys;
        }
        let word = line.0[(1 + at / fields_a_word) as usize];
        let field = (word >> (at % fields_a_word * field_bits)) & ((1 << field_bits) - 1);
        (share.expected(keys, at + 1) + field).wrapping_sub(1 << (field_bits - 1))
    }

    /// Number of lines for a number of buckets.
    pub(super) fn lines_of(keys_per_bucket: u32, buckets: u32) -> u32 {
        buckets.div_ceil(Form::new(keys_per_bucket).buckets())
    }

    /// Size of the stored form, in bytes.
    pub(super) fn size(&self) -> usize {
        self.lines.len() * LINE
    }

    /// Appends the stored form: the words, little-endian.
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        let words = self.lines.iter().flat_map(|line| line.0);
        words.for_each(|word| bytes.extend(word.to_le_bytes()));
    }

    /// Decodes the lines of a number of buckets of up to `limit` keys; fails with the first invalid
    /// line.
    pub(super) fn read(
        lines: &[[u8; LINE]],
        keys_per_bucket: u32,
        buckets: u32,
        limit: u32,
    ) -> Result<Self, u32> {
        let mut read = Self::new(keys_per_bucket, buckets);
        for (at, bytes) in (0..).zip(lines) {
            let (words, _) = bytes.as_chunks();
            let line = Line(std::array::from_fn(|i| u64::from_le_bytes(words[i])));
            let share = if at as usize + 1 == lines.len() { read.last } else { read.share };
            let (base, mut start) = (read.end, 0);
            for i in 0..share.buckets {
                let end = read.end_in(&line, &share, i);
                let is_possible = end.checked_sub(start).is_some_and(|n| n <= limit.into());
                if !is_possible || !read.push(base + end) {
                    return Err(at);
                }
                start = end;
            }
            // Encoding must give the same line, which validates the base and the unused bits.
            if !read.finish() || read.lines.last() != Some(&line) {
                return Err(at);
            }
        }
        Ok(read)
    }

    /// The number of keys.
    pub(super) fn keys(&self) -> u64 {
        self.end
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ranks(keys_per_bucket: u32, sizes: &[u64]) -> Option<Ranks> {
        let mut ranks = Ranks::new(keys_per_bucket, sizes.len() as u32);
        let mut end = 0;
        let fits = sizes.iter().all(|size| {
            end += size;
            ranks.push(end)
        });
        (fits && ranks.finish()).then_some(ranks)
    }

    proptest! {
        #[test]
        fn spans_round_trip(
            sizes in prop::collection::vec(200u64..300, 1..200),
            keys_per_bucket in prop_oneof![Just(256u32), Just(1_000), Just(20_000)],
        ) {
            let ranks = ranks(keys_per_bucket, &sizes).unwrap();
            let mut start = 0;
            for (bucket, size) in (0..).zip(&sizes) {
                prop_assert_eq!(ranks.span(bucket), Span { start, end: start + size });
                start += size;
            }
            let mut bytes = Vec::new();
            ranks.write(&mut bytes);
            let buckets = sizes.len() as u32;
            prop_assert_eq!(bytes.len() / LINE, Ranks::lines_of(keys_per_bucket, buckets) as usize);
            let read = Ranks::read(bytes.as_chunks().0, keys_per_bucket, buckets, 300).unwrap();
            prop_assert_eq!(read.lines, ranks.lines);
            prop_assert_eq!(read.end, start);
        }

        #[test]
        fn arbitrary_lines_are_rejected_or_valid(
            base in 0u64..3,
            keys in 0u64..2_000,
            words in prop::array::uniform7(any::<u64>()),
            buckets in 1u32..100,
        ) {
            let mut bytes = (base << 20 | keys).to_le_bytes().to_vec();
            words.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
            if let Ok(read) = Ranks::read(bytes.as_chunks().0, 256, buckets, 1_024) {
                let mut written = Vec::new();
                read.write(&mut written);
                prop_assert_eq!(written, bytes);
            }
        }
    }

    #[test]
    fn uneven_buckets_are_rejected_and_dense_ones_accepted() {
        let mut sizes = [256; 43];
        assert!(ranks(256, &[1_024; 100]).is_some());
        sizes[20] = 1_100;
        assert!(ranks(256, &sizes).is_some());
        sizes[20] = 1_400;
        assert!(ranks(256, &sizes).is_none());
    }
}
