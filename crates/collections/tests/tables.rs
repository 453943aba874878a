//! Collections beside plain keys: old tables, hidden rows, constant cost of removals, dead rows.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use siltstone::{Clock, Durability, Env, ManualClock, SystemClock, Table, WriteBatch, engines};
use siltstone_collections::{
    Collections, End, EngineRows, Error, Hash, Keyspace, List, Order, Set, SortedSet, Stream,
    StreamId, UserKeys, stored_key, user_key,
};
use siltstone_engine::{Cursor, KeyRange};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::Vfs;
use support::{engine, live_rows, open};

const B: Durability = Durability::Buffered;

fn table() -> (FaultyVfs, Arc<ManualClock>, Collections) {
    let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::at(1000)));
    let collections = open(&disk, &clock, 1).unwrap();
    (disk, clock, collections)
}

#[test]
fn keys_of_an_old_table_are_moved_out_of_the_reserved_range_once() {
    let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::at(1000)));
    let old: [&[u8]; 7] = [
        b"plain",
        b"\xff\xc0",
        b"\xff\xc0\x00",
        b"\xff\xc0\x00\x00",
        b"\xff\xc0\x01\0\0\0\0\0\0\0\x05fxxxxfield",
        b"\xff\xc0\x03",
        b"\xff\xc1",
    ];
    let engine_of = |disk: &FaultyVfs| engine(disk, &clock, 1).unwrap();
    let before = engine_of(&disk);
    let mut batch = WriteBatch::new();
    for key in old {
        batch.put_until(key, key, 5000);
    }
    before.write(&batch, Durability::Synced).unwrap();
    before.close().unwrap();
    for _ in 0..3 {
        let engine = engine_of(&disk);
        let keyspace = Keyspace::open(engine.as_ref(), 1000).unwrap();
        assert!(keyspace.has_reserved_rows());
        for key in old {
            let entry = engine.get(&stored_key(key)).unwrap().unwrap();
            assert_eq!((entry.value.as_slice(), entry.expires_at), (key, Some(5000)));
        }
        let mut cursor = UserKeys::new(engine.iter().unwrap());
        let mut keys = Vec::new();
        let mut is_valid = cursor.first().unwrap();
        while is_valid {
            keys.push(cursor.key().to_vec());
            is_valid = cursor.next().unwrap();
        }
        assert_eq!(keys, old);
        engine.close().unwrap();
    }
}

#[test]
fn table_without_reserved_keys_is_not_written_at_open() {
    let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::at(1000)));
    let engine = engine(&disk, &clock, 1).unwrap();
    engine.write(WriteBatch::new().put(b"a", b"1").put(b"\xff", b"2"), B).unwrap();
    let writes = engine.stats().writes;
    let keyspace = Keyspace::open(engine.as_ref(), 1000).unwrap();
    assert!(!keyspace.has_reserved_rows());
    assert_eq!(engine.stats().writes, writes);
}

#[test]
fn marker_of_a_newer_format_is_rejected() {
    let (disk, clock) = (FaultyVfs::new(1), Arc::new(ManualClock::at(1000)));
    let engine = engine(&disk, &clock, 1).unwrap();
    engine.write(WriteBatch::new().put(b"\xff\xc0\x03", b"siltstone collections 4\n"), B).unwrap();
    let error = Keyspace::open(engine.as_ref(), 1000).unwrap_err().to_string();
    assert!(error.contains("newer"), "{error}");
}

#[test]
fn marker_of_the_format_without_streams_is_replaced_by_the_next_write_of_a_collection() {
    const OLD: &[u8] = b"siltstone collections 1\n";
    let (disk, clock, collections) = table();
    let insert = |collections: &Collections, member: &[u8]| {
        let insert = |writes: &mut siltstone_collections::WriteSet<'_>| {
            Ok(Set::open(writes, b"s")?.insert(member)?)
        };
        collections.with(&[b"s"], B, insert).unwrap();
    };
    let marker = |collections: &Collections| {
        collections.table().engine().get(b"\xff\xc0\x03").unwrap().unwrap().value
    };
    insert(&collections, b"a");
    // As a table of that time.
    collections.table().put(b"\xff\xc0\x03", OLD).unwrap();
    collections.table().engine().close().unwrap();
    let collections = open(&disk, &clock, 1).unwrap();
    collections.table().put(b"plain", b"1").unwrap();
    assert_eq!(marker(&collections), OLD);
    insert(&collections, b"b");
    assert_eq!(marker(&collections), b"siltstone collections 3\n");
    collections.table().engine().close().unwrap();
    let collections = open(&disk, &clock, 1).unwrap();
    let len = |writes: &mut siltstone_collections::WriteSet<'_>| Ok(Set::open(writes, b"s")?.len());
    assert_eq!(collections.with(&[b"s"], B, len).unwrap(), 2);
}

