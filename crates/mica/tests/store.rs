//! The public API of the store: bursts, partitions, memory limits, batches that do not fit.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_mica::{
    Access, Action, Answer, Mica, Mode, Options, Outcome, Request, Store, Value, Values,
};
use siltstone_runtime::Env;
use siltstone_testkit::{TestRng, stop_guard};

fn options(pairs: &str) -> Options {
    let pairs = pairs.split(' ').filter_map(|pair| pair.split_once('='));
    let map = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Options::from_map(&map).unwrap()
}

fn env() -> Env {
    Env::replayable(Arc::new(ManualClock::at(1000)), 1)
}

fn put(store: &Store, key: &[u8], bytes: &[u8]) -> Outcome {
    let value = Value { bytes, ..Value::default() };
    store.one(&Request { hash: store.hash(key), key, action: Action::Put(value) }, &mut ()).outcome
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    let answer =
        store.one(&Request { hash: store.hash(key), key, action: Action::Get }, &mut value);
    (answer.outcome == Outcome::Found).then_some(value)
}

#[test]
fn burst_gives_same_results_as_single_requests() {
    for (mode, access) in [("store", "erew"), ("store", "crcw"), ("cache", "crew")] {
        for distance in ["1", "4", "16"] {
            let text = format!(
                "mode={mode} access={access} prefetch_distance={distance} memory=64MiB partitions=4"
            );
            let store = Store::new(&env(), options(&text)).unwrap();
            let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut rng = TestRng::new(5);
            for _ in 0..200 {
                let count = rng.index(60);
                let drawn: Vec<_> = (0..count)
                    .map(|_| {
                        let key = format!("key-{}", rng.below(40)).into_bytes();
                        let len = rng.index(200);
                        (key, rng.below(4), rng.bytes(len))
                    })
                    .collect();
                let requests: Vec<_> = drawn
                    .iter()
                    .map(|(key, kind, bytes)| {
                        let value = Value { bytes, ..Value::default() };
                        let action = match kind {
                            0 => Action::Put(value),
                            1 => Action::Delete(None),
                            _ => Action::Get,
                        };
                        Request { hash: store.hash(key), key, action }
                    })
                    .collect();
                let mut answers = vec![Answer::default(); count];
                let mut values = Values::default();
                store.burst(&requests, &mut answers, &mut values);
                for (number, (key, kind, bytes)) in drawn.iter().enumerate() {
                    let should = match kind {
                        0 => {
                            model.insert(key.clone(), bytes.clone());
                            Outcome::Stored
                        }
                        1 => model.remove(key).map_or(Outcome::Missing, |_| Outcome::Deleted),
                        _ => {
                            let there = model.get(key);
                            assert_eq!(values.of(number), there.map_or(&[][..], |value| value));
                            there.map_or(Outcome::Missing, |_| Outcome::Found)
                        }
                    };
                    assert_eq!(answers[number].outcome, should);
                }
            }
        }
    }
}

#[test]
fn partition_rejects_keys_of_other_partitions() {
    let store = Store::new(&env(), options("memory=64MiB partitions=4")).unwrap();
    for number in 0..100u32 {
        let key = number.to_le_bytes();
        let hash = store.hash(&key);
        let value = Value { bytes: b"v", ..Value::default() };
        let request = Request { hash, key: &key, action: Action::Put(value) };
        for partition in 0..4 {
            let mut answer = [Answer::default()];
            store.burst_to(partition, &[request], &mut answer, &mut ());
            let is_its_own = partition == store.partition_of(hash);
            let should = if is_its_own { Outcome::Stored } else { Outcome::WrongPartition };
            assert_eq!(answer[0].outcome, should);
        }
    }
}

#[test]
fn wrong_hash_gives_no_access_to_other_key() {
    let store = Store::new(&env(), options("memory=64MiB partitions=1")).unwrap();
    put(&store, b"secret", b"value");
    // The hash of another key, with the sender's own key.
    let forged = Request { hash: store.hash(b"secret"), key: b"public", action: Action::Get };
    let mut value = Vec::new();
    assert_eq!(store.one(&forged, &mut value).outcome, Outcome::Missing);
    let forged = Request { action: Action::Delete(None), ..forged };
    assert_eq!(store.one(&forged, &mut ()).outcome, Outcome::Missing);
    assert_eq!(get(&store, b"secret").unwrap(), b"value");
}

