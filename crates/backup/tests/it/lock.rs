//! The lock of a repository in an object store: two holders at once, a dead holder, and a holder
//! that has lost its lock.

use std::time::Duration;

use siltstone::Error;
use siltstone_backup::Repository;
use siltstone_backup::storage::objects::LockTimes;

use crate::faulty_store::Fault;
use crate::fixture::{Fixture, assert_has, storage, storage_with};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn second_backup_at_once_is_refused_by_the_name_of_the_holder() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 100);
    let mut refusals = Vec::new();
    let report = fixture.repository().back_up(&fixture.db, &mut |_, _| {
        let other = Repository::open_in(storage(fixture.objects())).unwrap();
        refusals.push(other.keep_newest(1).unwrap_err());
    });
    let report = report.unwrap();
    let process = format!("process {}, since 2", std::process::id());
    for error in &refusals {
        assert!(matches!(error, Error::Locked { .. }), "{error}");
        assert!(error.to_string().contains("s3://bucket/shop/locks/exclusive (host "), "{error}");
        assert!(error.to_string().contains(&process), "{error}");
    }
    assert!(!refusals.is_empty());
    // The lock was released.
    assert_eq!(fixture.repository().keep_newest(1).unwrap().backups, [""; 0]);
    assert_eq!(fixture.repository().ids().unwrap(), [report.id]);
}

#[test]
fn lock_of_a_dead_holder_is_taken_over_after_ten_minutes_of_the_store() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 100);
    fixture.repository();
    let store = fixture.objects();
    // Killed when it has the lock.
    store.set_fault(Some(Fault::From(6)));
    let killed = Repository::open_in(storage(store)).unwrap().back_up(&fixture.db, &mut |_, _| {});
    assert!(matches!(killed, Err(Error::Io { .. })), "{killed:?}");
    store.set_fault(None);
    let next = || fixture.repository().back_up(&fixture.db, &mut |_, _| {});
    assert!(matches!(next(), Err(Error::Locked { .. })));
    store.age_locks(9 * MINUTE);
    assert!(matches!(next(), Err(Error::Locked { .. })));
    store.age_locks(MINUTE);
    let id = next().unwrap().id;
    assert_eq!(fixture.repository().check(&mut |_| {}).unwrap().intact, [id]);
    let clocks = store.paths().into_iter().filter(|path| path.contains("clock")).count();
    assert_eq!(clocks, 0, "what measured the store's time is removed");
}

#[test]
fn holder_whose_lock_was_taken_over_adds_nothing() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 300);
    let store = fixture.objects();
    let mut other = None;
    let repository = fixture.repository();
    let error = repository.back_up(&fixture.db, &mut |_, _| {
        // This process pauses, for longer than ten minutes, and another one takes the lock over.
        other.get_or_insert_with(|| {
            store.age_locks(10 * MINUTE);
            fixture.repository().keep_newest(1).unwrap()
        });
    });
    let error = error.unwrap_err();
    assert!(error.to_string().contains("taken this lock over"), "{error}");
    assert_eq!(fixture.repository().ids().unwrap(), [""; 0]);
    let id = fixture.repository().back_up(&fixture.db, &mut |_, _| {}).unwrap().id;
    fixture.repository().restore(&id, fixture.path("restored"), &mut |_, _| {}).unwrap();
    assert_has(&fixture.path("restored"), 300);
}

#[test]
fn holder_that_cannot_renew_its_lock_adds_and_removes_nothing() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 300);
    fixture.repository();
    let store = fixture.objects();
    let loss = Duration::from_millis(500);
    let times = LockTimes { renewal: Duration::from_millis(5), loss, takeover: 10 * MINUTE };
    let repository = Repository::open_in(storage_with(store, times)).unwrap();
    let mut requests = Vec::new();
    let taken = repository.back_up(&fixture.db, &mut |_, _| {
        if requests.is_empty() {
            store.set_fault(Some(Fault::Matching("PUT shop/locks/exclusive")));
            std::thread::sleep(loss);
            requests = store.take_requests();
        }
    });
    let error = taken.unwrap_err();
    assert!(error.to_string().contains("could not be renewed for too long"), "{error}");
    let renewals = requests.iter().filter(|request| request.contains("exclusive")).count();
    assert!(renewals > 1, "renewals are tried again: {requests:?}");
    let later = store.take_requests();
    let changes = later.iter().filter(|r| r.starts_with("PUT shop/b") || r.starts_with("DELETE"));
    assert_eq!(changes.count(), 0, "{later:?}");
}

