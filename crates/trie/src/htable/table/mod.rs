//! An open HTable: lookups with one read, and verification.
//!
//! ```text
//!   get ─ special index? ─ home bucket ─ cached migration? ─ read the bucket ─ its own migration?
//!              │ read the item               └──── follow ────┘     └─────── follow, read ────┘
//! ```
//!
//! In memory: the index of the special bucket, the migrations of the fullest buckets, and the
//! filter unless a BloomCluster has it; for a run the rank index.
//!
//! Invariant: a lookup reads one bucket, and another one per migration that is not cached.
//!
//! Source: LSM-trie paper, section 2.4.2.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siltstone_engine::{Purpose, Result, Timestamp};
use siltstone_vfs::Vfs;

use super::balance::Migration;
use super::bucket::{BucketHeader, NO_DESTINATION};
use super::directory::Directory;
use super::filter::Filter;
use super::format::{
    DIRECTORY, FILTER, FOOTER_BYTES, FULL_SIZE_BUCKETS_VERSION, Footer, Layout, MIGRATIONS, Origin,
    PAGES, SPECIALS, SpecialEntry, decode_migrations, decode_specials,
};
use super::page_index::PageIndex;
use super::stream::Stream;
use crate::files::{Kind, NamedFile, StorageTiers};
use crate::hash::{Hash, HashKind};
use crate::item::Item;

/// An open table of versions.
pub(crate) struct HTable {
    file: NamedFile,
    footer: Footer,
    /// `None` while a BloomCluster has it.
    filter: ArcSwapOption<Filter>,
    specials: Vec<SpecialEntry>,
    migrations: Vec<Migration>,
    directory: Directory,
    pages: Option<PageIndex>,
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LookupResult {
    /// `None`: the key was deleted.
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) expires_at: Option<u64>,
}

