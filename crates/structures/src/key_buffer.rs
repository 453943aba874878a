//! A reused buffer for one key, which copies short keys and suffixes without a call.
//!
//! A `memcpy` of a few bytes costs mostly the call. Here up to 64 bytes are copied as two words that
//! may overlap, and a short suffix as the whole word in which it lies, if the source has one.
//!
//! Invariant: the key is the first `len` bytes; those behind it have any value.

/// Bytes of a suffix that is copied as one word.
const WORD_BYTES: usize = 32;
/// The least size of a buffer in use, so that a short key fits at once.
const MIN_BYTES: usize = 64;

/// A buffer for one key.
#[derive(Debug, Clone, Default)]
pub struct KeyBuffer {
    bytes: Vec<u8>,
    len: usize,
}

impl KeyBuffer {
    /// The key.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// The length of the key, in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the key is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Makes the key empty.
    #[inline]
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Replaces the key.
    #[inline]
    pub fn set(&mut self, key: &[u8]) {
        match copy_by_halves::<16>(key, &mut self.bytes)
            || copy_by_halves::<32>(key, &mut self.bytes)
            || copy_by_halves::<8>(key, &mut self.bytes)
        {
            true => self.len = key.len(),
            false => self.replace_end_by_call(0, key),
        }
    }

    /// Keeps the first `kept` bytes of the key, which has as many, and appends
    /// `source[from..to]`.
    ///
    /// # Panics
    /// If the key or the source is shorter.
    #[inline]
    pub fn replace_end(&mut self, kept: usize, source: &[u8], from: usize, to: usize) {
        debug_assert!(kept <= self.len);
        let word = source.get(from..).and_then(|rest| rest.first_chunk::<WORD_BYTES>());
        let place = self.bytes.get_mut(kept..).and_then(|rest| rest.first_chunk_mut());
        if let (Some(word), Some(place)) = (word, place)
            && from <= to
            && to - from <= WORD_BYTES
        {
            *place = *word;
            self.len = kept + (to - from);
        } else {
            self.replace_end_by_call(kept, &source[from..to]);
        }
    }

    #[inline(never)]
    fn replace_end_by_call(&mut self, kept: usize, end: &[u8]) {
        assert!(kept <= self.len, "the key has the bytes that are kept");
        self.len = kept + end.len();
        let needed = (self.len + WORD_BYTES).max(MIN_BYTES);
        if self.bytes.len() < needed {
            self.bytes.resize(needed, 0);
        }
        self.bytes[kept..self.len].copy_from_slice(end);
    }
}

/// Copies a key of `N` to 2·`N` bytes to the start of `to` if it fits there; returns whether it
/// did.
#[inline]
fn copy_by_halves<const N: usize>(key: &[u8], to: &mut [u8]) -> bool {
    if key.len() > 2 * N {
        return false;
    }
    let (Some(first), Some(last)) = (key.first_chunk::<N>(), key.last_chunk::<N>()) else {
        return false;
    };
    let Some(to) = to.get_mut(..key.len()) else { return false };
    if let Some(place) = to.first_chunk_mut() {
        *place = *first;
    }
    if let Some(place) = to.last_chunk_mut() {
        *place = *last;
    }
    true
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn buffer_behaves_as_vector(
            steps in prop::collection::vec((any::<prop::sample::Index>(), 0usize..70, 0usize..20), 1..50),
        ) {
            let source: Vec<u8> = (0..90).collect();
            let (mut buffer, mut model) = (KeyBuffer::default(), Vec::new());
            for (kept, len, from) in steps {
                if from > 15 {
                    buffer.set(&source[from..from + len]);
                    model = source[from..from + len].to_vec();
                } else {
                    let kept = kept.index(model.len() + 1);
                    // Also at the very end of the source.
                    let source = if len % 2 == 0 { &source[..from + len] } else { &source[..] };
                    buffer.replace_end(kept, source, from, from + len);
                    model.truncate(kept);
                    model.extend_from_slice(&source[from..from + len]);
                }
                prop_assert_eq!(buffer.as_slice(), &model[..]);
            }
        }
    }
}
