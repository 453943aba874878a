//! Merge: combines the HashStores and the SortedStore of a partition into a new SortedStore.
//!
//! ```text
//!   HashStores ─ sort by hash ─┐                              Table 2.3 of the thesis, per hash:
//!    (age 0 the newest)        ├─ merge ─▶ new SortedStore    keep the youngest entry of each key,
//!   SortedStore ───────────────┘  in one   and its index      drop it if deleted or expired
//!    (the oldest)                  pass
//! ```
//!
//! One merge runs at a time for all partitions, so at most one partition has two SortedStores on
//! disk. A merge takes all HashStores that exist when it begins; later ones remain, newer than the
//! result.
//!
//! Invariant: a deletion is dropped only together with every older entry of its key. This holds
//! because the merge includes the SortedStore, the last store.
//!
//! Source: Lim, thesis, section 2.2.3. Staggering the partitions is not in the thesis.

mod run;
mod sort;

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_durable::report_compaction;
use siltstone_engine::{FileInfo, Job, Op, Purpose, Result, Timestamp};
use siltstone_structures::HashKey;

use crate::engine::SiltEngine;
use crate::item;
use crate::names::Kind;
use crate::sorted_store::{Plan, SortedStoreWriter};
use crate::store_entry::StoreEntry;
use crate::store_file::discard;
use crate::version::{Edit, Partition};
use crate::view::View;
use sort::{CHECK_INTERVAL, Sorter};

const MAX_HASHES_PER_BLOCK: u64 = 1024;

impl SiltEngine {
    /// The partition with the most HashStores, if a merge is due. It is due when that partition
    /// reaches the trigger, or all partitions together reach the count of staggered merges:
    /// `(P + 1) / 2` times the trigger. The second rule spreads merges over time and keeps fewer
    /// filters in memory.
    pub(crate) fn merge_due(&self) -> Option<usize> {
        let view = self.view.load();
        let trigger = self.options.merge_at().0;
        let counts = || view.version.partitions.iter().map(|partition| partition.hash_stores.len());
        let (largest, at) = counts().zip(0..).max_by_key(|&(count, at)| (count, Reverse(at)))?;
        let staggered = trigger.saturating_mul(counts().len() + 1);
        let is_due = largest >= trigger || 2 * counts().sum::<usize>() >= staggered;
        is_due.then_some(at)
    }

    /// Merges the HashStores of a partition into its SortedStore.
    pub(crate) fn merge(&self, at: usize) -> Result<()> {
        self.with_view(|view| {
            let describe = || {
                let Partition { hash_stores, sorted, .. } = &view.version.partitions[at];
                let hash_stores = hash_stores.iter().map(|it| it.entry().info(Kind::HashStore));
                let sorted = sorted.iter().map(|it| it.entry().info(Kind::SortedStore));
                Job::new("HashStores").with_inputs(hash_stores.chain(sorted).collect())
            };
            report_compaction(self, describe, || self.merge_of(view, at))
        })
    }

    /// Returns the new SortedStore, if there is one.
    fn merge_of(&self, view: &View, at: usize) -> Result<Vec<FileInfo>> {
        let began = Instant::now();
        let partition = &view.version.partitions[at];
        let number = self.versions.new_number();
        let merged = self.write_merged(at as u32, number, partition);
        if !matches!(merged, Ok((Some(_), _))) {
            discard(self.vfs.as_ref(), number);
        }
        let (written, expired) = merged?;
        if written.is_some() {
            self.vfs.sync_dir(Purpose::Compaction)?;
        }
        let hash_stores = partition.hash_stores.iter().map(|store| store.entry().number);
        let sorted = partition.sorted.iter().map(|store| store.entry().number);
        let edit = Edit {
            removed: hash_stores.chain(sorted).collect(),
            sorted_stores: written.into_iter().collect(),
            ..Edit::default()
        };
        if !self.install(view.generation, edit, |_| ())? {
            return Ok(Vec::new());
        }
        let (bytes, entries) = written.map_or((0, 0), |store| (store.bytes, store.entries));
        self.counters.merges.fetch_add(1, Relaxed);
        self.counters.merged_out.fetch_add(entries, Relaxed);
        self.counters.expired.fetch_add(expired, Relaxed);
        self.counters.sorted_bytes.fetch_add(bytes, Relaxed);
        self.counters.merge_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(written.iter().map(|store| store.info(Kind::SortedStore)).collect())
    }

    /// Writes the SortedStore that results from a partition's stores, `None` if no entry remains;
    /// returns it and the number of expired entries.
    fn write_merged(
        &self,
        at: u32,
        number: u64,
        partition: &Partition,
    ) -> Result<(Option<StoreEntry>, u64)> {
        let plan = self.plan(at, partition);
        if let Some(written) = self.write_with_plan(number, partition, plan)? {
            return Ok(written);
        }
        // Keys that share a hash do not fit blocks of one length.
        discard(self.vfs.as_ref(), number);
        let uneven = Plan { one_length: None, ..plan };
        Ok(self.write_with_plan(number, partition, uneven)?.unwrap_or_default())
    }

