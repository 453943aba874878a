//! Partitions so small that their logs wrap and their offsets repeat every few hundred writes.
//!
//! Values contain forgeries: words that look like an item of another key. A stale offset that leads
//! into a value finds one.

mod eviction;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use proptest::prelude::*;
use siltstone_engine::ManualClock;

use super::cache_mode::{CachePartition, Eviction};
use super::store_mode::StorePartition;
use super::*;
use crate::item::Meta;
use crate::mapping::Mapping;
use crate::request::{Action, Value};
use crate::system::HAS_MIRRORS;

/// Few hashes for many keys, so that keys share tags, buckets and entire hashes.
fn hash_of(key: u64) -> u64 {
    (key % 7).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A value with its number and key, then `words` of forgeries of another key's item.
fn value_of(key: u64, number: u64, words: usize) -> Vec<u8> {
    let victim = (key + 7) % 40;
    let forged = forged_item(victim);
    let mut value = number.to_le_bytes().to_vec();
    value.extend(key.to_le_bytes());
    value.extend(forged.iter().cycle().take(words).flat_map(|word| word.to_le_bytes()));
    value
}

/// The words of an item of `victim`.
fn forged_item(victim: u64) -> Vec<u64> {
    let key = victim.to_le_bytes();
    let item =
        NewItem { hash: hash_of(victim), key: &key, value: b"forged!!", meta: Meta::default() };
    let words: Vec<AtomicU64> = (0..item.words()).map(|_| AtomicU64::new(0)).collect();
    item.write(&words, words.len());
    words.into_iter().map(AtomicU64::into_inner).collect()
}

/// The key and number of a value; panics unless [`value_of`] made it.
fn read_back(value: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().unwrap());
    let (number, key) = (word(0), word(8));
    assert_eq!(value, value_of(key, number, value.len() / 8 - 2), "a torn or forged value");
    (key, number)
}

fn context(access: Access, clock: &ManualClock) -> Context<'_> {
    Context {
        access,
        now: LazyClock::new(clock),
        has_cas: false,
        max_value: 1 << 20,
        marks_reads: true,
    }
}

struct Harness<M> {
    partition: Partition<M>,
    clock: ManualClock,
    tally: Tally,
}

impl<M: Memory> Harness<M> {
    fn new(memory: M) -> Self {
        let clock = ManualClock::at(1000);
        Harness { partition: Partition::new(memory), clock, tally: Tally::default() }
    }

    fn execute(&mut self, access: Access, key: u64, action: Action<'_>) -> (Answer, Vec<u8>) {
        execute(&self.partition, &self.clock, access, key, action, &mut self.tally)
    }
}

fn execute<M: Memory>(
    partition: &Partition<M>,
    clock: &ManualClock,
    access: Access,
    key: u64,
    action: Action<'_>,
    tally: &mut Tally,
) -> (Answer, Vec<u8>) {
    let key = key.to_le_bytes();
    let request = Request { hash: hash_of(u64::from_le_bytes(key)), key: &key, action };
    let mut value = Vec::new();
    let context = context(access, clock);
    let needs_lock =
        access == Access::Erew || (access == Access::Crew && request.action.is_write());
    let _lock = needs_lock.then(|| partition.lock.lock());
    let bucket = partition.memory.bucket(request.hash);
    let answer = match request.action.is_write() {
        true => partition.write(&request, bucket, &context, tally, None),
        false => partition.get(0, &request, bucket, &context, &mut value, tally),
    };
    (answer, value)
}

fn lookup<M: Memory>(partition: &Partition<M>, key: u64) -> Option<ItemRef<'_>> {
    let hash = hash_of(key);
    partition.find(partition.memory.bucket(hash), hash, &key.to_le_bytes(), None)
}

const EVICTIONS: [Eviction; 5] =
    [Eviction::Fifo, Eviction::Lru, Eviction::Approximate, Eviction::Clock, Eviction::S3Fifo];
const ACCESSES: [Access; 3] = [Access::Erew, Access::Crew, Access::Crcw];

