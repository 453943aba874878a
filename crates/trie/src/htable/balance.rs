//! Balancing the buckets of an HTable.
//!
//! ```text
//!   buckets by load    [2: 118 %] [7: 109 %] [5: 101 %] …… [1: 88 %] [4: 79 %] [9: 71 %]
//!                        └───── items from the HashMark up, 19 % ───────▶ 4, which is sorted in again
//!                       then bucket 7, and so on until the fullest is not too full
//! ```
//!
//! A bucket's items are ordered by their rank (the rotated infix of the hash). Of the fullest bucket
//! the fewest of the topmost items that make the rest fit move to the fullest that has room for them
//! all, or if none has to the emptiest; the lowest rank among them is its HashMark. The bucket is
//! then done: it takes no more items. A bucket that takes some may become too full by them and is
//! balanced in its turn, so a lookup may have to follow a chain. What nothing can take goes to the
//! special bucket.
//!
//! Invariant: items of one rank stay together; a bucket that is done is never a destination, so a
//! chain has no circle; every item's chain ends where it is placed.
//!
//! Source: LSM-trie paper, section 2.4.2, where all go to the emptiest: that spreads the room that is
//! left thinner than the last items are. Best fit is ours. That a mark is the lowest rank that moved (and not the
//! highest that stayed) is ours: so all items of a bucket can move. So is a last bucket that is short.

use std::collections::BTreeSet;

use crate::hash::rank;

/// An item to be placed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Weight {
    /// The bucket by its hash.
    pub(crate) bucket: u32,
    pub(crate) infix: u32,
    pub(crate) bytes: u32,
}

/// Items of `source` with a rank from `mark` up are to be looked for in `destination`. Buckets are
/// counted from the first of those balanced together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Migration {
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) mark: u32,
}

/// Where all items go.
#[derive(Debug, Default)]
pub(crate) struct Balanced {
    /// The bucket of each item; `None`: the special bucket.
    pub(crate) places: Vec<Option<u32>>,
    /// In the order in which they were made: those of the fullest buckets first.
    pub(crate) migrations: Vec<Migration>,
}

/// The buckets to be balanced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// The number in the table of the first of them.
    pub(crate) first: u32,
    pub(crate) buckets: u32,
    /// Bytes of each.
    pub(crate) bytes: u32,
    /// Bytes of the last of them, which may be fewer.
    pub(crate) last: u32,
}

/// Places items in buckets. Cost: a sort of the buckets, and one for the items of each that is too full.
pub(crate) fn balance(items: &[Weight], room: Room) -> Balanced {
    let Room { first, buckets, bytes: room, last } = room;
    let mut loads = vec![0u64; buckets as usize];
    // What a short bucket lacks counts as taken.
    if let Some(load) = loads.last_mut() {
        *load = room.saturating_sub(last).into();
    }
    let room = u64::from(room);
    for item in items {
        loads[item.bucket as usize] += u64::from(item.bytes);
    }
    let mut places: Vec<Option<u32>> = items.iter().map(|item| Some(item.bucket)).collect();
    let mut migrations = Vec::new();
    if loads.iter().all(|&load| load <= room) {
        return Balanced { places, migrations };
    }
    let mut members = vec![Vec::new(); buckets as usize];
    for (at, item) in items.iter().enumerate() {
        members[item.bucket as usize].push(at as u32);
    }
    let mut by_load: BTreeSet<(u64, u32)> = loads.iter().copied().zip(0..).collect();
    while let Some((load, source)) = by_load.pop_last() {
        if load <= room {
            break;
        }
        let mut here = std::mem::take(&mut members[source as usize]);
        let rank_of = |at: u32| rank(items[at as usize].infix, first + source);
        let bytes_of = |at: u32| u64::from(items[at as usize].bytes);
        here.sort_unstable_by_key(|&at| (rank_of(at), at));
        let mut left = load;
        let mut cut = here.len();
        while cut > 0 && (left > room || same_rank(&here, cut, rank_of)) {
            cut -= 1;
            left -= bytes_of(here[cut]);
        }
        let moved = here.split_off(cut);
        let moved_bytes: u64 = load - left;
        let emptiest = by_load.first().copied();
        let fits = moved_bytes <= room;
        // More than a bucket takes is passed on in parts, unless it cannot be parted.
        let parts = || rank_of(moved[0]) != rank_of(moved[moved.len() - 1]);
        let emptiest = emptiest.filter(|&(taken, _)| taken < room && (fits || parts()));
        let fullest = fits.then(|| by_load.range(..=(room - moved_bytes, u32::MAX)).next_back());
        match fullest.flatten().copied().or(emptiest) {
            Some((taken, destination)) => {
                by_load.remove(&(taken, destination));
                by_load.insert((taken + moved_bytes, destination));
                let mark = rank_of(moved[0]);
                migrations.push(Migration { source, destination, mark });
                moved.iter().for_each(|&at| places[at as usize] = Some(destination));
                members[destination as usize].extend(moved);
            }
            None => moved.iter().for_each(|&at| places[at as usize] = None),
        }
    }
    Balanced { places, migrations }
}

