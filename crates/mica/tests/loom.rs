//! Do the version counters, the log's tail and the turnstile hold under every interleaving and every
//! reordering that the memory model allows?
//!
//! Small instances, explored exhaustively up to a bound of preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p siltstone-mica --test loom --release
//! ```

#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;
use siltstone_mica::Access;
use siltstone_mica::ring::Ring;
use siltstone_mica::turnstile::Turnstile;
use siltstone_mica::version::{begin_read, begin_write, end_write, is_still, try_begin_write};

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
