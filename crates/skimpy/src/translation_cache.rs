//! The translation cache: maps keys to their newest versions, and caches the heads of chains.
//!
//! ```text
//!   set = bucket mod sets     16 ways; a hit moves halfway to the front, an insert is near the end
//!   way = tag u32, more u32, place u32, base u32
//!         tag: the rest of the bucket's number, then bits of the key's hash
//!         more: 28 bits of another hash, then the rank within the chain head
//! ```
//!
//! Moving halfway orders the ways by frequency as much as by recency: under Zipf 0.99 the hit rate
//! is 75 %, where the paper's LRU has 72 % (`siltstone-experiments repro run skimpy-memory`, before
//! and after).
//!
//! The paper's entries have two LRU pointers, 16 of their 20 bytes. In a set of 16 ways the
//! positions are the order. The space is used to identify the key (about 55 bits of hash and the
//! bucket; 28 bits are seeded at each opening) and for the bucket's *cached chain head*:
//!
//! ```text
//!   head ─▶ ● a2        ● b1        ● a1 ▒        ● base ─▶ …
//!           └ cached: a2, b1 ┘       hidden by a2
//! ```
//!
//! Every record between the head and the base is a member of the cached chain head, or hidden by a
//! member. So a new version can link to the members that it does not hide, and to the base.
//! Traversal then skips hidden records without reading them (`chains`). If a member is evicted it
//! becomes the base, and only members inserted after it remain, because its record links to the
//! rest. Ranks record the order of insertion.
//!
//! Invariants: a location is that of the key's newest version. The members of a bucket's chain head
//! have the same base, and the newest member is the head of the chain.
//!
//! Source: SkimpyFTL, section 3.2. Cached chain heads are not in the paper.

use crate::location::{Location, NONE, UNKNOWN};

const WAYS: usize = 16;
/// The way at which a lookup inserts: near eviction, so that keys that are read once do not
/// displace others. Puts insert a little earlier, to keep chain heads complete.
const READ_INSERT_WAY: usize = WAYS - 1;
const PUT_INSERT_WAY: usize = WAYS - 3;
const EMPTY: Way = Way { tag: 0, more: 0, at: NONE, base: UNKNOWN };
/// Mask of the rank in `more`.
const RANK_MASK: u32 = 15;

#[derive(Debug, Clone, Copy)]
struct Way {
    tag: u32,
    /// Another hash above [`RANK_MASK`], and the rank: greater than those of earlier members.
    more: u32,
    at: Location,
    /// `UNKNOWN` unless the key is a member of its bucket's chain head.
    base: Location,
}

impl Way {
    fn is_of(&self, (tag, more): (u32, u32)) -> bool {
        self.tag == tag && self.more & !RANK_MASK == more
    }

    fn rank(&self) -> u32 {
        self.more & RANK_MASK
    }
}

/// Identifies a key among those of its bucket.
#[derive(Debug, Clone, Copy)]
pub struct KeyId {
    /// The key's bucket.
    pub bucket: u32,
    /// The hash that selects the bucket.
    pub hash: u64,
    /// Another hash of the key, with a secret seed.
    pub more: u32,
}

/// The cached head of a chain, to which a new version can be linked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ChainHead {
    /// All members except the key itself, each with the low byte of its key's hash.
    pub(crate) members: Vec<(Location, u8)>,
    pub(crate) base: Location,
}

/// The locations of the newest versions of recently used keys.
#[derive(Debug)]
pub struct TranslationCache {
    sets: u32,
    ways: Vec<Way>,
    /// Bits of the bucket's number in a tag.
    bucket_bits: u32,
}

impl TranslationCache {
    /// For at least `keys` keys in `buckets` buckets: 16 bytes per key, and no more than a set of
    /// 16 keys per bucket.
    pub fn new(keys: u64, buckets: u32) -> Self {
        let max_sets = u64::from(buckets.max(1));
        // A tag has at least eight bits of the hash.
        let min_sets = (max_sets >> 23) + 1;
        let sets = keys.div_ceil(WAYS as u64).max(min_sets).min(max_sets) as u32;
        let rest = (buckets.max(1) - 1) / sets;
        let bucket_bits = u32::BITS - rest.leading_zeros();
        TranslationCache { sets, ways: vec![EMPTY; sets as usize * WAYS], bucket_bits }
    }

    fn set(&mut self, bucket: u32) -> &mut [Way] {
        let start = (bucket % self.sets) as usize * WAYS;
        &mut self.ways[start..start + WAYS]
    }

