//! Backups into an object store that are interrupted: by a request that fails, or by a kill at any
//! time. And damage of each object.

use std::sync::Arc;
use std::time::Duration;

use siltstone::Error;
use siltstone_backup::{BackupReport, Repository};

use crate::faulty_store::{Fault, FaultyStore};
use crate::fixture::{Fixture, assert_has, storage};

/// After which time a lock is abandoned.
const TAKEOVER: Duration = Duration::from_secs(10 * 60);

/// A store with 300 keys and a backup of 200 of them, and a repository in `store` with that backup.
fn fixture() -> (Fixture, BackupReport) {
    let fixture = Fixture::in_objects();
    fixture.write(0, 200);
    let first = fixture.back_up();
    fixture.write(200, 100);
    (fixture, first)
}

/// Takes a backup in a process of its own, which ends.
fn back_up(fixture: &Fixture, store: &Arc<FaultyStore>) -> siltstone::Result<BackupReport> {
    Repository::open_or_create_in(storage(store))?.back_up(&fixture.db, &mut |_, _| {})
}

/// Asserts that the repository has the first backup, and can be used.
fn assert_usable(fixture: &Fixture, store: &Arc<FaultyStore>, first: &str, what: &str) {
    store.set_fault(None);
    let next = match back_up(fixture, store) {
        Err(Error::Locked { .. }) => {
            store.age_locks(TAKEOVER);
            back_up(fixture, store)
        }
        next => next,
    };
    let next = next.unwrap_or_else(|error| panic!("{what}: {error}"));
    let repository = Repository::open_in(storage(store)).unwrap();
    let report = repository.check(&mut |_| {}).unwrap();
    assert!(report.damaged.is_empty(), "{what}: {report:?}");
    assert!(report.intact.first().is_some_and(|id| id == first), "{what}: {report:?}");
    for (id, count) in [(first, 200), (&*next.id, 300)] {
        let target = fixture.path(&format!("restored {what} {count}"));
        repository.restore(id, &target, &mut |_, _| {}).unwrap();
        assert_has(&target, count);
        std::fs::remove_dir_all(target).unwrap();
    }
}

/// Runs `operation` with a fault at each of its requests.
fn at_each_request(
    fault: impl Fn(usize) -> Fault,
    operation: impl Fn(&Fixture, &Arc<FaultyStore>) -> siltstone::Result<()>,
) {
    let (fixture, first) = fixture();
    let mut failed = 0;
    for number in 0.. {
        let store = fixture.objects().fork();
        store.set_fault(Some(fault(number)));
        failed += usize::from(operation(&fixture, &store).is_err());
        let is_last = store.take_requests().len() <= number;
        assert_usable(&fixture, &store, &first.id, &format!("{:?}", fault(number)));
        if is_last {
            break;
        }
    }
    assert!(failed > 5, "{failed}");
}

#[test]
fn backup_with_any_request_failed_leaves_a_repository_that_the_next_one_uses() {
    at_each_request(Fault::Before, |fixture, store| back_up(fixture, store).map(drop));
}

#[test]
fn backup_with_any_request_failed_after_its_effect_leaves_a_repository_that_the_next_one_uses() {
    at_each_request(Fault::After, |fixture, store| back_up(fixture, store).map(drop));
}

#[test]
fn backup_killed_before_any_request_leaves_a_repository_that_the_next_one_uses() {
    at_each_request(Fault::From, |fixture, store| back_up(fixture, store).map(drop));
}

/// As `serve` does: the same repository, again and again.
#[test]
fn backup_after_a_failed_upload_in_the_same_process_is_whole() {
    let (fixture, _) = fixture();
    let store = fixture.objects();
    let repository = Repository::open_in(storage(store)).unwrap();
    store.set_fault(Some(Fault::Matching("PUT shop/blobs/")));
    repository.back_up(&fixture.db, &mut |_, _| {}).unwrap_err();
    store.set_fault(None);
    let id = repository.back_up(&fixture.db, &mut |_, _| {}).unwrap().id;
    repository.restore(&id, fixture.path("restored"), &mut |_, _| {}).unwrap();
    assert_has(&fixture.path("restored"), 300);
}

