//! The store: partitions, and bursts of requests that go through them in stages.
//!
//! ```text
//! request   n+2g           n+g                     n
//!           fetch bucket   read bucket,            do it
//!                          fetch items
//! ```
//!
//! While one request is done, the bucket of a later one and the items that it may lead to are on
//! their way from memory. The gap g is an option.
//!
//! A burst goes in by the turnstile once, and keeps the locks of the last few partitions that it worked on
//! ([`crate::held`]).
//!
//! Source: thesis, sections 5.3.1 and 5.3.3.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use siltstone_engine::{Clock, Damage, Error, InvalidOption, MAX_KEY_BYTES, Result, Timestamp};
use siltstone_runtime::Env;
use siltstone_structures::hash::hash64_seeded;

use crate::counters::{Counts, Tally};
use crate::held::Held;
use crate::item::Item;
use crate::keyhash;
use crate::keys::Keys;
use crate::options::{Mode, Options};
use crate::partition::cache::Cache;
use crate::partition::keep::Keep;
use crate::partition::{Context, Found, Journal, Memory, Now, Partition};
use crate::request::{Action, Answer, Outcome, Output, Request};
use crate::turnstile::Turnstile;
use crate::version::Access;

/// Slots of the turnstile: threads beyond share them.
const SLOTS: usize = 32;
/// Requests of a burst between the first stage and the last, in a power of two: two gaps and one.
const UNDER_WAY: usize = 64;
/// Without a lock one read in so many is noted for eviction, as if the reads went to so many cores
/// in turn.
const NOTED: u64 = 16;

/// A store in memory. All methods may be called from any thread.
pub struct Store {
    pub(crate) options: Options,
    clock: Arc<dyn Clock>,
    hash_seed: u64,
    partition_bits: u32,
    max_value: usize,
    access: AtomicU8,
    turnstile: Turnstile<Counts>,
    memory: Kind,
}

enum Kind {
    Cache(Vec<Partition<Cache>>),
    Store(Vec<Partition<Keep>>),
}

