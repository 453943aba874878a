//! Writing cache lines back to memory.
//!
//! There are up to three instructions; the best one that the CPU has is chosen once. `clwb` keeps
//! the line in the cache, `clflushopt` evicts it; neither waits, so one fence at the end waits for
//! all. (`clflush` is on every CPU but waits each time; a machine without a better one has no
//! persistent memory.) On other architectures than x86-64 this is unsupported and `msync` is used.
//!
//! Invariant: after [`WriteBack::lines`] and a [`fence`], every earlier store of this thread to the
//! lines is in the power-fail domain of the memory.
//!
//! Source: Intel 64 and IA-32 manual, volume 2, CLWB, CLFLUSHOPT, SFENCE.

/// The unit of transfer between cache and memory, in bytes.
pub const LINE_BYTES: u64 = 64;

/// The instruction to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteBack {
    #[cfg(target_arch = "x86_64")]
    Clwb,
    #[cfg(target_arch = "x86_64")]
    Clflushopt,
}

impl WriteBack {
    /// The best instruction of this CPU.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn detect() -> Option<Self> {
        // Leaf 7: structured extended features; bit 24 of EBX is CLWB, bit 23 CLFLUSHOPT.
        #[allow(unused_unsafe)] // Safe since Rust 1.94.
        // SAFETY: every x86-64 CPU has the instruction; leaf 0 says how many leaves there are.
        let features = unsafe {
            match core::arch::x86_64::__cpuid(0).eax {
                0..7 => 0,
                _ => core::arch::x86_64::__cpuid_count(7, 0).ebx,
            }
        };
        match (features >> 24 & 1, features >> 23 & 1) {
            (1, _) => Some(WriteBack::Clwb),
            (_, 1) => Some(WriteBack::Clflushopt),
            _ => None,
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn detect() -> Option<Self> {
        None
    }

    /// Starts to write back the lines of `len` mapped bytes from `start`.
    pub(crate) fn lines(self, start: *mut u8, len: usize) {
        if len == 0 {
            return;
        }
        let skew = start as usize % LINE_BYTES as usize;
        let mut at = start.wrapping_sub(skew);
        let end = start.wrapping_add(len);
        while at < end {
            self.line(at);
            at = at.wrapping_add(LINE_BYTES as usize);
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn line(self, at: *mut u8) {
        use std::arch::asm;
        // SAFETY: `detect` checked that the CPU has the instruction; it changes no register, flag
        // or byte that a program can observe. Without `nomem` the compiler does not move the stores
        // before it.
        unsafe {
            match self {
                WriteBack::Clwb => asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)),
                WriteBack::Clflushopt => {
                    asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                }
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn line(self, _at: *mut u8) {
        match self {}
    }
}

/// Waits until the lines written back before are durable.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: part of SSE, which every x86-64 CPU has.
    #[allow(unused_unsafe)]
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}
