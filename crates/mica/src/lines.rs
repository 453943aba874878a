//! How many cache lines an operation touches: counted in the code, if the feature `lines` is on.
//!
//! Each word that an operation reads or writes of the index, the log or the heap is noted by the
//! line of 64 bytes that it lies on; lines count once. The partition's own few words (the log's
//! tail, the lock) are left out: they are in the first cache all the time.
//!
//! Source: ours.

use std::sync::atomic::AtomicU64;

#[cfg(feature = "lines")]
thread_local! {
    /// `None` while nobody counts.
    static TOUCHED: std::cell::RefCell<Option<Vec<usize>>> = const { std::cell::RefCell::new(None) };
}

/// Notes the lines of these words.
#[inline(always)]
pub(crate) fn touch(words: &[AtomicU64]) {
    #[cfg(feature = "lines")]
    TOUCHED.with_borrow_mut(|touched| {
        let Some(touched) = touched else { return };
        for word in words {
            let line = std::ptr::from_ref(word) as usize / 64;
            if !touched.contains(&line) {
                touched.push(line);
            }
        }
    });
    #[cfg(not(feature = "lines"))]
    let _ = words;
}

/// Notes the line of this word.
#[inline(always)]
pub(crate) fn touch_one(word: &AtomicU64) {
    touch(std::slice::from_ref(word));
}

/// Begins to count what this thread touches.
pub fn begin() {
    #[cfg(feature = "lines")]
    TOUCHED.set(Some(Vec::new()));
}

/// Lines touched by this thread since it began to count; `None` if they are not counted.
pub fn end() -> Option<usize> {
    #[cfg(feature = "lines")]
    return TOUCHED.take().map(|touched| touched.len());
    #[cfg(not(feature = "lines"))]
    None
}
