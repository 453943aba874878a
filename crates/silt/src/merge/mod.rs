//! HashStores and the SortedStore of a partition become a new SortedStore.
//!
//! ```text
//!   HashStores ─ sort by hash ─┐                              Table 2.3 of the thesis, for one hash:
//!    (age 0 the newest)        ├─ merge ─▶ new SortedStore      the youngest entry of each key stays,
//!   SortedStore ───────────────┘   one      and its index       unless it is a deletion or expired
//!    (the oldest of all)           pass
//! ```
//!
//! One merge at a time for all partitions, so that two SortedStores of one partition at most are on
//! the medium. All HashStores that there are when the merge begins take part; those that come
//! meanwhile stay, and are newer than the result.
//!
//! Invariant: a deletion is dropped only together with every older entry of its key, because the
//! SortedStore, the last store, takes part.
//!
//! Source: Lim, thesis, section 2.2.3. That partitions take turns is ours.

mod run;
mod sort;

use std::cmp::Reverse;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::{Op, Purpose, Result, Timestamp};
use siltstone_structures::HashKey;

use crate::engine::Inner;
use crate::item;
use crate::sorted_store::{Plan, SortedStoreWriter, discard};
use crate::version::{Edit, Partition, StoreEntry};
use sort::Sorter;

/// How often a merge looks whether it should stop, in entries.
const LOOK_UP_EVERY: u64 = 1024;
/// The most hashes of a block.
const MOST_HASHES_A_BLOCK: u64 = 1024;

impl Inner {
    /// The partition that a merge is due in, if any: the one with the most HashStores, when it has as
    /// many as it may, or all partitions together have what they have when they take turns:
    /// `(P + 1) / 2` times as many. So merges of one size are spread out, and filters take less.
    pub(crate) fn merge_due(&self) -> Option<usize> {
        let view = self.view.load();
        let at_least = self.options.merge_at().0;
        let counts = || view.version.partitions.iter().map(|partition| partition.hash_stores.len());
        let (most, at) = counts().zip(0..).max_by_key(|&(count, at)| (count, Reverse(at)))?;
        let in_turns = at_least.saturating_mul(counts().len() + 1);
        let is_due = most >= at_least || 2 * counts().sum::<usize>() >= in_turns;
        is_due.then_some(at)
    }

    /// Merges the HashStores of a partition into its SortedStore.
    pub(crate) fn merge(&self, at: usize) -> Result<()> {
        let began = Instant::now();
        let view = self.view.load_full();
        let partition = &view.version.partitions[at];
        let number = self.versions.new_number();
        let merged = self.write_merged(at as u32, number, partition);
        if !matches!(merged, Ok(Some(_))) {
            discard(self.vfs.as_ref(), number);
        }
        let made = merged?;
        if made.is_some() {
            self.vfs.sync_dir(Purpose::Compaction)?;
        }
        let hash_stores = partition.hash_stores.iter().map(|store| store.entry().number);
        let sorted = partition.sorted.iter().map(|store| store.entry().number);
        let edit = Edit {
            removed: hash_stores.chain(sorted).collect(),
            sorted_stores: made.into_iter().collect(),
            ..Edit::default()
        };
        let installed = self.install(edit, |_| ());
        installed.inspect_err(|error| self.discard_if_unnamed(error, &[number]))?;
        let (bytes, entries) = made.map_or((0, 0), |store| (store.bytes, store.entries));
        self.counters.merges.fetch_add(1, Relaxed);
        self.counters.merged_out.fetch_add(entries, Relaxed);
        self.counters.sorted_bytes.fetch_add(bytes, Relaxed);
        self.counters.merge_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }

