//! The mapping translation cache: from a key to the place of its newest version, and the fronts of chains.
//!
//! ```text
//!   set = bucket mod sets     16 ways; who is asked for goes halfway to the front, who comes in begins near the end
//!   way = tag u32, more u32, place u32, base u32
//!         tag: the rest of the bucket's number, then bits of the key's hash
//!         more: 28 bits of another hash, then the rank in the front
//! ```
//!
//! Going halfway makes the order one of frequency as much as of age: under Zipf 0.99 it keeps 75 % of the gets where
//! the paper's LRU kept 72 % (`siltstone repro run skimpy-memory`, before and after).
//!
//! The paper's entries have two pointers for the order of use, 16 of their 20 bytes; in a set of 16 the
//! order is the order. What that saves says which key it is (some 55 bits and the bucket, 28 of them under a seed
//! that changes with each opening) and holds the bucket's *front*:
//!
//! ```text
//!   head ─▶ ● a2        ● b1        ● a1 ▒        ● base ─▶ …
//!           └ front: a2, b1 ┘        hidden by a2
//! ```
//!
//! All that was put before the base was reached is in the front, or hidden by what is. So a new version can name
//! the members of the front that it does not hide, and the base: who walks the chain passes what is hidden
//! without reading it (`chains`). If a member has to make room it is the base from then on, and the front what was
//! put after it: for its record leads to the rest. Ranks tell what was.
//!
//! Invariants: a place is that of the key's newest version. The members of a bucket's front have the same base,
//! and the newest of them is the chain's head.
//!
//! Source: SkimpyFTL, section 3.2; fronts are ours.

use crate::location::{Location, NONE, UNKNOWN};

const WAYS: usize = 16;
/// Where keys come in: they must be asked for again before others come, so that those that are asked for
/// once pass without a trace. Puts come in a little further on, for the sake of fronts.
const FIRST_READ: usize = WAYS - 1;
const FIRST_PUT: usize = WAYS - 3;
const EMPTY: Way = Way { tag: 0, more: 0, at: NONE, base: UNKNOWN };
/// Bits of `more` that tell when a member came into its front.
const RANK: u32 = 15;

#[derive(Clone, Copy)]
struct Way {
    tag: u32,
    /// Above [`RANK`] another hash; the rank of a member of a front is greater than those of members before it.
    more: u32,
    at: Location,
    /// Of a member of a front; else `UNKNOWN`.
    base: Location,
}

impl Way {
    fn is_of(&self, (tag, more): (u32, u32)) -> bool {
        self.tag == tag && self.more & !RANK == more
    }

    fn rank(&self) -> u32 {
        self.more & RANK
    }
}

/// Which key it is, among those of its bucket.
#[derive(Clone, Copy)]
pub(crate) struct Id {
    pub(crate) bucket: u32,
    pub(crate) hash: u64,
    /// Of another hash of the key, that nobody can foresee.
    pub(crate) more: u32,
}

/// A chain as a new version would be linked to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Front {
    /// Members but for the key's own, each with the low byte of its key's hash.
    pub(crate) members: Vec<(Location, u8)>,
    pub(crate) base: Location,
}

pub(crate) struct Cache {
    sets: u32,
    ways: Vec<Way>,
    /// Bits of a tag that the bucket's number takes.
    bucket_bits: u32,
}

impl Cache {
    pub(crate) fn new(keys: u64, buckets: u32) -> Self {
        let most = u64::from(buckets.max(1));
        // A tag has room for eight bits of the hash at least.
        let least = (most >> 23) + 1;
        let sets = keys.div_ceil(WAYS as u64).max(least).min(most) as u32;
        let rest = (buckets.max(1) - 1) / sets;
        let bucket_bits = u32::BITS - rest.leading_zeros();
        Cache { sets, ways: vec![EMPTY; sets as usize * WAYS], bucket_bits }
    }

    fn set(&mut self, bucket: u32) -> &mut [Way] {
        let start = (bucket % self.sets) as usize * WAYS;
        &mut self.ways[start..start + WAYS]
    }

    fn tag(&self, id: Id) -> (u32, u32) {
        let bits = (id.hash as u32) << self.bucket_bits;
        (bits | (id.bucket / self.sets), id.more & !RANK)
    }

    fn bucket_mask(&self) -> u32 {
        (1 << self.bucket_bits) - 1
    }

    fn find(&mut self, id: Id) -> Option<usize> {
        let tag = self.tag(id);
        self.set(id.bucket).iter().position(|way| way.is_of(tag) && way.at != NONE)
    }

