//! Cuckoo table: candidate offsets in a log for the hash of a key, at 6 bytes per slot.
//!
//! ```text
//!  bucket (24 bytes)   tag₀ tag₁ tag₂ tag₃ │ offset₀ offset₁ offset₂ offset₃
//!                      u16, 0 if empty       u32, 0 if empty
//!
//!  stored   header "sCKT" (12 bytes, see `super`) │ buckets, integers little-endian
//! ```
//!
//! An insert into two full buckets searches breadth-first for the shortest chain of displacements
//! that ends at a free slot, and only then moves entries, from the end of the chain. Compared with
//! a random walk, few entries move (chains of more than 5 are rare), and a failure moves nothing.
//!
//! A shortest chain visits no bucket twice, so its moves do not interfere.
//!
//! Invariant: an empty slot has tag 0 and offset 0; `len` is the number of other slots.
//!
//! Source: as [`super`], section 2.2.1; breadth-first search is from Li, Andersen, Kaminsky,
//! Freedman, "Algorithmic improvements for fast concurrent cuckoo hashing", EuroSys 2014,
//! section 4.3.

use std::fmt;

use super::{CuckooError, Geometry, TAG_BITS, WAYS};

/// Maximum number of buckets that an insert searches.
const MAX_SEARCHED: usize = 512;
/// The first bytes of a stored table.
const MAGIC: [u8; 4] = *b"sCKT";
/// Size of a stored bucket, in bytes.
const BUCKET: usize = WAYS * 6;

/// The table is full: no chain of displacements leads to a free slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFull {
    /// Number of entries.
    pub entries: u32,
    /// Number of slots.
    pub slots: u64,
}

impl fmt::Display for TableFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TableFull { entries, slots } = self;
        write!(f, "the cuckoo table has no room for another entry after {entries} in {slots} slots")
    }
}

impl std::error::Error for TableFull {}

/// Four entries, in one or two cache lines, depending on the alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    tags: [u16; WAYS],
    offsets: [u32; WAYS],
}

impl Bucket {
    /// A bit set of the slots with this tag.
    #[inline]
    fn matches(&self, tag: u16) -> u8 {
        (0..WAYS).fold(0, |bits, way| bits | u8::from(self.tags[way] == tag) << way)
    }

    /// The first empty slot.
    #[inline]
    fn free(&self) -> Option<usize> {
        self.tags.iter().position(|&tag| tag == 0)
    }
}

/// A bucket reached by the search.
#[derive(Clone, Copy, Default)]
struct SearchNode {
    bucket: u32,
    /// Queue position of the bucket from which an entry would come.
    parent: u16,
    /// The slot of that entry.
    way: u8,
}

/// A table from hashes to offsets, with tags of `TAG` bits; 6 bytes per slot.
///
/// Equal offsets and equal hashes may be inserted repeatedly, up to 8 per hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuckooTable<const TAG: u32 = TAG_BITS> {
    geometry: Geometry<TAG>,
    buckets: Vec<Bucket>,
    len: u32,
}

impl<const TAG: u32> CuckooTable<TAG> {
    /// An empty table with at least `slots` slots: 4 times a power of two. A large table fills 97 %
    /// of them before the first failure.
    pub fn with_slots(slots: u32) -> Self {
        let geometry = Geometry::with_slots(slots);
        let buckets = vec![Bucket::default(); geometry.buckets() as usize];
        Self { geometry, buckets, len: 0 }
    }

    /// The number of entries.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of slots, filled or empty.
    pub fn slots(&self) -> u64 {
        u64::from(self.geometry.buckets()) * WAYS as u64
    }

    /// The load factor, from 0 to 1.
    pub fn load(&self) -> f64 {
        f64::from(self.len) / self.slots() as f64
    }

