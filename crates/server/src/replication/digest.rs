//! Checksums of a node's table as of one entry of the log, to compare the nodes of a group.
//!
//! The leader proposes a row that marks a point in the log
//! ([`POINT_KEY`](siltstone_cluster::POINT_KEY)). A node that applies it takes a snapshot of its
//! table then, and a thread reads all rows of it. Rows are counted and summed up in buckets by the
//! hash of their keys, so a difference is narrowed down to one of [`BUCKETS`].
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "point"
//! value := id:u64  time:u64, little endian      the group's time at the point
// ANCHOR_END: layout
//! ```
//!
//! Nodes drop expired rows and rows of removed collections at different moments. So what has
//! expired, or expires within [`HORIZON_MS`] after the point, is left out everywhere, with all rows
//! that depend on it. A node that takes longer than that has no result.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_collections::DeadRows;
use siltstone_engine::{
    CompactionFilter, Engine, Entry, FilterContent, FilterDecision, FilterRow, KeyRange, ReadPoint,
    Result, Timestamp,
};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::clock::GroupClock;

/// Rows are summed up in this many buckets.
pub(crate) const BUCKETS: usize = 64;
/// Rows that expire within this time after the point are not compared.
const HORIZON_MS: u64 = 3_600_000;
/// Results that are kept.
const MAX_RESULTS: usize = 4;
const KEY_SEED: u64 = 1;
const VALUE_SEED: u64 = 2;

/// The checksums of the rows of one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bucket {
    rows: u64,
    sum: u64,
}

/// A table as of one point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Digest {
    /// It is being read.
    Running,
    /// There is no result.
    Failed(String),
    /// Its text, the same at all nodes whose tables are.
    Done(String),
}

/// The points that this node has applied lately.
#[derive(Default)]
pub(crate) struct Digests {
    results: Mutex<BTreeMap<u64, Digest>>,
}

impl Digests {
    /// The result for a point.
    pub(crate) fn get(&self, id: u64) -> Option<Digest> {
        self.results.lock().get(&id).cloned()
    }

    /// Begins to read the table of a point that was just applied.
    pub(super) fn begin(
        self: &Arc<Self>,
        engine: &Arc<dyn Engine>,
        clock: &Arc<GroupClock>,
        value: &[u8],
    ) {
        let Some((id, time)) = decode(value) else { return };
        let mut results = self.results.lock();
        let is_busy = results.values().any(|digest| *digest == Digest::Running);
        while results.len() >= MAX_RESULTS {
            results.pop_first();
        }
        if is_busy {
            results.insert(id, Digest::Failed("another check is under way".to_owned()));
            return;
        }
        results.insert(id, Digest::Running);
        drop(results);
        let (engine, clock, digests) = (engine.clone(), clock.clone(), self.clone());
        let begun = engine.snapshot().and_then(|at| {
            let digests = digests.clone();
            let read = move || {
                let outcome = read(engine.as_ref(), &at, time + HORIZON_MS);
                digests.finish(
                    id,
                    match outcome {
                        Err(error) => Digest::Failed(error.to_string()),
                        Ok(_) if clock.committed() >= time + HORIZON_MS => {
                            Digest::Failed("it took longer than an hour".to_owned())
                        }
                        Ok(text) => Digest::Done(text),
                    },
                );
            };
            let name = "siltstone-check";
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(read);
            thread.map_err(|error| siltstone_engine::Error::io("start thread", name, &error))
        });
        if let Err(error) = begun {
            digests.finish(id, Digest::Failed(error.to_string()));
        }
    }

    fn finish(&self, id: u64, digest: Digest) {
        if let Some(result) = self.results.lock().get_mut(&id) {
            *result = digest;
        }
    }
}

/// The value of a row that marks a point.
pub(crate) fn encode(id: u64, time: Timestamp) -> Vec<u8> {
    [id.to_le_bytes(), time.to_le_bytes()].concat()
}

