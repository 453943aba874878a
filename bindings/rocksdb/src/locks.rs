//! Locks on keys, for transactions that lock what they write.
//!
//! A key is locked by one transaction, or shared by several readers. Who waits for longer than its
//! timeout gives up, which also ends deadlocks. Plain writes to the database take the locks of
//! their keys for the duration of the write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use store::BatchOp;

use crate::batch::Batch;
use crate::failure::Failure;

/// Who holds a key.
#[derive(Debug)]
struct Holders {
    is_exclusive: bool,
    owners: BTreeSet<u64>,
}

/// A prepared transaction that no handle has: who holds its locks.
#[derive(Debug)]
pub struct Undecided {
    /// The owner.
    pub owner: u64,
    /// The keys.
    pub keys: BTreeSet<Vec<u8>>,
}

/// The locks of a database, and the names of its transactions.
#[derive(Debug)]
pub struct Locks {
    held: Mutex<BTreeMap<Vec<u8>, Holders>>,
    released: Condvar,
    next_owner: AtomicU64,
    /// The names of transactions that are not decided.
    pub names: Mutex<BTreeSet<Vec<u8>>>,
    /// The prepared transactions that no handle has, by name.
    pub undecided: Mutex<BTreeMap<Vec<u8>, Undecided>>,
    /// The timeout of plain writes; `None`: none.
    pub write_timeout: Option<Duration>,
    /// The timeout of transactions that have no other.
    pub transaction_timeout: Option<Duration>,
}

/// A timeout in milliseconds; a negative one never ends.
pub fn timeout(milliseconds: i64) -> Option<Duration> {
    u64::try_from(milliseconds).ok().map(Duration::from_millis)
}

impl Locks {
    /// No locks yet; timeouts in milliseconds.
    pub fn new(write_timeout: i64, transaction_timeout: i64) -> Self {
        Locks {
            held: Mutex::default(),
            released: Condvar::new(),
            next_owner: AtomicU64::new(0),
            names: Mutex::default(),
            undecided: Mutex::default(),
            write_timeout: timeout(write_timeout),
            transaction_timeout: timeout(transaction_timeout),
        }
    }

    /// A number for who takes locks.
    pub fn new_owner(&self) -> u64 {
        self.next_owner.fetch_add(1, Ordering::Relaxed)
    }

    /// Locks a key, or waits for it. Returns whether the owner did not have it before.
    pub fn lock(
        &self,
        owner: u64,
        key: &[u8],
        is_exclusive: bool,
        timeout: Option<Duration>,
    ) -> Result<bool, Failure> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut held = self.held.lock();
        loop {
            let Some(holders) = held.get_mut(key) else {
                let owners = BTreeSet::from([owner]);
                held.insert(key.to_vec(), Holders { is_exclusive, owners });
                return Ok(true);
            };
            if holders.owners.contains(&owner) && holders.owners.len() == 1 {
                holders.is_exclusive |= is_exclusive;
                return Ok(false);
            }
            if !holders.is_exclusive && !is_exclusive {
                return Ok(holders.owners.insert(owner));
            }
            let is_over = match deadline {
                Some(deadline) => self.released.wait_until(&mut held, deadline).timed_out(),
                None => {
                    self.released.wait(&mut held);
                    false
                }
            };
            if is_over {
                return Err(Failure::TimedOut("Timeout waiting to lock key".to_owned()));
            }
        }
    }

    /// Releases keys of an owner.
    pub fn release<'k>(&self, owner: u64, keys: impl Iterator<Item = &'k Vec<u8>>) {
        let mut held = self.held.lock();
        for key in keys {
            if let Some(holders) = held.get_mut(key) {
                holders.owners.remove(&owner);
                if holders.owners.is_empty() {
                    held.remove(key);
                }
            }
        }
        drop(held);
        self.released.notify_all();
    }

    /// Locks the keys of a batch, in their order. Ranges are not locked, as in RocksDB.
    pub fn lock_batch(&self, batch: &Batch) -> Result<Held<'_>, Failure> {
        let keys = batch.ops.iter_all().filter_map(|op| match op {
            BatchOp::Point(op) => Some(op.key().to_vec()),
            BatchOp::Merge { key, .. } => Some(key.to_vec()),
            BatchOp::DeleteRange { .. } => None,
        });
        let keys: BTreeSet<Vec<u8>> = keys.collect();
        let mut locked = Held { locks: self, owner: self.new_owner(), keys: Vec::new() };
        for key in keys {
            self.lock(locked.owner, &key, true, self.write_timeout)?;
            locked.keys.push(key);
        }
        Ok(locked)
    }
}

/// Locks that are released when this is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    locks: &'a Locks,
    owner: u64,
    keys: Vec<Vec<u8>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.locks.release(self.owner, self.keys.iter());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn exclusive_lock_waits_for_shared_ones_until_the_timeout() {
        let locks = Locks::new(1, 1);
        let brief = timeout(1);
        let (a, b) = (locks.new_owner(), locks.new_owner());
        assert!(locks.lock(a, b"k", false, brief).unwrap());
        assert!(locks.lock(b, b"k", false, brief).unwrap());
        assert!(matches!(locks.lock(a, b"k", true, brief), Err(Failure::TimedOut(_))));
        locks.release(b, [b"k".to_vec()].iter());
        assert!(!locks.lock(a, b"k", true, brief).unwrap());
        assert!(locks.lock(b, b"k", false, brief).is_err());
        let mut batch = Batch::default();
        batch.put(0, b"x", b"");
        drop(locks.lock_batch(&batch).unwrap());
        assert_eq!(locks.held.lock().len(), 1);
    }

    #[test]
    fn waiting_lock_is_given_when_the_holder_releases() {
        let locks = Locks::new(-1, -1);
        let (a, b) = (locks.new_owner(), locks.new_owner());
        locks.lock(a, b"k", true, None).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| locks.lock(b, b"k", true, None).unwrap());
            locks.release(a, [b"k".to_vec()].iter());
            assert!(waiting.join().unwrap());
        });
    }
}
