//! What the paper's figures show of a single HTable, for experiments: no part of the engine.
//!
//! [`bucket_loads`] places items just as a table being built does, and tells the loads of the
//! buckets before and after, what went to the special bucket, and how many buckets a lookup reads.
//!
//! Invariant: the placing is done by the engine's own code.
//!
//! Source: LSM-trie paper, figures 5 and 7, section 2.4.2.

use std::collections::HashMap;

use crate::hash::HashKind;
use crate::htable::balance::{Weight, balance};
use crate::htable::bucket::BUCKET_HEADER;

/// The buckets of one HTable.
#[derive(Debug, Clone, Default)]
pub struct BucketLoads {
    /// Bytes that hash into each bucket.
    pub before: Vec<u64>,
    /// Bytes that lie in each bucket.
    pub after: Vec<u64>,
    /// Bytes that a bucket has room for.
    pub room: u64,
    /// Items that fit in no bucket.
    pub overflow: u64,
    /// Buckets read for the lookup of an item, on average over all items.
    pub reads: f64,
    /// Migrations that are kept in memory.
    pub cached: u64,
}

/// Places items (key, bytes in the bucket) in `buckets` of `bucket_bytes`; `cached` is the share of
/// buckets whose migration is in memory. Cost: that of building the table, without writing it.
pub fn bucket_loads(
    items: &[(u64, u32)],
    buckets: u32,
    bucket_bytes: u32,
    cached: f64,
) -> BucketLoads {
    let room = bucket_bytes - BUCKET_HEADER as u32;
    let kind = HashKind::default();
    let hashes: Vec<_> = items.iter().map(|(key, _)| kind.hash(&key.to_le_bytes())).collect();
    let weights: Vec<Weight> = hashes
        .iter()
        .zip(items)
        .map(|(hash, &(_, bytes))| Weight {
            bucket: hash.bucket(buckets),
            infix: hash.infix,
            bytes,
        })
        .collect();
    let balanced = balance(&weights, 0, buckets, room);
    let cached = (f64::from(buckets) * cached).ceil() as usize;
    let migrations: HashMap<u32, (u32, u32, bool)> = balanced
        .migrations
        .iter()
        .enumerate()
        .map(|(at, m)| (m.source, (m.destination, m.mark, at < cached)))
        .collect();
    let mut loads = BucketLoads {
        before: vec![0; buckets as usize],
        after: vec![0; buckets as usize],
        room: room.into(),
        cached: cached.min(balanced.migrations.len()) as u64,
        ..BucketLoads::default()
    };
    let mut reads = 0u64;
    for ((weight, hash), place) in weights.iter().zip(&hashes).zip(&balanced.places) {
        loads.before[weight.bucket as usize] += u64::from(weight.bytes);
        reads += 1;
        let Some(place) = *place else {
            loads.overflow += 1;
            continue;
        };
        loads.after[place as usize] += u64::from(weight.bytes);
        let mut at = weight.bucket;
        while let Some(&(destination, mark, is_cached)) = migrations.get(&at)
            && hash.rank(at) >= mark
        {
            reads += u64::from(!is_cached);
            at = destination;
        }
        debug_assert_eq!(at, place);
    }
    loads.reads = reads as f64 / items.len().max(1) as f64;
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_nothing_lost_by_balancing_and_no_bucket_over() {
        let items: Vec<(u64, u32)> = (0..20_000).map(|n| (n, 20 + n as u32 * 7 % 180)).collect();
        let bytes: u64 = items.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
        let buckets = (bytes as f64 / (4080.0 * 0.95)).ceil() as u32;
        let loads = bucket_loads(&items, buckets, 4096, 0.2);
        assert_eq!(loads.before.iter().sum::<u64>(), bytes);
        assert_eq!(loads.after.iter().sum::<u64>(), bytes);
        assert!(loads.before.iter().any(|&load| load > loads.room));
        assert!(loads.after.iter().all(|&load| load <= loads.room));
        assert!((1.0..1.1).contains(&loads.reads), "{}", loads.reads);
        assert!(bucket_loads(&items, buckets, 4096, 1.0).reads < 1.000_001);
    }
}