/// Does the same with either kind of partitions.
macro_rules! with_partitions {
    ($store:expr, $partitions:ident => $do:expr) => {
        match &$store.memory {
            Kind::Cache($partitions) => $do,
            Kind::Store($partitions) => $do,
        }
    };
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// [`Error::Io`] if the system does not give the memory; [`Error::InvalidOptions`] if a mirrored
    /// mapping was asked for and is refused.
    pub fn new(env: &Env, options: Options) -> Result<Self> {
        let layout = options.layout();
        let refused = |e: std::io::Error| match options.mapping {
            crate::Mapping::Mirrored => Error::InvalidOptions(vec![InvalidOption {
                option: "mapping".to_owned(),
                reason: format!("a mirrored one is refused here ({e}); auto does without"),
            }]),
            _ => Error::io("map", format!("{} bytes of memory", options.memory_bytes), &e),
        };
        let numbers = 0..options.partitions;
        let memory = match options.mode {
            Mode::Cache => Kind::Cache(
                numbers
                    .map(|_| {
                        let (mapping, bits) = (options.mapping, options.offset_bits);
                        Cache::new(layout.words, layout.buckets, mapping, bits, options.eviction)
                    })
                    .map(|memory| memory.map(Partition::new))
                    .collect::<Result<_, _>>()
                    .map_err(refused)?,
            ),
            Mode::Store => Kind::Store(
                numbers
                    .map(|_| Keep::new(layout.words, layout.buckets, layout.spare))
                    .map(|memory| memory.map(Partition::new))
                    .collect::<Result<_, _>>()
                    .map_err(refused)?,
            ),
        };
        Ok(Store {
            clock: env.clock.clone(),
            // Who does not know the seed cannot choose keys that meet in one bucket.
            hash_seed: options.hash_seed.unwrap_or_else(|| RandomState::new().hash_one(env.seed)),
            partition_bits: options.partitions.trailing_zeros(),
            max_value: options.max_value_bytes(),
            access: AtomicU8::new(options.access as u8),
            turnstile: Turnstile::new(SLOTS),
            memory,
            options,
        })
    }

    /// The keyhash, which everything else asks for. Costs about 2 ns for a short key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash64_seeded(key, self.hash_seed)
    }

    /// The seed of [`hash`](Store::hash), for clients that hash their keys themselves (XXH3-64).
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// How many partitions there are.
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

    /// Whether items have stamps to compare.
    pub fn keeps_stamps(&self) -> bool {
        self.options.keeps_stamps
    }

    /// Who may do what at once, as of now.
    #[inline]
    pub fn access(&self) -> Access {
        match self.access.load(Relaxed) {
            0 => Access::Erew,
            1 => Access::Crew,
            _ => Access::Crcw,
        }
    }

    /// Changes who may do what at once. Waits until the bursts under way are done, and holds up
    /// others for as long.
    pub fn set_access(&self, access: Access) {
        let _alone = self.turnstile.alone();
        self.access.store(access as u8, Relaxed);
    }

    /// Does requests in order, whatever their partitions: one answer each.
    ///
    /// # Panics
    /// If there are fewer answers than requests.
    pub fn burst(
        &self,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        self.run(None, requests, answers, output);
    }

    /// Does requests in order, as the one who serves this partition: those for another are answered
    /// [`Outcome::Elsewhere`], and reads count for eviction in every mode.
    ///
    /// # Panics
    /// If there are fewer answers than requests.
    pub fn burst_to(
        &self,
        partition: usize,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        self.run(Some(partition), requests, answers, output);
    }

    /// Does one request; its number for the output is 0.
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
        let inside = self.turnstile.enter(thread_number());
        let mut tally = Tally::default();
        let context = self.context(only.is_some());
        with_partitions!(self, partitions => {
            self.stages(partitions, only, requests, answers, output, &context, &mut tally);
        });
        inside.counts().add(&tally);
    }

    fn context(&self, is_owner: bool) -> Context<'_> {
        Context {
            access: self.access(),
            now: Now::new(self.clock.as_ref()),
            keeps_stamps: self.options.keeps_stamps,
            max_value: self.max_value,
            notes_reads: is_owner || read_is_noted(),
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
        let gap = self.options.gap;
        let mut held = Held::of(context.access);
        let aim = |request: &Request<'_>| {
            let at = self.partition_of(request.hash);
            (at, partitions[at].memory.bucket(request.hash))
        };
        let Some(first) = requests.first() else { return };
        // Of the requests under way, each at its number modulo the length.
        let mut aims = [aim(first); UNDER_WAY];
        if requests.len() > 1 {
            for (number, request) in requests.iter().enumerate().take(2 * gap) {
                let (at, bucket) = aim(request);
                aims[number % UNDER_WAY] = (at, bucket);
                partitions[at].memory.prefetch_bucket(bucket);
            }
            for (number, request) in requests.iter().enumerate().take(gap) {
                let (at, bucket) = aims[number % UNDER_WAY];
                partitions[at].memory.prefetch_items(bucket, request.hash);
            }
        }
        for (number, (request, answer)) in requests.iter().zip(answers).enumerate() {
            if let Some(later) = requests.get(number + 2 * gap) {
                let (at, bucket) = aim(later);
                aims[(number + 2 * gap) % UNDER_WAY] = (at, bucket);
                partitions[at].memory.prefetch_bucket(bucket);
            }
            if let Some(later) = requests.get(number + gap) {
                let (at, bucket) = aims[(number + gap) % UNDER_WAY];
                partitions[at].memory.prefetch_items(bucket, later.hash);
            }
            let (at, bucket) = aims[number % UNDER_WAY];
            *answer = match self.refusal(only, at, request, tally) {
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
                        held.take(at, &partition.lock);
                    }
                    match is_write {
                        true => partition.write(request, bucket, context, tally, None),
                        false => partition.get(number, request, bucket, context, output, tally),
                    }
                }
            };
        }
    }

    /// Why a request is not done at all, if so.
    #[inline]
    fn refusal(
        &self,
        only: Option<usize>,
        at: usize,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Option<Outcome> {
        if only.is_some_and(|only| only != at) {
            tally.misdirected += 1;
            return Some(Outcome::Elsewhere);
        }
        let is_too_large = request.key.is_empty()
            || request.key.len() > MAX_KEY_BYTES
            || request.action.value_len() > self.max_value;
        is_too_large.then_some(Outcome::TooLarge)
    }

    /// Does all of these writes at one moment, or none of them: the outcome is that of the first
    /// that was refused, [`Outcome::Stored`] if none was. In store mode they need room for all new
    /// items beside those that they replace.
    ///
    /// Under EREW it holds the partitions concerned, in the other modes it is alone in the store.
    pub fn batch(&self, requests: &[Request<'_>]) -> Outcome {
        let whole = |access| {
            let context = Context { access, ..self.context(true) };
            let mut tally = Tally::default();
            let outcome = with_partitions!(self, partitions => {
                self.batch_alone(partitions, requests, &context, &mut tally)
            });
            (outcome, tally)
        };
        {
            let inside = self.turnstile.enter(thread_number());
            if self.access() == Access::Erew {
                let mut numbers: Vec<_> =
                    requests.iter().map(|r| self.partition_of(r.hash)).collect();
                numbers.sort_unstable();
                numbers.dedup();
                // In order, so that two batches never wait for each other.
                let _locks: Vec<_> = with_partitions!(self, partitions => {
                    numbers.iter().map(|&number| partitions[number].lock.lock()).collect()
                });
                let (outcome, tally) = whole(Access::Erew);
                inside.counts().add(&tally);
                return outcome;
            }
        }
        let _alone = self.turnstile.alone();
        let (outcome, tally) = whole(Access::Erew);
        self.turnstile.counts().take(1).for_each(|counts| counts.add(&tally));
        outcome
    }

    fn batch_alone<M: Memory>(
        &self,
        partitions: &[Partition<M>],
        requests: &[Request<'_>],
        context: &Context<'_>,
        tally: &mut Tally,
    ) -> Outcome {
        let refused = requests.iter().find_map(|request| self.refusal(None, 0, request, tally));
        if let Some(outcome) = refused {
            return outcome;
        }
        // One journal a partition, in the order in which partitions come first.
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
                for (at, mut journal) in journals {
                    partitions[at].memory.take_back(context.access, &mut journal);
                }
                return answer.outcome;
            }
        }
        for (at, mut journal) in journals {
            partitions[at].memory.settle(&mut journal);
        }
        Outcome::Stored
    }

    /// Shows every item that has not expired, all as of one moment: keyhash, key, value, and what is
    /// beside it. The store stands still meanwhile.
    pub(crate) fn see_all(&self, mut see: impl FnMut(&Item<'_>)) {
        let _alone = self.turnstile.alone();
        let now = Now::new(self.clock.as_ref());
        with_partitions!(self, partitions => {
            for partition in partitions {
                for bucket in 0..partition.memory.bucket_count() {
                    partition.memory.items_of(bucket, &mut |_, item| {
                        if !now.is_past(item.meta().expires_at) {
                            see(&item);
                        }
                    });
                }
            }
        });
    }

    /// A walk over keys beside all else that goes on, from a place on that another walk told; 0 is the first.
    pub fn keys(&self, place: u64) -> Keys<'_> {
        Keys::of(self, place)
    }

    /// How many buckets there are in all partitions.
    pub(crate) fn places(&self) -> u64 {
        with_partitions!(self, partitions => {
            (partitions.len() * partitions[0].memory.bucket_count()) as u64
        })
    }

    /// Shows the keys of a bucket, counted through all partitions; whether there is such a bucket.
    pub(crate) fn keys_at(&self, place: u64, see: impl FnMut(Vec<u8>)) -> bool {
        let _inside = self.turnstile.enter(thread_number());
        let context = self.context(false);
        with_partitions!(self, partitions => {
            let buckets = partitions[0].memory.bucket_count() as u64;
            let partition = partitions.get((place / buckets) as usize);
            partition.inspect(|it| it.keys_of((place % buckets) as usize, &context, see)).is_some()
        })
    }

    /// Items that are stored, those that have expired and were not met since among them.
    pub fn items(&self) -> u64 {
        with_partitions!(self, partitions => {
            partitions.iter().map(|partition| partition.memory.items()).sum()
        })
    }

    /// Index entries in main buckets and in spare ones. Walks over the whole index in store mode.
    pub fn entries(&self) -> (u64, u64) {
        with_partitions!(self, partitions => {
            let all = partitions.iter().map(|partition| partition.memory.entries());
            all.fold((0, 0), |sum, (main, spare)| (sum.0 + main, sum.1 + spare))
        })
    }

    /// Walks over everything and tells what does not hold, and how many items there are.
    pub(crate) fn examine(&self, damage: &mut Vec<Damage>) -> u64 {
        let mut items = 0;
        {
            let _alone = self.turnstile.alone();
            with_partitions!(self, partitions => {
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
                                let reason = "an entry leads to another's item".to_owned();
                                damage.push(Damage { file: name.clone(), offset, reason });
                            }
                        });
                    }
                }
            });
        }
        items
    }

    /// Removes everything. The store stands still meanwhile.
    pub fn clear(&self) {
        let _alone = self.turnstile.alone();
        with_partitions!(self, partitions => {
            for partition in partitions {
                let memory = &partition.memory;
                for bucket in 0..memory.bucket_count() {
                    let mut places = Vec::new();
                    memory.items_of(bucket, &mut |entry, item| {
                        places.push((item.hash(), crate::index::offset_of(entry)));
                    });
                    for (hash, offset) in places {
                        let found = memory.find(memory.bucket(hash), hash, None, |slot, at| {
                            let item = memory.item(at).filter(|_| at == offset)?;
                            Some(Found { slot, offset, item })
                        });
                        if let Some(found) = found {
                            memory.remove(Access::Erew, hash, found, None);
                        }
                    }
                }
            }
        });
    }

    /// Bytes of memory by structure.
    pub(crate) fn memory(&self) -> BTreeMap<&'static str, u64> {
        let mut memory = BTreeMap::new();
        with_partitions!(self, partitions => {
            partitions.iter().for_each(|partition| partition.memory.add_memory(&mut memory));
            let fixed = self.turnstile.bytes() + size_of_val(partitions.as_slice());
            memory.insert("partitions", fixed as u64);
        });
        memory
    }

    /// What was counted, and counters of this kind of store.
    pub(crate) fn counted(&self) -> (Tally, BTreeMap<&'static str, u64>) {
        let tally = Tally::of(self.turnstile.counts());
        let mut counters: BTreeMap<_, _> = tally.named().collect();
        with_partitions!(self, partitions => {
            partitions.iter().for_each(|partition| partition.memory.add_counters(&mut counters));
        });
        (tally, counters)
    }

    /// What was counted since open, and sizes as of now, by name.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.counted().1
    }

    /// What time it is by the store's clock.
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

/// A number of this thread.
fn thread_number() -> usize {
    NUMBER.with(|number| *number)
}

/// Whether it is the turn of this thread's reads to be noted.
fn read_is_noted() -> bool {
    READS.with(|reads| {
        reads.set(reads.get().wrapping_add(1));
        reads.get().is_multiple_of(NOTED)
    })
}