#[test]
fn full_store_rejects_writes_and_loses_nothing() {
    for access in ["erew", "crew", "crcw"] {
        let text =
            format!("mode=store access={access} memory=4MiB partitions=2 expected_item_bytes=116");
        let store = Store::new(&env(), options(&text)).unwrap();
        let mut stored = Vec::new();
        let mut refused = 0;
        for number in 0..60_000u64 {
            let bytes = vec![number as u8; 100];
            match put(&store, &number.to_le_bytes(), &bytes) {
                Outcome::Stored => stored.push((number, bytes)),
                Outcome::Full => refused += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(refused > 1000 && stored.len() > 15_000, "{refused} {}", stored.len());
        for (number, bytes) in &stored {
            assert_eq!(get(&store, &number.to_le_bytes()).as_ref(), Some(bytes));
        }
        // Deletes make room again.
        for (number, _) in &stored {
            let key = number.to_le_bytes();
            let request =
                Request { hash: store.hash(&key), key: &key, action: Action::Delete(None) };
            assert_eq!(store.one(&request, &mut ()).outcome, Outcome::Deleted);
        }
        assert_eq!(put(&store, b"large", &vec![7; store.max_value_bytes()]), Outcome::Stored);
    }
}

#[test]
fn batch_without_room_is_rejected_atomically() {
    for access in ["erew", "crew"] {
        let text = format!("mode=store access={access} memory=6MiB partitions=2");
        let mica = Mica::open(env(), options(&text)).unwrap();
        let mut first = WriteBatch::new();
        first.put(b"a", &[1; 1000]).put(b"b", &[2; 1000]).delete(b"c");
        mica.write(&first, Durability::Buffered).unwrap();
        let mut second = WriteBatch::new();
        second.put(b"a", &[3; 2000]).delete(b"b");
        for number in 0..200_000u32 {
            second.put(&number.to_le_bytes(), b"filler");
        }
        let error = mica.write(&second, Durability::Buffered).unwrap_err();
        assert!(error.is_disk_full(), "{error}");
        assert_eq!(mica.get(b"a").unwrap().unwrap().value, [1; 1000]);
        assert_eq!(mica.get(b"b").unwrap().unwrap().value, [2; 1000]);
        assert_eq!(mica.stats().keys_estimate, Some(2));
        assert!(mica.verify(&mut |_, _| ()).unwrap().is_intact());
    }
}

#[test]
fn access_mode_changes_under_load() {
    let store = Store::new(&env(), options("mode=cache memory=16MiB partitions=2")).unwrap();
    assert_eq!(store.access(), Access::Erew);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let store = &store;
            scope.spawn(move || {
                let mut rng = TestRng::of(9, thread);
                for _ in 0..20_000 {
                    let key = rng.below(500);
                    let len = rng.index(400);
                    let mut bytes = key.to_le_bytes().to_vec();
                    bytes.resize(8 + len, key as u8);
                    if rng.one_in(2) {
                        put(store, &key.to_le_bytes(), &bytes);
                    } else if let Some(found) = get(store, &key.to_le_bytes()) {
                        assert_eq!(found[..8], key.to_le_bytes());
                        assert!(found[8..].iter().all(|&byte| byte == key as u8));
                    }
                }
            });
        }
        for turn in 0..300 {
            store.set_access([Access::Crew, Access::Crcw, Access::Erew][turn % 3]);
            std::thread::yield_now();
        }
    });
}

/// Under CREW a read sets an access mark only if it gets its partition's lock, so a burst must not
/// keep that lock after it has moved to another partition.
#[test]
fn read_after_writes_to_two_partitions_sets_access_mark() {
    let text = "mode=cache access=crew eviction=clock experimental.buckets=150 memory=1200KiB partitions=2";
    let store = Store::new(&env(), options(text)).unwrap();
    let mut numbers = 0_u64..;
    let mut key_in = |partition| {
        let mut keys = numbers.by_ref().map(|number| number.to_le_bytes());
        keys.find(|key| store.partition_of(store.hash(key)) == partition).unwrap()
    };
    let hot = key_in(0);
    assert_eq!(put(&store, &hot, b"hot"), Outcome::Stored);
    let value = Value { bytes: &[7; 1000], ..Value::default() };
    // About twenty times what the log holds.
    for burst in 0..10_000 {
        let (first, second) = (key_in(0), key_in(1));
        let requests =
            [(&first, Action::Put(value)), (&second, Action::Put(value)), (&hot, Action::Get)];
        let requests = requests.map(|(key, action)| Request { hash: store.hash(key), key, action });
        let mut answers = [Answer::default(); 3];
        store.burst(&requests, &mut answers, &mut Vec::new());
        assert_eq!(answers[2].outcome, Outcome::Found, "burst {burst}");
    }
}

