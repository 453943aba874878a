//! Runs schedules, and shows that planted faults are found.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::world::{Counts, run};
use crate::planted::{Fault, with_planted};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

#[test]
fn schedules_keep_every_invariant() {
    let mut sum = Counts::default();
    let only = number("SILTSTONE_SCHEDULE");
    let count = number("SILTSTONE_SCHEDULES").unwrap_or(400);
    let seeds = only.map_or(0..count, |seed| seed..seed + 1);
    let schedules = seeds.end - seeds.start;
    for seed in seeds {
        let run = catch_unwind(|| run(seed)).unwrap_or_else(|_| panic!("seed {seed} panics"));
        let counts = run.unwrap_or_else(|violation| panic!("{violation}"));
        sum.operations += counts.operations;
        sum.entries += counts.entries;
        sum.power_cuts += counts.power_cuts;
        sum.io_errors += counts.io_errors;
        sum.damaged += counts.damaged;
        sum.snapshots += counts.snapshots;
        sum.changes += counts.changes;
    }
    eprintln!("{schedules} schedules: {sum:?}");
    if schedules >= 100 {
        // A simulator in which nothing happens finds nothing.
        assert!(sum.operations > 20 * schedules && sum.power_cuts > schedules, "{sum:?}");
        assert!(sum.snapshots > schedules / 4 && sum.changes > schedules / 4, "{sum:?}");
        assert!(sum.io_errors > schedules / 10, "{sum:?}");
        assert!(sum.damaged > schedules / 40, "{sum:?}");
    }
}

#[test]
fn schedule_repeats_exactly() {
    for seed in 0..4 {
        assert_eq!(format!("{:?}", run(seed)), format!("{:?}", run(seed)), "seed {seed}");
    }
}

/// Runs schedules with a planted fault until one shows a violation.
fn find(fault: Fault, schedules: u64) {
    let shows = |seed| match catch_unwind(AssertUnwindSafe(|| run(seed))) {
        // The consensus algorithm itself notices some states that cannot be.
        Err(_) => Some("panic".to_owned()),
        Ok(outcome) => outcome.err(),
    };
    let found = with_planted(fault, || (0..schedules).find_map(|seed| Some((seed, shows(seed)?))));
    let (seed, violation) = found.unwrap_or_else(|| panic!("{fault:?} is not found"));
    let violation = violation.lines().next().unwrap_or_default();
    eprintln!("{fault:?}: found by schedule {seed}: {violation}");
}

macro_rules! planted {
    ($($test:ident: $fault:ident in $schedules:expr;)*) => {$(
        #[test]
        fn $test() {
            find(Fault::$fault, $schedules);
        }
    )*};
}

planted! {
    acknowledgement_before_commit_is_found: AckBeforeCommit in 50;
    skipped_sync_is_found: SkippedSync in 50;
    double_vote_is_found: ForgottenVote in 100;
    skipped_read_index_is_found: SkippedReadIndex in 200;
    separate_applied_index_is_found: SeparateAppliedIndex in 100;
    silently_truncated_log_is_found: TruncatedLog in 100;
    log_cleared_before_the_snapshot_is_durable_is_found: EarlyLogReset in 200;
    log_compacted_before_the_table_is_durable_is_found: EarlyCompaction in 100;
}
