//! Cache-line prefetch.
//!
//! Invariant: no effect that a program can observe.

/// Prefetches the cache line at `place`, which need not be valid memory, into all cache levels.
/// Does nothing on processors other than x86-64.
#[inline(always)]
pub fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 processor has it, and a prefetch faults on no address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    let _ = place;
}
