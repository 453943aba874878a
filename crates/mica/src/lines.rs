//! How many cache lines an operation touches: counted in the code, if the feature `lines` is on.
//!
//! Each word that an operation reads or writes of the index, the log or the heap is noted by the
//! line of 64 bytes that it lies on; lines count once. The partition's own few words (the log's
//! tail, the lock) are left out: they are in the first cache all the time.
//!
//! Source: ours.

use std::sync::atomic::AtomicU64;
#[cfg(feature = "lines")]
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

#[cfg(feature = "lines")]
thread_local! {
    /// `None` while nobody counts.
    static TOUCHED: std::cell::RefCell<Option<Vec<usize>>> = const { std::cell::RefCell::new(None) };
}

/// How many threads count. A program that could count and does not shall be as fast as one that cannot, and
/// a thread's own word would be asked for dozens of times an operation.
#[cfg(feature = "lines")]
static COUNTING: AtomicUsize = AtomicUsize::new(0);

/// Notes the lines of these words.
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

/// Notes the line of this word.
#[inline(always)]
pub(crate) fn touch_one(word: &AtomicU64) {
    touch(std::slice::from_ref(word));
}

/// Begins to count what this thread touches.
pub fn begin() {
    #[cfg(feature = "lines")]
    COUNTING.fetch_add(usize::from(TOUCHED.replace(Some(Vec::new())).is_none()), Relaxed);
}

/// Lines touched by this thread since it began to count; `None` if they are not counted.
pub fn end() -> Option<usize> {
    #[cfg(feature = "lines")]
    return TOUCHED.take().map(|touched| {
        COUNTING.fetch_sub(1, Relaxed);
        touched.len()
    });
    #[cfg(not(feature = "lines"))]
    None
}
