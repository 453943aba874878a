//! An open HTable: lookups of one read, and reading all of it.
//!
//! ```text
//!   get ─ special index? ─ home bucket ─ cached migration? ─ read the bucket ─ its own migration?
//!              │ read the item               └──── follow ────┘     └─────── follow, read ────┘
//! ```
//!
//! In memory: the index of the special bucket, the migrations of the fullest buckets, and the
//! filter unless a BloomCluster has it; of a run the rank index.
//!
//! Invariant: a lookup reads one bucket, and one more for each migration that is not cached.
//!
//! Source: LSM-trie paper, section 2.4.2.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siltstone_engine::{Purpose, Result};
use siltstone_media::Media;

use super::balance::Migration;
use super::filter::Filter;
use super::format::{
    BucketHeader, FOOTER_BYTES, Footer, NOWHERE, Special, decode_migrations, decode_specials,
};
use super::run::RunIndex;
use crate::files::{FRAME_TRAILER, Kind, NamedFile};
use crate::hash::{Hash, HashKind};
use crate::item::Item;

/// Buckets are read so many bytes at once when all are wanted.
const REQUEST_BYTES: usize = 1 << 20;

/// A table that a version names.
pub(crate) struct HTable {
    file: NamedFile,
    footer: Footer,
    /// `None` while a BloomCluster answers for it.
    filter: ArcSwapOption<Filter>,
    specials: Vec<Special>,
    migrations: Vec<Migration>,
    run: Option<RunIndex>,
}

/// An item that a lookup found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None`: the key was deleted.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) expires_at: Option<u64>,
}

/// All items of a table, in one buffer.
pub(crate) struct Loaded {
    pub(crate) bytes: Vec<u8>,
    /// Hash, and the item's place in `bytes`.
    pub(crate) items: Vec<(Hash, u64, u32)>,
}

impl Loaded {
    pub(crate) fn item(&self, at: usize) -> &[u8] {
        let (_, start, len) = self.items[at];
        &self.bytes[start as usize..start as usize + len as usize]
    }
}

impl HTable {
    /// Opens table `number` of `bytes` bytes; its filter is loaded if it is wanted and there is one.
    ///
    /// # Errors
    /// `Corruption` if the file is not what the manifest says it is; the medium's.
    pub(crate) fn open(
        media: &Arc<dyn Media>,
        number: u64,
        bytes: u64,
        wants_filter: bool,
    ) -> Result<Self> {
        let file = NamedFile::open(media, Kind::HTable, number)?;
        let len = file.len()?;
        if len != bytes || len < FOOTER_BYTES as u64 {
            let reason = format!("the manifest says {bytes} bytes, and the file has {len}");
            return Err(file.damaged(0, reason));
        }
        let mut footer = [0; FOOTER_BYTES];
        file.read(len - FOOTER_BYTES as u64, &mut footer, Purpose::Recovery)?;
        let footer = Footer::decode(&file, len, &footer)?;
        let mut table = HTable {
            file,
            footer,
            filter: ArcSwapOption::empty(),
            specials: Vec::new(),
            migrations: Vec::new(),
            run: None,
        };
        if let Some(bytes) = table.frame(1)? {
            table.specials = decode_specials(&bytes)
                .filter(|specials| specials.is_sorted())
                .ok_or_else(|| table.malformed(1, "the special index"))?;
        }
        if let Some(bytes) = table.frame(2)? {
            table.migrations = decode_migrations(&bytes)
                .filter(|all| all.iter().all(|m| m.destination < table.footer.buckets))
                .ok_or_else(|| table.malformed(2, "the cache of migrations"))?;
        }
        if let Some(bytes) = table.frame(3)? {
            let run = RunIndex::from_bytes(&bytes, table.footer.buckets);
            table.run = Some(run.ok_or_else(|| table.malformed(3, "the rank index"))?);
        }
        if wants_filter && let Some(bytes) = table.frame(0)? {
            let filter = Filter::from_bytes(&bytes)
                .filter(|filter| filter.columns() == table.footer.buckets)
                .ok_or_else(|| table.malformed(0, "the filter"))?;
            table.filter.store(Some(Arc::new(filter)));
        }
        Ok(table)
    }