    /// The ways of a bucket.
    fn of_bucket(&mut self, bucket: u32) -> impl Iterator<Item = &mut Way> {
        let (rest, mask) = (bucket / self.sets, self.bucket_mask());
        self.set(bucket).iter_mut().filter(move |way| way.tag & mask == rest && way.at != NONE)
    }

    /// The place of the key's newest version, which goes halfway to the front of its set.
    pub(crate) fn get(&mut self, id: Id) -> Option<Location> {
        let way = self.find(id)?;
        let way = self.promote(id.bucket, way);
        Some(self.set(id.bucket)[way].at)
    }

    /// The same for who does not ask for the key's sake.
    pub(crate) fn peek(&mut self, id: Id) -> Option<Location> {
        let way = self.find(id)?;
        Some(self.set(id.bucket)[way].at)
    }

    fn promote(&mut self, bucket: u32, way: usize) -> usize {
        self.set(bucket)[way / 2..=way].rotate_right(1);
        way / 2
    }

    /// Notes the newest version's place, which a reader has found.
    pub(crate) fn put(&mut self, id: Id, at: Location) {
        match self.find(id) {
            Some(way) => self.set(id.bucket)[way].at = at,
            None => {
                self.insert(id, at, UNKNOWN, 0, FIRST_READ);
            }
        }
    }

    /// Puts a key in a way of its set; the last one makes room. A member of the key's own front that
    /// does is the base from then on.
    fn insert(&mut self, id: Id, at: Location, base: Location, rank: u32, way: usize) {
        let free = self.set(id.bucket).iter().position(|way| way.at == NONE).unwrap_or(WAYS - 1);
        let last = std::mem::replace(&mut self.set(id.bucket)[free], EMPTY);
        let mut base = base;
        if last.at != NONE && last.base != UNKNOWN {
            let (rest, sets) = (last.tag & self.bucket_mask(), self.sets);
            let bucket = rest * sets + id.bucket % sets;
            self.leave_front(bucket, last);
            if bucket == id.bucket && base != UNKNOWN {
                base = last.at;
            }
        }
        let (tag, more) = self.tag(id);
        let set = self.set(id.bucket);
        set[free] = Way { tag, more: more | rank, at, base };
        set[way.min(free)..=free].rotate_right(1);
    }

    /// A member of a bucket's front has made room. It leads to all that was put before it: so the front is of what
    /// came later.
    fn leave_front(&mut self, bucket: u32, gone: Way) {
        for way in self.of_bucket(bucket).filter(|way| way.base != UNKNOWN) {
            way.base = if way.rank() > gone.rank() { gone.at } else { UNKNOWN };
        }
    }

    /// The rank of who comes into a front now.
    fn next_rank(&mut self, bucket: u32) -> u32 {
        let members = |way: &&mut Way| way.base != UNKNOWN;
        let last = self.of_bucket(bucket).filter(members).map(|way| way.rank()).max();
        match last {
            None => 0,
            Some(last) if last < RANK => last + 1,
            Some(_) => {
                let mut ranks: Vec<u32> =
                    self.of_bucket(bucket).filter(members).map(|way| way.rank()).collect();
                ranks.sort_unstable();
                for way in self.of_bucket(bucket).filter(members) {
                    let rank = ranks.partition_point(|it| *it < way.rank()) as u32;
                    way.more = way.more & !RANK | rank;
                }
                (ranks.len() as u32).min(RANK)
            }
        }
    }

    /// How a new version of the key is to be linked where the chain's head is this: `None` if the head is in no
    /// front.
    pub(crate) fn front(&mut self, id: Id, head: Location) -> Option<Front> {
        let (own, bits) = (self.tag(id), self.bucket_bits);
        let mut front = None;
        let mut members = Vec::new();
        for way in self.of_bucket(id.bucket).filter(|way| way.base != UNKNOWN) {
            if way.at == head {
                front = Some(way.base);
            }
            if !way.is_of(own) {
                members.push((way.at, (way.tag >> bits) as u8));
            }
        }
        front.map(|base| Front { members, base })
    }

    /// Where the bucket's front began, if the chain's head is in one.
    pub(crate) fn base(&mut self, bucket: u32, head: Location) -> Option<Location> {
        let mut members = self.of_bucket(bucket).filter(|way| way.base != UNKNOWN);
        members.find(|way| way.at == head).map(|way| way.base)
    }

