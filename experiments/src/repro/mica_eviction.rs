//! `mica-eviction` and `mica-reinsertion`: hit ratios compared with an exact LRU of the same bytes.
//!
//! A look-aside cache: each request of a Zipf trace is a lookup, followed by a put if it missed.
//! The exact LRU is a list of as many items as the log's bytes can contain; the index is large
//! enough for both.
//!
//! The thesis re-appends an item when it is read, always (`lru`) or if it is nearer to the head
//! than to the tail (`approximate`). The old copy would be dead until the head reaches it, so part
//! of the log would be wasted: with `lru` it would contain the keys of the last n requests, not the
//! last n keys. Here both only mark an item when it is read, and the head re-appends marked items
//! when it reaches them. `lru` marks the time, and the head evicts the least recently used of the
//! next four items; `approximate` marks the items that the thesis would append; ours (`clock`)
//! marks every read item. None of them wastes space.
//!
//! Invariant: all numbers are counts and reproducible.
//!
//! Source: Lim, thesis (2015), section 5.3.3, "Exploiting the eviction of live items". It gives no
//! number; the bar of 1 % is ours.

use std::collections::HashMap;

use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_engine::Result;
use siltstone_mica::{Action, Outcome, Request, Store, Value};
use siltstone_runtime::Env;

use super::bars::bar;
use super::mica_bench::{PAPER, options};
use super::{Check, Experiment, Measurement};

const KEYS: f64 = 1e6;
/// Minimal number of keys: with fewer, the smallest log would be below the minimum of the engine.
const MIN_KEYS: f64 = 4e5;
/// Bytes per item of 8 + 8 bytes in the log.
const ITEM_BYTES: u64 = 32;
/// Bytes per partition besides log and index.
const OVERHEAD: u64 = 16 << 10;
/// Sizes of the cache, as shares of the keys.
const SIZES: [f64; 3] = [0.05, 0.1, 0.3];
const FIGURE: &str = "section 5.3.3, Circular Log";

/// The approximation of LRU here, and FIFO.
pub(super) struct MicaEviction;
/// The thesis's rules, applied when the head of the log reaches an item.
pub(super) struct MicaReinsertion;

impl Experiment for MicaEviction {
    fn id(&self) -> &'static str {
        "mica-eviction"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        FIGURE
    }

    fn claim(&self) -> &'static str {
        "a log evicts as LRU does; by the clock, hits are within 1 % of an exact LRU's, and above FIFO's"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        compare(scale, progress, |ratio| {
            let [lru, fifo, clock] = ["", "fifo", "clock"].map(ratio);
            let (lru, fifo, clock) = (lru?, fifo?, clock?);
            Ok(vec![
                bar("mica-eviction", "exact-lru")
                    .check(format!("clock over exact LRU ({clock:.4}, {lru:.4})"), clock / lru),
                bar("mica-eviction", "fifo")
                    .check(format!("clock over FIFO ({clock:.4}, {fifo:.4})"), clock / fifo),
            ])
        })
    }
}

impl Experiment for MicaReinsertion {
    fn id(&self) -> &'static str {
        "mica-reinsertion"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        FIGURE
    }

    fn claim(&self) -> &'static str {
        "reinserting what is read gives LRU, and reinserting what is nearer to the head is similar: \
         here, hits within 1 % of an exact LRU's"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        compare(scale, progress, |ratio| {
            let lru = ratio("")?;
            let mut checks = Vec::new();
            for scheme in ["lru", "approximate"] {
                let hits = ratio(scheme)?;
                let what = format!("{scheme} over exact LRU ({hits:.4}, {lru:.4})");
                checks.push(bar("mica-reinsertion", "exact-lru").check(what, hits / lru));
            }
            Ok(checks)
        })
    }
}