/// Key, kind of operation, length of the value in words.
fn steps(count: usize) -> impl Strategy<Value = Vec<(u64, u8, usize)>> {
    proptest::collection::vec((0u64..40, 0u8..10, 0usize..24), 1..count)
}

fn cases() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 3 } else { 200 }, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// A cache may lose items but never returns a wrong value: it returns the newest one, and the
    /// last written item is there.
    #[test]
    fn cache_returns_newest_value_or_none(
        words in 80usize..400,
        buckets in 1usize..5,
        extra_bits in 2u32..5,
        policy in 0usize..5,
        access in 0usize..3,
        steps in steps(if cfg!(miri) { 150 } else { 900 }),
    ) {
        let bits = words.next_power_of_two().trailing_zeros() + extra_bits;
        let (eviction, access) = (EVICTIONS[policy], ACCESSES[access]);
        let memory = CachePartition::new(words, buckets, Mapping::Plain, bits, eviction).unwrap();
        let mut harness = Harness::new(memory);
        let mut model: HashMap<u64, u64> = HashMap::new();
        for (number, (key, kind, len)) in (1..).zip(steps) {
            let value = value_of(key, number, len);
            let given = Value { bytes: &value, ..Value::default() };
            let known = model.get(&key).copied();
            let (answer, found) = match kind {
                0..4 => harness.execute(access, key, Action::Put(given)),
                4 => harness.execute(access, key, Action::Add(given)),
                5 => harness.execute(access, key, Action::Replace(given)),
                6 => harness.execute(access, key, Action::Delete(None)),
                _ => harness.execute(access, key, Action::Get),
            };
            match answer.outcome {
                Outcome::Stored => {
                    prop_assert!(kind != 5 || known.is_some());
                    model.insert(key, number);
                    let (last, found) = harness.execute(access, key, Action::Get);
                    prop_assert_eq!(last.outcome, Outcome::Found);
                    prop_assert_eq!(read_back(&found), (key, number));
                }
                Outcome::Found => {
                    prop_assert_eq!(Some(read_back(&found)), known.map(|number| (key, number)));
                }
                Outcome::Missing | Outcome::Deleted => {
                    model.remove(&key);
                }
                Outcome::Exists => prop_assert!(known.is_some() && kind == 4),
                other => prop_assert!(false, "{other:?}"),
            }
            prop_assert_eq!(harness.partition.memory.damage("x"), Vec::new());
        }
        // Items between tail and head are found but not live.
        let (mut found, memory) = (0, &harness.partition.memory);
        for bucket in 0..buckets {
            memory.items_of(bucket, &mut |entry, _| {
                found += u64::from(memory.logs.is_live(crate::index::offset_of(entry)));
            });
        }
        prop_assert_eq!(memory.items(), found);
    }

    /// With enough buckets, eviction is first in, first out: an item is there until a log length
    /// has been written after it, whatever was read.
    #[test]
    fn fifo_cache_keeps_what_fits(
        words in 100usize..400,
        mirrored: bool,
        steps in steps(600),
    ) {
        let mapping = if mirrored && HAS_MIRRORS { Mapping::Mirrored } else { Mapping::Plain };
        let words = if mapping == Mapping::Mirrored { 512 } else { words };
        let bits = words.next_power_of_two().trailing_zeros() + 3;
        let memory = CachePartition::new(words, 64, mapping, bits, Eviction::Fifo).unwrap();
        let mut harness = Harness::new(memory);
        let mut written: HashMap<u64, (u64, usize)> = HashMap::new();
        let mut total = 0;
        for (number, (key, _, len)) in (1..).zip(steps) {
            let value = value_of(key, number, len);
            let given = Value { bytes: &value, ..Value::default() };
            harness.execute(Access::Erew, key, Action::Delete(None));
            harness.execute(Access::Erew, key, Action::Put(given));
            total += 5 + len;
            written.insert(key, (number, total));
            // A filler takes up to the largest item; so does the free space.
            for (&key, &(number, at)) in &written {
                if total - at + 2 * 29 + 5 + 24 <= words {
                    let (_, found) = harness.execute(Access::Erew, key, Action::Get);
                    prop_assert_eq!(found.is_empty(), false, "{} of {}", total - at, words);
                    prop_assert_eq!(read_back(&found), (key, number));
                }
            }
        }
    }

    /// A store behaves as a map until it is full, then rejects writes without losing anything.
    #[test]
    fn store_behaves_as_map(
        words in 200usize..3000,
        buckets in 1usize..6,
        spare in 0usize..6,
        access in 0usize..3,
        steps in steps(if cfg!(miri) { 150 } else { 600 }),
    ) {
        let access = ACCESSES[access];
        let mut harness = Harness::new(StorePartition::new(words, buckets, spare).unwrap());
        let mut model: HashMap<u64, Vec<u8>> = HashMap::new();
        for (number, (key, kind, len)) in (1..).zip(steps) {
            let value = value_of(key, number, len * 3);
            let given = Value { bytes: &value, ..Value::default() };
            let was = model.get(&key).cloned();
            let (action, stores, otherwise) = match kind {
                0..3 => (Action::Put(given), Some(value.clone()), Outcome::Full),
                3 => match was {
                    None => (Action::Add(given), Some(value.clone()), Outcome::Full),
                    Some(_) => (Action::Add(given), None, Outcome::Exists),
                },
                4 => match was {
                    Some(_) => (Action::Replace(given), Some(value.clone()), Outcome::Full),
                    None => (Action::Replace(given), None, Outcome::Missing),
                },
                5 => match &was {
                    Some(was) => {
                        (Action::Append(&value), Some([was, &value[..]].concat()), Outcome::Full)
                    }
                    None => (Action::Append(&value), None, Outcome::Missing),
                },
                6 | 7 => match was {
                    Some(_) => (Action::Delete(None), None, Outcome::Deleted),
                    None => (Action::Delete(None), None, Outcome::Missing),
                },
                _ => match was {
                    Some(_) => (Action::Get, None, Outcome::Found),
                    None => (Action::Get, None, Outcome::Missing),
                },
            };
            let (answer, found) = harness.execute(access, key, action);
            match (answer.outcome, stores) {
                (Outcome::Stored, Some(value)) => drop(model.insert(key, value)),
                (outcome, _) => prop_assert_eq!(outcome, otherwise),
            }
            match answer.outcome {
                Outcome::Found => prop_assert_eq!(&found, &model[&key]),
                Outcome::Deleted => drop(model.remove(&key)),
                _ => {}
            }
            for (&key, value) in &model {
                let (_, found) = harness.execute(access, key, Action::Get);
                prop_assert_eq!(&found, value);
            }
            prop_assert_eq!(harness.partition.memory.damage("x"), Vec::new());
        }
    }

    /// A batch that is rolled back leaves no trace.
    #[test]
    fn rolled_back_batch_leaves_no_trace(
        words in 200usize..1500,
        spare in 0usize..4,
        before in steps(60),
        batch in steps(60),
    ) {
        let mut harness = Harness::new(StorePartition::new(words, 2, spare).unwrap());
        for (number, &(key, _, len)) in (1..).zip(&before) {
            let value = value_of(key, number, len);
            harness.execute(Access::Erew, key, Action::Put(Value { bytes: &value, ..Value::default() }));
        }
        let all = |harness: &mut Harness<StorePartition>| -> Vec<_> {
            (0..40).map(|key| harness.execute(Access::Erew, key, Action::Get).1).collect()
        };
        let was = all(&mut harness);
        let mut journal = Journal::new();
        for (number, &(key, kind, len)) in (1000..).zip(&batch) {
            let value = value_of(key, number, len);
            let given = Value { bytes: &value, ..Value::default() };
            let action = if kind < 7 { Action::Put(given) } else { Action::Delete(None) };
            let bytes = key.to_le_bytes();
            let request = Request { hash: hash_of(key), key: &bytes, action };
            let context = context(Access::Erew, &harness.clock);
            let bucket = harness.partition.memory.bucket(request.hash);
            harness.partition.write(&request, bucket, &context, &mut harness.tally, Some(&mut journal));
        }
        harness.partition.memory.roll_back(Access::Erew, &mut journal);
        prop_assert_eq!(harness.partition.memory.damage("x"), Vec::new());
        prop_assert_eq!(all(&mut harness), was);
    }
}

