//! The store: partitions, and pipelined execution of request bursts.
//!
//! ```text
//! request   n+2d           n+d                     n
//!           prefetch       read bucket,            execute
//!           bucket         prefetch items
//! ```
//!
//! While one request is executed, the bucket of a later one, and the items that it may lead to, are
//! prefetched. The distance d is the option `prefetch_distance`.
//!
//! A burst takes the big-reader lock once, shared, and keeps the locks of the last few partitions
//! that it used ([`crate::burst_locks`]).
//!
//! Source: Lim, thesis, sections 5.3.1 and 5.3.3.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use siltstone_engine::{Clock, Damage, Error, MAX_KEY_BYTES, Result, Timestamp};
use siltstone_runtime::Env;
use siltstone_structures::hash::hash64_seeded;

use crate::brlock::BigReaderLock;
use crate::burst_locks::BurstLocks;
use crate::counters::{Counts, Tally};
use crate::item::Item;
use crate::keyhash;
use crate::options::{Mode, Options};
use crate::partition::cache_mode::CachePartition;
use crate::partition::store_mode::StorePartition;
use crate::partition::{Context, ItemRef, Journal, LazyClock, Memory, Partition};
use crate::request::{Action, Answer, Outcome, Output, Request};
use crate::version::Access;

/// Slots of the big-reader lock; more threads share them.
const LOCK_SLOTS: usize = 32;
/// Requests in the pipeline, rounded up to a power of two: at least twice the distance plus one.
const PIPELINE_SLOTS: usize = 64;
/// Without a lock, one read in this many sets an access mark, as if reads went to as many cores in
/// turn.
const READ_SAMPLE_INTERVAL: u64 = 16;

/// An in-memory store. Thread-safe.
pub struct Store {
    pub(crate) options: Options,
    clock: Arc<dyn Clock>,
    hash_seed: u64,
    partition_bits: u32,
    max_value: usize,
    access: AtomicU8,
    lock: BigReaderLock<Counts>,
    memory: Partitions,
}

enum Partitions {
    Cache(Vec<Partition<CachePartition>>),
    Store(Vec<Partition<StorePartition>>),
}

/// Evaluates an expression for the partitions of either mode.
macro_rules! for_either_mode {
    ($store:expr, $partitions:ident => $do:expr) => {
        match &$store.memory {
            Partitions::Cache($partitions) => $do,
            Partitions::Store($partitions) => $do,
        }
    };
}

impl Store {
    /// Creates an empty store.
    ///
    /// # Errors
    /// [`Error::Io`] if the memory cannot be mapped; [`Error::InvalidOptions`] if mirrored mapping
    /// is requested but unavailable.
    pub fn new(env: &Env, options: Options) -> Result<Self> {
        let layout = options.layout();
        let map_error = |e: std::io::Error| match options.mapping {
            crate::Mapping::Mirrored => Error::invalid_option(
                "mapping",
                format!("mirrored mapping is unavailable here ({e}); use mapping=auto"),
            ),
            _ => Error::io("map", format!("{} bytes of memory", options.memory_bytes), &e),
        };
        let numbers = 0..options.partitions;
        let memory = match options.mode {
            Mode::Cache => Partitions::Cache(
                numbers
                    .map(|_| {
                        let (mapping, bits) = (options.mapping, options.offset_bits);
                        CachePartition::new(
                            layout.words,
                            layout.buckets,
                            mapping,
                            bits,
                            options.eviction,
                        )
                    })
                    .map(|memory| memory.map(Partition::new))
                    .collect::<Result<_, _>>()
                    .map_err(map_error)?,
            ),
            Mode::Store => Partitions::Store(
                numbers
                    .map(|_| StorePartition::new(layout.words, layout.buckets, layout.spare))
                    .map(|memory| memory.map(Partition::new))
                    .collect::<Result<_, _>>()
                    .map_err(map_error)?,
            ),
        };
        Ok(Store {
            clock: env.clock.clone(),
            // The seed is secret, so that nobody can choose keys of one bucket.
            hash_seed: options.hash_seed.unwrap_or_else(|| RandomState::new().hash_one(env.seed)),
            partition_bits: options.partitions.trailing_zeros(),
            max_value: options.max_value_bytes(),
            access: AtomicU8::new(options.access as u8),
            lock: BigReaderLock::new(LOCK_SLOTS),
            memory,
            options,
        })
    }