    fn tag(&self, id: KeyId) -> (u32, u32) {
        let bits = (id.hash as u32) << self.bucket_bits;
        (bits | (id.bucket / self.sets), id.more & !RANK_MASK)
    }

    fn bucket_mask(&self) -> u32 {
        (1 << self.bucket_bits) - 1
    }

    fn find(&mut self, id: KeyId) -> Option<usize> {
        let tag = self.tag(id);
        self.set(id.bucket).iter().position(|way| way.is_of(tag) && way.at != NONE)
    }

    /// The occupied ways of a bucket.
    fn ways_of(&mut self, bucket: u32) -> impl Iterator<Item = &mut Way> {
        let (rest, mask) = (bucket / self.sets, self.bucket_mask());
        self.set(bucket).iter_mut().filter(move |way| way.tag & mask == rest && way.at != NONE)
    }

    /// The location of the key's newest version; moves its way halfway to the first.
    pub fn get(&mut self, id: KeyId) -> Option<Location> {
        let way = self.find(id)?;
        let way = self.promote(id.bucket, way);
        Some(self.set(id.bucket)[way].at)
    }

    /// As [`get`](Self::get), without moving the way.
    pub(crate) fn peek(&mut self, id: KeyId) -> Option<Location> {
        let way = self.find(id)?;
        Some(self.set(id.bucket)[way].at)
    }

    fn promote(&mut self, bucket: u32, way: usize) -> usize {
        self.set(bucket)[way / 2..=way].rotate_right(1);
        way / 2
    }

    /// Records the location of the newest version, which a lookup found.
    pub fn put(&mut self, id: KeyId, at: Location) {
        match self.find(id) {
            Some(way) => self.set(id.bucket)[way].at = at,
            None => {
                self.insert(id, at, UNKNOWN, 0, READ_INSERT_WAY);
            }
        }
    }

    /// Inserts a key at a way of its set and evicts the last one. If that is a member of the key's
    /// own chain head, it becomes the base.
    fn insert(&mut self, id: KeyId, at: Location, base: Location, rank: u32, way: usize) {
        let free = self.set(id.bucket).iter().position(|way| way.at == NONE).unwrap_or(WAYS - 1);
        let last = std::mem::replace(&mut self.set(id.bucket)[free], EMPTY);
        let mut base = base;
        if last.at != NONE && last.base != UNKNOWN {
            let (rest, sets) = (last.tag & self.bucket_mask(), self.sets);
            let bucket = rest * sets + id.bucket % sets;
            self.shrink_chain_head(bucket, last);
            if bucket == id.bucket && base != UNKNOWN {
                base = last.at;
            }
        }
        let (tag, more) = self.tag(id);
        let set = self.set(id.bucket);
        set[free] = Way { tag, more: more | rank, at, base };
        set[way.min(free)..=free].rotate_right(1);
    }

    /// Shrinks the chain head of a bucket after the eviction of a member: members inserted before
    /// it are reached through its record.
    fn shrink_chain_head(&mut self, bucket: u32, gone: Way) {
        for way in self.ways_of(bucket).filter(|way| way.base != UNKNOWN) {
            way.base = if way.rank() > gone.rank() { gone.at } else { UNKNOWN };
        }
    }

    /// The rank of a new member; renumbers the members if ranks are exhausted.
    fn next_rank(&mut self, bucket: u32) -> u32 {
        let members = |way: &&mut Way| way.base != UNKNOWN;
        let last = self.ways_of(bucket).filter(members).map(|way| way.rank()).max();
        match last {
            None => 0,
            Some(last) if last < RANK_MASK => last + 1,
            Some(_) => {
                let mut ranks: Vec<u32> =
                    self.ways_of(bucket).filter(members).map(|way| way.rank()).collect();
                ranks.sort_unstable();
                for way in self.ways_of(bucket).filter(members) {
                    let rank = ranks.partition_point(|it| *it < way.rank()) as u32;
                    way.more = way.more & !RANK_MASK | rank;
                }
                (ranks.len() as u32).min(RANK_MASK)
            }
        }
    }

    /// The links of a new version of the key if the chain begins at `head`; `None` if the chain
    /// head is not cached.
    pub(crate) fn chain_head(&mut self, id: KeyId, head: Location) -> Option<ChainHead> {
        let (own, bits) = (self.tag(id), self.bucket_bits);
        let mut head_base = None;
        let mut members = Vec::new();
        for way in self.ways_of(id.bucket).filter(|way| way.base != UNKNOWN) {
            if way.at == head {
                head_base = Some(way.base);
            }
            if !way.is_of(own) {
                members.push((way.at, (way.tag >> bits) as u8));
            }
        }
        head_base.map(|base| ChainHead { members, base })
    }