/// Threads on one partition whose log wraps all the time: values read are never torn and belong to
/// their key.
fn race<M: Memory + 'static>(memory: M, access: Access, millis: u64) -> Tally {
    let partition = Arc::new(Partition::new(memory));
    let over = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3u64)
        .map(|thread| {
            let (partition, over) = (partition.clone(), over.clone());
            std::thread::spawn(move || {
                let clock = ManualClock::at(1000);
                let (mut tally, mut draw, mut number) = (Tally::default(), thread + 1, 0);
                while !over.load(Relaxed) {
                    // Xorshift: fast, and another sequence per thread.
                    draw ^= draw << 13;
                    draw ^= draw >> 7;
                    draw ^= draw << 17;
                    let (key, kind, len) = (draw >> 8 & 15, draw >> 20 & 7, draw >> 30 & 31);
                    number += 1;
                    let value = value_of(key, thread << 48 | number, len as usize);
                    let action = match kind {
                        0..3 => Action::Put(Value { bytes: &value, ..Value::default() }),
                        3 => Action::Delete(None),
                        _ => Action::Get,
                    };
                    let (answer, found) =
                        execute(&partition, &clock, access, key, action, &mut tally);
                    if answer.outcome == Outcome::Found {
                        assert_eq!(read_back(&found).0, key, "another key's value");
                    }
                }
                tally
            })
        })
        .collect();
    std::thread::sleep(std::time::Duration::from_millis(millis));
    over.store(true, Relaxed);
    let mut total = Tally::default();
    for thread in threads {
        let tally = thread.join().expect("the thread does not panic");
        total.gets_found += tally.gets_found;
        total.evictions += tally.evictions;
        total.read_retries += tally.read_retries;
    }
    assert_eq!(partition.memory.damage("x"), Vec::new());
    total
}