impl HTable {
    /// Opens table `number` with a length of `bytes`; loads its filter if `wants_filter`.
    ///
    /// # Errors
    /// `Corruption` if the file is not the one that the manifest describes; errors of the file
    /// system.
    pub(crate) fn open(
        tiers: &StorageTiers,
        number: u64,
        bytes: u64,
        wants_filter: bool,
    ) -> Result<Self> {
        let file = NamedFile::open(tiers, Kind::HTable, number)?;
        let len = file.len()?;
        if len != bytes || len < FOOTER_BYTES as u64 {
            let reason = format!("the manifest says {bytes} bytes, and the file has {len}");
            return Err(file.corruption(0, reason));
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
            directory: Directory::new(Vec::new(), 0),
            pages: None,
        };
        let (buckets, end) = (footer.buckets, footer.segments_end());
        let directory = table.frame(DIRECTORY)?.unwrap_or_default();
        let has_full_size_buckets = footer.version == FULL_SIZE_BUCKETS_VERSION;
        let buckets_of = (buckets, footer.bucket_bytes);
        table.directory = Directory::from_bytes(&directory, has_full_size_buckets, buckets_of, end)
            .ok_or_else(|| table.malformed(DIRECTORY, "the directory of segments"))?;
        if let Some(bytes) = table.frame(SPECIALS)? {
            table.specials = decode_specials(&bytes, end)
                .ok_or_else(|| table.malformed(SPECIALS, "the special index"))?;
        }
        if let Some(bytes) = table.frame(MIGRATIONS)? {
            table.migrations = decode_migrations(&bytes)
                .filter(|all| all.iter().all(|m| m.destination < buckets))
                .ok_or_else(|| table.malformed(MIGRATIONS, "the cache of migrations"))?;
        }
        if let Some(bytes) = table.frame(PAGES)? {
            let pages = PageIndex::from_bytes(&bytes, buckets);
            table.pages = Some(pages.ok_or_else(|| table.malformed(PAGES, "the page index"))?);
        } else if footer.layout != Layout::Buckets {
            return Err(table.malformed(PAGES, "the page index"));
        }
        if wants_filter && let Some(bytes) = table.frame(FILTER)? {
            let filter =
                Filter::from_bytes(&bytes).ok_or_else(|| table.malformed(FILTER, "the filter"))?;
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
        self.file.corruption(self.footer.frame_at(frame), format!("{what} is malformed"))
    }

    pub(crate) fn number(&self) -> u64 {
        self.file.number
    }

    pub(crate) fn name(&self) -> &str {
        &self.file.name
    }

    /// The file system of its tier.
    pub(crate) fn vfs(&self) -> &Arc<dyn Vfs> {
        self.file.vfs()
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

    /// Its container, configuration and age.
    pub(crate) fn origin(&self) -> Origin {
        self.footer.origin
    }

    pub(crate) fn bucket_bytes(&self) -> u32 {
        self.footer.bucket_bytes
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The items of the special bucket, in hash order.
    pub(crate) fn specials(&self) -> &[SpecialEntry] {
        &self.specials
    }

    pub(crate) fn layout(&self) -> Layout {
        self.footer.layout
    }

    /// Whether it is a dense run, which needs no filter.
    pub(crate) fn is_run(&self) -> bool {
        self.footer.layout == Layout::Run
    }

    pub(crate) fn retire(&self) {
        self.file.retire();
    }

    /// The filter, if it is in memory.
    pub(crate) fn filter(&self) -> Option<Arc<Filter>> {
        self.filter.load_full()
    }

    /// Whether the table may contain the hash, by its filter; `None` if that is not in memory.
    #[inline]
    pub(crate) fn may_contain(&self, hash: Hash) -> Option<bool> {
        self.filter.load().as_ref().map(|filter| filter.contains(hash))
    }

    /// Drops the filter: a BloomCluster has it now.
    pub(crate) fn drop_filter(&self) {
        self.filter.store(None);
    }

    /// Memory in bytes: filter, page index, and the rest.
    pub(crate) fn memory(&self) -> [u64; 3] {
        let filter = self.filter.load().as_ref().map_or(0, |filter| filter.memory_bytes());
        let pages = self.pages.as_ref().map_or(0, PageIndex::memory_bytes);
        let specials = self.specials.capacity() * size_of::<SpecialEntry>();
        let migrations = self.migrations.capacity() * size_of::<Migration>();
        [filter, pages, (specials + migrations) as u64 + self.directory.memory_bytes()]
    }

    /// The item of `key`, if the table has it. Cost: a read of one bucket, and more if migrations
    /// are not cached; check the filter first.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: Hash,
        purpose: Purpose,
    ) -> Result<Option<LookupResult>> {
        if !self.specials.is_empty()
            && let Some(found) = self.get_special(key, hash, purpose)?
        {
            return Ok(Some(found));
        }
        let Some(mut bucket) = self.home_bucket(hash) else { return Ok(None) };
        let mut buffer = vec![0; self.footer.bucket_bytes as usize];
        // A chain visits no bucket twice, unless a cycle was written by a bug.
        for _ in 0..=self.footer.buckets {
            if let Some(next) = self.cached_destination(bucket, hash) {
                bucket = next;
                continue;
            }
            let (offset, header, items) = self.read_bucket(bucket, &mut buffer, purpose)?;
            if header.destination < self.footer.buckets && hash.rank(bucket) >= header.mark {
                bucket = header.destination;
                continue;
            }
            for item in header.items(items) {
                let (_, _, item) = item.ok_or_else(|| self.malformed_item(offset))?;
                if item.key == key {
                    return Ok(Some(LookupResult::of(&item)));
                }
            }
            return Ok(None);
        }
        Err(self.file.corruption(0, "migrations form a cycle"))
    }

    /// Starts the read of the bucket in which [`get`](Self::get) probably finds the hash.
    pub(crate) fn begin_read(&self, hash: Hash) {
        let Some(home) = self.home_bucket(hash) else { return };
        let bucket = self.cached_destination(home, hash).unwrap_or(home);
        let range = self.directory.bucket_range(bucket, self.footer.bucket_bytes);
        self.file.begin_read(range.start, range.end - range.start);
    }

    /// The bucket of the hash; `None`: its segment is empty.
    #[inline]
    fn home_bucket(&self, hash: Hash) -> Option<u32> {
        let segment = self.directory.segment(hash.suffix);
        match &self.pages {
            _ if segment.buckets == 0 => None,
            Some(pages) => Some(pages.page(hash)),
            None => {
                let (bits, bytes) = (self.directory.bits(), self.footer.bucket_bytes);
                Some(segment.bucket(hash.suffix, bits, bytes))
            }
        }
    }

    /// Reads and verifies a bucket; returns its offset, its header, and the bytes of its items.
    fn read_bucket<'b>(
        &self,
        bucket: u32,
        buffer: &'b mut [u8],
        purpose: Purpose,
    ) -> Result<(u64, BucketHeader, &'b [u8])> {
        let range = self.directory.bucket_range(bucket, self.footer.bucket_bytes);
        let buffer = &mut buffer[..(range.end - range.start) as usize];
        self.file.read(range.start, buffer, purpose)?;
        let (header, items) = self.open_bucket(range.start, buffer)?;
        Ok((range.start, header, items))
    }

    /// Verifies a bucket that was read from `offset`.
    pub(crate) fn open_bucket<'b>(
        &self,
        offset: u64,
        bucket: &'b [u8],
    ) -> Result<(BucketHeader, &'b [u8])> {
        BucketHeader::open(self.file.sum, offset, bucket)
            .filter(|(header, _)| {
                header.destination == NO_DESTINATION || header.destination < self.footer.buckets
            })
            .ok_or_else(|| self.file.corruption(offset, "a bucket does not match its checksum"))
    }