#[test]
fn removal_renaming_and_expiry_of_a_stream_write_few_rows() {
    let (_disk, clock, collections) = table();
    let fill = |key: &[u8]| {
        let fill = |writes: &mut siltstone_collections::WriteSet<'_>| {
            let mut stream = Stream::open(writes, key)?;
            for ms in 1..=500 {
                stream.append(StreamId { ms, seq: 0 }, [&b"field"[..], b"value"].into_iter());
            }
            stream.create_group(b"g", StreamId::MIN, None)?;
            let mut group = stream.group(b"g")?.unwrap();
            let mut consumer = stream.create_consumer(&mut group, b"c", 1);
            for ms in 1..=100 {
                let id = StreamId { ms, seq: 0 };
                stream.deliver(&mut group, &mut consumer, (id, 1, 1))?;
            }
            stream.save_group(&group);
            stream.save_consumer(&group, &consumer);
            Ok(())
        };
        collections.with(&[key], B, fill).unwrap();
    };
    // Entries, pending ones twice, group and consumer.
    const ROWS: usize = 500 + 2 * 100 + 2;
    let writes = || collections.table().engine().stats().writes;
    fill(b"s");
    assert_eq!(live_rows(&collections), (ROWS + 2, 0));
    let before = writes();
    collections.with(&[b"s", b"t"], B, |writes| Ok(writes.rename(b"s", b"t")?)).unwrap();
    collections.with(&[b"t"], B, |writes| Ok(writes.set_expiry(b"t", Some(2000))?)).unwrap();
    assert!(writes() - before <= 4, "rows were rewritten");
    assert_eq!(live_rows(&collections), (ROWS + 2, 0));
    clock.set(2000);
    assert_eq!(live_rows(&collections), (1, ROWS + 1), "the owner row is dead, too");
    fill(b"s");
    let before = writes();
    collections.with(&[b"s"], B, |writes| Ok(writes.remove(b"s")?)).unwrap();
    assert!(writes() - before <= 2, "rows were removed one by one");
    assert_eq!(live_rows(&collections).0, 1);
}

#[test]
fn user_key_cursor_skips_reserved_rows_in_both_directions() {
    let (_disk, _clock, collections) = table();
    let keys: [&[u8]; 5] = [b"a", b"\xff", b"\xff\xc0", b"\xff\xc0\xff", b"\xff\xff"];
    collections
        .with(&keys, B, |writes| {
            for key in keys {
                for member in 0..10u8 {
                    Set::open(writes, key)?.insert(&[member])?;
                }
            }
            Ok(())
        })
        .unwrap();
    let mut cursor = UserKeys::new(collections.table().engine().iter().unwrap());
    let mut walked = Vec::new();
    let mut is_valid = cursor.last().unwrap();
    while is_valid {
        walked.push(cursor.key().to_vec());
        is_valid = cursor.prev().unwrap();
    }
    walked.reverse();
    assert_eq!(walked, keys);
    for (at, key) in keys.iter().enumerate() {
        assert!(cursor.seek(key).unwrap() && cursor.key() == *key);
        assert_eq!(cursor.next().unwrap(), at + 1 < keys.len());
        assert!(cursor.seek_back(key).unwrap() && cursor.key() == *key);
        assert_eq!(cursor.resume(key).unwrap(), at + 1 < keys.len());
    }
    // Between the escaped keys and the last one there are only reserved rows.
    assert!(cursor.seek(b"\xff\xc0\xff\0").unwrap() && cursor.key() == b"\xff\xff");
    assert!(cursor.seek_back(b"\xff\xfe").unwrap() && cursor.key() == b"\xff\xc0\xff");
}

