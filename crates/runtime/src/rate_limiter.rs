//! A limit on the bytes per second of background writes: a token bucket.
//!
//! Tokens (bytes) accrue at the configured rate, up to those of a tenth of a second. A request
//! takes its tokens at once, into debt if necessary, and sleeps until the debt is repaid. So a
//! large request is not split, and the average rate is kept.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Limits how fast background work writes.
#[derive(Debug)]
pub struct RateLimiter {
    bucket: Mutex<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    bytes_per_second: u64,
    tokens: f64,
    filled: Instant,
}

impl RateLimiter {
    /// No limit.
    pub fn unlimited() -> Self {
        Self::new(0)
    }

    /// At most `bytes_per_second` on average; 0 is no limit.
    pub fn new(bytes_per_second: u64) -> Self {
        let bucket = Bucket { bytes_per_second, tokens: 0.0, filled: Instant::now() };
        RateLimiter { bucket: Mutex::new(bucket) }
    }

    /// Changes the limit from now on; 0 is no limit.
    pub fn set(&self, bytes_per_second: u64) {
        self.bucket.lock().bytes_per_second = bytes_per_second;
    }

    /// Takes `bytes` tokens, and sleeps until the debt is repaid.
    pub fn take(&self, bytes: u64) {
        let delay = self.bucket.lock().take(bytes, Instant::now());
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
    }
}

impl Bucket {
    fn take(&mut self, bytes: u64, now: Instant) -> Duration {
        if self.bytes_per_second == 0 {
            return Duration::ZERO;
        }
        let rate = self.bytes_per_second as f64;
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = now;
        self.tokens = (self.tokens + passed * rate).min(rate / 10.0) - bytes as f64;
        Duration::from_secs_f64((-self.tokens / rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn average_rate_is_kept_and_idle_time_accrues_few_tokens() {
        let start = Instant::now();
        let mut bucket = Bucket { bytes_per_second: 1000, tokens: 0.0, filled: start };
        assert_eq!(bucket.take(500, start), Duration::from_millis(500));
        // Ten seconds idle accrue the tokens of a tenth of a second, not of ten seconds.
        let later = start + Duration::from_secs(10);
        assert_eq!(bucket.take(100, later), Duration::ZERO);
        assert_eq!(bucket.take(100, later), Duration::from_millis(100));
    }

    #[test]
    fn zero_is_unlimited() {
        let mut bucket = Bucket { bytes_per_second: 0, tokens: 0.0, filled: Instant::now() };
        assert_eq!(bucket.take(u64::MAX, Instant::now()), Duration::ZERO);
    }
}
