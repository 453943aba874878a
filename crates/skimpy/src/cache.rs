//! The mapping translation cache: from a key to the place of its newest version.
//!
//! ```text
//!   set = bucket mod sets     16 ways, the most recently used first
//!   way = tag u32, place u32    tag: the rest of the bucket's number, then bits of the hash
//! ```
//!
//! The paper's entries have two pointers for the order of use, 16 of their 20 bytes; in a set of 16 the
//! order is the order. A tag may be that of another key, but only of the same bucket: so a place found
//! here is a hint whose key is compared, and collecting a bucket corrects all hints that lead into it.
//!
//! Invariant: if a key's tag is there, its place is that of the newest version of a key with this tag.
//!
//! Source: SkimpyFTL, section 3.2.

use crate::location::Location;

const WAYS: usize = 16;
const EMPTY: Way = Way { tag: 0, at: Location::MAX };

#[derive(Clone, Copy)]
struct Way {
    tag: u32,
    at: Location,
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
        let sets = keys.div_ceil(WAYS as u64).clamp(1, most.max(1)) as u32;
        let rest = (buckets.max(1) - 1) / sets;
        let bucket_bits = u32::BITS - rest.leading_zeros();
        Cache { sets, ways: vec![EMPTY; sets as usize * WAYS], bucket_bits }
    }

    fn set(&mut self, bucket: u32) -> &mut [Way] {
        let start = (bucket % self.sets) as usize * WAYS;
        &mut self.ways[start..start + WAYS]
    }

    fn tag(&self, hash: u64, bucket: u32) -> u32 {
        let bits = self.bucket_bits;
        let hash = (hash as u32).checked_shl(bits).unwrap_or(0);
        hash | (bucket / self.sets)
    }

    fn find(&mut self, hash: u64, bucket: u32) -> Option<usize> {
        let tag = self.tag(hash, bucket);
        self.set(bucket).iter().position(|way| way.tag == tag && way.at != EMPTY.at)
    }

    /// The place under the key's tag, which is now the most recently used.
    pub(crate) fn get(&mut self, hash: u64, bucket: u32) -> Option<Location> {
        let way = self.find(hash, bucket)?;
        let set = self.set(bucket);
        set[..=way].rotate_right(1);
        Some(set[0].at)
    }

    /// Notes the newest version's place. The one used longest ago makes room.
    pub(crate) fn put(&mut self, hash: u64, bucket: u32, at: Location) {
        let way = self.find(hash, bucket).unwrap_or(WAYS - 1);
        let tag = self.tag(hash, bucket);
        let set = self.set(bucket);
        set[way] = Way { tag, at };
        set[..=way].rotate_right(1);
    }

    /// Notes another place under a tag that is there.
    pub(crate) fn moved(&mut self, hash: u64, bucket: u32, from: Option<Location>, to: Location) {
        if let Some(way) = self.find(hash, bucket) {
            let way = &mut self.set(bucket)[way];
            if from.is_none_or(|from| way.at == from) {
                way.at = to;
            }
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, bucket: u32) {
        if let Some(way) = self.find(hash, bucket) {
            let set = self.set(bucket);
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

    #[test]
    fn the_one_used_longest_ago_makes_room() {
        let mut cache = Cache::new(16, 1);
        for key in 0..16 {
            cache.put(key, 0, key as u32 + 100);
        }
        assert_eq!(cache.get(0, 0), Some(100));
        cache.put(99, 0, 7);
        assert_eq!((cache.get(1, 0), cache.get(0, 0)), (None, Some(100)));
        cache.moved(0, 0, Some(5), 1);
        assert_eq!(cache.get(0, 0), Some(100));
        cache.moved(0, 0, Some(100), 1);
        assert_eq!(cache.get(0, 0), Some(1));
        cache.remove(0, 0);
        assert_eq!((cache.get(0, 0), cache.get(99, 0)), (None, Some(7)));
    }

    #[test]
    fn buckets_of_one_set_have_tags_of_their_own() {
        let mut cache = Cache::new(32, 1000);
        for bucket in (0..1000).step_by(2).take(16) {
            cache.put(5, bucket, bucket);
        }
        for bucket in (0..1000).step_by(2).take(16) {
            assert_eq!(cache.get(5, bucket), Some(bucket));
        }
    }
}
