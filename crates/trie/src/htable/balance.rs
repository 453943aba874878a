//! Balances the buckets of an HTable.
//!
//! ```text
//!   buckets by load    [2: 118 %] [7: 109 %] [5: 101 %] …… [1: 88 %] [4: 79 %] [9: 71 %]
//!                        └───── items from the HashMark up, 19 % ───────▶ 4, sorted in again
//!                       then bucket 7, and so on until no bucket is too full
//! ```
//!
//! A bucket's items are ordered by rank (the rotated infix of the hash). From the fullest bucket
//! the fewest items with the highest ranks that make the rest fit migrate: to the fullest bucket
//! with space for all of them, or if there is none to the emptiest one. Their lowest rank is the
//! HashMark. The bucket is then final and takes no more items. A destination may become too full
//! and is balanced in its turn, so a lookup may follow a chain. Items that fit nowhere go to the
//! special bucket.
//!
//! Invariant: items of one rank stay together; a final bucket is never a destination, so chains
//! have no cycles; every item's chain ends in its bucket.
//!
//! Source: LSM-trie paper, section 2.4.2. There all items go to the emptiest bucket, which leaves
//! less contiguous space than best fit; the mark is the highest rank that stays, so that some items
//! cannot move; and all buckets have the same size.

use std::collections::BTreeSet;

use crate::hash::rank;

/// An item to be placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ItemWeight {
    /// The bucket of its hash.
    pub(crate) bucket: u32,
    pub(crate) infix: u32,
    pub(crate) bytes: u32,
}

/// Items of `source` with a rank of at least `mark` are in `destination`. Buckets are numbered from
/// the first of those that are balanced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Migration {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) mark: u32,
}

/// The placement of all items.
#[derive(Debug, Default)]
pub(crate) struct Placement {
    /// The bucket of each item; `None`: the special bucket.
    pub(crate) placements: Vec<Option<u32>>,
    /// In the order in which they were made, those of the fullest buckets first.
    pub(crate) migrations: Vec<Migration>,
}

/// The buckets to be balanced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BucketSpace {
    /// The number of the first one in the table.
    pub(crate) first: u32,
    pub(crate) buckets: u32,
    /// The capacity of each in bytes.
    pub(crate) bytes: u32,
    /// The capacity of the last one, which may be smaller.
    pub(crate) last: u32,
}

/// Places items in buckets. Cost: a sort of the buckets, and of the items of each bucket that is
/// too full.
pub(crate) fn balance(items: &[ItemWeight], space: BucketSpace) -> Placement {
    let BucketSpace { first, buckets, bytes: capacity, last } = space;
    let mut loads = vec![0u64; buckets as usize];
    // The missing part of a short bucket counts as occupied.
    if let Some(load) = loads.last_mut() {
        *load = capacity.saturating_sub(last).into();
    }
    let capacity = u64::from(capacity);
    for item in items {
        loads[item.bucket as usize] += u64::from(item.bytes);
    }
    let mut placements: Vec<Option<u32>> = items.iter().map(|item| Some(item.bucket)).collect();
    let mut migrations = Vec::new();
    if loads.iter().all(|&load| load <= capacity) {
        return Placement { placements, migrations };
    }
    let mut members = vec![Vec::new(); buckets as usize];
    for (at, item) in items.iter().enumerate() {
        members[item.bucket as usize].push(at as u32);
    }
    let mut by_load: BTreeSet<(u64, u32)> = loads.iter().copied().zip(0..).collect();
    while let Some((load, source)) = by_load.pop_last() {
        if load <= capacity {
            break;
        }
        let mut members_here = std::mem::take(&mut members[source as usize]);
        let rank_of = |at: u32| rank(items[at as usize].infix, first + source);
        let bytes_of = |at: u32| u64::from(items[at as usize].bytes);
        members_here.sort_unstable_by_key(|&at| (rank_of(at), at));
        let mut remaining = load;
        let mut cut = members_here.len();
        while cut > 0 && (remaining > capacity || same_rank(&members_here, cut, rank_of)) {
            cut -= 1;
            remaining -= bytes_of(members_here[cut]);
        }
        let migrating = members_here.split_off(cut);
        let migrating_bytes: u64 = load - remaining;
        let emptiest = by_load.first().copied();
        let fits = migrating_bytes <= capacity;
        // More than a bucket's capacity is passed on in parts, unless all have the same rank.
        let parts = || rank_of(migrating[0]) != rank_of(migrating[migrating.len() - 1]);
        let emptiest = emptiest.filter(|&(load, _)| load < capacity && (fits || parts()));
        let fullest =
            fits.then(|| by_load.range(..=(capacity - migrating_bytes, u32::MAX)).next_back());
        match fullest.flatten().copied().or(emptiest) {
            Some((load, destination)) => {
                by_load.remove(&(load, destination));
                by_load.insert((load + migrating_bytes, destination));
                let mark = rank_of(migrating[0]);
                migrations.push(Migration { source, destination, mark });
                migrating.iter().for_each(|&at| placements[at as usize] = Some(destination));
                members[destination as usize].extend(migrating);
            }
            None => migrating.iter().for_each(|&at| placements[at as usize] = None),
        }
    }
    Placement { placements, migrations }
}