#[test]
fn removal_overwriting_and_expiry_of_any_size_write_few_rows() {
    let (_disk, clock, collections) = table();
    let fill = || {
        collections
            .with(&[b"h"], B, |writes| {
                let mut hash = Hash::open(writes, b"h")?;
                for field in 0..1000u32 {
                    hash.insert(&field.to_be_bytes(), b"value")?;
                }
                Ok(())
            })
            .unwrap();
    };
    let rows =
        |operation: fn(&mut siltstone_collections::WriteSet<'_>) -> siltstone::Result<bool>| {
            let engine = collections.table().engine();
            let keyspace = Keyspace::open(engine.as_ref(), 1000).unwrap();
            let rows = EngineRows::newest(engine.as_ref());
            let mut writes = siltstone_collections::WriteSet::new(&rows, &keyspace, 1000);
            assert!(operation(&mut writes).unwrap());
            let batch = writes.take_batch();
            engine.write(&batch, B).unwrap();
            batch.len()
        };
    fill();
    assert_eq!(live_rows(&collections), (1002, 0));
    assert_eq!(rows(|writes| writes.remove(b"h")), 2);
    assert_eq!(live_rows(&collections), (1, 1000));
    fill();
    assert_eq!(rows(|writes| writes.rename(b"h", b"g")), 3);
    assert_eq!(live_rows(&collections), (1002, 1000));
    assert_eq!(rows(|writes| writes.set_expiry(b"g", Some(2000))), 1);
    clock.set(2000);
    assert_eq!(live_rows(&collections), (1, 2001), "owner row and elements of both");
    // A new collection does not meet the dead elements.
    fill();
    assert_eq!(live_rows(&collections), (1002, 2001));
    // A plain write over the metadata, as by a SET that reads nothing.
    collections.table().put(b"h", b"string").unwrap();
    assert_eq!(live_rows(&collections), (1, 3002));
    let outcome = collections.with(&[b"h"], B, |writes| Hash::open(writes, b"h").map(drop));
    assert!(matches!(outcome, Err(Error::WrongType { found: None, .. })));
}

#[test]
fn compactions_drop_the_elements_of_removed_collections_alone() {
    let (disk, clock, collections) = table();
    let fill = |key: &[u8]| {
        collections
            .with(&[key], B, |writes| {
                for member in 0..500u32 {
                    Set::open(writes, key)?.insert(&member.to_be_bytes())?;
                }
                Ok(())
            })
            .unwrap();
    };
    // New rows on both sides of all others, so that compactions rewrite what lies between.
    let compact = |collections: &Collections| {
        for round in 0..3u8 {
            collections.table().put(&[round], b"x").unwrap();
            collections.table().put(&[0xff, 0xff, round], b"x").unwrap();
            collections.table().flush().unwrap();
            collections.table().maintain().unwrap();
        }
    };
    for key in [&b"removed"[..], b"renamed", b"expired", b"written", b"stays"] {
        fill(key);
    }
    compact(&collections);
    assert_eq!(live_rows(&collections), (5 * 501 + 1, 0));
    collections
        .with(&[b"removed", b"renamed", b"other", b"expired"], B, |writes| {
            writes.remove(b"removed")?;
            writes.rename(b"renamed", b"other")?;
            writes.set_expiry(b"expired", Some(1500))?;
            Ok(())
        })
        .unwrap();
    collections.table().put(b"written", b"string").unwrap();
    clock.set(1500);
    assert_eq!(live_rows(&collections), (2 * 501 + 1, 3 * 500 + 2));
    compact(&collections);
    let (live, dead) = live_rows(&collections);
    assert_eq!(live, 2 * 501 + 1);
    assert!(dead < 100, "{dead} dead rows are left");
    collections.table().engine().close().unwrap();
    let collections = open(&disk, &clock, 1).unwrap();
    for key in [&b"other"[..], b"stays"] {
        let len = |writes: &mut siltstone_collections::WriteSet<'_>| {
            Ok(Set::open(writes, key)?.members()?.len())
        };
        assert_eq!(collections.with(&[key], B, len).unwrap(), 500);
    }
}

