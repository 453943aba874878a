//! Simulated caches of items of one size: which keys each policy keeps.
//!
//! | policy | on a hit | evicts |
//! | --- | --- | --- |
//! | FIFO | nothing | the oldest |
//! | LRU | moves the item to the front | the last |
//! | clock | marks the item | the oldest without a mark; marked ones go to the front once more, as in `mica` |
//! | SIEVE | marks the item | the next without a mark behind a hand, which stays where it is |
//! | S3-FIFO | counts, up to 3 | from a small queue of a tenth, unless used twice; else from the main queue, as the clock does |
//!
//! S3-FIFO remembers the keys that left its small queue, as many as the main queue holds; one of
//! them enters the main queue at once when it is requested again.
//!
//! Source: Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024; Yang et al., "FIFO queues are all
//! you need for cache eviction", SOSP 2023.

use std::collections::VecDeque;

/// The policies by name.
pub(super) const POLICIES: [&str; 5] = ["FIFO", "LRU", "clock", "SIEVE", "S3-FIFO"];

/// A cache that stores the missing key of each request.
pub(super) trait Cache {
    /// Requests a key; returns whether it is there.
    fn request(&mut self, key: u32) -> bool;
}

/// The cache of a policy for `capacity` items, of keys below `keys`.
pub(super) fn cache(policy: &str, capacity: usize, keys: usize) -> Box<dyn Cache> {
    match policy {
        "LRU" => Box::new(Lru { list: List::new(keys), is_in: vec![false; keys], capacity }),
        "SIEVE" => Box::new(Sieve {
            list: List::new(keys),
            state: vec![State::Out; keys],
            hand: NONE,
            capacity,
        }),
        "S3-FIFO" => Box::new(S3Fifo::new(capacity, keys)),
        other => Box::new(Clock {
            queue: VecDeque::new(),
            state: vec![State::Out; keys],
            reinserts: other == "clock",
            capacity,
        }),
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Out,
    In,
    Marked,
}

/// FIFO and the clock.
struct Clock {
    /// The oldest last.
    queue: VecDeque<u32>,
    state: Vec<State>,
    reinserts: bool,
    capacity: usize,
}

impl Cache for Clock {
    fn request(&mut self, key: u32) -> bool {
        if self.state[key as usize] != State::Out {
            self.state[key as usize] = if self.reinserts { State::Marked } else { State::In };
            return true;
        }
        while self.queue.len() >= self.capacity
            && let Some(oldest) = self.queue.pop_back()
        {
            let state = &mut self.state[oldest as usize];
            if *state == State::Marked {
                *state = State::In;
                self.queue.push_front(oldest);
            } else {
                *state = State::Out;
            }
        }
        self.queue.push_front(key);
        self.state[key as usize] = State::In;
        false
    }
}

struct Lru {
    list: List,
    is_in: Vec<bool>,
    capacity: usize,
}

impl Cache for Lru {
    fn request(&mut self, key: u32) -> bool {
        let is_hit = std::mem::replace(&mut self.is_in[key as usize], true);
        if is_hit {
            self.list.remove(key);
        } else if self.list.len == self.capacity {
            let last = self.list.last;
            self.list.remove(last);
            self.is_in[last as usize] = false;
        }
        self.list.push_front(key);
        is_hit
    }
}

struct Sieve {
    list: List,
    state: Vec<State>,
    /// The next candidate; [`NONE`]: the last.
    hand: u32,
    capacity: usize,
}

impl Cache for Sieve {
    fn request(&mut self, key: u32) -> bool {
        if self.state[key as usize] != State::Out {
            self.state[key as usize] = State::Marked;
            return true;
        }
        if self.list.len == self.capacity {
            let mut candidate = if self.hand == NONE { self.list.last } else { self.hand };
            while self.state[candidate as usize] == State::Marked {
                self.state[candidate as usize] = State::In;
                let newer = self.list.newer[candidate as usize];
                candidate = if newer == NONE { self.list.last } else { newer };
            }
            self.hand = self.list.newer[candidate as usize];
            self.list.remove(candidate);
            self.state[candidate as usize] = State::Out;
        }
        self.list.push_front(key);
        self.state[key as usize] = State::In;
        false
    }
}

/// Where S3-FIFO has a key.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    Out,
    Ghost,
    Small,
    Main,
}

struct S3Fifo {
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    /// May have keys that were requested again.
    ghosts: VecDeque<u32>,
    place: Vec<Place>,
    uses: Vec<u8>,
    small_capacity: usize,
    capacity: usize,
}

impl S3Fifo {
    fn new(capacity: usize, keys: usize) -> Self {
        S3Fifo {
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            place: vec![Place::Out; keys],
            uses: vec![0; keys],
            small_capacity: (capacity / 10).max(1),
            capacity,
        }
    }

