//! Tests of the group commit with real threads; `tests/loom.rs` explores small cases exhaustively.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::*;

/// A number; odd ones are slow. Borrowed, so that Miri sees a request that outlives its writer.
enum Number {}

impl Request for Number {
    type Ref<'a> = &'a usize;

    fn shorten<'short, 'long: 'short>(number: &'long usize) -> &'short usize {
        number
    }

    fn size_bytes(_: &usize) -> usize {
        1
    }

    fn is_slow(number: &usize) -> bool {
        !number.is_multiple_of(2)
    }
}

fn yield_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

/// Commits `per_thread` numbers with `step` between them from each of 8 threads.
fn commit_from_8_threads(step: usize, per_thread: usize, pause: impl Fn() + Sync) {
    let group = GroupCommit::<Number>::new(4);
    let (leaders, committed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let commit_group = |requests: Group<'_, Number>| {
        assert_eq!(leaders.fetch_add(1, SeqCst), 0);
        assert!((1..=5).contains(&requests.requests().count()));
        pause();
        committed.lock().unwrap().extend(requests.requests().copied());
        leaders.fetch_sub(1, SeqCst);
        Ok(())
    };
    let numbers = |thread| (0..per_thread).map(move |i| thread * 100_000 + i * step);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (group, commit_group) = (&group, &commit_group);
            scope.spawn(move || {
                numbers(thread).for_each(|number| {
                    group.commit(&number, |_| number % 3 > 0, commit_group).unwrap()
                });
            });
        }
    });
    let mut all = committed.into_inner().unwrap();
    // The requests of one thread are committed in their order.
    for thread in 0..8 {
        let of_thread = all.iter().copied().filter(|number| number / 100_000 == thread);
        assert!(of_thread.eq(numbers(thread)));
    }
    all.sort_unstable();
    assert!(all.into_iter().eq((0..8).flat_map(numbers)));
}

#[test]
fn concurrent_fast_requests_are_committed_once_with_one_leader_at_a_time() {
    commit_from_8_threads(2, if cfg!(miri) { 20 } else { 20_000 }, || ());
}

#[test]
fn concurrent_mixed_requests_are_committed_once_with_one_leader_at_a_time() {
    commit_from_8_threads(1, if cfg!(miri) { 20 } else { 1000 }, std::thread::yield_now);
}

/// Runs `leads` as the group of a leader while `waits` waits. Returns their results.
fn lead_and_wait(
    [leads, waits]: [usize; 2],
    commit_group: impl Fn(&[usize]) -> Result<()> + Sync,
) -> [Result<()>; 2] {
    let group = GroupCommit::<Number>::new(100);
    let has_leader = AtomicUsize::new(0);
    let commit = |requests: Group<'_, Number>| {
        let requests: Vec<usize> = requests.requests().copied().collect();
        if requests == [leads] {
            has_leader.store(1, SeqCst);
            yield_until(|| group.queue.is_waited_for());
            // Long enough for the other to fall asleep.
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        commit_group(&requests)
    };
    let results = std::thread::scope(|scope| {
        let leader = scope.spawn(|| {
            catch_unwind(AssertUnwindSafe(|| group.commit(&leads, |_| true, commit)))
                .unwrap_or(Err(Error::Invalid("a panic".into())))
        });
        yield_until(|| has_leader.load(SeqCst) == 1);
        let waited = group.commit(&waits, |_| true, commit);
        [leader.join().unwrap(), waited]
    });
    // The queue is free again.
    group.commit(&0, |_| true, |_| Ok(())).unwrap();
    results
}

#[test]
fn error_of_a_later_group_concerns_only_its_requests() {
    for numbers in [[2, 4], [1, 4], [2, 1], [1, 3]] {
        let commit = |requests: &[usize]| match requests {
            [first] if *first == numbers[1] => Err(Error::Closed),
            _ => Ok(()),
        };
        let [leader, waiter] = lead_and_wait(numbers, commit);
        leader.unwrap();
        assert!(matches!(waiter, Err(Error::Closed)), "{numbers:?}");
    }
}

#[test]
fn error_of_the_leader_s_group_does_not_concern_later_requests() {
    for numbers in [[2, 4], [1, 4], [2, 1], [1, 3]] {
        let commit = |requests: &[usize]| match requests {
            [first] if *first == numbers[0] => Err(Error::Closed),
            _ => Ok(()),
        };
        let [leader, waiter] = lead_and_wait(numbers, commit);
        assert!(matches!(leader, Err(Error::Closed)), "{numbers:?}");
        waiter.unwrap();
    }
}

#[test]
fn panic_in_the_leader_s_group_makes_the_waiting_writer_leader() {
    let commit = |requests: &[usize]| match requests {
        [2] => resume_unwind(Box::new("on purpose")),
        _ => Ok(()),
    };
    let [leader, waiter] = lead_and_wait([2, 4], commit);
    assert!(matches!(leader, Err(Error::Invalid(_))));
    waiter.unwrap();
}

#[test]
fn panic_in_the_group_of_others_fails_them_as_read_only() {
    let commit = |requests: &[usize]| match requests {
        [4] => resume_unwind(Box::new("on purpose")),
        _ => Ok(()),
    };
    let [leader, waiter] = lead_and_wait([2, 4], commit);
    assert!(matches!(leader, Err(Error::Invalid(_))));
    assert!(matches!(waiter, Err(Error::ReadOnly { .. })));
}

#[test]
fn group_that_may_not_be_served_is_committed_by_its_own_writer() {
    let group = GroupCommit::<Number>::new(100);
    let leaders = Mutex::new(Vec::new());
    let commit = |requests: Group<'_, Number>| {
        if requests.requests().eq([&2]) {
            yield_until(|| group.queue.is_waited_for());
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        leaders.lock().unwrap().push(std::thread::current().id());
        Ok(())
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(|| group.commit(&2, |_| false, commit).unwrap());
        yield_until(|| group.queue.is_led());
        let second = scope.spawn(|| group.commit(&4, |_| false, commit).unwrap());
        let expected = [first.thread().id(), second.thread().id()];
        first.join().unwrap();
        second.join().unwrap();
        assert_eq!(*leaders.lock().unwrap(), expected);
    });
}

#[test]
fn leader_takes_no_more_than_its_budget_into_a_group() {
    let group = GroupCommit::<Number>::new(2);
    let (sizes, waiting) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let commit = |requests: Group<'_, Number>| {
        let count = requests.requests().count();
        if sizes.lock().unwrap().is_empty() {
            yield_until(|| waiting.load(SeqCst) == 5);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        sizes.lock().unwrap().push(count);
        Ok(())
    };
    std::thread::scope(|scope| {
        scope.spawn(|| group.commit(&0, |_| true, commit).unwrap());
        yield_until(|| group.queue.is_led());
        for _ in 0..5 {
            scope.spawn(|| {
                waiting.fetch_add(1, SeqCst);
                group.commit(&0, |_| true, commit).unwrap();
            });
        }
    });
    let sizes = sizes.into_inner().unwrap();
    assert_eq!(sizes.iter().sum::<usize>(), 6);
    assert!(sizes[1..].iter().all(|&size| size <= 3) && sizes.contains(&2), "{sizes:?}");
}