#[test]
fn collection_that_expires_during_an_operation_is_persisted_with_its_elements() {
    const TTL: Duration = Duration::from_millis(50);
    let env = Env::replayable(Arc::new(SystemClock), 1);
    let vfs: Arc<dyn Vfs> = Arc::new(FaultyVfs::new(1));
    let engine = engines::open("lsm", vfs, &env, &Default::default()).unwrap();
    let table = Table::new("t", engine.clone());
    let collections = Collections::open(table, Arc::new(SystemClock)).unwrap();
    let field = |number: u32| number.to_string().into_bytes();
    let fill_and_persist = || {
        collections
            .with(&[b"h"], B, |writes| {
                let mut hash = Hash::open(writes, b"h")?;
                for number in 0..100 {
                    hash.insert(&field(number), b"value")?;
                }
                Ok(writes.set_expiry(b"h", Some(SystemClock.now() + TTL.as_millis() as u64))?)
            })
            .unwrap();
        collections.with(&[b"h"], B, |writes| {
            if Hash::open(writes, b"h")?.is_empty() {
                return Ok(false);
            }
            // It expires for everybody else, and a compaction passes it.
            std::thread::sleep(2 * TTL);
            let compact = || {
                assert!(engine.get(b"h").unwrap().is_none());
                engine.flush().unwrap();
                engine.compact_range(&KeyRange::all()).unwrap();
            };
            std::thread::scope(|scope| scope.spawn(compact).join().unwrap());
            assert!(writes.set_expiry(b"h", None)?, "the hash has expired during the operation");
            Ok(true)
        })
    };
    // On a slow machine it may have expired before the operation.
    while !fill_and_persist().unwrap() {}
    collections
        .with(&[b"h"], B, |writes| {
            let hash = Hash::open(writes, b"h")?;
            assert_eq!(hash.len(), 100);
            for number in 0..100 {
                assert_eq!(hash.get(&field(number))?.as_deref(), Some(&b"value"[..]), "{number}");
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn visits_of_ranks_are_those_of_the_range_until_they_end() {
    let (_disk, _clock, collections) = table();
    collections
        .with(&[b"z"], B, |writes| {
            let mut set = SortedSet::open(writes, b"z")?;
            for number in 0..100 {
                set.insert(format!("{number:010}").as_bytes(), f64::from(number))?;
            }
            for order in [Order::Ascending, Order::Descending] {
                for ranks in [0..100, 0..50, 60..100] {
                    let mut visited = Vec::new();
                    let walked =
                        set.for_each_rank(ranks.clone(), order, &mut |member, score| {
                            visited.push((member.to_vec(), score));
                            visited.len() < 6
                        })?;
                    let mut all = set.range(ranks.clone(), order)?;
                    assert_eq!(all.len() as u64, ranks.end - ranks.start);
                    if walked != order {
                        all.reverse();
                    }
                    assert_eq!(visited, all[..6], "{ranks:?} {order:?}");
                }
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn removal_of_a_plain_key_leaves_no_row() {
    let (_disk, _clock, collections) = table();
    collections.table().put(b"a", b"1").unwrap();
    assert!(collections.with(&[b"a"], B, |writes| Ok(writes.remove(b"a")?)).unwrap());
    assert!(collections.table().is_empty().unwrap(), "the format marker was written");
}

#[test]
fn failed_operation_writes_nothing() {
    let (_disk, _clock, collections) = table();
    let outcome: Result<(), _> = collections.with(&[b"l", b"h"], B, |writes| {
        List::open(writes, b"l")?.push(End::Back, b"x");
        Hash::open(writes, b"l").map(drop)
    });
    assert!(matches!(outcome, Err(Error::WrongType { found: Some(_), .. })));
    assert!(collections.table().is_empty().unwrap());
}

#[test]
fn versions_rise_over_reopening() {
    let (disk, clock, collections) = table();
    let version = |collections: &Collections| {
        let make = |writes: &mut siltstone_collections::WriteSet<'_>| {
            writes.remove(b"s")?;
            Set::open(writes, b"s")?.insert(b"m")?;
            Ok(writes.stored(b"s")?.and_then(|stored| stored.metadata).unwrap().version)
        };
        collections.with(&[b"s"], B, make).unwrap()
    };
    let mut last = 0;
    let mut collections = collections;
    for round in 0..4 {
        for _ in 0..3 {
            let next = version(&collections);
            assert!(next > last, "round {round}");
            last = next;
        }
        collections.table().engine().close().unwrap();
        // A clock that goes back does not bring versions back.
        clock.set(1000 - 300 * round);
        collections = open(&disk, &clock, 1).unwrap();
    }
}

#[test]
fn random_members_of_a_large_set_are_spread() {
    let (_disk, _clock, collections) = table();
    let counts = collections
        .with(&[b"s"], B, |writes| {
            let mut set = Set::open(writes, b"s")?;
            for member in 0..1000u32 {
                set.insert(member.to_string().as_bytes())?;
            }
            let mut rng = siltstone_testkit::TestRng::new(1);
            let mut counts = std::collections::HashMap::new();
            for _ in 0..5000 {
                let drawn = set.draw(&mut |bound| rng.below(bound))?.unwrap();
                *counts.entry(drawn).or_insert(0) += 1;
            }
            Ok(counts)
        })
        .unwrap();
    // Five draws per member on average.
    assert!(counts.len() > 900, "{} members were drawn", counts.len());
    assert!(counts.values().all(|count| *count < 30), "{:?}", counts.values().max());
}

#[test]
fn unordered_engine_is_rejected_by_name() {
    let env = siltstone::Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let vfs: Arc<dyn siltstone_vfs::Vfs> = Arc::new(FaultyVfs::new(1));
    let engine = siltstone::engines::open("silt", vfs, &env, &Default::default()).unwrap();
    let error = Keyspace::open(engine.as_ref(), 1).unwrap_err().to_string();
    assert!(error.contains("silt"), "{error}");
    assert_eq!(user_key(b"a").as_deref(), Some(&b"a"[..]));
}
