//! The measurements of the paper's figures for a single HTable, for experiments only.
//!
//! [`bucket_loads`] places items as in the paper, balancing all buckets of a table together, and
//! returns the loads of the buckets before and after, the items in the special bucket, and the mean
//! number of bucket reads per lookup. [`build_table`] builds a table as the engine does, one
//! segment at a time.
//!
//! Invariant: the placement uses the engine's own code.
//!
//! Source: LSM-trie paper, figures 5 and 7, section 2.4.2.

use std::collections::HashMap;

use siltstone_engine::{Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_vfs::Ram;

use crate::Options;
use crate::hash::{Hash, HashKind};
use crate::htable::balance::{BucketSpace, ItemWeight, balance};
use crate::htable::bucket::BUCKET_HEADER_BYTES;
use crate::htable::{ExpectedSize, Layout, Origin, TableWriter};
use crate::item::Item;

/// The buckets of one HTable.
#[derive(Debug, Clone, Default)]
pub struct BucketLoads {
    /// Bytes that hash to each bucket.
    pub before: Vec<u64>,
    /// Bytes in each bucket after balancing.
    pub after: Vec<u64>,
    /// The capacity of a bucket in bytes.
    pub capacity: u64,
    /// Items that fit in no bucket.
    pub overflow: u64,
    /// The mean number of bucket reads per lookup of an item.
    pub reads: f64,
    /// The number of migrations in memory.
    pub cached: u64,
}

/// Places items (key, bytes in the bucket) in `buckets` of `bucket_bytes`; `cached` is the share of
/// buckets with their migration in memory. Cost: that of building the table, without writing it.
pub fn bucket_loads(
    items: &[(u64, u32)],
    buckets: u32,
    bucket_bytes: u32,
    cached: f64,
) -> BucketLoads {
    let capacity = bucket_bytes - BUCKET_HEADER_BYTES as u32;
    let kind = HashKind::default();
    let hashes: Vec<_> = items.iter().map(|(key, _)| kind.hash(&key.to_le_bytes())).collect();
    let weights: Vec<ItemWeight> = hashes
        .iter()
        .zip(items)
        .map(|(hash, &(_, bytes))| ItemWeight {
            bucket: hash.bucket(buckets),
            infix: hash.infix,
            bytes,
        })
        .collect();
    let balanced =
        balance(&weights, BucketSpace { first: 0, buckets, bytes: capacity, last: capacity });
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
        capacity: capacity.into(),
        cached: cached.min(balanced.migrations.len()) as u64,
        ..BucketLoads::default()
    };
    let mut reads = 0u64;
    for ((weight, hash), place) in weights.iter().zip(&hashes).zip(&balanced.placements) {
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

/// Measurements of a table that the engine built.
#[derive(Debug, Clone, Copy, Default)]
pub struct TableFigures {
    /// Items that are small enough for a bucket but fit in none.
    pub overflow: u64,
    /// The share of the buckets' bytes that keys and values take.
    pub fill: f64,
    /// Bytes of the file per byte of keys and values.
    pub amplification: f64,
}

/// Builds a table of puts with these keys and value lengths, in memory, with the default options.
///
/// # Errors
/// None in memory; passed on.
pub fn build_table(items: &[(u64, u32)]) -> Result<TableFigures> {
    let kind = HashKind::default();
    let mut order: Vec<(Hash, u64, u32)> =
        items.iter().map(|&(key, len)| (kind.hash(&key.to_le_bytes()), key, len)).collect();
    order.sort_unstable();
    let user: u64 = items.iter().map(|&(_, len)| 8 + u64::from(len)).sum();
    let build = Options::default().build(Layout::Buckets);
    let expected = ExpectedSize { items: items.len() as u64, bytes: user };
    let (vfs, rate) = (Ram::new(), RateLimiter::unlimited());
    let origin = Origin::default();
    let purpose = Purpose::Flush;
    let mut writer = TableWriter::create(&vfs, 1, build, origin, expected, &rate, purpose)?;
    let longest = items.iter().map(|&(_, len)| len).max().unwrap_or(0);
    let value = vec![7; longest as usize];
    for &(hash, key, len) in &order {
        let value = Some(&value[..len as usize]);
        writer.push(hash, &Item { key: &key.to_le_bytes(), value, expires_at: None })?;
    }
    let built = writer.finish()?;
    Ok(TableFigures {
        overflow: built.overflow,
        fill: user as f64 / built.bucket_bytes as f64,
        amplification: built.bytes as f64 / user as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_of_the_engine_has_no_overflow() {
        for most in [200u32, 800] {
            let items: Vec<_> =
                (0..4000).map(|n| (n, 1 + (n as u32).wrapping_mul(7919) % most)).collect();
            let table = build_table(&items).unwrap();
            assert_eq!(table.overflow, 0, "{most}");
            assert!((0.85..1.0).contains(&table.fill) && table.amplification > 1.0, "{table:?}");
        }
    }

    #[test]
    fn balancing_loses_no_item_and_overfills_no_bucket() {
        let items: Vec<(u64, u32)> = (0..20_000).map(|n| (n, 20 + n as u32 * 7 % 180)).collect();
        let bytes: u64 = items.iter().map(|&(_, bytes)| u64::from(bytes)).sum();
        let buckets = (bytes as f64 / (4080.0 * 0.95)).ceil() as u32;
        let loads = bucket_loads(&items, buckets, 4096, 0.2);
        assert_eq!(loads.before.iter().sum::<u64>(), bytes);
        assert_eq!(loads.after.iter().sum::<u64>(), bytes);
        assert!(loads.before.iter().any(|&load| load > loads.capacity));
        assert!(loads.after.iter().all(|&load| load <= loads.capacity));
        assert!((1.0..1.1).contains(&loads.reads), "{}", loads.reads);
        assert!(bucket_loads(&items, buckets, 4096, 1.0).reads < 1.000_001);
    }
}
