//! Each kind of violation is detected.

use super::*;

fn put(oracle: &mut Oracle, keys: &[u32]) -> Write {
    let id = oracle.next_write();
    Write { id, effects: keys.iter().map(|key| (*key, Effect::Put(None))).collect() }
}

fn observe(seen: &[ReadOutcome]) -> Vec<Observation> {
    let now = Instant::now();
    seen.iter().map(|seen| Observation { seen: seen.clone(), from: now, until: now }).collect()
}

#[test]
fn acknowledged_write_that_is_lost_is_detected() {
    let mut oracle = Oracle::new(0, 1, 0);
    let (first, second) = (put(&mut oracle, &[0]), put(&mut oracle, &[0]));
    oracle.acknowledge(first);
    oracle.acknowledge(second);
    let error = oracle.check(&observe(&[ReadOutcome::Value(1)])).unwrap_err();
    assert_eq!(error, "key k0:0 has the value of write 1, expected the value of write 2");
    assert!(oracle.check(&observe(&[ReadOutcome::Absent])).is_err());
    assert!(oracle.check(&observe(&[ReadOutcome::Foreign("x".into())])).is_err());
    oracle.check(&observe(&[ReadOutcome::Value(2)])).unwrap();
}

#[test]
fn refused_write_that_is_visible_is_detected() {
    let mut oracle = Oracle::new(0, 1, 0);
    let (first, second) = (put(&mut oracle, &[0]), put(&mut oracle, &[0]));
    oracle.acknowledge(first);
    oracle.refuse(&second);
    let error = oracle.check(&observe(&[ReadOutcome::Value(2)])).unwrap_err();
    assert!(error.contains("which was refused"), "{error}");
    oracle.check(&observe(&[ReadOutcome::Value(1)])).unwrap();
}

#[test]
fn unknown_write_that_was_read_is_settled() {
    for is_visible in [true, false] {
        let mut oracle = Oracle::new(0, 1, 0);
        let (first, second) = (put(&mut oracle, &[0]), put(&mut oracle, &[0]));
        oracle.acknowledge(first);
        oracle.record_unknown(vec![second]);
        let (seen, other) = if is_visible { (2, 1) } else { (1, 2) };
        oracle.check(&observe(&[ReadOutcome::Value(seen)])).unwrap();
        assert!(
            oracle.check(&observe(&[ReadOutcome::Value(other)])).is_err(),
            "it was observed before"
        );
    }
}

#[test]
fn torn_batch_is_detected() {
    let mut oracle = Oracle::new(0, 2, 0);
    let write = put(&mut oracle, &[0, 1]);
    oracle.record_unknown(vec![write]);
    let error = oracle.check(&observe(&[ReadOutcome::Value(1), ReadOutcome::Absent])).unwrap_err();
    assert!(error.contains("not together"), "{error}");
    oracle.check(&observe(&[ReadOutcome::Value(1), ReadOutcome::Value(1)])).unwrap();
}

#[test]
fn group_with_a_hole_is_detected() {
    let mut oracle = Oracle::new(0, 3, 0);
    let writes = (0..3).map(|key| put(&mut oracle, &[key])).collect();
    oracle.record_unknown(writes);
    let (a, b, c) = (ReadOutcome::Value(1), ReadOutcome::Value(2), ReadOutcome::Value(3));
    assert!(
        oracle.check(&observe(&[ReadOutcome::Absent, b.clone(), ReadOutcome::Absent])).is_err()
    );
    assert!(oracle.check(&observe(&[a.clone(), ReadOutcome::Absent, c])).is_err());
    oracle.check(&observe(&[a, b, ReadOutcome::Absent])).unwrap();
}

#[test]
fn number_beyond_the_sum_of_increments_is_detected() {
    let seen = |number| observe(&[ReadOutcome::Number(number)]);
    let mut oracle = Oracle::new(0, 0, 1);
    let mut add = || Write { id: oracle.next_write(), effects: vec![(0, Effect::Add(1))] };
    let writes = [add(), add(), add()];
    let [first, second, third] = writes;
    oracle.acknowledge(first);
    oracle.record_unknown(vec![second, third]);
    assert!(oracle.check(&seen(0)).is_err());
    assert!(oracle.check(&seen(4)).is_err());
    oracle.check(&seen(2)).unwrap();
    assert!(oracle.check(&seen(3)).is_err());
}

#[test]
fn expired_value_that_comes_back_is_detected() {
    let mut oracle = Oracle::new(0, 1, 0);
    let id = oracle.next_write();
    let now = Instant::now();
    let at = now + Duration::from_secs(10);
    let expiry = Expiry { earliest: at, latest: at };
    oracle.acknowledge(Write { id, effects: vec![(0, Effect::Put(Some(expiry)))] });
    let observe_at = |seen: ReadOutcome, second| {
        let at = now + Duration::from_secs(second);
        vec![Observation { seen, from: at, until: at }]
    };
    assert!(oracle.check(&observe_at(ReadOutcome::Absent, 9)).is_err(), "too early");
    oracle.check(&observe_at(ReadOutcome::Value(1), 9)).unwrap();
    assert!(oracle.check(&observe_at(ReadOutcome::Value(1), 11)).is_err(), "too late");
    oracle.check(&observe_at(ReadOutcome::Absent, 11)).unwrap();
    assert!(oracle.check(&observe_at(ReadOutcome::Value(1), 9)).is_err(), "it was gone");
}

#[test]
fn uncertain_log_may_lose_only_its_end() {
    let mut oracle = Oracle::new(0, 3, 0);
    let writes: Vec<_> = (0..3).map(|key| put(&mut oracle, &[key])).collect();
    oracle.keep_log();
    writes.into_iter().for_each(|write| oracle.acknowledge(write));
    oracle.make_log_uncertain();
    let (a, b) = (ReadOutcome::Value(1), ReadOutcome::Value(2));
    assert!(
        oracle.check(&observe(&[ReadOutcome::Absent, b.clone(), ReadOutcome::Absent])).is_err()
    );
    oracle.check(&observe(&[a, b, ReadOutcome::Absent])).unwrap();
}

#[test]
fn single_unknown_writes_are_independent() {
    let mut oracle = Oracle::new(0, 3, 1);
    for key in 0..3 {
        let write = put(&mut oracle, &[key]);
        oracle.record_unknown(vec![write]);
    }
    for _ in 0..40 {
        let id = oracle.next_write();
        oracle.record_unknown(vec![Write { id, effects: vec![(3, Effect::Add(1))] }]);
    }
    let seen = |number| {
        observe(&[
            ReadOutcome::Absent,
            ReadOutcome::Value(2),
            ReadOutcome::Absent,
            ReadOutcome::Number(number),
        ])
    };
    assert!(oracle.check(&seen(41)).is_err());
    oracle.check(&seen(17)).unwrap();
}

#[test]
fn torn_batch_among_unknown_removals_is_detected() {
    let mut oracle = Oracle::new(0, 40, 0);
    let batch = put(&mut oracle, &[0, 1]);
    oracle.record_unknown(vec![batch]);
    for key in 2..40 {
        let id = oracle.next_write();
        oracle.record_unknown(vec![Write { id, effects: vec![(key, Effect::Remove)] }]);
    }
    let mut seen = vec![ReadOutcome::Absent; 40];
    seen[0] = ReadOutcome::Value(1);
    assert!(oracle.check(&observe(&seen)).is_err());
}