    fn frame(&self, at: usize) -> Result<Option<Vec<u8>>> {
        match self.footer.frames[at] {
            0 => Ok(None),
            bytes => {
                let offset = self.footer.frame_at(at);
                self.file.read_frame(offset, bytes.into(), Purpose::Recovery).map(Some)
            }
        }
    }

    fn malformed(&self, frame: usize, what: &str) -> siltstone_engine::Error {
        self.file.damaged(self.footer.frame_at(frame), format!("{what} is malformed"))
    }

    pub(crate) fn number(&self) -> u64 {
        self.file.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.file.name
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.footer.file_bytes
    }

    pub(crate) fn entries(&self) -> u64 {
        self.footer.entries
    }

    pub(crate) fn deletes(&self) -> u64 {
        self.footer.deletes
    }

    pub(crate) fn buckets(&self) -> u32 {
        self.footer.buckets
    }

    /// Whether it is a dense run, which needs no filter.
    pub(crate) fn is_run(&self) -> bool {
        self.run.is_some()
    }

    pub(crate) fn retire(&self) {
        self.file.retire();
    }

    /// The filter, if it is in memory.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        self.filter.load_full()
    }

    /// Whether the filter in memory says that the hash is not there; `None`: it is not in memory.
    #[inline]
    pub(crate) fn may_hold(&self, hash: Hash) -> Option<bool> {
        self.filter.load().as_ref().map(|filter| filter.contains(hash))
    }

    /// A BloomCluster answers for this table from now on.
    pub(crate) fn drop_filter(&self) {
        self.filter.store(None);
    }

    /// Resident memory: filter, rank index, and the rest.
    pub(crate) fn memory(&self) -> [u64; 3] {
        let filter = self.filter.load().as_ref().map_or(0, |filter| filter.memory_bytes());
        let run = self.run.as_ref().map_or(0, RunIndex::memory_bytes);
        let specials = self.specials.capacity() * size_of::<Special>();
        let migrations = self.migrations.capacity() * size_of::<Migration>();
        [filter, run, (specials + migrations) as u64]
    }

    /// The item of `key`, if the table has it. Costs a read of one bucket, and more where migrations
    /// are not cached; ask the filter first.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn get(&self, key: &[u8], hash: Hash, purpose: Purpose) -> Result<Option<Found>> {
        if !self.specials.is_empty()
            && let Some(found) = self.get_special(key, hash, purpose)?
        {
            return Ok(Some(found));
        }
        let mut bucket = match &self.run {
            Some(run) => run.page(hash),
            None => hash.bucket(self.footer.buckets),
        };
        let mut buffer = vec![0; self.footer.bucket_bytes as usize];
        // A chain visits no bucket twice; only damage that a checksum missed could make it go on.
        for _ in 0..=self.footer.buckets {
            while let Some(next) = self.cached(bucket, hash) {
                bucket = next;
            }
            let offset = u64::from(bucket) * u64::from(self.footer.bucket_bytes);
            self.file.read(offset, &mut buffer, purpose)?;
            let (header, mut items) = BucketHeader::open(self.file.sum, offset, &buffer)
                .ok_or_else(|| self.bad_bucket(offset))?;
            if header.destination != NOWHERE && hash.rank(bucket) >= header.mark {
                bucket = header.destination;
                continue;
            }
            while !items.is_empty() {
                let Some((item, used)) = Item::parse(items) else {
                    return Err(self.file.damaged(offset, "an item of a bucket is malformed"));
                };
                if item.key == key {
                    return Ok(Some(Found::of(&item)));
                }
                items = &items[used..];
            }
            return Ok(None);
        }
        Err(self.file.damaged(0, "migrations go in a circle"))
    }

    /// Where the cache of migrations sends the hash from `bucket`. The cache was checked against
    /// destinations that are not there; a chain in it ends, because it is a part of all migrations.
    fn cached(&self, bucket: u32, hash: Hash) -> Option<u32> {
        let at = self.migrations.binary_search_by_key(&bucket, |m| m.source).ok()?;
        let migration = self.migrations[at];
        (hash.rank(bucket) >= migration.mark).then_some(migration.destination)
    }

    fn get_special(&self, key: &[u8], hash: Hash, purpose: Purpose) -> Result<Option<Found>> {
        let check = hash.check();
        let from = self.specials.partition_point(|special| special.check < check);
        for special in self.specials[from..].iter().take_while(|s| s.check == check) {
            let bytes = self.read_special(special, purpose)?;
            let Some((item, _)) = Item::parse(&bytes) else {
                return Err(self.bad_special(special));
            };
            if item.key == key {
                return Ok(Some(Found::of(&item)));
            }
        }
        Ok(None)
    }

    fn read_special(&self, special: &Special, purpose: Purpose) -> Result<Vec<u8>> {
        let bytes = u64::from(special.bytes) + FRAME_TRAILER as u64;
        self.file.read_frame(special.offset, bytes, purpose)
    }

    /// Reads and checks every item.
    ///
    /// # Errors
    /// `Corruption`, also if the items are not as many as the footer says; the medium's.
    pub(crate) fn load(&self, kind: HashKind, purpose: Purpose) -> Result<Loaded> {
        let bucket_bytes = self.footer.bucket_bytes as usize;
        let special: usize = self.specials.iter().map(|special| special.bytes as usize).sum();
        let mut loaded = Loaded {
            bytes: Vec::with_capacity(self.footer.special_at() as usize + special),
            items: Vec::with_capacity(self.footer.entries as usize),
        };
        let at_once = (REQUEST_BYTES / bucket_bytes).max(1) * bucket_bytes;
        let end = self.footer.special_at();
        let mut offset = 0;
        while offset < end {
            let start = loaded.bytes.len();
            let len = at_once.min((end - offset) as usize);
            loaded.bytes.resize(start + len, 0);
            self.file.read(offset, &mut loaded.bytes[start..], purpose)?;
            for bucket in (start..start + len).step_by(bucket_bytes) {
                let Loaded { bytes, items } = &mut loaded;
                let place = offset + (bucket - start) as u64;
                let bucket_of = &bytes[bucket..bucket + bucket_bytes];
                let (header, all) = BucketHeader::open(self.file.sum, place, bucket_of)
                    .ok_or_else(|| self.bad_bucket(place))?;
                let mut rest = all;
                while !rest.is_empty() {
                    let Some((item, used)) = Item::parse(rest) else {
                        return Err(self.file.damaged(place, "an item of a bucket is malformed"));
                    };
                    let at = bucket + super::format::BUCKET_HEADER + all.len() - rest.len();
                    items.push((kind.hash(item.key), at as u64, used as u32));
                    rest = &rest[used..];
                }
                debug_assert!(header.destination == NOWHERE || header.destination < self.buckets());
            }
            offset += len as u64;
        }
        for special in &self.specials {
            let bytes = self.read_special(special, purpose)?;
            let Some((item, used)) = Item::parse(&bytes).filter(|&(_, used)| used == bytes.len())
            else {
                return Err(self.bad_special(special));
            };
            let at = loaded.bytes.len() as u64;
            loaded.items.push((kind.hash(item.key), at, used as u32));
            loaded.bytes.extend_from_slice(&bytes);
        }
        if loaded.items.len() as u64 != self.footer.entries {
            return Err(self.file.damaged(0, "the items are not as many as the footer says"));
        }
        Ok(loaded)
    }

    /// The hashes of items between two suffixes that lie in the buckets of that stretch, and whether
    /// they are deletions: a sample, without what migrated away. Costs a read a bucket.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn stretch(
        &self,
        from: u64,
        to: u64,
        kind: HashKind,
        purpose: Purpose,
    ) -> Result<Vec<(Hash, bool)>> {
        let bucket = |suffix| {
            let hash = Hash { suffix, infix: 0, prefix: 0 };
            self.run.as_ref().map_or(hash.bucket(self.footer.buckets), |run| run.page(hash))
        };
        let mut buffer = vec![0; self.footer.bucket_bytes as usize];
        let mut found = Vec::new();
        for bucket in bucket(from)..=bucket(to) {
            let offset = u64::from(bucket) * u64::from(self.footer.bucket_bytes);
            self.file.read(offset, &mut buffer, purpose)?;
            let (_, mut items) = BucketHeader::open(self.file.sum, offset, &buffer)
                .ok_or_else(|| self.bad_bucket(offset))?;
            while let Some((item, used)) = Item::parse(items) {
                let hash = kind.hash(item.key);
                if (from..=to).contains(&hash.suffix) {
                    found.push((hash, item.value.is_none()));
                }
                items = &items[used..];
            }
        }
        Ok(found)
    }

    /// Reads every byte and checks it.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn verify(&self, kind: HashKind) -> Result<()> {
        let loaded = self.load(kind, Purpose::Maintenance)?;
        drop(loaded);
        for (at, &bytes) in self.footer.frames.iter().enumerate() {
            if bytes > 0 {
                let offset = self.footer.frame_at(at);
                self.file.read_frame(offset, bytes.into(), Purpose::Maintenance)?;
            }
        }
        let mut footer = [0; FOOTER_BYTES];
        let len = self.file.len()?;
        let at = len.saturating_sub(FOOTER_BYTES as u64);
        self.file.read(at, &mut footer, Purpose::Maintenance)?;
        if Footer::decode(&self.file, len, &footer)? != self.footer {
            return Err(self.file.damaged(at, "the footer has changed since the table was opened"));
        }
        Ok(())
    }

    fn bad_bucket(&self, offset: u64) -> siltstone_engine::Error {
        self.file.damaged(offset, "a bucket does not match its checksum")
    }

    fn bad_special(&self, special: &Special) -> siltstone_engine::Error {
        self.file.damaged(special.offset, "an item of the special bucket is malformed")
    }
}