fn decode(value: &[u8]) -> Option<(u64, Timestamp)> {
    let (id, rest) = value.split_first_chunk()?;
    Some((u64::from_le_bytes(*id), u64::from_le_bytes(*rest.first_chunk()?)))
}

/// A table at a snapshot, without what expires up to a time.
struct Content<'a> {
    engine: &'a dyn Engine,
    at: &'a ReadPoint,
    expired_at: Timestamp,
}

impl FilterContent for Content<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let entry = self.engine.get_at(key, self.at)?;
        Ok(entry.filter(|entry| !entry.is_expired(self.expired_at)))
    }
}

/// Reads all rows.
fn read(engine: &dyn Engine, at: &ReadPoint, expired_at: Timestamp) -> Result<String> {
    let content = Content { engine, at, expired_at };
    let mut filter = DeadRows.begin(&content);
    let mut buckets = [Bucket::default(); BUCKETS];
    let mut cursor = engine.range(KeyRange::all(), Some(at))?;
    let mut is_there = cursor.first()?;
    while is_there {
        let (key, value, expires_at) = (cursor.key(), cursor.value(), cursor.expires_at());
        let is_live = expires_at.is_none_or(|at| at > expired_at);
        if is_live && filter.decide(FilterRow { key, value, expires_at }) != FilterDecision::Drop {
            let of_key = xxh3_64_with_seed(key, KEY_SEED);
            let bucket = &mut buckets[of_key as usize % BUCKETS];
            bucket.rows += 1;
            let of_value = xxh3_64_with_seed(value, of_key ^ VALUE_SEED);
            let of_row = xxh3_64_with_seed(&expires_at.unwrap_or(0).to_le_bytes(), of_value);
            bucket.sum = bucket.sum.wrapping_add(of_row);
        }
        is_there = cursor.next()?;
    }
    let mut text = String::new();
    for (number, Bucket { rows, sum }) in buckets.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{number} {rows} {sum:016x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use siltstone_engine::{Durability, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;

    const POINT: Timestamp = 1_900_000_000_000;

    fn digest(fill: impl FnOnce(&mut WriteBatch)) -> String {
        let (env, options) = (Env::system(1), BTreeMap::new());
        let table = siltstone::engines::open("lsm", Arc::new(Ram::new()), &env, &options).unwrap();
        let mut batch = WriteBatch::new();
        for i in 0..1000u32 {
            batch.put(&i.to_be_bytes(), b"value");
        }
        batch.put_until(b"late", b"v", POINT + 2 * HORIZON_MS);
        fill(&mut batch);
        table.write(&batch, Durability::Buffered).unwrap();
        let at = table.snapshot().unwrap();
        read(table.as_ref(), &at, POINT + HORIZON_MS).unwrap()
    }

    #[test]
    fn tables_differ_by_rows_and_not_by_what_expires_soon_or_is_dead() {
        let same = digest(|_| ());
        let rows = |text: &str| -> u64 {
            text.lines().map(|line| line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()).sum()
        };
        assert_eq!((same.lines().count(), rows(&same)), (BUCKETS, 1001));
        assert_eq!(
            digest(|batch| {
                batch.put_until(b"soon", b"v", POINT + 5);
            }),
            same
        );
        // An element of a hash that does not exist.
        let element = b"\xff\xc0\x01\0\0\0\0\0\0\x01\x02f\x20\xbe\x52\xb1field";
        assert_eq!(
            digest(|batch| {
                batch.put(element, b"v");
            }),
            same
        );
        let others = [
            digest(|batch| {
                batch.put(&5u32.to_be_bytes(), b"valuf");
            }),
            digest(|batch| {
                batch.delete(&5u32.to_be_bytes());
            }),
            digest(|batch| {
                batch.put(b"more", b"v");
            }),
            digest(|batch| {
                batch.put_until(b"late", b"v", POINT + 3 * HORIZON_MS);
            }),
        ];
        for other in others {
            let pairs = same.lines().zip(other.lines());
            assert_eq!(pairs.filter(|(one, other)| one != other).count(), 1);
        }
    }
}