    /// Fills `buf` from the file.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.file.read(offset, buf, purpose)
    }

    /// The destination of the hash in the cached migration of `bucket`. Destinations were validated
    /// at open.
    fn cached_destination(&self, bucket: u32, hash: Hash) -> Option<u32> {
        let at = self.migrations.binary_search_by_key(&bucket, |m| m.source).ok()?;
        let migration = self.migrations[at];
        (hash.rank(bucket) >= migration.mark).then_some(migration.destination)
    }

    fn get_special(
        &self,
        key: &[u8],
        hash: Hash,
        purpose: Purpose,
    ) -> Result<Option<LookupResult>> {
        let from = self.specials.partition_point(|special| special.hash < hash);
        for special in self.specials[from..].iter().take_while(|s| s.hash == hash) {
            let bytes = self.read_special(special, purpose)?;
            let item = self.special_item(special, &bytes)?;
            if item.key == key {
                return Ok(Some(LookupResult::of(&item)));
            }
        }
        Ok(None)
    }

    /// Reads the bytes of a special item.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn read_special(&self, special: &SpecialEntry, purpose: Purpose) -> Result<Vec<u8>> {
        self.file.read_frame(special.offset, special.frame_bytes(), purpose)
    }

    /// Decodes a special item.
    ///
    /// # Errors
    /// `Corruption`.
    pub(crate) fn special_item<'b>(
        &self,
        special: &SpecialEntry,
        bytes: &'b [u8],
    ) -> Result<Item<'b>> {
        match Item::parse(bytes) {
            Some((item, used)) if used == bytes.len() => Ok(item),
            _ => Err(self.file.corruption(special.offset, "a special item is malformed")),
        }
    }

    /// The hashes of the items with suffixes `from..=to` in the buckets of that range, and whether
    /// they are deleted or expired at `now`: a sample, without migrated items. Cost: one read per
    /// bucket.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn sample_range(
        &self,
        from: u64,
        to: u64,
        kind: HashKind,
        now: Timestamp,
        purpose: Purpose,
    ) -> Result<Vec<(Hash, bool)>> {
        let bucket = |suffix| self.home_bucket(Hash { suffix, infix: 0, prefix: 0 });
        let mut buffer = vec![0; self.footer.bucket_bytes as usize];
        let mut found = Vec::new();
        let (Some(first), Some(last)) = (bucket(from), bucket(to)) else { return Ok(found) };
        for bucket in first..=last {
            let (offset, header, items) = self.read_bucket(bucket, &mut buffer, purpose)?;
            for item in header.items(items) {
                let (_, _, item) = item.ok_or_else(|| self.malformed_item(offset))?;
                let hash = kind.hash(item.key);
                if (from..=to).contains(&hash.suffix) {
                    found.push((hash, item.is_gone(now)));
                }
            }
        }
        Ok(found)
    }

    /// Reads and verifies every byte, with one segment in memory.
    ///
    /// # Errors
    /// `Corruption`; errors of the file system.
    pub(crate) fn verify(self: &Arc<Self>, kind: HashKind) -> Result<()> {
        let purpose = Purpose::Maintenance;
        let mut stream = Stream::new(self.clone(), kind, purpose);
        while stream.load_next()? {}
        for special in &self.specials {
            let bytes = self.read_special(special, purpose)?;
            if kind.hash(self.special_item(special, &bytes)?.key) != special.hash {
                return Err(self
                    .file
                    .corruption(special.offset, "a special item has another hash"));
            }
        }
        self.verify_gaps()?;
        for (at, &bytes) in self.footer.frames.iter().enumerate() {
            if bytes > 0 {
                let offset = self.footer.frame_at(at);
                self.file.read_frame(offset, bytes.into(), purpose)?;
            }
        }
        let mut footer = [0; FOOTER_BYTES];
        let len = self.file.len()?;
        let at = len.saturating_sub(FOOTER_BYTES as u64);
        self.file.read(at, &mut footer, purpose)?;
        if Footer::decode(&self.file, len, &footer)? != self.footer {
            return Err(self
                .file
                .corruption(at, "the footer has changed since the table was opened"));
        }
        Ok(())
    }

    /// Verifies that the bytes between special items and buckets are zeros.
    fn verify_gaps(&self) -> Result<()> {
        let bucket_bytes = u64::from(self.footer.bucket_bytes);
        let segments = self.directory.segments().iter();
        let segments = segments.map(|s| self.directory.buckets_of(s, self.footer.bucket_bytes));
        let segments = segments.map(|range| (range.start, range.end));
        let specials = self.specials.iter().map(|s| (s.offset, s.offset + s.frame_bytes()));
        let mut covered: Vec<(u64, u64)> = segments.chain(specials).collect();
        covered.sort_unstable();
        let end = self.footer.segments_end();
        let mut at = 0;
        for (start, next) in covered.into_iter().chain([(end, end)]) {
            if start > at {
                let gap = start - at;
                if gap >= bucket_bytes {
                    return Err(self.file.corruption(at, "bytes that no segment or item covers"));
                }
                let mut bytes = vec![0; gap as usize];
                self.file.read(at, &mut bytes, Purpose::Maintenance)?;
                if let Some(n) = bytes.iter().position(|&byte| byte != 0) {
                    return Err(self.file.corruption(at + n as u64, "padding that is not zero"));
                }
            }
            at = at.max(next);
        }
        Ok(())
    }

    /// The error for a malformed item of the bucket at `offset`.
    pub(crate) fn malformed_item(&self, offset: u64) -> siltstone_engine::Error {
        self.file.corruption(offset, "an item of a bucket is malformed")
    }

    /// The error for a number of items that differs from the footer.
    pub(crate) fn wrong_item_count(&self) -> siltstone_engine::Error {
        self.file.corruption(0, "the number of items differs from that in the footer")
    }
}

impl LookupResult {
    pub(crate) fn of(item: &Item<'_>) -> Self {
        LookupResult { value: item.value.map(<[u8]>::to_vec), expires_at: item.expires_at }
    }
}

#[cfg(test)]
mod tests;