    /// Memory of the buckets, in bytes.
    pub fn memory(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Inserts an entry without checking for an existing one; see [`Self::update`].
    ///
    /// Deterministic: the same inserts give the same table. Costs two buckets while those of the
    /// hash have room, and more as the table fills.
    ///
    /// # Errors
    ///
    /// If no entry of the 512 closest buckets can be displaced to a free slot. The table is
    /// unchanged.
    pub fn insert(&mut self, hash: u64, offset: u32) -> Result<(), TableFull> {
        let (tag, home, other) = self.places(hash);
        let room = [home, other]
            .into_iter()
            .find_map(|bucket| Some((bucket, self.bucket(bucket).free()?)))
            .or_else(|| self.displace(home, other));
        let full = TableFull { entries: self.len, slots: self.slots() };
        let (bucket, way) = room.ok_or(full)?;
        self.set(bucket, way, tag, offset);
        self.len += 1;
        Ok(())
    }

    /// The offsets where a key with this hash may be; none proves that there is no such key.
    ///
    /// An existing key is among the candidates, in no particular order. Costs two buckets; tags and
    /// offsets share cache lines.
    #[inline]
    pub fn candidates(&self, hash: u64) -> CandidateOffsets<'_> {
        let (tag, home, other) = self.places(hash);
        let (first, second) = (self.bucket(home), self.bucket(other));
        let mut matches = first.matches(tag);
        if home != other {
            matches |= second.matches(tag) << WAYS;
        }
        CandidateOffsets { first, second, matches }
    }

    /// Changes the offset of the entry with this hash and offset; returns whether there was one.
    ///
    /// As for [`Self::remove`], the caller knows from the log that the key is at the offset: the
    /// table cannot distinguish it from another key with the same tag.
    pub fn update(&mut self, hash: u64, offset: u32, new_offset: u32) -> bool {
        let Some((bucket, way)) = self.find(hash, offset) else { return false };
        self.buckets[bucket as usize].offsets[way] = new_offset;
        true
    }

    /// Removes one entry with this hash and offset; returns whether there was one.
    pub fn remove(&mut self, hash: u64, offset: u32) -> bool {
        let Some((bucket, way)) = self.find(hash, offset) else { return false };
        self.set(bucket, way, 0, 0);
        self.len -= 1;
        true
    }

    /// Puts an entry into a slot, numbered as by [`Self::iter`]; returns `false`, without a change,
    /// if the slot is filled or not in a bucket of the hash. This rebuilds a table, and its filter,
    /// from entries in table order.
    pub fn place(&mut self, hash: u64, slot: u32, offset: u32) -> bool {
        let (tag, home, other) = self.places(hash);
        let (bucket, way) = (slot / WAYS as u32, slot as usize % WAYS);
        let is_free = (bucket == home || bucket == other) && self.bucket(bucket).tags[way] == 0;
        if is_free {
            self.set(bucket, way, tag, offset);
            self.len += 1;
        }
        is_free
    }

    /// The two buckets, each of [`WAYS`] consecutive slots, of a key with this hash in a table with
    /// this many slots; `None` if no table has that many.
    pub fn buckets_of(hash: u64, slots: u64) -> Option<[u32; 2]> {
        let geometry = Geometry::<TAG>::with_slots(u32::try_from(slots).ok()?);
        let (tag, home) = (geometry.tag(hash), geometry.home(hash));
        let has_so_many = u64::from(geometry.buckets()) * WAYS as u64 == slots;
        has_so_many.then(|| [home, geometry.alternative(home, tag)])
    }

