//! Which items each eviction policy keeps, and the hit ratio of `lru` compared with an exact list.

use super::*;

/// Whether a key that is used after each write stays in a small cache while others are evicted.
fn stays(eviction: Eviction, touch: impl Fn(&mut Harness<CachePartition>, u64) -> Outcome) -> bool {
    let cache = CachePartition::new(300, 64, Mapping::Plain, 20, eviction).unwrap();
    let mut harness = Harness::new(cache);
    let mut survives = true;
    for number in 0..2000 {
        let value = value_of(1, number, 3);
        let given = Value { bytes: &value, ..Value::default() };
        harness.execute(Access::Erew, 2 + number % 60, Action::Delete(None));
        harness.execute(Access::Erew, 2 + number % 60, Action::Put(given));
        if number == 0 {
            harness.execute(Access::Erew, 1, Action::Put(given));
        }
        survives &= touch(&mut harness, number) != Outcome::Missing;
    }
    assert!(harness.tally.evictions > 1000);
    survives
}

#[test]
fn used_items_stay_under_all_policies_but_fifo() {
    let get = |harness: &mut Harness<CachePartition>, _| {
        harness.execute(Access::Erew, 1, Action::Get).0.outcome
    };
    let write = |harness: &mut Harness<CachePartition>, number| {
        let value = value_of(1, number, 3);
        let given = Value { bytes: &value, ..Value::default() };
        harness.execute(Access::Erew, 1, Action::Replace(given)).0.outcome
    };
    for eviction in EVICTIONS {
        let expected = eviction != Eviction::Fifo;
        assert_eq!(
            (stays(eviction, get), stays(eviction, write)),
            (expected, expected),
            "{eviction:?}"
        );
    }
}

#[test]
fn approximate_lru_keeps_only_items_read_in_older_half() {
    for (read_after, expected) in [(1, Outcome::Missing), (35, Outcome::Found)] {
        // Room for about 38 items of eight words.
        let cache =
            CachePartition::new(300, 64, Mapping::Plain, 20, Eviction::Approximate).unwrap();
        let mut harness = Harness::new(cache);
        for key in 0..60 {
            let value = value_of(key, key, 3);
            let given = Value { bytes: &value, ..Value::default() };
            harness.execute(Access::Erew, key, Action::Put(given));
            if key == read_after {
                assert_eq!(harness.execute(Access::Erew, 0, Action::Get).0.outcome, Outcome::Found);
            }
        }
        assert_eq!(harness.execute(Access::Erew, 0, Action::Get).0.outcome, expected);
    }
}

/// Fills the cache with 37 keys, its capacity; returns whether the first is still there after one
/// more, if it and the next three were read after these numbers of puts.
fn survives(eviction: Eviction, read_after: [u64; 4]) -> bool {
    let mut harness =
        Harness::new(CachePartition::new(300, 64, Mapping::Plain, 20, eviction).unwrap());
    let put = |harness: &mut Harness<CachePartition>, key| {
        let value = value_of(key, 1, 3);
        harness.execute(
            Access::Erew,
            key,
            Action::Put(Value { bytes: &value, ..Value::default() }),
        );
    };
    for number in 0..37 {
        put(&mut harness, number);
        for key in (0..4).filter(|key| read_after[*key as usize] == number) {
            assert_eq!(harness.execute(Access::Erew, key, Action::Get).0.outcome, Outcome::Found);
        }
    }
    put(&mut harness, 37);
    assert_eq!(harness.tally.evictions, 1);
    lookup(&harness.partition, 0).is_some()
}

#[test]
fn lru_evicts_least_recently_used_of_oldest() {
    // If all were used, the clock evicts one that was not, at any position.
    assert!(survives(Eviction::Clock, [5, 10, 20, 30]));
    assert!(!survives(Eviction::Lru, [5, 10, 20, 30]));
    assert!(survives(Eviction::Lru, [30, 20, 10, 5]));
    // Within a quarter lap all have the same age, and the first is evicted.
    assert!(!survives(Eviction::Lru, [36, 36, 36, 36]));
}

#[test]
fn item_used_once_is_evicted_after_some_laps() {
    for eviction in EVICTIONS {
        let mut harness =
            Harness::new(CachePartition::new(300, 64, Mapping::Plain, 20, eviction).unwrap());
        for key in 0..37 * 5 {
            let value = value_of(key, 1, 3);
            let given = Value { bytes: &value, ..Value::default() };
            harness.execute(Access::Erew, key, Action::Put(given));
            if key == 30 {
                assert_eq!(harness.execute(Access::Erew, 0, Action::Get).0.outcome, Outcome::Found);
            }
        }
        assert_eq!(
            harness.execute(Access::Erew, 0, Action::Get).0.outcome,
            Outcome::Missing,
            "{eviction:?}"
        );
    }
}

/// Skewed accesses: hits of the policy, and of an exact list with as many items.
#[test]
fn lru_hit_ratio_matches_exact_list() {
    const ROOM: usize = 300;
    let mut cache = LookAside::new(ROOM, Eviction::Lru);
    let (mut list, mut draw) = (Vec::new(), 1u64);
    let (mut hits, mut exact) = (0, 0);
    for turn in 0..if cfg!(miri) { 100 } else { 200_000 } {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (2000.0 * ((draw >> 11) as f64 / (1u64 << 53) as f64).powi(4)) as u64;
        let is_hit = cache.request(Access::Erew, key);
        let place = list.iter().position(|&known| known == key);
        place.map(|place| list.remove(place));
        list.push(key);
        if list.len() > ROOM {
            list.remove(0);
        }
        if turn > 20_000 {
            hits += i32::from(is_hit);
            exact += i32::from(place.is_some());
        }
    }
    let ratio = f64::from(hits) / f64::from(exact);
    assert!(cfg!(miri) || (0.99..1.01).contains(&ratio), "{hits} of {exact}");
}

