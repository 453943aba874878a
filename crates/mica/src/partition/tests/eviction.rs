//! Which items each scheme keeps, and how often `lru` hits beside an exact list.

use super::*;

/// Whether a key stays in a small cache while others come and go, if it is used so after each of them.
fn stays(eviction: Eviction, use_it: impl Fn(&mut Bench<Cache>, u64) -> Outcome) -> bool {
    let cache = Cache::new(300, 64, Mapping::Plain, 20, eviction).unwrap();
    let mut bench = Bench::new(cache);
    let mut there = true;
    for number in 0..2000 {
        let value = value_of(1, number, 3);
        let given = Value { bytes: &value, ..Value::default() };
        bench.ask(Access::Erew, 2 + number % 60, Action::Delete(None));
        bench.ask(Access::Erew, 2 + number % 60, Action::Put(given));
        if number == 0 {
            bench.ask(Access::Erew, 1, Action::Put(given));
        }
        there &= use_it(&mut bench, number) != Outcome::Missing;
    }
    assert!(bench.tally.evictions > 1000);
    there
}

#[test]
fn do_reads_and_writes_keep_an_item_under_all_schemes_but_one() {
    let get = |bench: &mut Bench<Cache>, _| bench.ask(Access::Erew, 1, Action::Get).0.outcome;
    let write = |bench: &mut Bench<Cache>, number| {
        let value = value_of(1, number, 3);
        let given = Value { bytes: &value, ..Value::default() };
        bench.ask(Access::Erew, 1, Action::Replace(given)).0.outcome
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
fn does_approximate_lru_keep_what_is_read_in_the_older_half_alone() {
    for (read_after, expected) in [(1, Outcome::Missing), (35, Outcome::Found)] {
        // Room for some 38 items of eight words.
        let cache = Cache::new(300, 64, Mapping::Plain, 20, Eviction::Approximate).unwrap();
        let mut bench = Bench::new(cache);
        for key in 0..60 {
            let value = value_of(key, key, 3);
            let given = Value { bytes: &value, ..Value::default() };
            bench.ask(Access::Erew, key, Action::Put(given));
            if key == read_after {
                assert_eq!(bench.ask(Access::Erew, 0, Action::Get).0.outcome, Outcome::Found);
            }
        }
        assert_eq!(bench.ask(Access::Erew, 0, Action::Get).0.outcome, expected);
    }
}

/// Whether the first of 37 keys, which are all that there is room for, is there after one more, if it and
/// the three behind it were read after so many of the puts.
fn outlives(eviction: Eviction, read_after: [u64; 4]) -> bool {
    let mut bench = Bench::new(Cache::new(300, 64, Mapping::Plain, 20, eviction).unwrap());
    let put = |bench: &mut Bench<Cache>, key| {
        let value = value_of(key, 1, 3);
        bench.ask(Access::Erew, key, Action::Put(Value { bytes: &value, ..Value::default() }));
    };
    for number in 0..37 {
        put(&mut bench, number);
        for key in (0..4).filter(|key| read_after[*key as usize] == number) {
            assert_eq!(bench.ask(Access::Erew, key, Action::Get).0.outcome, Outcome::Found);
        }
    }
    put(&mut bench, 37);
    assert_eq!(bench.tally.evictions, 1);
    lookup(&bench.partition, 0).is_some()
}

#[test]
fn does_lru_take_of_the_oldest_what_was_used_least_recently() {
    // Of those that were all used, the clock takes one that was not, wherever it lies.
    assert!(outlives(Eviction::Clock, [5, 10, 20, 30]));
    assert!(!outlives(Eviction::Lru, [5, 10, 20, 30]));
    assert!(outlives(Eviction::Lru, [30, 20, 10, 5]));
    // Within a quarter all are of one age, and the first goes.
    assert!(!outlives(Eviction::Lru, [36, 36, 36, 36]));
}

#[test]
fn does_what_was_used_once_go_after_some_turns() {
    for eviction in EVICTIONS {
        let mut bench = Bench::new(Cache::new(300, 64, Mapping::Plain, 20, eviction).unwrap());
        for key in 0..37 * 5 {
            let value = value_of(key, 1, 3);
            let given = Value { bytes: &value, ..Value::default() };
            bench.ask(Access::Erew, key, Action::Put(given));
            if key == 30 {
                assert_eq!(bench.ask(Access::Erew, 0, Action::Get).0.outcome, Outcome::Found);
            }
        }
        assert_eq!(
            bench.ask(Access::Erew, 0, Action::Get).0.outcome,
            Outcome::Missing,
            "{eviction:?}"
        );
    }
}

/// A cache whose keys are asked for with skew: hits of the scheme, and of a list of as many items.
#[test]
fn does_lru_hit_as_often_as_an_exact_list() {
    const ROOM: usize = 300;
    let cache = Cache::new(ROOM * 4, 64, Mapping::Plain, 20, Eviction::Lru).unwrap();
    let mut bench = Bench::new(cache);
    let (mut list, mut draw) = (Vec::new(), 1u64);
    let (mut hits, mut exact) = (0, 0);
    for turn in 0..if cfg!(miri) { 100 } else { 200_000 } {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let key = (2000.0 * ((draw >> 11) as f64 / (1u64 << 53) as f64).powi(4)) as u64;
        // A hash of its own, so that no bucket is too full.
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let bytes = key.to_le_bytes();
        let mut of = |action: Action<'_>| {
            let request = Request { hash, key: &bytes, action };
            let (context, mut value) = (context(Access::Erew, &bench.clock), Vec::new());
            let (partition, tally) = (&bench.partition, &mut bench.tally);
            let bucket = partition.memory.bucket(hash);
            match action.is_write() {
                true => partition.write(&request, bucket, &context, tally, None),
                false => partition.get(0, &request, bucket, &context, &mut value, tally),
            }
        };
        let is_hit = of(Action::Get).outcome == Outcome::Found;
        if !is_hit {
            of(Action::Put(Value { bytes: &bytes, ..Value::default() }));
        }
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