    /// Writes the SortedStore that a partition's stores make together; `None` if nothing is left.
    fn write_merged(
        &self,
        at: u32,
        number: u64,
        partition: &Partition,
    ) -> Result<Option<StoreEntry>> {
        let plan = self.plan(at, partition);
        if let Some(made) = self.write_as_planned(number, partition, plan)? {
            return Ok(made);
        }
        // Keys that share a hash cannot lie in blocks of one length.
        discard(self.vfs.as_ref(), number);
        let uneven = Plan { one_length: None, ..plan };
        Ok(self.write_as_planned(number, partition, uneven)?.flatten())
    }

    /// `None`: the plan for entries of one length does not hold.
    fn write_as_planned(
        &self,
        number: u64,
        partition: &Partition,
        plan: Plan,
    ) -> Result<Option<Option<StoreEntry>>> {
        let keys = self.versions.keys();
        let to_sort = partition.hash_stores.iter().map(|store| store.entry().entries).sum();
        let mut sorter = Sorter::new(self, to_sort, plan.mean_bytes);
        for (age, store) in (0..).zip(&partition.hash_stores) {
            let mut walk = store.walk(Purpose::Compaction);
            while let Some((_, entry)) = walk.next()? {
                let Some((op, len)) = item::first(entry) else { continue };
                sorter.add(keys.hash(op.key()), age, &entry[..len])?;
            }
        }
        let mut merged = sorter.finish(partition.sorted.as_deref())?;
        let vfs = self.vfs.as_ref();
        let mut writer = SortedStoreWriter::create(vfs, number, plan, &self.env.rate)?;
        let now = self.env.clock.now();
        let (mut group, mut seen) = (Group::default(), 0u64);
        while let Some((hash, _, entry)) = merged.next()? {
            seen += 1;
            if seen.is_multiple_of(LOOK_UP_EVERY) {
                self.merge_rate.take(LOOK_UP_EVERY);
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
        self.counters.merged_in.fetch_add(seen, Relaxed);
        let made = writer.finish()?;
        let partition = plan.partition;
        Ok(Some(made.map(|(bytes, entries)| StoreEntry { partition, number, bytes, entries })))
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
            let (shape, entry) = (store.shape(), store.entry());
            expected += entry.entries;
            // Empty slots do not count.
            bytes += (u128::from(entry.bytes) * u128::from(entry.entries)
                / u128::from(shape.slots.max(1))) as u64;
            widen(shape.lengths);
        }
        if let Some(store) = &partition.sorted {
            expected += store.entry().entries;
            bytes += store.entry().bytes;
            widen(store.shape().lengths);
        }
        let one_length = lengths.filter(|(low, high)| low == high).map(|(length, _)| length);
        let mean_bytes = one_length.map_or(bytes / expected.max(1), u64::from).max(1);
        let fit = self.options.block_bytes.saturating_sub(4) / mean_bytes;
        Plan {
            partition: at,
            keys: self.versions.keys(),
            expected,
            hashes_a_block: fit.clamp(1, MOST_HASHES_A_BLOCK) as u32,
            one_length,
            mean_bytes,
        }
    }
}

/// The entries of one hash, the youngest of each key; nearly always of one key.
#[derive(Default)]
struct Group {
    hash: Option<HashKey>,
    bytes: Vec<u8>,
    /// Where each entry ends.
    ends: Vec<usize>,
}

impl Group {
    /// Adds an entry older than those before, unless its key is there.
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

    /// Writes what stays of the group, and begins the next. `false`: the writer's plan does not hold.
    fn write(&mut self, writer: &mut SortedStoreWriter<'_>, now: Timestamp) -> Result<bool> {
        let Some(hash) = self.hash.take() else { return Ok(true) };
        let is_live = |entry: &&[u8]| match item::first(entry) {
            Some((Op::Put { expires_at, .. }, _)) => expires_at.is_none_or(|at| at > now),
            _ => false,
        };
        let live: Vec<&[u8]> = self.entries().filter(is_live).collect();
        let holds = live.is_empty() || writer.add(&hash, &live)?;
        self.bytes.clear();
        self.ends.clear();
        Ok(holds)
    }
}