/// A cache with independent hashes, so that no bucket is overfull.
struct LookAside {
    harness: Harness<CachePartition>,
}

impl LookAside {
    /// Of about `items` items of four words.
    fn new(items: usize, eviction: Eviction) -> Self {
        let cache = CachePartition::new(items * 4, items / 4, Mapping::Plain, 20, eviction);
        LookAside { harness: Harness::new(cache.unwrap()) }
    }

    /// Looks a key up, and stores it if it is missing; returns whether it was there.
    fn request(&mut self, access: Access, key: u64) -> bool {
        let is_there = self.run(access, key, Action::Get) == Outcome::Found;
        if !is_there {
            let value = Value { bytes: &key.to_le_bytes(), ..Value::default() };
            self.run(access, key, Action::Put(value));
        }
        is_there
    }

    fn run(&mut self, access: Access, key: u64, action: Action<'_>) -> Outcome {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes = key.to_le_bytes();
        let request = Request { hash, key: &bytes, action };
        let (context, mut value) = (context(access, &self.harness.clock), Vec::new());
        let (partition, tally) = (&self.harness.partition, &mut self.harness.tally);
        let bucket = partition.memory.bucket(hash);
        let _lock = (access != Access::Crcw).then(|| partition.lock.lock());
        match action.is_write() {
            true => partition.write(&request, bucket, &context, tally, None).outcome,
            false => partition.get(0, &request, bucket, &context, &mut value, tally).outcome,
        }
    }
}

#[test]
fn s3_fifo_fills_the_memory_before_it_evicts() {
    let mut cache = LookAside::new(400, Eviction::S3Fifo);
    (0..380).for_each(|key| assert!(!cache.request(Access::Erew, key)));
    assert_eq!((cache.harness.tally.evictions, cache.harness.tally.promotions), (0, 0));
    assert_eq!(cache.harness.partition.memory.items(), 380);
}

#[test]
fn s3_fifo_keeps_popular_items_during_a_scan() {
    for access in ACCESSES {
        for (eviction, keeps) in [(Eviction::S3Fifo, true), (Eviction::Clock, false)] {
            let mut cache = LookAside::new(400, eviction);
            for _ in 0..20 {
                (0..100).for_each(|key| _ = cache.request(access, key));
            }
            (1000..3000).for_each(|key| assert!(!cache.request(access, key)));
            let kept = (0..100).filter(|&key| cache.request(access, key)).count();
            let is_kept = if keeps { kept > 90 } else { kept < 10 };
            assert!(is_kept, "{eviction:?}, {access:?}: {kept} of 100");
            assert_eq!(cache.harness.partition.memory.damage("x"), Vec::new());
        }
    }
}

#[test]
fn s3_fifo_moves_new_items_that_are_used_to_main() {
    let mut cache = LookAside::new(400, Eviction::S3Fifo);
    (0..400).for_each(|key| _ = cache.request(Access::Erew, key));
    // New keys, each requested twice, replace those that were requested once.
    for key in 1000..3000 {
        assert!(!cache.request(Access::Erew, key));
        assert!(cache.request(Access::Erew, key));
    }
    let tally = cache.harness.tally;
    assert!((1900..=2000).contains(&tally.promotions), "{}", tally.promotions);
    let kept = (2700..3000).filter(|&key| cache.request(Access::Erew, key)).count();
    assert!(kept > 290, "{kept} of 300");
}

#[test]
fn s3_fifo_returns_an_evicted_key_to_main() {
    let mut cache = LookAside::new(400, Eviction::S3Fifo);
    // Key 1 is evicted from probation, unused.
    (1000..1500).for_each(|key| _ = cache.request(Access::Erew, key));
    cache.request(Access::Erew, 1);
    (2000..2060).for_each(|key| _ = cache.request(Access::Erew, key));
    assert!(!cache.request(Access::Erew, 1), "evicted");
    // It stays while others pass through probation, unlike key 2, which is new.
    cache.request(Access::Erew, 2);
    (3000..3060).for_each(|key| _ = cache.request(Access::Erew, key));
    assert_eq!(cache.run(Access::Erew, 1, Action::Get), Outcome::Found);
    assert_eq!(cache.run(Access::Erew, 2, Action::Get), Outcome::Missing);
}

#[test]
fn s3_fifo_stores_items_that_are_too_large_for_probation_in_main() {
    let mut cache = LookAside::new(400, Eviction::S3Fifo);
    (0..500).for_each(|key| _ = cache.request(Access::Erew, key));
    let bytes = [7; 200 * 8];
    let value = Value { bytes: &bytes, ..Value::default() };
    assert_eq!(cache.run(Access::Erew, 9000, Action::Put(value)), Outcome::Stored);
    (1000..1100).for_each(|key| _ = cache.request(Access::Erew, key));
    assert_eq!(cache.run(Access::Erew, 9000, Action::Get), Outcome::Found);
    assert_eq!(cache.harness.partition.memory.damage("x"), Vec::new());
}