/// Whether the cut would separate items of one rank.
fn same_rank(members_here: &[u32], cut: usize, rank_of: impl Fn(u32) -> u32) -> bool {
    cut < members_here.len() && rank_of(members_here[cut - 1]) == rank_of(members_here[cut])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bucket where a lookup of the item ends, and the number of buckets it visits.
    fn follow(item: &ItemWeight, migrations: &[Migration]) -> (u32, usize) {
        let (mut at, mut steps) = (item.bucket, 1);
        while let Some(next) =
            migrations.iter().find(|m| m.source == at && rank(item.infix, at) >= m.mark)
        {
            at = next.destination;
            steps += 1;
            assert!(steps <= migrations.len() + 1, "a chain goes in a circle");
        }
        (at, steps)
    }

    fn all(buckets: u32, bytes: u32, last: u32) -> BucketSpace {
        BucketSpace { first: 0, buckets, bytes, last }
    }

    fn check(items: &[ItemWeight], buckets: u32, capacity: u32, last: u32) -> (usize, usize) {
        let balanced = balance(items, all(buckets, capacity, last));
        let mut loads = vec![0; buckets as usize];
        loads[buckets as usize - 1] = capacity - last;
        let (mut longest, mut special) = (0, 0);
        for (item, place) in items.iter().zip(&balanced.placements) {
            let Some(place) = *place else {
                special += 1;
                continue;
            };
            let (end, steps) = follow(item, &balanced.migrations);
            assert_eq!(end, place);
            loads[place as usize] += item.bytes;
            longest = longest.max(steps);
        }
        assert!(loads.iter().all(|&load| load <= capacity), "a bucket is over");
        (longest, special)
    }

    proptest! {
        /// Few infixes create ties; few buckets and large items create chains and overflow.
        #[test]
        fn chains_end_at_the_item_and_no_bucket_overflows(
            buckets in 1u32..40,
            infixes in prop_oneof![Just(1u32), Just(3), Just(u32::MAX)],
            draws in prop::collection::vec((any::<u32>(), any::<u32>(), 1u32..500), 0..400),
            last in 0u32..1001,
        ) {
            let weight = |(bucket, infix, bytes): (u32, u32, u32)| {
                let infix = (infix % infixes).wrapping_mul(0x9e37_79b9);
                ItemWeight { bucket: bucket % buckets, infix, bytes }
            };
            let items: Vec<ItemWeight> = draws.into_iter().map(weight).collect();
            check(&items, buckets, 1000, last);
        }

        /// Each bucket takes a fixed number of items, and the last bucket is filled completely.
        #[test]
        fn items_of_one_size_fill_every_bucket(
            buckets in 1u32..40,
            last in 1u32..11,
            draws in prop::collection::vec((any::<u32>(), any::<u32>()), 400..401),
        ) {
            let count = (buckets as usize - 1) * 10 + last as usize;
            let items: Vec<ItemWeight> = draws[..count]
                .iter()
                .map(|&(bucket, infix)| ItemWeight { bucket: bucket % buckets, infix, bytes: 100 })
                .collect();
            let (_, special) = check(&items, buckets, 1000, last * 100);
            prop_assert_eq!(special, 0);
        }
    }

    fn random(seed: u64, buckets: u32, capacity: u32, fill: f64, max: u64) -> Vec<ItemWeight> {
        let (mut items, mut total, mut state) = (Vec::new(), 0, seed);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        while total < (f64::from(buckets) * f64::from(capacity) * fill) as u64 {
            let bytes = (1 + next() % max) as u32;
            total += u64::from(bytes);
            let bucket = (next() % u64::from(buckets)) as u32;
            items.push(ItemWeight { bucket, infix: next() as u32, bytes });
        }
        items
    }

    #[test]
    fn small_items_fit_at_95_percent_without_the_special_bucket() {
        for (seed, max, fill) in [(1, 200, 0.95), (2, 400, 0.95), (3, 800, 0.93)] {
            let items = random(seed, 8192, 4080, fill, max);
            assert_eq!(check_fast(&items, 8192, 4080), 0, "items up to {max} bytes");
        }
    }

    fn check_fast(items: &[ItemWeight], buckets: u32, capacity: u32) -> usize {
        let balanced = balance(items, all(buckets, capacity, capacity));
        let mut loads = vec![0; buckets as usize];
        for (item, place) in items.iter().zip(&balanced.placements) {
            if let Some(place) = place {
                loads[*place as usize] += item.bytes;
            }
        }
        assert!(loads.iter().all(|&load| load <= capacity));
        balanced.placements.iter().filter(|place| place.is_none()).count()
    }

    #[test]
    fn chains_and_the_special_bucket_occur_when_space_is_short() {
        let (mut longest, mut special) = (0, 0);
        for seed in 0..60 {
            let (chain, over) = check(&random(seed, 12, 1000, 0.99, 320), 12, 1000, 1000);
            longest = longest.max(chain);
            special += over;
        }
        assert!(longest >= 3 && special > 0, "chain {longest}, special {special}");
    }
}
