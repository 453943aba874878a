//! Operations on all items: iteration, verification and removal; sizes and counters.
//!
//! Iteration, verification and removal hold the big-reader lock exclusively, so they see the state
//! of one moment and block all requests meanwhile. [`Store::keys_in_bucket`] blocks one bucket.

use std::collections::BTreeMap;

use siltstone_engine::Damage;

use super::{Partitions, Store, for_either_mode, thread_number};
use crate::counters::Tally;
use crate::item::Item;
use crate::keyhash;
use crate::partition::{Context, ItemRef, LazyClock, Memory};
use crate::version::Access;

impl Store {
    /// Atomically visits every unexpired item. Blocks other operations meanwhile.
    pub(crate) fn for_each_item(&self, mut visit: impl FnMut(&Item<'_>)) {
        let _guard = self.lock.exclusive();
        let now = LazyClock::new(self.clock.as_ref());
        for_either_mode!(self, partitions => {
            for partition in partitions {
                for bucket in 0..partition.memory.bucket_count() {
                    partition.memory.items_of(bucket, &mut |_, item| {
                        if !now.is_past(item.meta().expires_at) {
                            visit(&item);
                        }
                    });
                }
            }
        });
    }

    /// Number of buckets in all partitions.
    pub(crate) fn bucket_count(&self) -> u64 {
        for_either_mode!(self, partitions => {
            (partitions.len() * partitions[0].memory.bucket_count()) as u64
        })
    }

    /// Visits the keys of a bucket, numbered across partitions; returns whether the bucket exists.
    pub(crate) fn keys_in_bucket(&self, bucket: u64, visit: impl FnMut(Vec<u8>)) -> bool {
        let _guard = self.lock.shared(thread_number());
        let context = self.context(false);
        for_either_mode!(self, partitions => {
            let buckets = partitions[0].memory.bucket_count() as u64;
            let partition = partitions.get((bucket / buckets) as usize);
            partition.inspect(|it| it.keys_of((bucket % buckets) as usize, &context, visit)).is_some()
        })
    }

    /// Number of stored items, including expired ones that were not accessed since.
    pub fn items(&self) -> u64 {
        for_either_mode!(self, partitions => {
            partitions.iter().map(|partition| partition.memory.items()).sum()
        })
    }

    /// Number of index entries in main and in spare buckets. Scans the index in store mode.
    pub fn entries(&self) -> (u64, u64) {
        for_either_mode!(self, partitions => {
            let all = partitions.iter().map(|partition| partition.memory.entries());
            all.fold((0, 0), |sum, (main, spare)| (sum.0 + main, sum.1 + spare))
        })
    }

    /// Checks all structures; adds inconsistencies to `damage` and returns the number of items.
    pub(crate) fn verify(&self, damage: &mut Vec<Damage>) -> u64 {
        let mut items = 0;
        {
            let _guard = self.lock.exclusive();
            for_either_mode!(self, partitions => {
                for (number, partition) in partitions.iter().enumerate() {
                    let name = format!("partition {number}");
                    damage.extend(partition.memory.damage(&name));
                    for bucket in 0..partition.memory.bucket_count() {
                        partition.memory.items_of(bucket, &mut |entry, item| {
                            items += 1;
                            let hash = item.hash();
                            let is_here = self.partition_of(hash) == number
                                && keyhash::tag(hash) == entry >> crate::ring::OFFSET_BITS
                                && std::ptr::eq(
                                    partition.memory.bucket(hash),
                                    partition.memory.main(bucket),
                                );
                            if !is_here {
                                let offset = crate::index::offset_of(entry);
                                let reason = "an entry leads to the item of another bucket".to_owned();
                                damage.push(Damage { file: name.clone(), offset, reason });
                            }
                        });
                    }
                }
            });
        }
        items
    }

    /// Removes all items. Blocks other operations meanwhile.
    pub fn clear(&self) {
        let _guard = self.lock.exclusive();
        let context = Context { access: Access::Erew, ..self.context(true) };
        for_either_mode!(self, partitions => {
            for partition in partitions {
                let memory = &partition.memory;
                for bucket in 0..memory.bucket_count() {
                    let mut entries = Vec::new();
                    memory.items_of(bucket, &mut |entry, item| {
                        entries.push((item.hash(), crate::index::offset_of(entry)));
                    });
                    for (hash, offset) in entries {
                        let found = memory.find(memory.bucket(hash), hash, None, |slot, at| {
                            let item = memory.item(at).filter(|_| at == offset)?;
                            Some(ItemRef { slot, offset, item })
                        });
                        if let Some(found) = found {
                            memory.remove(&context, hash, found, &mut Tally::default(), None);
                        }
                    }
                }
            }
        });
    }

    /// Memory by structure, in bytes.
    pub(crate) fn memory(&self) -> BTreeMap<&'static str, u64> {
        let mut memory = BTreeMap::new();
        for_either_mode!(self, partitions => {
            partitions.iter().for_each(|partition| partition.memory.add_memory_stats(&mut memory));
            let fixed = self.lock.bytes() + size_of_val(partitions.as_slice());
            memory.insert("partitions", fixed as u64);
        });
        memory
    }

    /// Operation counts, and all counters by name.
    pub(crate) fn counter_values(&self) -> (Tally, BTreeMap<&'static str, u64>) {
        let tally = Tally::of(self.lock.counts());
        let mut counters: BTreeMap<_, _> = tally.named().collect();
        for_either_mode!(self, partitions => {
            partitions.iter().for_each(|partition| partition.memory.add_counters(&mut counters));
        });
        (tally, counters)
    }

    /// Counters since open and current sizes, by name.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.counter_values().1
    }
}
