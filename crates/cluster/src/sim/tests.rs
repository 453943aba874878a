//! Runs schedules, and shows that planted faults are found.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use super::node::with_encryption;
use super::world::{Counts, run};
use crate::planted::{Fault, with_planted};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn schedules_keep_every_invariant() {
    let only = number("SILTSTONE_SCHEDULE");
    let count = number("SILTSTONE_SCHEDULES").unwrap_or(400);
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    let schedules = seeds.end - seeds.start;
    let next = AtomicU64::new(seeds.start);
    let worker = || {
        let mut sum = Counts::default();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return sum;
            }
            let run = catch_unwind(|| run(seed)).unwrap_or_else(|_| panic!("seed {seed} panics"));
            let counts = run.unwrap_or_else(|violation| panic!("{violation}"));
            assert_eq!(counts.refused_copies, counts.known_copies, "seed {seed}");
            sum += counts;
        }
    };
    let mut sum = Counts::default();
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().unwrap().get();
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().for_each(|worker| sum += worker.join().unwrap());
    });
    eprintln!("{schedules} schedules: {sum:?}");
    if schedules >= 100 {
        // A simulator in which nothing happens finds nothing.
        assert!(sum.operations > 20 * schedules && sum.power_cuts > schedules, "{sum:?}");
        assert!(sum.snapshots > schedules / 4 && sum.changes > schedules / 4, "{sum:?}");
        assert!(sum.io_errors > schedules / 10, "{sum:?}");
        assert!(sum.damaged > schedules / 40 && sum.wiped > schedules / 10, "{sum:?}");
        assert!(sum.known_copies > schedules / 40 && sum.copies > sum.known_copies, "{sum:?}");
    }
}

#[test]
fn schedules_over_encrypted_files_keep_every_invariant() {
    let count = number("SILTSTONE_SCHEDULES").unwrap_or(400) / 4;
    let seeds = number("SILTSTONE_SCHEDULE").map_or(0..count, |seed| seed..seed + 1);
    let count = seeds.end - seeds.start;
    let mut sum = Counts::default();
    with_encryption(|| {
        for seed in seeds {
            sum += run(seed).unwrap_or_else(|violation| panic!("{violation}"));
        }
    });
    eprintln!("{count} schedules over encrypted files: {sum:?}");
    assert!(count < 100 || sum.power_cuts > count && sum.snapshots > count / 4, "{sum:?}");
    assert!(count < 100 || sum.damaged > 0, "{sum:?}");
}

#[test]
fn schedule_repeats_exactly() {
    for seed in 0..4 {
        assert_eq!(format!("{:?}", run(seed)), format!("{:?}", run(seed)), "seed {seed}");
    }
}

/// Runs schedules with a planted fault until one shows a violation, which must be one of those that
/// the fault explains.
fn find(fault: Fault, schedules: u64, explained: &[&str]) {
    let shows = |seed| match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        // The consensus algorithm itself notices some states that cannot be.
        Err(payload) => {
            let message = payload.downcast_ref::<String>().map_or("of another kind", |text| text);
            Some(format!("panic: {message}"))
        }
        Ok(outcome) => outcome.err(),
    };
    let found = with_planted(fault, || (0..schedules).find_map(|seed| Some((seed, shows(seed)?))));
    let (seed, violation) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
    let violation = violation.lines().next().unwrap_or_default();
    eprintln!("{fault:?}: found by schedule {seed}: {violation}");
    assert!(explained.iter().any(|text| violation.contains(text)), "{fault:?}: {violation}");
}

macro_rules! planted {
    ($($test:ident: $fault:ident in $schedules:expr, as $($text:literal)|+;)*) => {$(
        #[test]
        fn $test() {
            find(Fault::$fault, $schedules, &[$($text),+]);
        }
    )*};
}

planted! {
    acknowledgement_before_commit_is_found: AckBeforeCommit in 50, as "is not linearizable";
    skipped_sync_is_found: SkippedSync in 50, as "which has forgotten" | "counts on entry" | "two votes" | "does not start" | ": term ";
    double_vote_is_found: ForgottenVote in 100, as "two votes" | ": term ";
    skipped_read_index_is_found: SkippedReadIndex in 200, as "is not linearizable";
    separate_applied_index_is_found: SeparateAppliedIndex in 100, as "the table at entry" | "is not linearizable";
    silently_truncated_log_is_found: TruncatedLog in 100, as "has opened a damaged log";
    log_cleared_before_the_snapshot_is_durable_is_found: EarlyLogReset in 200, as "has no applied index";
    log_compacted_before_the_table_is_durable_is_found: EarlyCompaction in 100, as "does not start";
    late_sync_is_found: LateSync in 1000, as "counts on entry" | "does not start" | ": term ";
    unsynced_vote_is_found: UnsyncedVote in 1000, as "two votes" | ": term ";
    skipped_directory_sync_is_found: SkippedDirectorySync in 1000, as "log is missing";
    early_removal_of_the_log_is_found: EarlyLogRemoval in 1000, as "log is missing";
    early_removal_of_the_table_is_found: EarlyTableRemoval in 1000, as "does not start";
    acknowledgement_of_a_lost_proposal_is_found: AckOfLostProposal in 1000, as "is not linearizable";
    proposal_of_an_old_term_is_found: OldTermProposal in 1000, as "is not linearizable";
    read_at_a_follower_is_found: FollowerRead in 1000, as "is not linearizable";
    lease_that_is_too_long_is_found: LongLease in 1000, as "is not linearizable";
    barrier_that_does_not_wait_is_found: EarlyBarrier in 1000, as "is not linearizable";
    moving_snapshot_is_found: MovingSnapshot in 1000, as "the table at entry";
    forgotten_members_are_found: ForgottenMembers in 1000, as "without entry" | "both lead" | "has not recovered";
    recreated_node_that_is_accepted_is_found: AcceptedRecreation in 1000, as "without entry" | "is not linearizable" | "counts on entry" | "another one of term";
    skipped_registration_is_found: SkippedRegistration in 1000, as "without entry" | "is not linearizable" | "counts on entry" | "another one of term" | "has not recovered";
    reused_incarnation_is_found: ReusedIncarnation in 2000, as "is not linearizable" | "has forgotten its start";
    copy_of_a_directory_that_is_accepted_is_found: AcceptedCopy in 2000, as "without entry" | "is not linearizable" | "counts on entry" | "both lead" | "another one of term";
}
