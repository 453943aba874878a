//! Each check of the kit finds the planted bugs that it is there for.

use siltstone_testkit::reference::Bug;
use siltstone_testkit::{
    Check, ReferenceUnderTest, Scale, concurrent, damage, disk_full, faults, histories, limits,
    linear, power_cuts, refused_writes, shared_prefixes,
};

fn finds(check: Check, bug: Bug) {
    let scale = Scale { flips: 400, rounds: 40, refused_histories: 1000, ..Scale::default() };
    let result = check(&ReferenceUnderTest { bug: Some(bug) }, &scale);
    assert!(result.is_err(), "{bug:?} was not found: {result:?}");
}

#[test]
fn power_cuts_find_unsynced_writes() {
    finds(power_cuts::power_cuts, Bug::ForgetsSync);
}

#[test]
fn power_cuts_find_torn_batches() {
    finds(power_cuts::power_cuts, Bug::TearsBatch);
}

#[test]
fn power_cuts_and_histories_find_resurrected_keys() {
    finds(power_cuts::power_cuts, Bug::ResurrectsDeleted);
    finds(histories::histories, Bug::ResurrectsDeleted);
}

#[test]
fn histories_find_writes_lost_in_a_process_crash() {
    finds(histories::histories, Bug::ForgetsBuffered);
}

#[test]
fn histories_find_wrong_results_of_every_kind_of_read() {
    finds(histories::histories, Bug::SeesTheFuture);
    finds(histories::histories, Bug::SkipsOnTurn);
    finds(histories::histories, Bug::IgnoresExpiry);
    finds(histories::histories, Bug::LagsBehind);
}

#[test]
fn shared_prefixes_find_cursors_that_lose_their_position() {
    finds(shared_prefixes::shared_prefixes, Bug::SkipsOnTurn);
}

#[test]
fn damage_finds_unchecked_bytes() {
    finds(damage::damage_when_closed, Bug::TrustsBytes);
    finds(damage::damage_when_not_closed, Bug::TrustsBytes);
}

#[test]
fn damage_finds_panics() {
    finds(damage::damage_when_closed, Bug::PanicsOnDamage);
}

#[test]
fn damage_finds_synced_writes_taken_for_a_torn_tail() {
    finds(damage::damage_when_not_closed, Bug::DropsBehindDamage);
}

#[test]
fn faults_find_an_ignored_failed_sync() {
    finds(faults::faults, Bug::HidesFailedSync);
}

#[test]
fn disk_full_finds_an_engine_that_stays_read_only() {
    finds(disk_full::disk_full, Bug::FullForEver);
}

#[test]
fn refused_writes_find_reappearing_writes_and_ignored_faults() {
    finds(refused_writes::refused_writes, Bug::KeepsRefused);
    finds(refused_writes::refused_writes, Bug::ClosesInDoubt);
    finds(refused_writes::refused_writes, Bug::HidesFailedSync);
    finds(refused_writes::refused_writes, Bug::FullForEver);
}

#[test]
fn threads_find_partial_batches() {
    finds(concurrent::threads, Bug::ShowsHalfBatches);
}

#[test]
fn linearizability_finds_stale_reads() {
    finds(linear::linearizable, Bug::LagsBehind);
}

#[test]
fn limits_find_accepted_invalid_input() {
    finds(limits::limits, Bug::TakesLongKey);
    finds(limits::limits, Bug::AppliesRefused);
}

#[test]
fn failing_history_is_shrunk_and_reported_with_its_seed() {
    let tested = ReferenceUnderTest { bug: Some(Bug::SeesTheFuture) };
    let report = histories::histories(&tested, &Scale::default()).unwrap_err();
    assert!(report.contains("SILTSTONE_SEED="), "{report}");
    // A snapshot, a write after it, a read at it, and perhaps an earlier write.
    let steps = report.lines().filter(|line| line.starts_with("  ")).count();
    assert!((3..=4).contains(&steps), "{report}");
}
