//! Does each check of the kit find the bugs that it is there for? A check that cannot fail is worth
//! nothing, so every planted bug names the checks that must find it.

use siltstone_testkit::reference::Bug;
use siltstone_testkit::{
    Check, ReferenceSubject, Scale, concurrent, crowd, damage, faults, full, histories, limits,
    linear, power, refused,
};

fn finds(check: Check, bug: Bug) {
    let scale = Scale { flips: 400, rounds: 40, refused_histories: 1000, ..Scale::default() };
    let verdict = check(&ReferenceSubject { bug: Some(bug) }, &scale);
    assert!(verdict.is_err(), "{bug:?} was not found: {verdict:?}");
}

#[test]
fn power_cuts_find_writes_that_were_not_synced() {
    finds(power::power_cuts, Bug::ForgetsSync);
}

#[test]
fn power_cuts_find_torn_batches() {
    finds(power::power_cuts, Bug::TearsBatch);
}

#[test]
fn power_cuts_and_histories_find_resurrected_keys() {
    finds(power::power_cuts, Bug::ResurrectsDeleted);
    finds(histories::histories, Bug::ResurrectsDeleted);
}

#[test]
fn histories_find_what_dies_with_the_process() {
    finds(histories::histories, Bug::ForgetsBuffered);
}

#[test]
fn histories_find_wrong_answers_of_every_kind_of_read() {
    finds(histories::histories, Bug::SeesTheFuture);
    finds(histories::histories, Bug::SkipsOnTurn);
    finds(histories::histories, Bug::IgnoresExpiry);
    finds(histories::histories, Bug::LagsBehind);
}

#[test]
fn crowds_find_cursors_that_lose_their_place() {
    finds(crowd::crowds, Bug::SkipsOnTurn);
}

#[test]
fn damage_finds_bytes_that_are_trusted() {
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
fn faults_find_a_failed_sync_that_is_hidden() {
    finds(faults::faults, Bug::HidesFailedSync);
}

#[test]
fn a_full_medium_finds_an_engine_that_never_writes_again() {
    finds(full::full_medium, Bug::FullForEver);
}

#[test]
fn refused_writes_find_what_comes_back_and_a_fault_that_is_hidden() {
    finds(refused::refused_writes, Bug::KeepsRefused);
    finds(refused::refused_writes, Bug::ClosesInDoubt);
    finds(refused::refused_writes, Bug::HidesFailedSync);
    finds(refused::refused_writes, Bug::FullForEver);
}

#[test]
fn threads_find_half_batches() {
    finds(concurrent::threads, Bug::ShowsHalfBatches);
}

#[test]
fn linearizability_finds_stale_reads() {
    finds(linear::linearizable, Bug::LagsBehind);
}

#[test]
fn limits_find_what_should_have_been_refused() {
    finds(limits::limits, Bug::TakesEmptyKey);
    finds(limits::limits, Bug::AppliesRefused);
}

#[test]
fn a_failure_is_shrunk_and_says_how_to_repeat_it() {
    let subject = ReferenceSubject { bug: Some(Bug::SeesTheFuture) };
    let wrong = histories::histories(&subject, &Scale::default()).unwrap_err();
    assert!(wrong.contains("SILTSTONE_SEED="), "{wrong}");
    // A snapshot, a write after it, a read at it, and perhaps an earlier write.
    let steps = wrong.lines().filter(|line| line.starts_with("  ")).count();
    assert!((3..=4).contains(&steps), "{wrong}");
}
