//! Loom models of the version counters, the log's tail, the big-reader lock, the burst locks and
//! the two-mode lock.
//!
//! Small instances, explored exhaustively up to a bound of preemptions, in seconds:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p siltstone-mica --test loom --release
//! ```

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use siltstone_mica::Access;
use siltstone_mica::brlock::BigReaderLock;
use siltstone_mica::burst_locks::BurstLocks;
use siltstone_mica::ring::Ring;
use siltstone_mica::sync::Lock;
use siltstone_mica::two_mode_lock::TwoModeLock;
use siltstone_mica::version::{begin_read, begin_write, end_write, is_unchanged, try_begin_write};

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 20_000;
    model.check(test);
}

/// A bucket: its version, and two words that are always written together.
#[derive(Default)]
struct Bucket {
    header: AtomicU64,
    left: AtomicU64,
    right: AtomicU64,
}

impl Bucket {
    fn write(&self, value: u64, access: Access) {
        begin_write(&self.header, access);
        self.left.store(value, Relaxed);
        self.right.store(value, Relaxed);
        end_write(&self.header, access);
    }

    /// A read-modify-write that must exclude other writers.
    fn add(&self, access: Access) {
        begin_write(&self.header, access);
        let value = self.left.load(Relaxed) + 1;
        self.left.store(value, Relaxed);
        self.right.store(value, Relaxed);
        end_write(&self.header, access);
    }

    fn try_read(&self) -> Option<u64> {
        let seen = begin_read(&self.header);
        let (left, right) = (self.left.load(Relaxed), self.right.load(Relaxed));
        is_unchanged(&self.header, seen).then(|| {
            assert_eq!(left, right, "a reader accepted a partial write");
            left
        })
    }
}

#[test]
fn reader_beside_writer_sees_only_complete_writes() {
    explore(3, || {
        let bucket = Arc::new(Bucket::default());
        let other = Arc::clone(&bucket);
        let writer = thread::spawn(move || {
            other.write(1, Access::Crew);
            other.write(2, Access::Crew);
        });
        let first = bucket.try_read();
        let second = bucket.try_read();
        if let (Some(first), Some(second)) = (first, second) {
            assert!(first <= second, "reads are not monotonic");
        }
        writer.join().unwrap();
        assert_eq!(bucket.try_read(), Some(2));
    });
}

#[test]
fn concurrent_writers_lose_no_update() {
    explore(2, || {
        let bucket = Arc::new(Bucket::default());
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || bucket.add(Access::Crcw))
            })
            .collect();
        bucket.try_read();
        for writer in writers {
            writer.join().unwrap();
        }
        assert_eq!(bucket.try_read(), Some(2));
    });
}

#[test]
fn try_begin_write_excludes_other_writer() {
    explore(3, || {
        let bucket = Arc::new(Bucket::default());
        let other = Arc::clone(&bucket);
        let writer = thread::spawn(move || other.add(Access::Crcw));
        let entered = try_begin_write(&bucket.header, Access::Crcw);
        if entered {
            let value = bucket.left.load(Relaxed) + 1;
            bucket.left.store(value, Relaxed);
            bucket.right.store(value, Relaxed);
            end_write(&bucket.header, Access::Crcw);
        }
        writer.join().unwrap();
        assert_eq!(bucket.try_read(), Some(1 + u64::from(entered)));
    });
}

/// A log of two words: an item of two is overwritten by the next.
#[test]
fn overwritten_item_is_never_accepted() {
    explore(3, || {
        let log = Arc::new((Ring::new(2, 8), [AtomicU64::new(0), AtomicU64::new(0)]));
        let append = |log: &(Ring, [AtomicU64; 2]), value| {
            let offset = log.0.tail();
            log.0.advance(2);
            log.1.iter().for_each(|word| word.store(value, Relaxed));
            offset
        };
        let offset = append(&log, 1);
        let other = Arc::clone(&log);
        let writer = thread::spawn(move || append(&other, 2));
        if log.0.contains(offset) {
            let words = log.1.each_ref().map(|word| word.load(Relaxed));
            if log.0.is_intact(offset) {
                assert_eq!(words, [1, 1], "a reader accepted an overwritten item");
            }
        }
        writer.join().unwrap();
        assert!(!log.0.contains(offset));
    });
}

