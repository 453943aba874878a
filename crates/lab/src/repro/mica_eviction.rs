//! `mica-eviction` and `mica-reinsertion`: hit ratios against an exact LRU of the same bytes.
//!
//! A look-aside cache: each request of a Zipf trace is a look-up, and a put if it missed. The exact
//! LRU is a list of as many items as the log's bytes hold; the index has entries enough in both.
//!
//! The thesis appends an item again when it is read, always (`lru`) or if it is nearer to the head
//! than to the tail (`approximate`). Its old place would stay empty until the head comes, so part of the
//! log would hold nothing: with `lru` it would have the keys of the last so many requests, not the last so
//! many keys. Here both only mark what is read, and the head appends it again when it comes. `lru` marks
//! when, and the head lets that of the next four items go which was used least recently; `approximate` marks
//! what the thesis appends; ours (`clock`, the default) whatever was read. None leaves anything empty.
//!
//! Invariant: all is counted, and the same at each run.
//!
//! Source: Lim, thesis (2015), section 5.3.3, "Exploiting the eviction of live items". It has no
//! number; that 1 % is near enough is ours.

use std::collections::HashMap;

use siltstone_engine::Result;
use siltstone_mica::{Action, Outcome, Request, Store, Value};
use siltstone_runtime::Env;

use super::mica_bench::{PAPER, options};
use super::{Check, Direction, Experiment, Measured};
use crate::generate::{Chooser, Draw, stream};

const KEYS: f64 = 1e6;
/// With fewer, the log of the smallest size would be smaller than the smallest there is.
const FEWEST: f64 = 4e5;
/// Bytes of an item of 8 + 8 in the log.
const ITEM_BYTES: u64 = 32;
/// Bytes of a partition that are neither log nor index.
const OVERHEAD: u64 = 16 << 10;
/// Shares of the keys that the cache has room for.
const SIZES: [f64; 3] = [0.05, 0.1, 0.3];
const FIGURE: &str = "section 5.3.3, Circular Log";

/// The scheme that stands in for LRU here, and the one without any.
pub(super) struct MicaEviction;
/// The thesis's rules, put off until the head comes.
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

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        compare(scale, progress, |ratio| {
            let [lru, fifo, clock] = ["", "fifo", "clock"].map(ratio);
            let (lru, fifo, clock) = (lru?, fifo?, clock?);
            Ok(vec![
                at_least(format!("clock over exact LRU ({clock:.4}, {lru:.4})"), 0.99, clock / lru),
                at_least(format!("clock over FIFO ({clock:.4}, {fifo:.4})"), 1.0, clock / fifo),
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

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        compare(scale, progress, |ratio| {
            let lru = ratio("")?;
            let mut checks = Vec::new();
            for scheme in ["lru", "approximate"] {
                let hits = ratio(scheme)?;
                let what = format!("{scheme} over exact LRU ({hits:.4}, {lru:.4})");
                checks.push(at_least(what, 0.99, hits / lru));
            }
            Ok(checks)
        })
    }
}

fn at_least(what: String, least: f64, ours: f64) -> Check {
    let direction = Direction::AtLeast(least);
    Check { what, claimed: least, ours, tolerance: 0.0, direction }
}

/// Checks at each size of the cache, by the hit ratio of a scheme; "" is the exact LRU.
fn compare(
    scale: f64,
    progress: &mut dyn FnMut(u64, u64),
    check: impl Fn(&dyn Fn(&str) -> Result<f64>) -> Result<Vec<Check>>,
) -> Result<Measured> {
    let keys = (KEYS * scale).max(FEWEST) as u64;
    let mut checks = Vec::new();
    for (turn, size) in (0..).zip(SIZES) {
        let room = (keys as f64 * size) as u64;
        let buckets = room / 4;
        let bytes = (room * ITEM_BYTES).next_multiple_of(4096);
        let memory = bytes + (buckets * 128).next_multiple_of(4096) + OVERHEAD;
        let ratio = |scheme: &str| {
            if scheme.is_empty() {
                let mut exact = ExactLru::new((bytes / ITEM_BYTES) as usize);
                return Ok(hit_ratio(keys, |key| exact.ask(key)));
            }
            let text = format!(
                "mode=cache partitions=1 memory={memory} buckets={buckets} eviction={scheme} \
                 hash_seed=1"
            );
            let store = Store::new(&Env::system(1), options(&text)?)?;
            Ok(hit_ratio(keys, |key| ask(&store, key)))
        };
        for mut check in check(&ratio)? {
            check.what += &format!(", room for {} % of the keys", size * 100.0);
            checks.push(check);
        }
        progress(turn + 1, SIZES.len() as u64);
    }
    let scale = format!("{keys} keys, Zipf 0.99, {} requests", keys * 12);
    Ok(Measured { scale, checks, plot: None })
}

/// Hits among requests, once the cache is warm.
fn hit_ratio(keys: u64, mut ask: impl FnMut(u64) -> bool) -> f64 {
    let mut rng = stream(3, 0);
    let mut chooser = Chooser::new(Draw::Zipf { skew: 0.99 }, keys, 1, 0, 1);
    let (warm, all) = (keys * 4, keys * 12);
    let mut hits = 0u64;
    for request in 0..all {
        let hit = ask(chooser.next(&mut rng, keys));
        hits += u64::from(hit && request >= warm);
    }
    hits as f64 / (all - warm) as f64
}

fn ask(store: &Store, key: u64) -> bool {
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

/// Room for a value of eight bytes.
struct Eight<'b>(&'b mut [u8; 8]);

impl siltstone_mica::Output for Eight<'_> {
    fn room(&mut self, _request: usize, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(..len)
    }
}

/// The least recently used of so many keys goes first: a list through a map.
struct ExactLru {
    room: usize,
    places: HashMap<u64, usize>,
    /// Key, newer, older.
    list: Vec<(u64, usize, usize)>,
    newest: usize,
    oldest: usize,
}

const NONE: usize = usize::MAX;

impl ExactLru {
    fn new(room: usize) -> Self {
        ExactLru { room, places: HashMap::new(), list: Vec::new(), newest: NONE, oldest: NONE }
    }

    /// Whether the key was there; it is afterwards.
    fn ask(&mut self, key: u64) -> bool {
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
    fn does_the_exact_lru_evict_what_was_used_least_recently() {
        let mut lru = ExactLru::new(2);
        let asked = [1, 2, 1, 3, 1, 2].map(|key| lru.ask(key));
        assert_eq!(asked, [false, false, true, false, true, false]);
    }
}