    /// Writes by `plan`; `None` if the entries do not fit its blocks of one length.
    fn write_with_plan(
        &self,
        number: u64,
        partition: &Partition,
        plan: Plan,
    ) -> Result<Option<(Option<StoreEntry>, u64)>> {
        let keys = self.keys;
        let to_sort = partition.hash_stores.iter().map(|store| store.entry().entries).sum();
        let mut sorter = Sorter::new(self, to_sort, plan.mean_bytes);
        let mut added = 0u64;
        for (age, store) in (0..).zip(&partition.hash_stores) {
            let mut scan = store.scan(Purpose::Compaction);
            while let Some((_, entry)) = scan.next()? {
                let Some((op, len)) = item::first(entry) else { continue };
                sorter.add(keys.hash(op.key()), age, &entry[..len])?;
                added += 1;
                if added.is_multiple_of(CHECK_INTERVAL) {
                    self.background.check_cancelled()?;
                }
            }
        }
        let mut merged = sorter.finish(partition.sorted.as_deref())?;
        let vfs = self.vfs.as_ref();
        let mut writer = SortedStoreWriter::create(vfs, number, plan, &self.env.rate)?;
        let now = self.env.clock.earliest();
        let (mut group, mut read) = (Group::default(), 0u64);
        while let Some((hash, _, entry)) = merged.next()? {
            read += 1;
            if read.is_multiple_of(CHECK_INTERVAL) {
                self.merge_rate.take(CHECK_INTERVAL);
                self.background.check_cancelled()?;
            }
            if group.hash != Some(hash) && !group.write(&mut writer, now)? {
                return Ok(None);
            }
            group.add(hash, entry);
        }
        if !group.write(&mut writer, now)? {
            return Ok(None);
        }
        self.counters.merged_in.fetch_add(read, Relaxed);
        let written = writer.finish()?;
        let partition = plan.partition;
        let written =
            written.map(|(bytes, entries)| StoreEntry { partition, number, bytes, entries });
        Ok(Some((written, group.expired)))
    }

    fn plan(&self, at: u32, partition: &Partition) -> Plan {
        let (mut expected, mut bytes) = (0, 0);
        let mut lengths: Option<(u32, u32)> = None;
        let mut widen = |(shortest, longest): (u32, u32)| {
            if longest > 0 {
                let (low, high) = lengths.unwrap_or((shortest, longest));
                lengths = Some((low.min(shortest), high.max(longest)));
            }
        };
        for store in &partition.hash_stores {
            let (meta, entry) = (store.meta(), store.entry());
            expected += entry.entries;
            // Without the empty slots.
            bytes += (u128::from(entry.bytes) * u128::from(entry.entries)
                / u128::from(meta.slots.max(1))) as u64;
            widen(meta.lengths);
        }
        if let Some(store) = &partition.sorted {
            expected += store.entry().entries;
            bytes += store.entry().bytes;
            widen(store.meta().lengths);
        }
        let one_length = lengths.filter(|(low, high)| low == high).map(|(length, _)| length);
        let mean_bytes = one_length.map_or(bytes / expected.max(1), u64::from).max(1);
        let fit = self.options.block_bytes.saturating_sub(4) / mean_bytes;
        Plan {
            partition: at,
            keys: self.keys,
            expected,
            hashes_per_block: fit.clamp(1, MAX_HASHES_PER_BLOCK) as u32,
            one_length,
            mean_bytes,
        }
    }
}

/// The entries of one hash, the youngest of each key; nearly always one key.
#[derive(Default)]
struct Group {
    hash: Option<HashKey>,
    bytes: Vec<u8>,
    /// The end of each entry in `bytes`.
    ends: Vec<usize>,
    /// The number of expired entries in this group and all earlier ones.
    expired: u64,
}

impl Group {
    /// Adds an entry that is older than those before, unless its key is present.
    fn add(&mut self, hash: HashKey, entry: &[u8]) {
        self.hash = Some(hash);
        let key = |entry| item::first(entry).map(|(op, _)| op.key());
        if !self.entries().any(|younger| key(younger) == key(entry)) {
            self.bytes.extend_from_slice(entry);
            self.ends.push(self.bytes.len());
        }
    }

    fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }

    /// Writes the live entries and clears the group. `false`: they do not fit the writer's plan.
    fn write(&mut self, writer: &mut SortedStoreWriter<'_>, now: Timestamp) -> Result<bool> {
        let Some(hash) = self.hash.take() else { return Ok(true) };
        let mut expired = 0;
        let is_live = |entry: &&[u8]| match item::first(entry) {
            Some((Op::Put { expires_at: Some(at), .. }, _)) if at <= now => {
                expired += 1;
                false
            }
            Some((Op::Put { .. }, _)) => true,
            _ => false,
        };
        let live: Vec<&[u8]> = self.entries().filter(is_live).collect();
        let fits = live.is_empty() || writer.add(&hash, &live)?;
        self.expired += expired;
        self.bytes.clear();
        self.ends.clear();
        Ok(fits)
    }
}