    /// The keyhash, which requests contain. Cost: about 2 ns for a short key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash64_seeded(key, self.hash_seed)
    }

    /// The seed of [`hash`](Store::hash), for clients that hash their keys themselves (XXH3-64).
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// The options of this store.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        1 << self.partition_bits
    }

    /// The partition of a keyhash: its leading bits.
    #[inline]
    pub fn partition_of(&self, hash: u64) -> usize {
        keyhash::partition(hash, self.partition_bits)
    }

    /// The largest value, in bytes.
    pub fn max_value_bytes(&self) -> usize {
        self.max_value
    }

    /// Whether items have CAS versions.
    pub fn has_cas(&self) -> bool {
        self.options.cas
    }

    /// The current access mode.
    #[inline]
    pub fn access(&self) -> Access {
        match self.access.load(Relaxed) {
            0 => Access::Erew,
            1 => Access::Crew,
            _ => Access::Crcw,
        }
    }

    /// Changes the access mode. Waits for running bursts and blocks others meanwhile.
    pub fn set_access(&self, access: Access) {
        let _guard = self.lock.exclusive();
        self.access.store(access as u8, Relaxed);
    }

    /// Executes requests in order, on any partitions, with one response each.
    ///
    /// # Panics
    /// If `answers` is shorter than `requests`.
    pub fn burst(
        &self,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        self.run(None, requests, answers, output);
    }

    /// Executes requests in order as the owner of a partition: a request for another partition
    /// results in [`Outcome::WrongPartition`], and reads set access marks in every mode.
    ///
    /// # Panics
    /// If `answers` is shorter than `requests`.
    pub fn burst_to(
        &self,
        partition: usize,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        self.run(Some(partition), requests, answers, output);
    }

    /// Executes one request, with number 0 in the output.
    pub fn one(&self, request: &Request<'_>, output: &mut impl Output) -> Answer {
        let mut answer = [Answer::default()];
        self.run(None, std::slice::from_ref(request), &mut answer, output);
        answer[0]
    }

    fn run(
        &self,
        only: Option<usize>,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        let answers = &mut answers[..requests.len()];
        let guard = self.lock.shared(thread_number());
        let mut tally = Tally::default();
        let context = self.context(only.is_some());
        for_either_mode!(self, partitions => {
            self.stages(partitions, only, requests, answers, output, &context, &mut tally);
        });
        guard.counts().add(&tally);
    }

    fn context(&self, is_owner: bool) -> Context<'_> {
        Context {
            access: self.access(),
            now: LazyClock::new(self.clock.as_ref()),
            has_cas: self.options.cas,
            max_value: self.max_value,
            marks_reads: is_owner || samples_read(),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one burst")]
    fn stages<M: Memory>(
        &self,
        partitions: &[Partition<M>],
        only: Option<usize>,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
        context: &Context<'_>,
        tally: &mut Tally,
    ) {
        let distance = self.options.prefetch_distance;
        let mut locks = BurstLocks::new(context.access);
        let target = |request: &Request<'_>| {
            let at = self.partition_of(request.hash);
            (at, partitions[at].memory.bucket(request.hash))
        };
        let Some(first) = requests.first() else { return };
        // Partition and bucket of the requests in the pipeline, by request number modulo its
        // length.
        let mut targets = [target(first); PIPELINE_SLOTS];
        if requests.len() > 1 {
            for (number, request) in requests.iter().enumerate().take(2 * distance) {
                let (at, bucket) = target(request);
                targets[number % PIPELINE_SLOTS] = (at, bucket);
                partitions[at].memory.prefetch_bucket(bucket);
            }
            for (number, request) in requests.iter().enumerate().take(distance) {
                let (at, bucket) = targets[number % PIPELINE_SLOTS];
                partitions[at].memory.prefetch_items(bucket, request.hash);
            }
        }
        for (number, (request, answer)) in requests.iter().zip(answers).enumerate() {
            if let Some(later) = requests.get(number + 2 * distance) {
                let (at, bucket) = target(later);
                targets[(number + 2 * distance) % PIPELINE_SLOTS] = (at, bucket);
                partitions[at].memory.prefetch_bucket(bucket);
            }
            if let Some(later) = requests.get(number + distance) {
                let (at, bucket) = targets[(number + distance) % PIPELINE_SLOTS];
                partitions[at].memory.prefetch_items(bucket, later.hash);
            }
            let (at, bucket) = targets[number % PIPELINE_SLOTS];
            *answer = match self.rejection(only, at, request, tally) {
                Some(outcome) => Answer::of(outcome),
                None => {
                    let partition = &partitions[at];
                    let is_write = request.action.is_write();
                    let needs_lock = match context.access {
                        Access::Erew => true,
                        Access::Crew => is_write,
                        Access::Crcw => false,
                    };
                    if needs_lock {
                        locks.acquire(at, &partition.lock);
                    }
                    match is_write {
                        true => partition.write(request, bucket, context, tally, None),
                        false => partition.get(number, request, bucket, context, output, tally),
                    }
                }
            };
        }
    }

    /// The reason to reject a request without executing it, if any.
    #[inline]
    fn rejection(
        &self,
        only: Option<usize>,
        at: usize,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Option<Outcome> {
        if only.is_some_and(|only| only != at) {
            tally.wrong_partition += 1;
            return Some(Outcome::WrongPartition);
        }
        let is_too_large =
            request.key.len() > MAX_KEY_BYTES || request.action.value_len() > self.max_value;
        is_too_large.then_some(Outcome::TooLarge)
    }

    /// Executes writes atomically, all or none. Returns [`Outcome::Stored`], or the outcome of the
    /// first rejected request. In store mode, the new items need room in addition to those that
    /// they replace.
    ///
    /// Under EREW it locks the partitions concerned; in other modes it locks the whole store.
    pub fn batch(&self, requests: &[Request<'_>]) -> Outcome {
        let run = |access| {
            let context = Context { access, ..self.context(true) };
            let mut tally = Tally::default();
            let outcome = for_either_mode!(self, partitions => {
                self.batch_exclusive(partitions, requests, &context, &mut tally)
            });
            (outcome, tally)
        };
        {
            let guard = self.lock.shared(thread_number());
            if self.access() == Access::Erew {
                let mut numbers: Vec<_> =
                    requests.iter().map(|r| self.partition_of(r.hash)).collect();
                numbers.sort_unstable();
                numbers.dedup();
                // In order, so that batches do not deadlock.
                let _locks: Vec<_> = for_either_mode!(self, partitions => {
                    numbers.iter().map(|&number| partitions[number].lock.lock()).collect()
                });
                let (outcome, tally) = run(Access::Erew);
                guard.counts().add(&tally);
                return outcome;
            }
        }
        let _guard = self.lock.exclusive();
        let (outcome, tally) = run(Access::Erew);
        self.lock.counts().take(1).for_each(|counts| counts.add(&tally));
        outcome
    }

    fn batch_exclusive<M: Memory>(
        &self,
        partitions: &[Partition<M>],
        requests: &[Request<'_>],
        context: &Context<'_>,
        tally: &mut Tally,
    ) -> Outcome {
        let rejected = requests.iter().find_map(|request| self.rejection(None, 0, request, tally));
        if let Some(outcome) = rejected {
            return outcome;
        }
        let expired_before = tally.expired_entries_dropped;
        // One journal per partition, in the order of their numbers.
        let mut journals: BTreeMap<usize, Journal> = BTreeMap::new();
        for request in requests {
            let at = self.partition_of(request.hash);
            let journal = journals.entry(at).or_default();
            let bucket = partitions[at].memory.bucket(request.hash);
            let answer = partitions[at].write(request, bucket, context, tally, Some(journal));
            let is_done = match request.action {
                Action::Delete(None) => true,
                _ => answer.outcome == Outcome::Stored,
            };
            if !is_done {
                tally.expired_entries_dropped = expired_before;
                for (at, mut journal) in journals {
                    partitions[at].memory.roll_back(context.access, &mut journal);
                }
                return answer.outcome;
            }
        }
        for (at, mut journal) in journals {
            partitions[at].memory.commit(&mut journal);
        }
        Outcome::Stored
    }

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

    /// The current time of the store's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

thread_local! {
    static NUMBER: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed)
    };
    static READS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A number for this thread.
fn thread_number() -> usize {
    NUMBER.with(|number| *number)
}

/// Whether this read, one in `READ_SAMPLE_INTERVAL`, sets an access mark.
fn samples_read() -> bool {
    READS.with(|reads| {
        reads.set(reads.get().wrapping_add(1));
        reads.get().is_multiple_of(READ_SAMPLE_INTERVAL)
    })
}
