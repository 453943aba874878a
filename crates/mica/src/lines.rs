//! Counts the cache lines that an operation touches, with the feature `lines`.
//!
//! Each access to a word of the index, the log or the heap records the 64-byte line of the word; a
//! line counts once. The partition's own few words (log tail, lock) are not counted, because they
//! stay in the L1 cache.

use std::sync::atomic::AtomicU64;
#[cfg(feature = "lines")]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(feature = "lines")]
thread_local! {
    /// `None` while this thread does not count.
    static TOUCHED: std::cell::RefCell<Option<Vec<usize>>> = const { std::cell::RefCell::new(None) };
}

/// Number of threads that count. Checking this first keeps the cost low while no thread counts; the
/// thread-local would be accessed dozens of times per operation.
#[cfg(feature = "lines")]
static COUNTING: AtomicUsize = AtomicUsize::new(0);

/// Records the lines of these words.
#[inline(always)]
pub(crate) fn touch(words: &[AtomicU64]) {
    #[cfg(feature = "lines")]
    if COUNTING.load(Relaxed) > 0 {
        note(words);
    }
    #[cfg(not(feature = "lines"))]
    let _ = words;
}

#[cfg(feature = "lines")]
#[cold]
fn note(words: &[AtomicU64]) {
    TOUCHED.with_borrow_mut(|touched| {
        let Some(touched) = touched else { return };
        for word in words {
            let line = std::ptr::from_ref(word) as usize / 64;
            if !touched.contains(&line) {
                touched.push(line);
            }
        }
    });
}

/// Records the line of this word.
#[inline(always)]
pub(crate) fn touch_one(word: &AtomicU64) {
    touch(std::slice::from_ref(word));
}

/// Starts counting on this thread.
pub fn begin() {
    #[cfg(feature = "lines")]
    COUNTING.fetch_add(usize::from(TOUCHED.replace(Some(Vec::new())).is_none()), Relaxed);
}

/// Stops counting; returns the lines touched by this thread, or `None` without the feature.
pub fn end() -> Option<usize> {
    #[cfg(feature = "lines")]
    return TOUCHED.take().map(|touched| {
        COUNTING.fetch_sub(1, Relaxed);
        touched.len()
    });
    #[cfg(not(feature = "lines"))]
    None
}