    /// Notes a new version that was linked to `next`, and to others of the front or not.
    pub(crate) fn publish(&mut self, id: Id, at: Location, next: Location, has_detours: bool) {
        let goes_on = self.of_bucket(id.bucket).any(|way| way.base != UNKNOWN && way.base == next);
        if !goes_on {
            self.forget_front(id.bucket);
        }
        // Of a front that was forgotten meanwhile nobody knows the other members.
        let base = if goes_on || !has_detours { next } else { UNKNOWN };
        let rank = self.next_rank(id.bucket);
        match self.find(id) {
            Some(way) => {
                let old = &mut self.set(id.bucket)[way];
                let more = old.more & !RANK | rank;
                *old = Way { more, at, base, ..*old };
                self.promote(id.bucket, way);
            }
            None => self.insert(id, at, base, rank, FIRST_PUT),
        }
    }

    /// The front of a bucket is not known any more.
    pub(crate) fn forget_front(&mut self, bucket: u32) {
        self.of_bucket(bucket).for_each(|way| way.base = UNKNOWN);
    }

    /// A pending record of the bucket was programmed.
    pub(crate) fn placed(&mut self, bucket: u32, from: Location, to: Location) {
        for way in self.of_bucket(bucket) {
            way.at = if way.at == from { to } else { way.at };
            way.base = if way.base == from { to } else { way.base };
        }
    }

    /// Notes another place of a key that is there.
    pub(crate) fn moved(&mut self, id: Id, to: Location) {
        if let Some(way) = self.find(id) {
            self.set(id.bucket)[way].at = to;
        }
    }

