//! Cache-line prefetch.
//!
//! Invariant: no effect that a program can observe.
//!
//! Source: Lim, thesis, section 5.3.3, "Multi-stage prefetching".

use std::sync::atomic::AtomicU64;

/// Prefetches the cache line of a word into all cache levels.
#[inline(always)]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has it, and it reads nothing that a program can see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = word;
}
