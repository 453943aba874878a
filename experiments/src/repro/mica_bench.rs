//! Shared parts of the `mica` experiments: tiny items, bursts of requests, operations per second.
//!
//! Requests and their keyhashes are prepared before the clock starts, as in the thesis's clients; a
//! thread cycles through its own list of them. Values are copied to a reused buffer.
//!
//! Invariant: lookups find their items, or the run is an error; a lossy index may lose one in a
//! hundred, because of full buckets.
//!
//! Source: Lim, thesis, section 5.4.1: tiny items of 8 + 8 bytes; skewed is Zipf of 0.99, 50 % and
//! 95 % GET.

use std::sync::Barrier;
use std::time::Instant;

use rand::RngExt;
use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_engine::{Error, Result};
use siltstone_mica::{Access, Action, Answer, Options, Outcome, Output, Request, Store, Value};
use siltstone_runtime::Env;

/// The thesis.
pub(super) const PAPER: &str = "Lim, Resource-Efficient Data-Intensive System Designs, 2015";
/// Requests per burst.
const BURST: usize = 32;
/// Prepared requests per thread.
const PREPARED: usize = 1 << 21;

/// Options from text.
pub(super) fn options(text: &str) -> Result<Options> {
    let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
    Options::from_map(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

/// A store with `items` tiny items.
pub(super) fn filled(text: &str, items: u64) -> Result<Store> {
    let store = Store::new(&Env::system(1), options(text)?)?;
    let mut answers = [Answer::default(); BURST];
    for first in (0..items).step_by(BURST) {
        let keys: Vec<_> = (first..items.min(first + BURST as u64)).map(u64::to_le_bytes).collect();
        let requests: Vec<_> = keys.iter().map(|key| put(&store, key)).collect();
        store.burst(&requests, &mut answers, &mut ());
        for answer in &answers[..requests.len()] {
            expect(answer.outcome, Outcome::Stored)?;
        }
    }
    Ok(store)
}

fn put<'k>(store: &Store, key: &'k [u8; 8]) -> Request<'k> {
    let value = Value { bytes: key, ..Value::default() };
    Request { hash: store.hash(key), key, action: Action::Put(value) }
}

fn expect(outcome: Outcome, expected: Outcome) -> Result<()> {
    match outcome == expected {
        true => Ok(()),
        false => Err(Error::Invalid(format!("outcome {outcome:?} instead of {expected:?}"))),
    }
}

/// A load.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) items: u64,
    /// Zipf exponent; 0 is uniform.
    pub(super) skew: f64,
    /// Share of lookups.
    pub(super) gets: f64,
    pub(super) threads: u64,
}

/// The value buffer of a thread.
struct Scratch([u8; 64]);

impl Output for Scratch {
    #[inline]
    fn room(&mut self, _request: usize, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(..len)
    }
}

/// Operations per second of a load, the best of three runs of `seconds`. A thread sends its own
/// requests: under EREW those for its own partitions, under CREW all lookups and its own writes,
/// under CRCW all.
pub(super) fn operations_per_second(store: &Store, load: Load, seconds: f64) -> Result<f64> {
    Ok(rates(store, load, seconds)?.into_iter().sum())
}

/// Operations per second of each thread.
pub(super) fn rates(store: &Store, load: Load, seconds: f64) -> Result<Vec<f64>> {
    let ready: Vec<_> = (0..load.threads).map(|thread| requests(store, load, thread)).collect();
    rates_of(store, &ready, seconds)
}

/// Operations per second of each thread, with prepared requests.
pub(super) fn rates_of(
    store: &Store,
    ready: &[PreparedRequests],
    seconds: f64,
) -> Result<Vec<f64>> {
    let barrier = Barrier::new(ready.len());
    let work = |ready: &PreparedRequests| -> Result<f64> {
        let requests: Vec<_> =
            ready.iter().map(|(key, is_get)| request(store, key, *is_get)).collect();
        let mut answers = [Answer::default(); BURST];
        let mut scratch = Scratch([0; 64]);
        let mut best = 0f64;
        for _ in 0..3 {
            barrier.wait();
            let (begin, mut done, mut missed) = (Instant::now(), 0u64, 0u64);
            let mut bursts = requests.chunks_exact(BURST).cycle();
            while begin.elapsed().as_secs_f64() < seconds {
                for burst in bursts.by_ref().take(64) {
                    store.burst(burst, &mut answers, &mut scratch);
                    let is_missing = |answer: &&Answer| answer.outcome == Outcome::Missing;
                    missed += answers.iter().filter(is_missing).count() as u64;
                    done += BURST as u64;
                }
            }
            if missed > done / 100 {
                return Err(Error::Invalid(format!("{missed} of {done} lookups missed")));
            }
            best = best.max(done as f64 / begin.elapsed().as_secs_f64());
        }
        Ok(best)
    };
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = ready.iter().map(|ready| scope.spawn(move || work(ready))).collect();
        let died = |_| Error::Invalid("a thread panicked".to_owned());
        threads.into_iter().map(|thread| thread.join().map_err(died)?).collect()
    })
}

fn request<'k>(store: &Store, key: &'k [u8; 8], is_get: bool) -> Request<'k> {
    let request = put(store, key);
    if is_get { Request { action: Action::Get, ..request } } else { request }
}

/// Prepared requests: keys, and whether they are looked up.
pub(super) type PreparedRequests = Vec<([u8; 8], bool)>;

/// The requests of a thread.
pub(super) fn requests(store: &Store, load: Load, thread: u64) -> PreparedRequests {
    let draw = match load.skew {
        0.0 => Draw::Uniform,
        skew => Draw::Zipf { skew },
    };
    let mut rng = stream(7, thread);
    let mut chooser = Chooser::new(draw, load.items, 1, thread, load.threads);
    let mut ready = Vec::with_capacity(PREPARED);
    let own = |key: &[u8; 8]| store.partition_of(store.hash(key)) as u64 % load.threads == thread;
    while ready.len() < PREPARED {
        let key = chooser.next(&mut rng, load.items).to_le_bytes();
        let is_get = rng.random_bool(load.gets);
        let is_for_us = match store.access() {
            Access::Erew => own(&key),
            Access::Crew => is_get || own(&key),
            Access::Crcw => true,
        };
        if is_for_us {
            ready.push((key, is_get));
        }
    }
    ready
}
