//! Counts the comparisons and reads of a search.
//!
//! A search reports each comparison and each range of memory that it reads to a [`SearchObserver`].
//! In the engine that is [`SearchStats`], which costs a few additions per range; tests use a set of
//! cache lines.
//!
//! Invariant: a search reports each byte of the pool before it reads it.

/// Observes a search.
pub(crate) trait SearchObserver {
    /// The search compares a key with the target.
    #[inline]
    fn on_comparison(&mut self) {}

    /// The search is about to read these bytes in place.
    fn on_read(&mut self, bytes: &[u8]);
}

/// The totals of searches, for counters.
#[derive(Debug, Default)]
pub(crate) struct SearchStats {
    pub(crate) bytes: u64,
    pub(crate) comparisons: u64,
    /// Cache lines of 64 bytes; a line that is read again after another one counts twice.
    pub(crate) lines: u64,
    last_line: usize,
}

impl SearchObserver for SearchStats {
    #[inline]
    fn on_comparison(&mut self) {
        self.comparisons += 1;
    }

    #[inline]
    fn on_read(&mut self, bytes: &[u8]) {
        let start = bytes.as_ptr() as usize;
        let (first, last) = (start / 64, (start + bytes.len()).saturating_sub(1) / 64);
        self.bytes += bytes.len() as u64;
        self.lines += (last.saturating_sub(first) + usize::from(first != self.last_line)) as u64;
        self.last_line = last;
    }
}

/// Counts comparisons and the distinct cache lines of 64 bytes.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct LineCounter {
    pub(crate) comparisons: u64,
    lines: std::collections::BTreeSet<usize>,
}

#[cfg(test)]
impl LineCounter {
    pub(crate) fn lines(&self) -> u64 {
        self.lines.len() as u64
    }
}

#[cfg(test)]
impl SearchObserver for LineCounter {
    fn on_comparison(&mut self) {
        self.comparisons += 1;
    }

    fn on_read(&mut self, bytes: &[u8]) {
        let start = bytes.as_ptr() as usize;
        self.lines.extend(start / 64..(start + bytes.len()).div_ceil(64));
    }
}
