//! The rate at which a node sends snapshots.
//!
//! Each tick grants bytes, which do not add up over ticks. A chunk may be sent while some are left,
//! so a rate below one chunk per tick is kept on average: a large chunk uses up later ticks.

/// Bytes that may be sent.
#[derive(Debug)]
pub(crate) struct Budget {
    /// `None`: unlimited.
    per_tick: Option<i64>,
    left: i64,
}

impl Budget {
    /// With this many bytes per tick; 0: unlimited.
    pub(crate) fn new(bytes_per_tick: u64) -> Self {
        let per_tick = i64::try_from(bytes_per_tick).ok().filter(|bytes| *bytes > 0);
        Budget { per_tick, left: per_tick.unwrap_or_default() }
    }

    /// A tick has passed.
    pub(crate) fn tick(&mut self) {
        if let Some(per_tick) = self.per_tick {
            self.left = (self.left + per_tick).min(per_tick);
        }
    }

    /// Takes the bytes of a chunk, unless nothing is left.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        if self.per_tick.is_none() {
            return true;
        }
        let may_send = self.left > 0;
        if may_send {
            self.left = self.left.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
        }
        may_send
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_kept_on_average_whatever_the_size_of_chunks() {
        for (chunk, rate) in [(10, 100), (64, 100), (100, 100), (1000, 100)] {
            let mut budget = Budget::new(rate);
            let mut sent = 0;
            for _ in 0..1000 {
                while budget.take(chunk) {
                    sent += chunk;
                }
                budget.tick();
            }
            let wanted = 1000 * rate as usize;
            assert!((wanted - chunk..=wanted + chunk).contains(&sent), "{chunk}: {sent}");
        }
        let mut unlimited = Budget::new(0);
        assert!((0..1000).all(|_| unlimited.take(usize::MAX)));
    }
}