#[test]
fn creation_killed_before_any_request_is_repeated() {
    let fixture = Fixture::in_objects();
    fixture.write(0, 100);
    for number in 0.. {
        let store = Arc::new(FaultyStore::default());
        store.set_fault(Some(Fault::From(number)));
        let is_complete = back_up(&fixture, &store).is_ok();
        store.set_fault(None);
        store.age_locks(TAKEOVER);
        let id = back_up(&fixture, &store).unwrap().id;
        let repository = Repository::open_in(storage(&store)).unwrap();
        assert!(repository.check(&mut |_| {}).unwrap().intact.contains(&id), "{number}");
        if is_complete {
            break;
        }
    }
}

#[test]
fn removal_killed_before_any_request_leaves_every_listed_backup_whole() {
    let (fixture, _) = fixture();
    let newest = fixture.back_up().id;
    for number in 0.. {
        let store = fixture.objects().fork();
        store.set_fault(Some(Fault::From(number)));
        let opened = Repository::open_in(storage(&store));
        let removed = opened.and_then(|repository| repository.keep_newest(1));
        store.set_fault(None);
        store.age_locks(TAKEOVER);
        let repository = Repository::open_in(storage(&store)).unwrap();
        let report = repository.check(&mut |_| {}).unwrap();
        assert!(report.damaged.is_empty(), "{number}: {report:?}");
        assert_eq!(report.intact.last(), Some(&newest));
        repository.keep_newest(1).unwrap();
        let rest = repository.check(&mut |_| {}).unwrap();
        assert_eq!((rest.intact.len(), rest.damaged.len()), (1, 0), "{number}");
        let blobs = store.paths().iter().filter(|path| path.starts_with("blobs/")).count();
        assert_eq!(blobs as u64, rest.blobs, "{number}: only what is needed is left");
        if removed.is_ok() {
            break;
        }
    }
}

#[test]
fn damage_or_loss_of_each_object_is_found() {
    let (fixture, first) = fixture();
    let second = fixture.back_up();
    let (mut manifests, mut blobs) = (0, 0);
    for path in fixture.objects().paths() {
        for is_lost in [false, true] {
            let store = fixture.objects().fork();
            let mut content = store.content(&path);
            match (is_lost, content.first_mut()) {
                (false, Some(first)) => *first ^= 1,
                (false, None) => continue,
                (true, _) => {}
            }
            store.overwrite(&path, content);
            if is_lost {
                store.delete(&path);
            }
            let opened = Repository::open_in(storage(&store));
            if path == "FORMAT" {
                assert!(matches!(opened, Err(Error::Refused { .. })), "{opened:?}");
                continue;
            }
            // A lock that is damaged is that of a holder that is not known.
            store.age_locks(TAKEOVER);
            let report = opened.unwrap().check(&mut |_| {}).unwrap();
            match path.split('/').next().unwrap() {
                "locks" => assert_eq!(report.intact.len(), 2, "{path}"),
                // A backup that is lost is no damage: it is as if it had been removed.
                "backups" if is_lost => assert_eq!(report.intact.len(), 1, "{path}"),
                "backups" => {
                    manifests += 1;
                    assert!(path.ends_with(&report.damaged[0].id), "{path}: {report:?}");
                }
                _ => {
                    blobs += 1;
                    let state = if is_lost { "missing" } else { "damaged" };
                    let reasons = &report.damaged[0].reasons;
                    assert!(
                        reasons[0].contains(&path) && reasons[0].ends_with(state),
                        "{reasons:?}"
                    );
                }
            }
        }
    }
    assert_eq!(manifests, 2);
    assert!(blobs as u64 >= first.new_blobs + second.new_blobs);
}