#[test]
fn concurrent_reads_are_never_torn_or_misattributed() {
    let millis = if cfg!(miri) { 1 } else { 150 };
    for access in ACCESSES {
        for eviction in EVICTIONS {
            let cache = CachePartition::new(300, 2, Mapping::Plain, 13, eviction).unwrap();
            let done = race(cache, access, millis);
            assert!(cfg!(miri) || (done.gets_found > 0 && done.evictions > 0));
        }
        let done = race(StorePartition::new(2000, 2, 4).unwrap(), access, millis);
        assert!(cfg!(miri) || done.gets_found > 0);
    }
}

/// Under CRCW, others may append between a lookup and the log's lock: here, until they overwrite
/// the item found.
#[test]
fn stale_match_does_not_corrupt_new_items() {
    for eviction in EVICTIONS {
        for action in ["put", "put a longer value", "remove", "mark an access"] {
            let cache = CachePartition::new(300, 64, Mapping::Plain, 20, eviction).unwrap();
            let (partition, clock) = (Partition::new(cache), ManualClock::at(1000));
            let mut tally = Tally::default();
            let mut put = |key, len| {
                let value = value_of(key, 1, len);
                let action = Action::Put(Value { bytes: &value, ..Value::default() });
                execute(&partition, &clock, Access::Crcw, key, action, &mut tally)
            };
            let find = |key: u64| lookup(&partition, key);
            put(0, 1);
            put(1, 6);
            let stale = find(1).unwrap();
            // In other buckets, since that of key 1 is being written.
            let others = (2..200).filter(|key| key % 7 != 1);
            let mut left = 3;
            for other in others.clone() {
                put(other, 2);
                left -= usize::from(!partition.memory.is_intact(stale.offset));
                if left == 0 {
                    break;
                }
            }
            let place = stale.item.words().as_ptr_range();
            let overlapping_keys = || -> Vec<u64> {
                let overlaps = |key: &u64| {
                    find(*key).is_some_and(|found| {
                        let words = found.item.words().as_ptr_range();
                        let mut value = vec![0; found.item.value_len()];
                        found.item.copy_value(&mut value);
                        assert_eq!(read_back(&value), (*key, 1));
                        words.start < place.end && place.start < words.end
                    })
                };
                others.clone().filter(overlaps).collect()
            };
            let before = overlapping_keys();
            assert!(before.len() > 1, "{before:?}");
            let (memory, mut tally) = (&partition.memory, Tally::default());
            let context = context(Access::Crcw, &clock);
            let value = value_of(1, 2, if action == "put" { 5 } else { 8 });
            let (key, meta) = (&1u64.to_le_bytes(), Meta::default());
            let new = NewItem { hash: hash_of(1), key, value: &value, meta };
            match action {
                "remove" => memory.remove(&context, hash_of(1), stale, &mut tally, None),
                "mark an access" => memory.mark_access(Access::Crcw, stale, &mut tally),
                _ => memory.put(&context, Some(stale), &new, &mut tally, None).unwrap(),
            }
            assert_eq!(overlapping_keys(), before, "{eviction:?}: {action}");
            assert_eq!(memory.damage("x"), Vec::new(), "{eviction:?}: {action}");
            let found = find(1).map(|found| found.item.value_len());
            let expected = action.starts_with("put").then_some(value.len());
            assert_eq!(found, expected, "{eviction:?}: {action}");
        }
    }
}