/// Checks per size of the cache, by the hit ratio of a scheme; "" is the exact LRU.
fn compare(
    scale: f64,
    progress: &mut dyn FnMut(u64, u64),
    check: impl Fn(&dyn Fn(&str) -> Result<f64>) -> Result<Vec<Check>>,
) -> Result<Measurement> {
    let keys = (KEYS * scale).max(MIN_KEYS) as u64;
    let mut checks = Vec::new();
    for (turn, size) in (0..).zip(SIZES) {
        let room = (keys as f64 * size) as u64;
        let buckets = room / 4;
        let bytes = (room * ITEM_BYTES).next_multiple_of(4096);
        let memory = bytes + (buckets * 128).next_multiple_of(4096) + OVERHEAD;
        let ratio = |scheme: &str| {
            if scheme.is_empty() {
                let mut exact = ExactLru::new((bytes / ITEM_BYTES) as usize);
                return Ok(hit_ratio(keys, |key| exact.access(key)));
            }
            let text = format!(
                "mode=cache partitions=1 memory={memory} buckets={buckets} eviction={scheme} \
                 hash_seed=1"
            );
            let store = Store::new(&Env::system(1), options(&text)?)?;
            Ok(hit_ratio(keys, |key| access(&store, key)))
        };
        for mut check in check(&ratio)? {
            check.what += &format!(", cache for {} % of the keys", size * 100.0);
            checks.push(check);
        }
        progress(turn + 1, SIZES.len() as u64);
    }
    let scale = format!("{keys} keys, Zipf 0.99, {} requests", keys * 12);
    Ok(Measurement { scale, checks, plot: None })
}

/// Share of hits, with a warm cache.
fn hit_ratio(keys: u64, mut access: impl FnMut(u64) -> bool) -> f64 {
    let mut rng = stream(3, 0);
    let mut chooser = Chooser::new(Draw::Zipf { skew: 0.99 }, keys, 1, 0, 1);
    let (warm, all) = (keys * 4, keys * 12);
    let mut hits = 0u64;
    for request in 0..all {
        let hit = access(chooser.next(&mut rng, keys));
        hits += u64::from(hit && request >= warm);
    }
    hits as f64 / (all - warm) as f64
}

fn access(store: &Store, key: u64) -> bool {
    let key = key.to_le_bytes();
    let hash = store.hash(&key);
    let mut found = [0; 8];
    let get = Request { hash, key: &key, action: Action::Get };
    let is_hit = store.one(&get, &mut Eight(&mut found)).outcome == Outcome::Found;
    if !is_hit {
        let put = Action::Put(Value { bytes: &key, ..Value::default() });
        store.one(&Request { action: put, ..get }, &mut ());
    }
    is_hit
}

/// A buffer for a value of eight bytes.
struct Eight<'b>(&'b mut [u8; 8]);

impl siltstone_mica::Output for Eight<'_> {
    fn room(&mut self, _request: usize, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(..len)
    }
}

/// An LRU cache of a number of keys: a linked list with a hash map.
struct ExactLru {
    room: usize,
    places: HashMap<u64, usize>,
    /// Key, next newer entry, next older entry.
    list: Vec<(u64, usize, usize)>,
    newest: usize,
    oldest: usize,
}

const NONE: usize = usize::MAX;

impl ExactLru {
    fn new(room: usize) -> Self {
        ExactLru { room, places: HashMap::new(), list: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Accesses a key; `true` if it was cached. It is cached afterwards.
    fn access(&mut self, key: u64) -> bool {
        if let Some(&place) = self.places.get(&key) {
            self.unlink(place);
            self.link(place);
            return true;
        }
        let place = if self.list.len() < self.room {
            self.list.push((key, NONE, NONE));
            self.list.len() - 1
        } else {
            let place = self.oldest;
            self.unlink(place);
            self.places.remove(&self.list[place].0);
            self.list[place].0 = key;
            place
        };
        self.places.insert(key, place);
        self.link(place);
        false
    }

    fn unlink(&mut self, place: usize) {
        let (_, newer, older) = self.list[place];
        match newer {
            NONE => self.newest = older,
            newer => self.list[newer].2 = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.list[older].1 = newer,
        }
    }

    fn link(&mut self, place: usize) {
        (self.list[place].1, self.list[place].2) = (NONE, self.newest);
        match self.newest {
            NONE => self.oldest = place,
            newest => self.list[newest].1 = place,
        }
        self.newest = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_lru_evicts_the_least_recently_used() {
        let mut lru = ExactLru::new(2);
        let hits = [1, 2, 1, 3, 1, 2].map(|key| lru.access(key));
        assert_eq!(hits, [false, false, true, false, true, false]);
    }
}