    /// The base of the bucket's cached chain head, if `head` is one of its members.
    pub(crate) fn base(&mut self, bucket: u32, head: Location) -> Option<Location> {
        let mut members = self.ways_of(bucket).filter(|way| way.base != UNKNOWN);
        members.find(|way| way.at == head).map(|way| way.base)
    }

    /// Records a new version that was linked to `next`, with or without skip links.
    pub fn publish(&mut self, id: KeyId, at: Location, next: Location, has_skip_links: bool) {
        let continues = self.ways_of(id.bucket).any(|way| way.base != UNKNOWN && way.base == next);
        if !continues {
            self.forget_chain_head(id.bucket);
        }
        // The chain head was forgotten since it was linked: its other members are unknown.
        let base = if continues || !has_skip_links { next } else { UNKNOWN };
        let rank = self.next_rank(id.bucket);
        match self.find(id) {
            Some(way) => {
                let old = &mut self.set(id.bucket)[way];
                let more = old.more & !RANK_MASK | rank;
                *old = Way { more, at, base, ..*old };
                self.promote(id.bucket, way);
            }
            None => self.insert(id, at, base, rank, PUT_INSERT_WAY),
        }
    }

    /// Forgets the cached chain head of a bucket.
    pub(crate) fn forget_chain_head(&mut self, bucket: u32) {
        self.ways_of(bucket).for_each(|way| way.base = UNKNOWN);
    }

    /// Updates the location of a pending record that was programmed.
    pub(crate) fn update_pending(&mut self, bucket: u32, from: Location, to: Location) {
        for way in self.ways_of(bucket) {
            way.at = if way.at == from { to } else { way.at };
            way.base = if way.base == from { to } else { way.base };
        }
    }

    /// Updates the location of a cached key.
    pub(crate) fn update(&mut self, id: KeyId, to: Location) {
        if let Some(way) = self.find(id) {
            self.set(id.bucket)[way].at = to;
        }
    }

    pub(crate) fn remove(&mut self, id: KeyId) {
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

    fn id(key: u64, bucket: u32) -> KeyId {
        KeyId { bucket, hash: key, more: !key as u32 }
    }

    #[test]
    fn last_way_is_evicted_and_read_keys_are_kept() {
        let mut cache = TranslationCache::new(16, 1);
        for key in 0..16 {
            cache.publish(key_of(key), key as u32 + 100, NONE, true);
        }
        assert_eq!(cache.get(key_of(0)), Some(100));
        cache.put(key_of(99), 7);
        let lost = (0..16).filter(|key| cache.find(key_of(*key)).is_none()).count();
        assert_eq!((lost, cache.get(key_of(0))), (1, Some(100)));
        cache.update_pending(0, 5, 1);
        assert_eq!(cache.get(id(0, 0)), Some(100));
        cache.update_pending(0, 100, 1);
        assert_eq!(cache.get(id(0, 0)), Some(1));
        cache.remove(key_of(0));
        assert_eq!((cache.get(key_of(0)), cache.get(key_of(99))), (None, Some(7)));
    }

    fn key_of(key: u64) -> KeyId {
        id(key << 8, 0)
    }

    /// Independent Zipf draws: no cache of this size has a higher hit rate than one with the
    /// hottest keys.
    #[test]
    fn hit_rate_is_near_the_optimum_under_zipf() {
        let (keys, buckets) = (4000u64, 800u32);
        let mut cache = TranslationCache::new(keys / 10, buckets);
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
            let id = KeyId { bucket: (hash >> 40) as u32 % buckets, hash, more: hash as u32 };
            match cache.get(id) {
                Some(at) => hits += u32::from(draw >= draws && u64::from(at) == rank),
                None => cache.put(id, rank as u32),
            }
        }
        let rate = f64::from(hits) / f64::from(draws);
        assert!(rate > 0.95 * best, "{rate} of {best}");
    }

    #[test]
    fn keys_with_equal_tags_are_distinguished_by_the_second_hash() {
        let mut cache = TranslationCache::new(16, 4);
        let one = KeyId { more: 1 << 4, ..id(7, 2) };
        let other = KeyId { more: 2 << 4, ..one };
        cache.publish(one, 60, 50, false);
        assert_eq!(cache.get(other), None);
        assert_eq!(cache.chain_head(other, 60).unwrap().members.len(), 1);
    }

