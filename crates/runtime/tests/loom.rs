//! Loom models of the group commit.
//!
//! Small instances, explored exhaustively up to a bound of preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p siltstone-runtime --test loom --release
//! ```

#![cfg(loom)]

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use siltstone_engine::{Error, Result};
use siltstone_runtime::GroupCommit;
use siltstone_runtime::group_commit::{Group, Request};

/// A number on its writer's stack; odd ones are slow.
enum Number {}

impl Request for Number {
    type Ref<'a> = &'a Cell;

    fn shorten<'short, 'long: 'short>(number: &'long Cell) -> &'short Cell {
        number
    }

    fn size_bytes(_: &Cell) -> usize {
        1
    }

    fn is_slow(number: &Cell) -> bool {
        number.get() % 2 == 1
    }
}

/// A number whose accesses loom tracks: it fails the test if one is not ordered after the creation,
/// or before the drop.
struct Cell(UnsafeCell<usize>);

// SAFETY: it is only read after its creation, which loom checks.
unsafe impl Sync for Cell {}

impl Cell {
    fn get(&self) -> usize {
        // SAFETY: as above.
        self.0.with(|number| unsafe { *number })
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // A write, which conflicts with a concurrent read.
        self.0.with_mut(|_| ());
    }
}

/// What leaders have committed: each is the only one, and sees what earlier ones did.
struct Committed(UnsafeCell<Vec<usize>>);

// SAFETY: leaders exclude each other, which loom checks.
unsafe impl Sync for Committed {}
// SAFETY: as above.
unsafe impl Send for Committed {}

impl Committed {
    fn add(&self, group: Group<'_, Number>) {
        self.0.with_mut(|all| {
            // SAFETY: loom has just checked that no other thread accesses it.
            unsafe { &mut *all }.extend(group.requests().map(Cell::get));
        });
    }
}

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(test);
}

/// Commits the numbers of each thread, of which `fails` fails with its whole group.
fn race(preemptions: usize, threads: &'static [&'static [usize]], fails: Option<usize>) {
    // Outside loom's model: groups and the largest group in all interleavings together.
    let largest = std::sync::Arc::new(AtomicUsize::new(0));
    let seen = largest.clone();
    explore(preemptions, move || {
        let shared =
            Arc::new((GroupCommit::<Number>::new(100), Committed(UnsafeCell::new(Vec::new()))));
        let seen = seen.clone();
        let run = move |shared: &(GroupCommit<Number>, Committed), numbers: &[usize]| {
            for &number in numbers {
                let cell = Cell(UnsafeCell::new(number));
                let mut failed_with = Vec::new();
                let result = shared.0.commit(
                    &cell,
                    |_| number != 4,
                    |group| -> Result<()> {
                        shared.1.add(group);
                        let numbers: Vec<_> = group.requests().map(Cell::get).collect();
                        seen.fetch_max(numbers.len(), Relaxed);
                        match fails {
                            Some(fails) if numbers.contains(&fails) => {
                                failed_with.extend(numbers);
                                Err(Error::Closed)
                            }
                            _ => Ok(()),
                        }
                    },
                );
                if fails == Some(number) {
                    assert!(matches!(result, Err(Error::Closed)));
                }
                if fails.is_none() || (failed_with.len() == 1 && failed_with[0] != number) {
                    result.unwrap();
                }
            }
        };
        let others: Vec<_> = threads[1..]
            .iter()
            .map(|numbers| {
                let (shared, run) = (Arc::clone(&shared), run.clone());
                thread::spawn(move || run(&shared, numbers))
            })
            .collect();
        run(&shared, threads[0]);
        others.into_iter().for_each(|thread| thread.join().unwrap());
        let mut all = shared.1.0.with(|all| {
            // SAFETY: loom has just checked that no other thread accesses it.
            unsafe { &*all }.clone()
        });
        all.sort_unstable();
        assert!(all.iter().eq(threads.iter().copied().flatten()));
    });
    assert!(largest.load(Relaxed) >= threads.len() - 1, "loom left out a group");
}

#[test]
fn two_writers_of_fast_requests_are_served_once() {
    race(3, &[&[0, 2], &[4, 6]], None);
}

#[test]
fn three_writers_of_fast_requests_are_served_once() {
    race(2, &[&[0], &[2], &[4]], None);
}

#[test]
fn slow_requests_are_served_once_by_leaders_that_hand_over() {
    race(2, &[&[1], &[3], &[5]], None);
}

#[test]
fn fast_and_slow_requests_are_served_once() {
    race(2, &[&[0], &[1], &[2]], None);
}

#[test]
fn failure_reaches_every_request_of_its_group() {
    race(3, &[&[0], &[2]], Some(2));
}
