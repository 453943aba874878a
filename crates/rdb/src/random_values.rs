//! Property tests: values of all types round trip, and damaged ones are refused or read.

use proptest::prelude::*;
use proptest::test_runner::Config;
use siltstone_collections::{Encoding, StreamId};

use crate::payload::{dump, restore, seal, verify};
use crate::stream::{PendingEntry, Stream, StreamConsumer, StreamEntry, StreamGroup};
use crate::value::{ExpiringField, Value};

/// Far above the memory of any value here, far below what damaged lengths announce.
const LIMIT: u64 = 16 << 20;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(any::<u8>(), 0..40),
        1 => proptest::collection::vec(any::<u8>(), 0..9000),
        4 => (any::<i64>(), 0..64u32).prop_map(|(n, shift)| (n >> shift).to_string().into_bytes()),
    ]
}

fn many(max: usize) -> impl Strategy<Value = Vec<Vec<u8>>> {
    proptest::collection::vec(bytes(), 1..max)
}

fn score() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        any::<i16>().prop_map(f64::from),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
    ]
}

fn stream() -> impl Strategy<Value = Stream> {
    let id = (any::<u8>(), prop_oneof![0..5u64, any::<u64>()]);
    let id = id.prop_map(|(ms, seq)| StreamId { ms: 1 + u64::from(ms), seq });
    let pair = proptest::collection::vec(bytes(), 2..3);
    let other = proptest::collection::vec(bytes(), 2..3);
    let names = proptest::collection::vec(bytes(), 1..3);
    let entries = proptest::collection::btree_map(id, (other, any::<bool>()), 0..250);
    let group = (bytes(), any::<u64>(), any::<bool>());
    let pending = proptest::collection::btree_map(0..999u64, (0..3usize, any::<u64>()), 0..20);
    (entries, pair, names, group, pending).prop_map(|(entries, pair, names, group, pending)| {
        let entries: Vec<_> = entries
            .into_iter()
            .map(|(id, (fields, is_common))| {
                // Most entries have the same field.
                let fields =
                    if is_common { vec![pair[0].clone(), fields[1].clone()] } else { fields };
                StreamEntry { id, fields }
            })
            .collect();
        let consumers: Vec<_> = names
            .into_iter()
            .map(|name| StreamConsumer { name, seen_at: 7, active_at: Some(7) })
            .collect();
        let pending = pending.into_iter().map(|(ms, (consumer, delivered_at))| PendingEntry {
            id: StreamId { ms, seq: 1 },
            consumer: consumer % consumers.len(),
            delivered_at,
            deliveries: ms,
        });
        let (name, read, has_read) = group;
        let pending = pending.collect();
        let last = entries.last().map_or(StreamId { ms: 5, seq: 0 }, |entry| entry.id);
        let read = has_read.then_some(read >> 1);
        Stream {
            added: entries.len() as u64 + 3,
            deleted: StreamId { ms: 4, seq: u64::MAX },
            groups: vec![StreamGroup { name, last, read, consumers, pending }],
            entries,
            last,
        }
    })
}

/// In the order in which a listpack has them.
fn expiring_fields() -> impl Strategy<Value = Vec<ExpiringField>> {
    let expiry = prop_oneof![Just(None), (1..1_u64 << 48).prop_map(Some)];
    proptest::collection::vec((bytes(), bytes(), expiry), 1..50).prop_map(|mut fields| {
        fields.sort_by_key(|(.., at)| at.unwrap_or(u64::MAX));
        fields
    })
}

fn value() -> impl Strategy<Value = Value> {
    let pairs = proptest::collection::vec((bytes(), bytes()), 1..50);
    let members = proptest::collection::vec((bytes(), score()), 1..50);
    prop_oneof![
        bytes().prop_map(Value::String),
        many(50).prop_map(Value::List),
        many(50).prop_map(Value::Set),
        pairs.prop_map(Value::Hash),
        expiring_fields().prop_map(Value::ExpiringHash),
        members.prop_map(Value::SortedSet),
        stream().prop_map(Value::Stream),
    ]
}

fn encoding() -> impl Strategy<Value = Encoding> {
    prop_oneof![Just(Encoding::Compact), Just(Encoding::Large)]
}

fn cases() -> Config {
    let cases = std::env::var("SILTSTONE_RDB_CASES").ok().and_then(|cases| cases.parse().ok());
    Config { failure_persistence: None, ..Config::with_cases(cases.unwrap_or(300)) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn values_round_trip(value in value(), encoding in encoding()) {
        let payload = dump(&value, encoding);
        let body = verify(&payload).expect("a payload that was just written");
        prop_assert_eq!(restore(body, LIMIT).unwrap(), value);
    }

    #[test]
    fn sets_of_integers_round_trip_in_order(
        integers in proptest::collection::btree_set(any::<i64>(), 1..50),
    ) {
        let members: Vec<_> = integers.iter().map(|n| n.to_string().into_bytes()).collect();
        let reversed = Value::Set(members.iter().rev().cloned().collect());
        let payload = dump(&reversed, Encoding::Integers);
        prop_assert_eq!(payload[0], 0x0b);
        prop_assert_eq!(restore(verify(&payload).unwrap(), LIMIT).unwrap(), Value::Set(members));
    }

    #[test]
    fn damaged_value_is_refused_or_read(
        value in value(),
        encoding in encoding(),
        damage in proptest::collection::vec((any::<u32>(), any::<u8>(), 0..4u8), 1..5),
        kind in prop_oneof![3 => Just(None), 1 => (0..26u8).prop_map(Some)],
    ) {
        let payload = dump(&value, encoding);
        let mut body = verify(&payload).unwrap().to_vec();
        if let Some(kind) = kind {
            body[0] = kind;
        }
        for (at, byte, how) in damage {
            let at = at as usize % (body.len() + 1);
            match how {
                _ if at == body.len() => body.push(byte),
                0 => body[at] = byte,
                1 => body[at] ^= 1 << (byte % 8),
                2 => drop(body.remove(at)),
                _ => body.insert(at, byte),
            }
        }
        // The checksum is right, as an attacker would make it.
        seal(&mut body);
        let body = verify(&body).unwrap();
        if let Ok(read) = restore(body, LIMIT) {
            // What was read is a value: it can be written and read again.
            let payload = dump(&read, Encoding::Large);
            prop_assert_eq!(restore(verify(&payload).unwrap(), u64::MAX).unwrap(), read);
        }
    }

    #[test]
    fn split_value_has_the_elements_of_both_parts(value in value(), at in any::<u16>()) {
        let mut first = value.clone();
        if !value.is_empty() {
            let at = usize::from(at) % (value.len() + 1);
            let rest = first.split_off(at);
            if !matches!(value, Value::String(_)) {
                prop_assert_eq!(first.len(), at);
            }
            match (&mut first, rest, value) {
                (Value::Stream(first), Value::Stream(mut rest), Value::Stream(whole)) => {
                    first.entries.append(&mut rest.entries);
                    rest.entries = std::mem::take(&mut first.entries);
                    prop_assert_eq!(rest, whole);
                }
                (Value::List(first), Value::List(rest), Value::List(whole)) => {
                    prop_assert_eq!([first.clone(), rest].concat(), whole);
                }
                _ => {}
            }
        }
    }
}