#[test]
fn exclusive_lock_excludes_shared() {
    explore(3, || {
        let lock = Arc::new(BigReaderLock::<()>::new(2));
        let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let (other, both) = (Arc::clone(&lock), Arc::clone(&words));
        let writer = thread::spawn(move || {
            let _guard = other.exclusive();
            both.0.store(1, Relaxed);
            both.1.store(1, Relaxed);
        });
        {
            let _guard = lock.shared(1);
            let first = words.0.load(Relaxed);
            assert_eq!(first, words.1.load(Relaxed), "a shared holder beside the exclusive one");
        }
        writer.join().unwrap();
    });
}

/// A read-modify-write: an update is lost if it is not exclusive.
fn add_one(word: &AtomicU64) {
    let seen = word.load(Relaxed);
    word.store(seen + 1, Relaxed);
}

/// Bursts on the same partitions in opposite orders: no deadlock, no lost update.
#[test]
fn bursts_that_keep_locks_do_not_deadlock() {
    for access in [Access::Erew, Access::Crew] {
        explore(2, move || {
            let partitions = Arc::new([0, 1].map(|_| (Lock::default(), AtomicU64::new(0))));
            let burst = move |partitions: &[(Lock, AtomicU64); 2], order: [usize; 3]| {
                let mut locks = BurstLocks::new(access);
                for number in order {
                    let (lock, word) = &partitions[number];
                    locks.acquire(number, lock);
                    add_one(word);
                }
            };
            let others = Arc::clone(&partitions);
            let other = thread::spawn(move || burst(&others, [1, 0, 1]));
            burst(&partitions, [0, 1, 0]);
            other.join().unwrap();
            assert_eq!(partitions.each_ref().map(|(_, word)| word.load(Relaxed)), [3, 3]);
        });
    }
}

/// The two-mode lock, the lock of keyed holders, and a word per burst thread's partition.
type Table = (TwoModeLock, Lock, [AtomicU64; 2]);

fn table() -> Table {
    (TwoModeLock::new(2), Lock::default(), [0, 1].map(|_| AtomicU64::new(0)))
}

fn run_keyed((modes, lock, words): &Table, word: usize) {
    let _guard = modes.keyed();
    let _lock = lock.lock();
    add_one(&words[word]);
}

/// Runs a burst; returns whether it was admitted.
fn run_burst(table: &Table, thread: usize) -> bool {
    let guard = table.0.shared_batch(thread);
    if guard.is_some() {
        add_one(&table.2[thread]);
    }
    guard.is_some()
}

/// A burst that is not admitted takes the lock like a keyed holder.
#[test]
fn burst_excludes_keyed_holder() {
    explore(3, || {
        let table = Arc::new(table());
        let other = Arc::clone(&table);
        let burst = thread::spawn(move || {
            for _ in 0..2 {
                if !run_burst(&other, 0) {
                    run_keyed(&other, 0);
                }
            }
        });
        run_keyed(&table, 0);
        burst.join().unwrap();
        assert_eq!(table.2[0].load(Relaxed), 3);
    });
}

/// None, one or both bursts may be rejected; admitted ones take effect.
#[test]
fn keyed_holder_waits_for_all_bursts() {
    explore(2, || {
        let table = Arc::new(table());
        let bursts: Vec<_> = (0..2)
            .map(|thread| {
                let table = Arc::clone(&table);
                thread::spawn(move || run_burst(&table, thread))
            })
            .collect();
        run_keyed(&table, 1);
        let admitted: Vec<_> = bursts.into_iter().map(|burst| burst.join().unwrap()).collect();
        let words = table.2.each_ref().map(|word| word.load(Relaxed));
        assert_eq!(words, [u64::from(admitted[0]), 1 + u64::from(admitted[1])]);
    });
}