    /// All entries in table order, as slot and offset: the order of a HashStore.
    ///
    /// The slots are those of [`super::CuckooFilter::candidates`].
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        let slots = self.buckets.iter().flat_map(|bucket| bucket.tags.iter().zip(&bucket.offsets));
        (0..)
            .zip(slots)
            .filter(|(_, (tag, _))| **tag != 0)
            .map(|(slot, (_, offset))| (slot, *offset))
    }

    /// The tags of all slots in table order, 0 where a slot is empty.
    pub(super) fn tags(&self) -> impl Iterator<Item = [u16; WAYS]> {
        self.buckets.iter().map(|bucket| bucket.tags)
    }

    pub(super) fn geometry(&self) -> Geometry<TAG> {
        self.geometry
    }

    /// The stored form: 12 bytes and 6 per slot. It has no checksum; the file around it has.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.geometry.header(MAGIC, self.len).to_vec();
        bytes.reserve_exact(self.buckets.len() * BUCKET);
        for bucket in &self.buckets {
            bucket.tags.iter().for_each(|tag| bytes.extend(tag.to_le_bytes()));
            bucket.offsets.iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
        }
        bytes
    }

    /// Decodes the stored form.
    ///
    /// # Errors
    ///
    /// If the length does not match the header, or a slot has contents that no insert produces.
    /// Without its key, an entry in a wrong bucket cannot be detected.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CuckooError> {
        let (geometry, len, rest) = Geometry::<TAG>::read_header(bytes, MAGIC)?;
        let (chunks, odd) = rest.as_chunks::<BUCKET>();
        if chunks.len() != geometry.buckets() as usize || !odd.is_empty() {
            let wanted = super::HEADER as u64 + u64::from(geometry.buckets()) * BUCKET as u64;
            return Err(CuckooError::Length { bytes: bytes.len(), wanted });
        }
        let mut buckets = Vec::with_capacity(chunks.len());
        let mut found = 0;
        for chunk in chunks {
            let bucket = Bucket {
                tags: std::array::from_fn(|way| {
                    u16::from_le_bytes([chunk[2 * way], chunk[2 * way + 1]])
                }),
                offsets: std::array::from_fn(|way| {
                    let at = 2 * WAYS + 4 * way;
                    u32::from_le_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]])
                }),
            };
            for (way, (&tag, &offset)) in bucket.tags.iter().zip(&bucket.offsets).enumerate() {
                if u32::from(tag) >> TAG != 0 || (tag == 0 && offset != 0) {
                    return Err(CuckooError::Slot { slot: (buckets.len() * WAYS + way) as u32 });
                }
                found += u32::from(tag != 0);
            }
            buckets.push(bucket);
        }
        if found != len {
            return Err(CuckooError::Entries { wanted: len, found });
        }
        Ok(Self { geometry, buckets, len })
    }

    /// The tag of a hash, its first bucket and its other one.
    #[inline]
    fn places(&self, hash: u64) -> (u16, u32, u32) {
        let (tag, home) = (self.geometry.tag(hash), self.geometry.home(hash));
        (tag, home, self.geometry.alternative(home, tag))
    }

    #[inline]
    fn bucket(&self, bucket: u32) -> &Bucket {
        &self.buckets[bucket as usize]
    }

    fn set(&mut self, bucket: u32, way: usize, tag: u16, offset: u32) {
        let bucket = &mut self.buckets[bucket as usize];
        bucket.tags[way] = tag;
        bucket.offsets[way] = offset;
    }

    fn find(&self, hash: u64, offset: u32) -> Option<(u32, usize)> {
        let (tag, home, other) = self.places(hash);
        [home, other].into_iter().find_map(|at| {
            let bucket = self.bucket(at);
            let way =
                (0..WAYS).find(|&way| (bucket.tags[way], bucket.offsets[way]) == (tag, offset));
            Some((at, way?))
        })
    }

    /// Frees a slot in one of two full buckets by moving entries to their alternatives.
    #[cold]
    fn displace(&mut self, home: u32, other: u32) -> Option<(u32, usize)> {
        // The search queue: full buckets, each with the entry that would move into it.
        let mut queue = [SearchNode::default(); MAX_SEARCHED];
        queue[0].bucket = home;
        queue[1].bucket = other;
        let (mut at, mut end) = (0, 2);
        while at < end {
            let bucket = queue[at].bucket;
            for way in 0..WAYS {
                let next = self.geometry.alternative(bucket, self.bucket(bucket).tags[way]);
                if let Some(free) = self.bucket(next).free() {
                    return Some(self.shift(&queue, at, way, (next, free)));
                }
                if end < MAX_SEARCHED {
                    queue[end] = SearchNode { bucket: next, parent: at as u16, way: way as u8 };
                    end += 1;
                }
            }
            at += 1;
        }
        None
    }

    /// Moves the entries of a chain, the last one to the free slot; returns the slot at its start,
    /// which still has its old entry, to be overwritten.
    fn shift(
        &mut self,
        queue: &[SearchNode; MAX_SEARCHED],
        mut at: usize,
        mut way: usize,
        mut free: (u32, usize),
    ) -> (u32, usize) {
        loop {
            let SearchNode { bucket, parent, way: came_from } = queue[at];
            let Bucket { tags, offsets } = *self.bucket(bucket);
            self.set(free.0, free.1, tags[way], offsets[way]);
            free = (bucket, way);
            if at < 2 {
                return free;
            }
            (at, way) = (parent.into(), came_from.into());
        }
    }
}

/// The offsets that a lookup has to try, at most 8.
#[derive(Clone, Debug)]
pub struct CandidateOffsets<'a> {
    first: &'a Bucket,
    second: &'a Bucket,
    /// A bit per slot: the 4 of the first bucket, then those of the second.
    matches: u8,
}

impl Iterator for CandidateOffsets<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.matches == 0 {
            return None;
        }
        let way = self.matches.trailing_zeros() as usize;
        self.matches &= self.matches - 1;
        let bucket = if way < WAYS { self.first } else { self.second };
        Some(bucket.offsets[way % WAYS])
    }
}
