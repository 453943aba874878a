//! Retries of transactions after conflicts, up to a limit.
//!
//! A conflict means that another transaction has committed, so the system as a whole makes
//! progress, but one that reads much can lose again and again. So retries pause, for a fraction of
//! a limit that doubles from 100 µs to 10 ms; the last conflict is returned to the caller.
//! Successive pauses take their fractions in steps of the golden ratio, so that colliding threads
//! do not collide again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::{Durability, Error, Result};

use super::Transaction;
use crate::Table;

/// How often a transaction is tried, and how long the pauses are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The number of tries, at least one. Default: 16.
    pub tries: u32,
    /// The limit of the pause after the first try; it doubles with each. Default: 100 µs.
    pub first_pause: Duration,
    /// The upper limit of all pauses. Default: 10 ms.
    pub max_pause: Duration,
}

impl Default for Retry {
    /// Up to 93 ms of pauses in total, half of that on average.
    fn default() -> Self {
        Retry {
            tries: 16,
            first_pause: Duration::from_micros(100),
            max_pause: Duration::from_millis(10),
        }
    }
}

impl Retry {
    /// No limit, for work of this crate that is short and reads one key.
    pub(crate) const UNLIMITED: Retry = Retry {
        tries: u32::MAX,
        first_pause: Duration::from_micros(100),
        max_pause: Duration::from_millis(10),
    };

    /// Runs `attempt` until it succeeds, fails with an error that is not a conflict, or has failed
    /// as often as permitted.
    pub(crate) fn run<R>(&self, mut attempt: impl FnMut() -> Result<R>) -> Result<R> {
        for number in 1.. {
            match attempt() {
                Err(error) if error.is_retryable() && number < self.tries => {
                    std::thread::sleep(self.pause(number));
                }
                outcome => return outcome,
            }
        }
        unreachable!("the last try returns")
    }

    /// The pause after try `number`; the first is 1.
    pub fn pause(&self, number: u32) -> Duration {
        static PAUSES: AtomicU64 = AtomicU64::new(1);
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let fraction = PAUSES.fetch_add(1, Relaxed).wrapping_mul(GOLDEN) as f64 / u64::MAX as f64;
        let limit = self.first_pause.saturating_mul(1 << (number - 1).min(20));
        limit.min(self.max_pause).mul_f64(fraction)
    }
}

impl Table {
    /// Runs `work` in a transaction and commits it, buffered, with retries after conflicts by
    /// [`Retry::default`].
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
    /// The error of the last try; any error but a conflict at once. After an error of `work`
    /// nothing is applied. Work with errors of its own uses [`try_transact`](Self::try_transact).
    pub fn transact<R>(&self, work: impl FnMut(&mut Transaction) -> Result<R>) -> Result<R> {
        self.transact_with(Retry::default(), Durability::Buffered, work)
    }

    /// [`transact`](Self::transact) with another retry policy and durability.
    ///
    /// # Errors
    /// Those of [`transact`](Self::transact).
    pub fn transact_with<R>(
        &self,
        retry: Retry,
        durability: Durability,
        work: impl FnMut(&mut Transaction) -> Result<R>,
    ) -> Result<R> {
        self.run(retry, durability, work, Error::is_retryable)
    }

    /// [`transact`](Self::transact) with the application's own error type: an error of `work`
    /// aborts the transaction and is returned as it is. Only a conflict at the commit is retried.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// #[derive(Debug, PartialEq)]
    /// enum ShopError {
    ///     SoldOut,
    ///     Store(String),
    /// }
    ///
    /// impl From<siltstone::Error> for ShopError {
    ///     fn from(error: siltstone::Error) -> Self {
    ///         ShopError::Store(error.to_string())
    ///     }
    /// }
    ///
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"tickets", &[1])?;
    /// let buy = || {
    ///     table.try_transact(|tx| {
    ///         let left = tx.get(b"tickets")?.map_or(0, |left| left[0]);
    ///         let left = left.checked_sub(1).ok_or(ShopError::SoldOut)?;
    ///         tx.put(b"tickets", &[left])?;
    ///         Ok(left)
    ///     })
    /// };
    /// assert_eq!(buy(), Ok(0));
    /// assert_eq!(buy(), Err(ShopError::SoldOut));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; the store's errors and the conflict of the last try, converted.
    pub fn try_transact<R, E: From<Error>>(
        &self,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.try_transact_with(Retry::default(), Durability::Buffered, work)
    }

    /// [`try_transact`](Self::try_transact) with another retry policy and durability.
    ///
    /// # Errors
    /// Those of [`try_transact`](Self::try_transact).
    pub fn try_transact_with<R, E: From<Error>>(
        &self,
        retry: Retry,
        durability: Durability,
        work: impl FnMut(&mut Transaction) -> Result<R, E>,
    ) -> Result<R, E> {
        self.run(retry, durability, work, |_| false)
    }

    /// Retries after a conflict at the commit, and after the errors of `work` that are retryable.
    fn run<R, E: From<Error>>(
        &self,
        retry: Retry,
        durability: Durability,
        mut work: impl FnMut(&mut Transaction) -> Result<R, E>,
        is_retryable: impl Fn(&E) -> bool,
    ) -> Result<R, E> {
        let mut number = 1;
        loop {
            let mut transaction = self.transaction()?;
            let is_last = number >= retry.tries;
            match work(&mut transaction) {
                Ok(result) => match transaction.commit(durability) {
                    Ok(()) => return Ok(result),
                    Err(error) if is_last || !error.is_retryable() => return Err(error.into()),
                    Err(_) => {}
                },
                Err(error) if is_last || !is_retryable(&error) => return Err(error),
                Err(_) => drop(transaction),
            }
            std::thread::sleep(retry.pause(number));
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit_and_differ() {
        let retry = Retry::default();
        let max = |number| (0..50).map(|_| retry.pause(number)).max().unwrap_or_default();
        let micros = [1, 3, 7, 8, 30].map(|number| max(number).as_micros());
        for (max, limit) in micros.into_iter().zip([100, 400, 6400, 10_000, 10_000]) {
            assert!(max <= limit && max > limit * 9 / 10, "{max} of {limit}");
        }
        let total: Duration = (1..retry.tries).map(max).sum();
        assert!(total < Duration::from_millis(93), "{total:?}");
    }
}