/// The reply to a write of the lock is lost: the holder finds its own lock.
#[test]
fn holder_whose_request_had_its_effect_but_failed_keeps_the_lock() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 100);
    fixture.back_up();
    let mut count = 0;
    for number in 0.. {
        let store = fixture.objects().fork();
        let repository = Repository::open_in(storage(&store)).unwrap();
        store.set_fault(Some(Fault::After(number)));
        let taken = repository.back_up(&fixture.db, &mut |_, _| {});
        let requests = store.take_requests();
        store.set_fault(None);
        match requests.get(number).map(String::as_str) {
            None => break,
            Some("PUT shop/locks/exclusive") => count += usize::from(taken.is_ok()),
            Some(_) => continue,
        }
        taken.unwrap();
        assert!(repository.keep_newest(1).is_ok(), "the lock was released");
    }
    assert_eq!(count, 5, "to take and to probe the lock, two renewals, and the release");
}

#[test]
fn lock_survives_renewals_that_fail_for_a_while() {
    for fault in [Fault::Matching("PUT shop/locks/exclusive"), Fault::Matching("/exclusive")] {
        let fixture = Fixture::in_objects();
        fixture.write(0, 100);
        fixture.repository();
        let store = fixture.objects();
        let times = LockTimes { renewal: Duration::from_millis(5), ..LockTimes::default() };
        let repository = Repository::open_in(storage_with(store, times)).unwrap();
        let mut is_first = true;
        let taken = repository.back_up(&fixture.db, &mut |_, _| {
            if std::mem::take(&mut is_first) {
                store.set_fault(Some(fault.clone()));
                let mut failed = 0;
                while failed < 3 {
                    let requests = store.take_requests();
                    failed += requests.iter().filter(|r| *r == "PUT shop/locks/exclusive").count();
                    std::thread::yield_now();
                }
                store.set_fault(None);
            }
        });
        taken.unwrap();
    }
}

#[test]
fn lock_is_renewed_while_it_is_held() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 100);
    fixture.repository();
    let store = fixture.objects();
    let times = LockTimes { renewal: Duration::from_millis(5), ..LockTimes::default() };
    let repository = Repository::open_in(storage_with(store, times)).unwrap();
    let mut is_first = true;
    repository
        .back_up(&fixture.db, &mut |_, _| {
            while std::mem::take(&mut is_first) {
                store.age_locks(10 * MINUTE);
                store.take_requests();
                // Until it is young again.
                while !store.take_requests().iter().any(|r| r == "PUT shop/locks/exclusive") {
                    std::thread::yield_now();
                }
                let other = fixture.repository().keep_newest(1);
                assert!(matches!(other, Err(Error::Locked { .. })), "{other:?}");
            }
        })
        .unwrap();
}

#[test]
fn restore_that_was_killed_keeps_backups_for_ten_minutes() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 100);
    let id = fixture.back_up().id;
    let store = fixture.objects();
    // Killed when it has the lock.
    store.set_fault(Some(Fault::From(4)));
    let killed = Repository::open_in(storage(store))
        .and_then(|repository| repository.restore(&id, fixture.path("killed"), &mut |_, _| {}));
    assert!(matches!(killed, Err(Error::Io { .. })), "{killed:?}");
    store.set_fault(None);
    let shared = || store.paths().into_iter().filter(|path| path.contains("shared")).count();
    assert_eq!(shared(), 1);
    let refused = fixture.repository().keep_newest(1);
    assert!(matches!(refused, Err(Error::Locked { .. })), "{refused:?}");
    // Restores do not exclude each other.
    fixture.repository().restore(&id, fixture.path("restored"), &mut |_, _| {}).unwrap();
    store.age_locks(10 * MINUTE);
    fixture.repository().keep_newest(1).unwrap();
    assert_eq!(shared(), 0, "the abandoned lock is removed");
}

#[test]
fn store_that_ignores_conditions_is_refused() {
    let fixture = Fixture::in_objects();
    fixture.objects().ignore_conditions();
    let error = Repository::open_or_create_in(storage(fixture.objects())).unwrap_err();
    assert!(error.to_string().contains("ignores the conditions of writes"), "{error}");
}
