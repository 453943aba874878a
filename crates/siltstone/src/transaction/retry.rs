//! Running a transaction until it succeeds, a bounded number of times.
//!
//! A conflict means that someone else has committed, so all together always get on; but one that reads
//! much can be overtaken again and again. So it pauses between tries, for a part of a limit that doubles
//! from 100 µs to 10 ms, and after the last try the caller hears of the conflict. Threads that met must
//! not meet again: each pause takes the next part in steps of the golden ratio, which lie far apart.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::{Durability, Result};

use super::Transaction;
use crate::Table;

/// How often a transaction is tried, and how long to wait between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Tries in all, at least one. Default: 16.
    pub tries: u32,
    /// The limit of the pause after the first try; it doubles with each. Default: 100 µs.
    pub first_pause: Duration,
    /// No pause is longer. Default: 10 ms.
    pub longest_pause: Duration,
}

impl Default for Retry {
    /// At most 93 ms of pauses in all, half of that on average.
    fn default() -> Self {
        Retry {
            tries: 16,
            first_pause: Duration::from_micros(100),
            longest_pause: Duration::from_millis(10),
        }
    }
}

impl Retry {
    /// The pause after try number `number` (the first is 1).
    fn pause(&self, number: u32) -> Duration {
        static PAUSES: AtomicU64 = AtomicU64::new(1);
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let part = PAUSES.fetch_add(1, Relaxed).wrapping_mul(GOLDEN) as f64 / u64::MAX as f64;
        let limit = self.first_pause.saturating_mul(1 << (number - 1).min(20));
        limit.min(self.longest_pause).mul_f64(part)
    }
}

impl Table {
    /// Runs `work` in a transaction and commits it, buffered; again from the beginning if it met a
    /// conflict, as [`Retry::default`] says.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// std::thread::scope(|scope| {
    ///     for _ in 0..4 {
    ///         scope.spawn(|| {
    ///             for _ in 0..10 {
    ///                 let count = |text: Vec<u8>| String::from_utf8(text).ok()?.parse::<u32>().ok();
    ///                 table.transact(|tx| {
    ///                     let visits = tx.get(b"visits")?.and_then(count).unwrap_or(0) + 1;
    ///                     tx.put(b"visits", visits.to_string().as_bytes())
    ///                 }).unwrap();
    ///             }
    ///         });
    ///     }
    /// });
    /// assert_eq!(table.get(b"visits")?.as_deref(), Some(&b"40"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// The last try's; any other error of `work` or of the commit at once. An error of `work` leaves
    /// nothing of it.
    pub fn transact<R>(&self, work: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.transact_with(Retry::default(), Durability::Buffered, work)
    }

    /// The same by another policy and durability.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<R>(
        &self,
        retry: Retry,
        durability: Durability,
        mut work: impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<R> {
        let mut attempt = || -> Result<R> {
            let mut transaction = self.transaction()?;
            let result = work(&mut transaction)?;
            transaction.commit(durability)?;
            Ok(result)
        };
        for number in 1..retry.tries {
            match attempt() {
                Err(error) if error.is_retryable() => std::thread::sleep(retry.pause(number)),
                done => return done,
            }
        }
        attempt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_neighbours_lie_apart() {
        let retry = Retry::default();
        let most = |number| (0..50).map(|_| retry.pause(number)).max().unwrap_or_default();
        let micros = [1, 3, 7, 8, 30].map(|number| most(number).as_micros());
        for (most, limit) in micros.into_iter().zip([100, 400, 6400, 10_000, 10_000]) {
            assert!(most <= limit && most > limit * 9 / 10, "{most} of {limit}");
        }
        let all: Duration = (1..retry.tries).map(most).sum();
        assert!(all < Duration::from_millis(93), "{all:?}");
    }
}
