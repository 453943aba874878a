//! The cuckoo table: where in a log the keys of a hash may lie, at 6 bytes an entry.
//!
//! ```text
//!  bucket (24 bytes)   tag₀ tag₁ tag₂ tag₃ │ offset₀ offset₁ offset₂ offset₃
//!                      u16, 0 if empty       u32, 0 if empty
//!
//!  stored   header "sCKT" (12 bytes, see the module above) │ buckets, integers little-endian
//! ```
//!
//! An insertion into two full buckets searches in breadth for the shortest chain of displacements
//! that ends at a free slot, and only then moves entries, from the end of the chain. Against a
//! random walk, few entries move (chains of more than 5 are rare), and a failure has moved nothing.
//!
//! A shortest chain visits no bucket twice: it would be shorter from the second visit on. So the
//! moves of a chain do not disturb each other.
//!
//! Invariant: an empty slot has tag 0 and offset 0; `len` is the number of other slots.
//!
//! Source: as the module above, section 2.2.1; the search in breadth is from Li, Andersen,
//! Kaminsky, Freedman, "Algorithmic improvements for fast concurrent cuckoo hashing", EuroSys 2014,
//! section 4.3.

use super::{CuckooError, Geometry, TAG_BITS, WAYS};

/// The buckets whose entries a failing insertion has tried to displace.
const MAX_SEARCHED: usize = 512;
/// The first bytes of a stored table.
const MAGIC: [u8; 4] = *b"sCKT";
/// A bucket in bytes.
const BUCKET: usize = WAYS * 6;

/// No chain of displacements leads to a free slot: the table is as good as full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cuckoo table has no room for another entry after {entries} in {slots} slots")]
pub struct TableFull {
    /// The entries in the table.
    pub entries: u32,
    /// The slots of the table.
    pub slots: u64,
}

/// Four entries: within one cache line, or across two where the allocation falls so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    tags: [u16; WAYS],
    offsets: [u32; WAYS],
}

impl Bucket {
    /// A bit for every slot with this tag.
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

/// A bucket that the search has reached.
#[derive(Clone, Copy, Default)]
struct Step {
    bucket: u32,
    /// The position in the queue of the bucket that an entry would come from.
    parent: u16,
    /// The slot of that entry.
    way: u8,
}

/// A table from hashes of keys to offsets, with tags of `TAG` bits; 6 bytes a slot.
///
/// Equal offsets and equal hashes may be inserted any number of times, up to 8 of a hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuckooTable<const TAG: u32 = TAG_BITS> {
    geometry: Geometry<TAG>,
    buckets: Vec<Bucket>,
    len: u32,
}

impl<const TAG: u32> CuckooTable<TAG> {
    /// An empty table of at least so many slots: 4 times a power of two. A large one takes 97 % of
    /// them before the first failure.
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

    /// The number of slots, taken or empty.
    pub fn slots(&self) -> u64 {
        u64::from(self.geometry.buckets()) * WAYS as u64
    }

    /// The share of slots that are taken, from 0 to 1.
    pub fn load(&self) -> f64 {
        f64::from(self.len) / self.slots() as f64
    }

    /// The bytes of memory that the buckets take.
    pub fn memory(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    /// Adds an entry, without looking whether there is one for the key; see [`Self::update`].
    ///
    /// The same insertions into the same table give the same table. Costs two buckets while those
    /// of the hash have room, and some more when the table fills.
    ///
    /// # Errors
    ///
    /// If no entry of the 512 buckets that are closest can be displaced to a free slot. The table is
    /// as it was.
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

    /// The offsets where a key with this hash may lie; none is proof that there is no such key.
    ///
    /// A key that is there is among the candidates, in no particular order. Costs two buckets, with
    /// the offsets in the same cache lines as the tags.
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

    /// Gives the entry of this hash and offset another offset; says whether there was one.
    ///
    /// As for [`Self::remove`], the caller knows from the log that the key lies at the offset: the
    /// table does not tell it from another key with the same tag.
    pub fn update(&mut self, hash: u64, offset: u32, new_offset: u32) -> bool {
        let Some((bucket, way)) = self.find(hash, offset) else { return false };
        self.buckets[bucket as usize].offsets[way] = new_offset;
        true
    }

    /// Removes one entry of this hash and offset; says whether there was one.
    pub fn remove(&mut self, hash: u64, offset: u32) -> bool {
        let Some((bucket, way)) = self.find(hash, offset) else { return false };
        self.set(bucket, way, 0, 0);
        self.len -= 1;
        true
    }

    /// Puts an entry into a slot, as [`Self::iter`] numbers them; `false`, and nothing is changed, if
    /// it is taken or in no bucket of the hash. So a table, and its filter, is made again from
    /// entries that lie in its order.
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

    /// The two buckets, each of [`WAYS`] consecutive slots, where a key with this hash lies if it is
    /// in a table of so many slots; `None` if no table has so many.
    pub fn buckets_of(hash: u64, slots: u64) -> Option<[u32; 2]> {
        let geometry = Geometry::<TAG>::with_slots(u32::try_from(slots).ok()?);
        let (tag, home) = (geometry.tag(hash), geometry.home(hash));
        let has_so_many = u64::from(geometry.buckets()) * WAYS as u64 == slots;
        has_so_many.then(|| [home, geometry.alternative(home, tag)])
    }

    /// All entries in table order, as slot and offset: the order of a HashStore.
    ///
    /// The slots are those that [`super::CuckooFilter::candidates`] names.
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

    /// The stored form: 12 bytes and 6 a slot. It has no checksum; the file around it has.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.geometry.header(MAGIC, self.len).to_vec();
        bytes.reserve_exact(self.buckets.len() * BUCKET);
        for bucket in &self.buckets {
            bucket.tags.iter().for_each(|tag| bytes.extend(tag.to_le_bytes()));
            bucket.offsets.iter().for_each(|offset| bytes.extend(offset.to_le_bytes()));
        }
        bytes
    }

    /// Reads the stored form.
    ///
    /// # Errors
    ///
    /// If the length is not that of the header, or a slot holds what no insertion leaves there.
    /// Whether an entry lies in a bucket of its hash cannot be told without its key.
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

    /// Finds a slot in one of two full buckets whose entry has moved to its alternative.
    #[cold]
    fn displace(&mut self, home: u32, other: u32) -> Option<(u32, usize)> {
        // The queue of the search: full buckets, each with the entry that would move into it.
        let mut queue = [Step::default(); MAX_SEARCHED];
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
                    queue[end] = Step { bucket: next, parent: at as u16, way: way as u8 };
                    end += 1;
                }
            }
            at += 1;
        }
        None
    }

    /// Moves the entries of a chain, the last to the free slot; gives the slot at its start, which
    /// still shows the entry that left it, for the new one to overwrite.
    fn shift(
        &mut self,
        queue: &[Step; MAX_SEARCHED],
        mut at: usize,
        mut way: usize,
        mut free: (u32, usize),
    ) -> (u32, usize) {
        loop {
            let Step { bucket, parent, way: came_from } = queue[at];
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
    /// A bit a slot: the 4 of the first bucket, then those of the second.
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