    pub(crate) fn remove(&mut self, id: Id) {
        if let Some(way) = self.find(id) {
            let set = self.set(id.bucket);
            set[way..].rotate_left(1);
            set[WAYS - 1] = EMPTY;
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.ways.capacity() * size_of::<Way>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(key: u64, bucket: u32) -> Id {
        Id { bucket, hash: key, more: !key as u32 }
    }

    #[test]
    fn the_last_makes_room_and_who_is_asked_for_is_not_the_last() {
        let mut cache = Cache::new(16, 1);
        for key in 0..16 {
            cache.publish(key_of(key), key as u32 + 100, NONE, true);
        }
        assert_eq!(cache.get(key_of(0)), Some(100));
        cache.put(key_of(99), 7);
        let lost = (0..16).filter(|key| cache.find(key_of(*key)).is_none()).count();
        assert_eq!((lost, cache.get(key_of(0))), (1, Some(100)));
        cache.placed(0, 5, 1);
        assert_eq!(cache.get(id(0, 0)), Some(100));
        cache.placed(0, 100, 1);
        assert_eq!(cache.get(id(0, 0)), Some(1));
        cache.remove(key_of(0));
        assert_eq!((cache.get(key_of(0)), cache.get(key_of(99))), (None, Some(7)));
    }

    fn key_of(key: u64) -> Id {
        id(key << 8, 0)
    }

    /// Independent draws by Zipf's law: no cache of so many keys can hit more often than one that knows the law.
    #[test]
    fn what_is_asked_for_often_stays() {
        let (keys, buckets) = (4000u64, 800u32);
        let mut cache = Cache::new(keys / 10, buckets);
        let weight = |rank: u64| 1.0 / (rank as f64 + 1.0).powf(0.99);
        let sums: Vec<f64> = (0..keys)
            .scan(0.0, |sum, rank| {
                *sum += weight(rank);
                Some(*sum)
            })
            .collect();
        let all = sums[keys as usize - 1];
        let best = sums[keys as usize / 10 - 1] / all;
        let (mut state, mut hits, draws) = (1u64, 0, 200_000);
        for draw in 0..2 * draws {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let drawn = (state >> 11) as f64 / (1u64 << 53) as f64 * all;
            let rank = sums.partition_point(|sum| *sum < drawn) as u64;
            let hash = rank.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let id = Id { bucket: (hash >> 40) as u32 % buckets, hash, more: hash as u32 };
            match cache.get(id) {
                Some(at) => hits += u32::from(draw >= draws && u64::from(at) == rank),
                None => cache.put(id, rank as u32),
            }
        }
        let rate = f64::from(hits) / f64::from(draws);
        assert!(rate > 0.95 * best, "{rate} of {best}");
    }

    #[test]
    fn keys_whose_tags_are_alike_are_told_apart_by_their_other_hash() {
        let mut cache = Cache::new(16, 4);
        let one = Id { more: 1 << 4, ..id(7, 2) };
        let other = Id { more: 2 << 4, ..one };
        cache.publish(one, 60, 50, false);
        assert_eq!(cache.get(other), None);
        assert_eq!(cache.front(other, 60).unwrap().members.len(), 1);
    }

    #[test]
    fn buckets_of_one_set_have_tags_of_their_own() {
        let mut cache = Cache::new(32, 1000);
        for bucket in (0..1000).step_by(2).take(16) {
            cache.put(id(5, bucket), bucket);
        }
        for bucket in (0..1000).step_by(2).take(16) {
            assert_eq!(cache.get(id(5, bucket)), Some(bucket));
        }
    }

    #[test]
    fn a_front_has_all_that_was_put_or_is_forgotten() {
        let mut cache = Cache::new(16, 4);
        assert_eq!(cache.front(id(1, 2), 50), None);
        cache.publish(id(1, 2), 60, 50, false);
        cache.publish(id(2, 2), 61, 50, true);
        // Another bucket's, and a reader's find below the base.
        cache.publish(id(9, 3), 70, 51, false);
        cache.put(id(3, 2), 10);
        let front = |members: &[(Location, u8)]| Front { members: members.to_vec(), base: 50 };
        assert_eq!(cache.front(id(1, 2), 61), Some(front(&[(61, 2)])));
        let mut both = cache.front(id(3, 2), 61).unwrap();
        both.members.sort_unstable();
        assert_eq!(both, front(&[(60, 1), (61, 2)]));
        assert_eq!(cache.front(id(1, 2), 99), None, "that is not its head");
        cache.placed(2, 50, 40);
        assert_eq!(cache.front(id(1, 2), 61).unwrap().base, 40);
        // One that was linked to the head begins a front of its own.
        cache.publish(id(4, 2), 62, 61, false);
        let front = cache.front(id(1, 2), 62).unwrap();
        assert_eq!(front, Front { members: vec![(62, 4)], base: 61 });
    }

    /// Lets the key make room for a new one of another bucket.
    fn leave(cache: &mut Cache, gone: Id) {
        let set = cache.set(gone.bucket);
        for (index, way) in set.iter_mut().enumerate().filter(|(_, way)| way.at == NONE) {
            *way = Way { tag: 1000 << 8, more: (index as u32) << 4, at: 1000, base: UNKNOWN };
        }
        let way = cache.find(gone).unwrap();
        cache.set(gone.bucket)[way..].rotate_left(1);
        cache.put(Id { more: !0, ..id(gone.hash, 0) }, 6000);
        assert!(cache.find(gone).is_none());
    }

    #[test]
    fn a_member_that_makes_room_is_the_base_of_those_after_it() {
        let mut cache = Cache::new(16, 4);
        let (a, b, c) = (id(1 << 8, 2), id(2 << 8, 2), id(3 << 8, 2));
        cache.publish(a, 60, 50, false);
        cache.publish(b, 61, 50, true);
        cache.publish(c, 62, 50, true);
        leave(&mut cache, b);
        // The one before it stays, but not in the front: the base leads to it.
        assert_eq!(cache.get(a), Some(60));
        assert_eq!(cache.front(c, 62), Some(Front { members: vec![], base: 61 }));
        assert_eq!(cache.front(a, 62), Some(Front { members: vec![(62, 0)], base: 61 }));
        assert_eq!(cache.base(2, 62), Some(61));
        // The head itself: nothing is known of what was put.
        leave(&mut cache, c);
        assert_eq!((cache.front(a, 62), cache.get(a)), (None, Some(60)));
    }

    #[test]
    fn the_own_front_may_make_room_for_a_new_member() {
        let mut cache = Cache::new(16, 4);
        let (a, b, c) = (id(1 << 8, 2), id(2 << 8, 2), id(3 << 8, 2));
        for key in 0..14 {
            cache.put(id(1000 + key, 0), 5000 + key as u32);
        }
        cache.publish(a, 60, 50, false);
        cache.publish(b, 61, 50, true);
        let last = cache.find(a).unwrap();
        cache.set(2)[last..].rotate_left(1);
        cache.publish(c, 62, 50, true);
        assert_eq!(cache.get(a), None);
        let front = cache.front(id(9 << 8, 2), 62).unwrap();
        assert_eq!((front.base, front.members.len()), (60, 2));
    }

    #[test]
    fn ranks_of_a_front_begin_anew_when_they_end() {
        let mut cache = Cache::new(16, 4);
        for turn in 0..100 {
            cache.publish(id((turn % 3) << 8, 2), 60 + turn as u32, 50, turn > 0);
        }
        // The last three were of keys 1, 2 and 0.
        leave(&mut cache, id(2 << 8, 2));
        let front = cache.front(id(9 << 8, 2), 159).unwrap();
        assert_eq!((front.base, front.members), (158, vec![(159, 0)]));
    }

    #[test]
    fn a_version_whose_front_was_forgotten_before_it_was_seen_begins_none() {
        let mut cache = Cache::new(16, 4);
        cache.publish(id(1, 2), 60, 50, false);
        cache.forget_front(2);
        cache.publish(id(2, 2), 61, 50, true);
        assert_eq!(cache.front(id(3, 2), 61), None);
    }
}