impl Found {
    pub(crate) fn of(item: &Item<'_>) -> Self {
        Found { value: item.value.map(<[u8]>::to_vec), expires_at: item.expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::htable::{Build, Layout, Piece};
    use proptest::prelude::*;
    use siltstone_engine::RateLimiter;
    use siltstone_media::Ram;

    /// Every key is found, no other is, and reading all gives all.
    fn round_trip(keys: u32, value: impl Fn(u32) -> usize, kind: HashKind, build: Build) {
        let mut encoded: Vec<(Hash, Vec<u8>)> = (0..keys)
            .map(|n| {
                let (key, value) = (n.to_le_bytes(), vec![n as u8; value(n)]);
                let mut bytes = Vec::new();
                Item { key: &key, value: Some(&value), expires_at: None }.push(&mut bytes);
                (kind.hash(&key), bytes)
            })
            .collect();
        encoded.sort_unstable();
        let pieces: Vec<Piece<'_>> = encoded
            .iter()
            .map(|(hash, bytes)| Piece { hash: *hash, bytes, is_delete: false })
            .collect();
        let media: Arc<dyn Media> = Arc::new(Ram::new());
        let rate = RateLimiter::unlimited();
        let built = build.write(media.as_ref(), 7, &pieces, &rate, Purpose::Flush).unwrap();
        let table = HTable::open(&media, 7, built.bytes, true).unwrap();
        table.verify(kind).unwrap();
        for n in 0..keys + 50 {
            let (key, hash) = (n.to_le_bytes(), kind.hash(&n.to_le_bytes()));
            let found = table.get(&key, hash, Purpose::Get).unwrap();
            let expected = (n < keys).then(|| vec![n as u8; value(n)]);
            assert_eq!(found.map(|found| found.value), expected.map(Some), "key {n}");
            assert!(n >= keys || table.may_hold(hash).unwrap_or(true), "key {n}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Small buckets make for migration chains, large values and a weak hash for the special
        /// bucket and for collisions.
        #[test]
        fn is_every_item_found_in_every_layout(
            keys in 0u32..600,
            spread in 1usize..200,
            bucket_bytes in prop_oneof![Just(256u32), Just(512), Just(4096)],
            fill in 0.5f64..0.99,
            weak_bits in prop_oneof![Just(0u32), Just(1), Just(4), Just(9)],
            cached_migrations in prop_oneof![Just(0.0), Just(0.2), Just(1.0)],
            filter_bits in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(16.0))],
            is_run: bool,
        ) {
            let layout = if is_run { Layout::Run } else { Layout::Buckets };
            let build = Build { bucket_bytes, fill, filter_bits, cached_migrations, layout };
            let value = |n: u32| (n as usize).wrapping_mul(7919) % spread;
            round_trip(keys, value, HashKind { seed: 1, weak_bits }, build);
        }
    }
}