    #[test]
    fn buckets_of_one_set_have_distinct_tags() {
        let mut cache = TranslationCache::new(32, 1000);
        for bucket in (0..1000).step_by(2).take(16) {
            cache.put(id(5, bucket), bucket);
        }
        for bucket in (0..1000).step_by(2).take(16) {
            assert_eq!(cache.get(id(5, bucket)), Some(bucket));
        }
    }

    #[test]
    fn chain_head_is_complete_or_forgotten() {
        let mut cache = TranslationCache::new(16, 4);
        assert_eq!(cache.chain_head(id(1, 2), 50), None);
        cache.publish(id(1, 2), 60, 50, false);
        cache.publish(id(2, 2), 61, 50, true);
        // A put to another bucket, and a lookup that found a version below the base.
        cache.publish(id(9, 3), 70, 51, false);
        cache.put(id(3, 2), 10);
        let front = |members: &[(Location, u8)]| ChainHead { members: members.to_vec(), base: 50 };
        assert_eq!(cache.chain_head(id(1, 2), 61), Some(front(&[(61, 2)])));
        let mut both = cache.chain_head(id(3, 2), 61).unwrap();
        both.members.sort_unstable();
        assert_eq!(both, front(&[(60, 1), (61, 2)]));
        assert_eq!(cache.chain_head(id(1, 2), 99), None, "it is not the head of the chain");
        cache.update_pending(2, 50, 40);
        assert_eq!(cache.chain_head(id(1, 2), 61).unwrap().base, 40);
        // A version that was linked to the head begins a new chain head.
        cache.publish(id(4, 2), 62, 61, false);
        let front = cache.chain_head(id(1, 2), 62).unwrap();
        assert_eq!(front, ChainHead { members: vec![(62, 4)], base: 61 });
    }

    /// Evicts a key by an insert of another bucket.
    fn evict(cache: &mut TranslationCache, gone: KeyId) {
        let set = cache.set(gone.bucket);
        for (index, way) in set.iter_mut().enumerate().filter(|(_, way)| way.at == NONE) {
            *way = Way { tag: 1000 << 8, more: (index as u32) << 4, at: 1000, base: UNKNOWN };
        }
        let way = cache.find(gone).unwrap();
        cache.set(gone.bucket)[way..].rotate_left(1);
        cache.put(KeyId { more: !0, ..id(gone.hash, 0) }, 6000);
        assert!(cache.find(gone).is_none());
    }

    #[test]
    fn evicted_member_becomes_the_base_of_later_members() {
        let mut cache = TranslationCache::new(16, 4);
        let (a, b, c) = (id(1 << 8, 2), id(2 << 8, 2), id(3 << 8, 2));
        cache.publish(a, 60, 50, false);
        cache.publish(b, 61, 50, true);
        cache.publish(c, 62, 50, true);
        evict(&mut cache, b);
        // The earlier member stays in the cache but leaves the chain head: the base links to it.
        assert_eq!(cache.get(a), Some(60));
        assert_eq!(cache.chain_head(c, 62), Some(ChainHead { members: vec![], base: 61 }));
        assert_eq!(cache.chain_head(a, 62), Some(ChainHead { members: vec![(62, 0)], base: 61 }));
        assert_eq!(cache.base(2, 62), Some(61));
        // Evicting the head itself forgets the chain head.
        evict(&mut cache, c);
        assert_eq!((cache.chain_head(a, 62), cache.get(a)), (None, Some(60)));
    }

    #[test]
    fn new_member_may_evict_another_of_its_chain_head() {
        let mut cache = TranslationCache::new(16, 4);
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
        let front = cache.chain_head(id(9 << 8, 2), 62).unwrap();
        assert_eq!((front.base, front.members.len()), (60, 2));
    }

    #[test]
    fn ranks_are_renumbered_when_exhausted() {
        let mut cache = TranslationCache::new(16, 4);
        for turn in 0..100 {
            cache.publish(id((turn % 3) << 8, 2), 60 + turn as u32, 50, turn > 0);
        }
        // The last three were of keys 1, 2 and 0.
        evict(&mut cache, id(2 << 8, 2));
        let front = cache.chain_head(id(9 << 8, 2), 159).unwrap();
        assert_eq!((front.base, front.members), (158, vec![(159, 0)]));
    }

    #[test]
    fn version_published_after_its_chain_head_was_forgotten_begins_none() {
        let mut cache = TranslationCache::new(16, 4);
        cache.publish(id(1, 2), 60, 50, false);
        cache.forget_chain_head(2);
        cache.publish(id(2, 2), 61, 50, true);
        assert_eq!(cache.chain_head(id(3, 2), 61), None);
    }
}