/// Every key returned was stored, and a key that stays is returned exactly once if nothing is
/// evicted.
#[test]
fn key_iteration_beside_writers_returns_every_stable_key() {
    let key = |number: u64| {
        let mut key = number.to_le_bytes().to_vec();
        key.resize(8 + number as usize % 40, number as u8);
        key
    };
    let stays = 5000..5200u64;
    // The cache's log is so small that its head passes items during the iteration.
    for mode in [
        "mode=store experimental.buckets=150 overflow_ratio=1 memory=2MiB",
        "mode=cache experimental.buckets=150 memory=600KiB",
    ] {
        for (name, access) in Access::NAMED {
            let text = format!("{mode} access={name} partitions=1");
            let store = Store::new(&env(), options(&text)).unwrap();
            assert!(!store.keys(0).advance());
            for number in stays.clone() {
                assert_eq!(put(&store, &key(number), b"here"), Outcome::Stored);
            }
            let running = stop_guard::RunFlag::default();
            std::thread::scope(|scope| {
                for thread in 0..2 {
                    let (store, running, key) = (&store, &running, &key);
                    scope.spawn(move || {
                        let mut rng = TestRng::of(4, thread);
                        while running.is_set() {
                            let (key, len) = (key(rng.below(600)), rng.index(2000));
                            if rng.one_in(3) {
                                let action = Action::Delete(None);
                                let hash = store.hash(&key);
                                store.one(&Request { hash, key: &key, action }, &mut ());
                            } else {
                                put(store, &key, &vec![1; len]);
                            }
                        }
                    });
                }
                let _ending = running.clear_on_drop();
                // Only there can the head pass an item while its key is copied, which is rare.
                let may_be_evicted = mode.starts_with("mode=cache") && access == Access::Crcw;
                for _ in 0..if may_be_evicted { 6000 } else { 300 } {
                    let (mut walk, mut met) = (store.keys(0), Vec::new());
                    while walk.advance() {
                        let number = u64::from_le_bytes(*walk.key().first_chunk().unwrap());
                        assert_eq!(walk.key(), key(number), "{text}");
                        met.extend(Some(number).filter(|number| stays.contains(number)));
                    }
                    met.sort_unstable();
                    let is_whole = met.iter().copied().eq(stays.clone());
                    assert!(
                        is_whole || mode.starts_with("mode=cache"),
                        "{text}: {} were returned",
                        met.len()
                    );
                    assert!(!walk.advance(), "the iteration stays at its end");
                }
            });
            assert_eq!(store.access(), access);
            assert!(!store.keys(u64::MAX).advance());
        }
    }
}

/// Expired items are skipped.
#[test]
fn key_iteration_skips_expired_items() {
    let clock = Arc::new(ManualClock::at(1000));
    let store = Store::new(&Env::replayable(clock.clone(), 1), options("memory=4MiB")).unwrap();
    let value = Value { bytes: b"v", expires_at: Some(2000), ..Value::default() };
    let request = Request { hash: store.hash(b"k"), key: b"k", action: Action::Put(value) };
    store.one(&request, &mut ());
    assert!(store.keys(0).advance());
    clock.set(2000);
    assert!(!store.keys(0).advance());
}

/// Under EREW a burst keeps partition locks: two bursts in opposite orders would deadlock if one
/// that holds a lock waited for another.
#[test]
fn bursts_in_opposite_orders_both_end() {
    let text = "mode=store access=erew memory=64MiB partitions=8";
    let store = Arc::new(Store::new(&env(), options(text)).unwrap());
    let (done, ended) = std::sync::mpsc::channel();
    for is_backwards in [false, true] {
        let (store, done) = (store.clone(), done.clone());
        std::thread::spawn(move || {
            let mut keys: Vec<_> = (0..64u64).map(u64::to_le_bytes).collect();
            keys.sort_by_key(|key| store.partition_of(store.hash(key)));
            if is_backwards {
                keys.reverse();
            }
            let value = Value { bytes: &[is_backwards.into()], ..Value::default() };
            let put = |key| Request { hash: store.hash(key), key, action: Action::Put(value) };
            let requests: Vec<_> = keys.iter().map(|key| put(key)).collect();
            let mut answers = [Answer::default(); 64];
            for _ in 0..20_000 {
                store.burst(&requests, &mut answers, &mut ());
                assert!(answers.iter().all(|answer| answer.outcome == Outcome::Stored));
            }
            done.send(()).unwrap();
        });
    }
    for _ in 0..2 {
        let a_minute = std::time::Duration::from_secs(60);
        ended.recv_timeout(a_minute).expect("both bursts end");
    }
    assert!((0..64u64).all(|key| get(&store, &key.to_le_bytes()).is_some()));
}

#[test]
fn clear_removes_everything() {
    for mode in ["cache", "store"] {
        let mica = Mica::open(env(), options(&format!("mode={mode} memory=32MiB"))).unwrap();
        for number in 0..5000u32 {
            put(mica.store(), &number.to_le_bytes(), &[1; 60]);
        }
        assert!(mica.stats().keys_estimate > Some(4500));
        mica.store().clear();
        assert_eq!(mica.stats().keys_estimate, Some(0));
        assert!((0..5000u32).all(|number| get(mica.store(), &number.to_le_bytes()).is_none()));
        assert!(mica.verify(&mut |_, _| ()).unwrap().is_intact());
    }
    assert_eq!(Options::default().mode, Mode::Store);
}
