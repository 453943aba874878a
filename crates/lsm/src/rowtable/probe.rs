//! Watching a search: how many keys it compared and what it read.
//!
//! A search tells a [`Probe`] of each comparison and of each stretch of memory that it reads. In the
//! engine that is a [`Tally`], some additions a stretch; tests watch with a set of cache lines.
//!
//! Invariant: a byte of the pool that a search looks at was told to its probe before.
//!
//! Source: ours.

/// What is told of a search.
pub(crate) trait Probe {
    /// A key was compared with the one that is searched for.
    #[inline]
    fn compared(&mut self) {}

    /// These bytes are about to be looked at, in place.
    fn read(&mut self, bytes: &[u8]);
}

/// Adds up what a search did, for counters.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) bytes: u64,
    pub(crate) comparisons: u64,
    /// Cache lines of 64 bytes; one that is looked at twice with another between counts twice.
    pub(crate) lines: u64,
    last_line: usize,
}

impl Probe for Tally {
    #[inline]
    fn compared(&mut self) {
        self.comparisons += 1;
    }

    #[inline]
    fn read(&mut self, bytes: &[u8]) {
        let start = bytes.as_ptr() as usize;
        let (first, last) = (start / 64, (start + bytes.len()).saturating_sub(1) / 64);
        self.bytes += bytes.len() as u64;
        self.lines += (last.saturating_sub(first) + usize::from(first != self.last_line)) as u64;
        self.last_line = last;
    }
}

/// Counts comparisons, and the cache lines of 64 bytes touched, each once.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) comparisons: u64,
    lines: std::collections::BTreeSet<usize>,
}

#[cfg(test)]
impl Watch {
    pub(crate) fn lines(&self) -> u64 {
        self.lines.len() as u64
    }
}

#[cfg(test)]
impl Probe for Watch {
    fn compared(&mut self) {
        self.comparisons += 1;
    }

    fn read(&mut self, bytes: &[u8]) {
        let start = bytes.as_ptr() as usize;
        self.lines.extend(start / 64..(start + bytes.len()).div_ceil(64));
    }
}