/// Whether the cut would part items of one rank.
fn same_rank(here: &[u32], cut: usize, rank_of: impl Fn(u32) -> u32) -> bool {
    cut < here.len() && rank_of(here[cut - 1]) == rank_of(here[cut])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Where a lookup of the item ends, and after how many buckets.
    fn follow(item: &Weight, migrations: &[Migration]) -> (u32, usize) {
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

    fn all(buckets: u32, bytes: u32, last: u32) -> Room {
        Room { first: 0, buckets, bytes, last }
    }

    fn check(items: &[Weight], buckets: u32, room: u32, last: u32) -> (usize, usize) {
        let balanced = balance(items, all(buckets, room, last));
        let mut loads = vec![0; buckets as usize];
        loads[buckets as usize - 1] = room - last;
        let (mut longest, mut special) = (0, 0);
        for (item, place) in items.iter().zip(&balanced.places) {
            let Some(place) = *place else {
                special += 1;
                continue;
            };
            let (end, steps) = follow(item, &balanced.migrations);
            assert_eq!(end, place);
            loads[place as usize] += item.bytes;
            longest = longest.max(steps);
        }
        assert!(loads.iter().all(|&load| load <= room), "a bucket is over");
        (longest, special)
    }

    proptest! {
        /// Few infixes make for ties; few buckets and large items for chains and overflow.
        #[test]
        fn does_every_chain_end_where_the_item_is_and_no_bucket_burst(
            buckets in 1u32..40,
            infixes in prop_oneof![Just(1u32), Just(3), Just(u32::MAX)],
            draws in prop::collection::vec((any::<u32>(), any::<u32>(), 1u32..500), 0..400),
            last in 0u32..1001,
        ) {
            let weight = |(bucket, infix, bytes): (u32, u32, u32)| {
                let infix = (infix % infixes).wrapping_mul(0x9e37_79b9);
                Weight { bucket: bucket % buckets, infix, bytes }
            };
            let items: Vec<Weight> = draws.into_iter().map(weight).collect();
            check(&items, buckets, 1000, last);
        }

        /// Then each bucket takes a number of items, and the last place of the last bucket is found.
        #[test]
        fn do_items_of_one_size_fill_every_bucket(
            buckets in 1u32..40,
            last in 1u32..11,
            draws in prop::collection::vec((any::<u32>(), any::<u32>()), 400..401),
        ) {
            let count = (buckets as usize - 1) * 10 + last as usize;
            let items: Vec<Weight> = draws[..count]
                .iter()
                .map(|&(bucket, infix)| Weight { bucket: bucket % buckets, infix, bytes: 100 })
                .collect();
            let (_, special) = check(&items, buckets, 1000, last * 100);
            prop_assert_eq!(special, 0);
        }
    }

    fn random(seed: u64, buckets: u32, room: u32, fill: f64, most: u64) -> Vec<Weight> {
        let (mut items, mut total, mut state) = (Vec::new(), 0, seed);
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            x ^ (x >> 31)
        };
        while total < (f64::from(buckets) * f64::from(room) * fill) as u64 {
            let bytes = (1 + next() % most) as u32;
            total += u64::from(bytes);
            let bucket = (next() % u64::from(buckets)) as u32;
            items.push(Weight { bucket, infix: next() as u32, bytes });
        }
        items
    }

    #[test]
    fn do_small_items_fit_at_95_percent_without_the_special_bucket() {
        for (seed, most, fill) in [(1, 200, 0.95), (2, 400, 0.95), (3, 800, 0.93)] {
            let items = random(seed, 8192, 4080, fill, most);
            assert_eq!(check_fast(&items, 8192, 4080), 0, "items up to {most} bytes");
        }
    }

    fn check_fast(items: &[Weight], buckets: u32, room: u32) -> usize {
        let balanced = balance(items, all(buckets, room, room));
        let mut loads = vec![0; buckets as usize];
        for (item, place) in items.iter().zip(&balanced.places) {
            if let Some(place) = place {
                loads[*place as usize] += item.bytes;
            }
        }
        assert!(loads.iter().all(|&load| load <= room));
        balanced.places.iter().filter(|place| place.is_none()).count()
    }

    #[test]
    fn do_chains_and_the_special_bucket_come_up_when_room_is_short() {
        let (mut longest, mut special) = (0, 0);
        for seed in 0..60 {
            let (chain, over) = check(&random(seed, 12, 1000, 0.99, 320), 12, 1000, 1000);
            longest = longest.max(chain);
            special += over;
        }
        assert!(longest >= 3 && special > 0, "chain {longest}, special {special}");
    }
}
