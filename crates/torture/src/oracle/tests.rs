//! The oracle must be able to say no.

use super::*;

fn put(oracle: &mut Oracle, keys: &[u32]) -> Write {
    let id = oracle.next_write();
    Write { id, effects: keys.iter().map(|key| (*key, Effect::Put(None))).collect() }
}

fn see(seen: &[Seen]) -> Vec<Sight> {
    let now = Instant::now();
    seen.iter().map(|seen| Sight { seen: seen.clone(), from: now, until: now }).collect()
}

#[test]
fn acknowledged_write_that_is_lost_is_found() {
    let mut oracle = Oracle::new(0, 1, 0);
    let (first, second) = (put(&mut oracle, &[0]), put(&mut oracle, &[0]));
    oracle.acknowledge(first);
    oracle.acknowledge(second);
    let error = oracle.check(&see(&[Seen::Value(1)])).unwrap_err();
    assert_eq!(error, "key k0:0 has the value of write 1, and should have the value of write 2");
    assert!(oracle.check(&see(&[Seen::Absent])).is_err());
    assert!(oracle.check(&see(&[Seen::Foreign("x".into())])).is_err());
    oracle.check(&see(&[Seen::Value(2)])).unwrap();
}

#[test]
fn refused_write_that_is_visible_is_found() {
    let mut oracle = Oracle::new(0, 1, 0);
    let (first, second) = (put(&mut oracle, &[0]), put(&mut oracle, &[0]));
    oracle.acknowledge(first);
    oracle.refuse(&second);
    let error = oracle.check(&see(&[Seen::Value(2)])).unwrap_err();
    assert!(error.contains("which was refused"), "{error}");
    oracle.check(&see(&[Seen::Value(1)])).unwrap();
}

#[test]
fn unknown_write_may_be_either_and_then_stays() {
    for there in [true, false] {
        let mut oracle = Oracle::new(0, 1, 0);
        let (first, second) = (put(&mut oracle, &[0]), put(&mut oracle, &[0]));
        oracle.acknowledge(first);
        oracle.leave_unknown(vec![second]);
        let (seen, other) = if there { (2, 1) } else { (1, 2) };
        oracle.check(&see(&[Seen::Value(seen)])).unwrap();
        assert!(oracle.check(&see(&[Seen::Value(other)])).is_err(), "it was observed before");
    }
}

#[test]
fn torn_batch_is_found() {
    let mut oracle = Oracle::new(0, 2, 0);
    let write = put(&mut oracle, &[0, 1]);
    oracle.leave_unknown(vec![write]);
    let error = oracle.check(&see(&[Seen::Value(1), Seen::Absent])).unwrap_err();
    assert!(error.contains("not all at once"), "{error}");
    oracle.check(&see(&[Seen::Value(1), Seen::Value(1)])).unwrap();
}

#[test]
fn group_with_a_hole_is_found() {
    let mut oracle = Oracle::new(0, 3, 0);
    let writes = (0..3).map(|key| put(&mut oracle, &[key])).collect();
    oracle.leave_unknown(writes);
    let (a, b, c) = (Seen::Value(1), Seen::Value(2), Seen::Value(3));
    assert!(oracle.check(&see(&[Seen::Absent, b.clone(), Seen::Absent])).is_err());
    assert!(oracle.check(&see(&[a.clone(), Seen::Absent, c])).is_err());
    oracle.check(&see(&[a, b, Seen::Absent])).unwrap();
}

#[test]
fn number_beyond_what_was_added_is_found() {
    let seen = |number| see(&[Seen::Number(number)]);
    let mut oracle = Oracle::new(0, 0, 1);
    let mut add = || Write { id: oracle.next_write(), effects: vec![(0, Effect::Add(1))] };
    let writes = [add(), add(), add()];
    let [first, second, third] = writes;
    oracle.acknowledge(first);
    oracle.leave_unknown(vec![second, third]);
    assert!(oracle.check(&seen(0)).is_err());
    assert!(oracle.check(&seen(4)).is_err());
    oracle.check(&seen(2)).unwrap();
    assert!(oracle.check(&seen(3)).is_err());
}

#[test]
fn expired_value_that_comes_back_is_found() {
    let mut oracle = Oracle::new(0, 1, 0);
    let id = oracle.next_write();
    let now = Instant::now();
    let at = now + Duration::from_secs(10);
    let expiry = Expiry { earliest: at, latest: at };
    oracle.acknowledge(Write { id, effects: vec![(0, Effect::Put(Some(expiry)))] });
    let see_at = |seen: Seen, second| {
        let at = now + Duration::from_secs(second);
        vec![Sight { seen, from: at, until: at }]
    };
    assert!(oracle.check(&see_at(Seen::Absent, 9)).is_err(), "too early");
    oracle.check(&see_at(Seen::Value(1), 9)).unwrap();
    assert!(oracle.check(&see_at(Seen::Value(1), 11)).is_err(), "too late");
    oracle.check(&see_at(Seen::Absent, 11)).unwrap();
    assert!(oracle.check(&see_at(Seen::Value(1), 9)).is_err(), "it was gone");
}

#[test]
fn doubted_log_may_lose_its_end_alone() {
    let mut oracle = Oracle::new(0, 3, 0);
    let writes: Vec<_> = (0..3).map(|key| put(&mut oracle, &[key])).collect();
    oracle.keep_log();
    writes.into_iter().for_each(|write| oracle.acknowledge(write));
    oracle.doubt_log();
    let (a, b) = (Seen::Value(1), Seen::Value(2));
    assert!(oracle.check(&see(&[Seen::Absent, b.clone(), Seen::Absent])).is_err());
    oracle.check(&see(&[a, b, Seen::Absent])).unwrap();
}

#[test]
fn single_writes_of_unknown_outcome_are_each_there_or_not() {
    let mut oracle = Oracle::new(0, 3, 1);
    for key in 0..3 {
        let write = put(&mut oracle, &[key]);
        oracle.leave_unknown(vec![write]);
    }
    for _ in 0..40 {
        let id = oracle.next_write();
        oracle.leave_unknown(vec![Write { id, effects: vec![(3, Effect::Add(1))] }]);
    }
    let seen = |number| see(&[Seen::Absent, Seen::Value(2), Seen::Absent, Seen::Number(number)]);
    assert!(oracle.check(&seen(41)).is_err());
    oracle.check(&seen(17)).unwrap();
}

#[test]
fn removal_of_unknown_outcome_does_not_hide_a_torn_batch() {
    let mut oracle = Oracle::new(0, 40, 0);
    let batch = put(&mut oracle, &[0, 1]);
    oracle.leave_unknown(vec![batch]);
    for key in 2..40 {
        let id = oracle.next_write();
        oracle.leave_unknown(vec![Write { id, effects: vec![(key, Effect::Remove)] }]);
    }
    let mut seen = vec![Seen::Absent; 40];
    seen[0] = Seen::Value(1);
    assert!(oracle.check(&see(&seen)).is_err());
}