    fn evict(&mut self) {
        while self.small.len() + self.main.len() >= self.capacity {
            if self.small.len() >= self.small_capacity || self.main.is_empty() {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
    }

    fn evict_small(&mut self) {
        let Some(key) = self.small.pop_back() else { return };
        if self.uses[key as usize] > 1 {
            self.uses[key as usize] = 0;
            self.place[key as usize] = Place::Main;
            self.main.push_front(key);
            return;
        }
        self.place[key as usize] = Place::Ghost;
        self.ghosts.push_front(key);
        if self.ghosts.len() > self.capacity - self.small_capacity
            && let Some(oldest) = self.ghosts.pop_back()
            && self.place[oldest as usize] == Place::Ghost
        {
            self.place[oldest as usize] = Place::Out;
        }
    }

    fn evict_main(&mut self) {
        let Some(key) = self.main.pop_back() else { return };
        if self.uses[key as usize] > 0 {
            self.uses[key as usize] -= 1;
            self.main.push_front(key);
        } else {
            self.place[key as usize] = Place::Out;
        }
    }
}

impl Cache for S3Fifo {
    fn request(&mut self, key: u32) -> bool {
        let place = self.place[key as usize];
        if matches!(place, Place::Small | Place::Main) {
            self.uses[key as usize] = (self.uses[key as usize] + 1).min(3);
            return true;
        }
        self.evict();
        // The eviction may have forgotten the key.
        let is_ghost = place == Place::Ghost && self.place[key as usize] == Place::Ghost;
        self.uses[key as usize] = 0;
        if is_ghost {
            self.place[key as usize] = Place::Main;
            self.main.push_front(key);
        } else {
            self.place[key as usize] = Place::Small;
            self.small.push_front(key);
        }
        false
    }
}

const NONE: u32 = u32::MAX;

/// A doubly linked list of keys.
struct List {
    newer: Vec<u32>,
    older: Vec<u32>,
    first: u32,
    last: u32,
    len: usize,
}

impl List {
    fn new(keys: usize) -> Self {
        List { newer: vec![NONE; keys], older: vec![NONE; keys], first: NONE, last: NONE, len: 0 }
    }

    fn push_front(&mut self, key: u32) {
        self.newer[key as usize] = NONE;
        self.older[key as usize] = self.first;
        match self.first {
            NONE => self.last = key,
            first => self.newer[first as usize] = key,
        }
        self.first = key;
        self.len += 1;
    }

    fn remove(&mut self, key: u32) {
        let (newer, older) = (self.newer[key as usize], self.older[key as usize]);
        match newer {
            NONE => self.first = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.last = newer,
            older => self.newer[older as usize] = newer,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hits of a policy on a trace with a cache of 3 items.
    fn hits(policy: &str, trace: &[u32]) -> Vec<bool> {
        let mut cache = cache(policy, 3, 10);
        trace.iter().map(|&key| cache.request(key)).collect()
    }

    #[test]
    fn policies_keep_what_they_say() {
        // 0 was used again before 3 arrives: all but FIFO keep it.
        let trace = [0, 1, 2, 0, 3, 0, 1];
        assert_eq!(hits("FIFO", &trace)[4..], [false, false, false]);
        for policy in ["LRU", "clock", "SIEVE"] {
            assert_eq!(hits(policy, &trace)[4..], [false, true, false], "{policy}");
        }
        // The hand of SIEVE stays at 2, where the clock evicts it, too; then at 3, a new item, where
        // the clock has 0 again.
        let trace = [0, 1, 2, 0, 3, 4, 5, 0];
        assert!(*hits("SIEVE", &trace).last().unwrap());
        assert!(!*hits("clock", &trace).last().unwrap());
    }

    #[test]
    fn keys_that_are_requested_once_leave_the_small_queue_of_s3_fifo() {
        let mut cache = cache("S3-FIFO", 20, 1000);
        for _ in 0..3 {
            (0..10).for_each(|key| _ = cache.request(key));
        }
        (100..1000).for_each(|key| assert!(!cache.request(key)));
        assert!((0..10).all(|key| cache.request(key)), "a scan evicts no popular key");
    }

    #[test]
    fn no_cache_has_more_items_than_its_capacity() {
        for policy in POLICIES {
            let mut cache = cache(policy, 7, 100);
            let mut random = 1u32;
            for _ in 0..10_000 {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let key = (random >> 16) % 100;
                cache.request(key);
                assert!(cache.request(key), "{policy}: the newest key is there");
            }
            // A key that hits is in the cache; asking for all of them finds at most 7.
            let there = (0..100).filter(|&key| cache.request(key)).count();
            assert!(there <= 7, "{policy}: {there}");
        }
    }
}