#[test]
fn numbers_cas_and_expiry_work_as_in_memcached() {
    let mut harness = Harness::new(StorePartition::new(2000, 4, 1).unwrap());
    let put = |bytes| Action::Put(Value { bytes, ..Value::default() });
    harness.execute(Access::Erew, 1, put(b"41"));
    assert_eq!(harness.execute(Access::Erew, 1, Action::Increment(1)).0.number, 42);
    assert_eq!(harness.execute(Access::Erew, 1, Action::Decrement(50)).0.number, 0);
    harness.execute(Access::Erew, 1, put(b"18446744073709551615"));
    assert_eq!(harness.execute(Access::Erew, 1, Action::Increment(3)).0.number, 2);
    for not_a_number in [&b""[..], b"x", b"-1", b"+1", b"1 ", b"18446744073709551616"] {
        harness.execute(Access::Erew, 1, put(not_a_number));
        let answer = harness.execute(Access::Erew, 1, Action::Increment(1)).0;
        assert_eq!(answer.outcome, Outcome::NotANumber);
    }
    assert_eq!(
        harness.execute(Access::Erew, 1, Action::Touch(Some(1001))).0.outcome,
        Outcome::Stored
    );
    assert_eq!(harness.execute(Access::Erew, 1, Action::Get).0.meta.expires_at, Some(1001));
    harness.clock.set(1001);
    assert_eq!(harness.execute(Access::Erew, 1, Action::Get).0.outcome, Outcome::Missing);
    let add = Action::Add(Value { bytes: b"new", flags: 9, ..Value::default() });
    assert_eq!(harness.execute(Access::Erew, 1, add).0.outcome, Outcome::Stored);
    assert_eq!(harness.execute(Access::Erew, 1, Action::Prepend(b"a ")).0.meta.flags, 9);
    assert_eq!(harness.execute(Access::Erew, 1, Action::Get).1, b"a new");
    let set = Action::CompareAndSet(Value::default(), 1);
    assert_eq!(harness.execute(Access::Erew, 1, set).0.outcome, Outcome::CasDisabled);
}

#[test]
fn full_bucket_evicts_its_oldest_entry() {
    let cache = CachePartition::new(2000, 1, Mapping::Plain, 20, Eviction::Fifo).unwrap();
    let mut harness = Harness::new(cache);
    for key in 0..20 {
        let value = value_of(key, key, 0);
        harness.execute(
            Access::Erew,
            key,
            Action::Put(Value { bytes: &value, ..Value::default() }),
        );
    }
    let there: Vec<_> = (0..20)
        .filter(|&key| harness.execute(Access::Erew, key, Action::Get).0.outcome == Outcome::Found)
        .collect();
    assert_eq!(there, (5..20).collect::<Vec<_>>());
    assert_eq!((harness.tally.index_evictions, harness.partition.memory.items()), (5, 15));
}
