//! Do the version counters, the log's tail, the turnstile, the locks that bursts keep and the visits hold under
//! every interleaving and every reordering that the memory model allows?
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
use siltstone_mica::held::Held;
use siltstone_mica::ring::Ring;
use siltstone_mica::sync::Lock;
use siltstone_mica::turnstile::Turnstile;
use siltstone_mica::version::{begin_read, begin_write, end_write, is_still, try_begin_write};
use siltstone_mica::visits::Visits;

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

    /// Adds one by reading and writing, which no other writer may come between.
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
        is_still(&self.header, seen).then(|| {
            assert_eq!(left, right, "a reader took what a writer was at");
            left
        })
    }
}

#[test]
fn does_a_reader_beside_one_writer_see_only_whole_writes() {
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
            assert!(first <= second, "a reader went back in time");
        }
        writer.join().unwrap();
        assert_eq!(bucket.try_read(), Some(2));
    });
}

#[test]
fn do_two_writers_and_a_reader_take_turns() {
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
fn does_who_must_not_wait_stay_out() {
    explore(3, || {
        let bucket = Arc::new(Bucket::default());
        let other = Arc::clone(&bucket);
        let writer = thread::spawn(move || other.add(Access::Crcw));
        let came_in = try_begin_write(&bucket.header, Access::Crcw);
        if came_in {
            let value = bucket.left.load(Relaxed) + 1;
            bucket.left.store(value, Relaxed);
            bucket.right.store(value, Relaxed);
            end_write(&bucket.header, Access::Crcw);
        }
        writer.join().unwrap();
        assert_eq!(bucket.try_read(), Some(1 + u64::from(came_in)));
    });
}

/// A log of two words: an item of two is overwritten by the next.
#[test]
fn is_an_item_that_is_overwritten_never_taken() {
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
            if log.0.holds(offset) {
                assert_eq!(words, [1, 1], "a reader took what was written over its item");
            }
        }
        writer.join().unwrap();
        assert!(!log.0.contains(offset));
    });
}

#[test]
fn is_who_is_alone_alone() {
    explore(3, || {
        let turnstile = Arc::new(Turnstile::<()>::new(2));
        let words = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
        let (door, both) = (Arc::clone(&turnstile), Arc::clone(&words));
        let alone = thread::spawn(move || {
            let _alone = door.alone();
            both.0.store(1, Relaxed);
            both.1.store(1, Relaxed);
        });
        {
            let _inside = turnstile.enter(1);
            let first = words.0.load(Relaxed);
            assert_eq!(first, words.1.load(Relaxed), "somebody was inside with who was alone");
        }
        alone.join().unwrap();
    });
}

/// Reads, thinks and writes: one is lost if somebody else comes between.
fn add_one(word: &AtomicU64) {
    let seen = word.load(Relaxed);
    word.store(seen + 1, Relaxed);
}

/// Bursts that want the same partitions in opposite orders: none waits for ever, none loses a write.
#[test]
fn do_bursts_that_keep_locks_never_wait_for_one_another() {
    for access in [Access::Erew, Access::Crew] {
        explore(2, move || {
            let partitions = Arc::new([0, 1].map(|_| (Lock::default(), AtomicU64::new(0))));
            let burst = move |partitions: &[(Lock, AtomicU64); 2], order: [usize; 3]| {
                let mut held = Held::of(access);
                for number in order {
                    let (lock, word) = &partitions[number];
                    held.take(number, lock);
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

/// A table with visitors, its holders' lock, and a word for each visitor's partition.
type Table = (Visits, Lock, [AtomicU64; 2]);

fn table() -> Table {
    (Visits::new(2), Lock::default(), [0, 1].map(|_| AtomicU64::new(0)))
}

fn hold((visits, lock, words): &Table, word: usize) {
    let _holding = visits.hold();
    let _lock = lock.lock();
    add_one(&words[word]);
}

/// Whether it came to a visit.
fn visit(table: &Table, thread: usize) -> bool {
    let visit = table.0.visit(thread);
    if visit.is_some() {
        add_one(&table.2[thread]);
    }
    visit.is_some()
}

/// A visitor that may not takes the lock like the holder.
#[test]
fn is_nobody_visited_who_holds() {
    explore(3, || {
        let table = Arc::new(table());
        let other = Arc::clone(&table);
        let visitor = thread::spawn(move || {
            for _ in 0..2 {
                if !visit(&other, 0) {
                    hold(&other, 0);
                }
            }
        });
        hold(&table, 0);
        visitor.join().unwrap();
        assert_eq!(table.2[0].load(Relaxed), 3);
    });
}

/// Of two visitors none, one or both may have to go; what they do is done all the same.
#[test]
fn does_a_holder_wait_for_all_visitors() {
    explore(2, || {
        let table = Arc::new(table());
        let visitors: Vec<_> = (0..2)
            .map(|thread| {
                let table = Arc::clone(&table);
                thread::spawn(move || visit(&table, thread))
            })
            .collect();
        hold(&table, 1);
        let visits: Vec<_> = visitors.into_iter().map(|visitor| visitor.join().unwrap()).collect();
        let words = table.2.each_ref().map(|word| word.load(Relaxed));
        assert_eq!(words, [u64::from(visits[0]), 1 + u64::from(visits[1])]);
    });
}
