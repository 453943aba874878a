//! Block parsing and iteration on arbitrary bytes, without a checksum.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use siltstone_table::block::BlockBuilder;
use siltstone_table::{Block, BlockIter, EntryRef, Kind};

fn block() -> Vec<u8> {
    let mut builder = BlockBuilder::new(3);
    for i in 0..20u64 {
        let key = format!("key{:02}", i / 2);
        let kind = Kind::from_bits((i % 4) as u8).unwrap();
        let value: &[u8] = if kind == Kind::Delete { b"" } else { b"value" };
        let expires_at = if kind == Kind::PutExpiring { 1 << 40 } else { 0 };
        let (key, sequence) = (key.as_bytes(), 1000 - i);
        builder.add(EntryRef { key, sequence, kind, expires_at, value });
    }
    builder.finish().to_vec()
}

/// Exercises every operation on arbitrary bytes, for a bounded number of steps.
fn exercise(bytes: &[u8]) {
    let parse = || Block::parse(bytes.to_vec(), bytes.len());
    if let Ok(block) = parse() {
        block.prepare();
        exercise_block(block, bytes);
    }
    parse().into_iter().for_each(|block| exercise_block(block, bytes));
}

fn exercise_block(block: Block, bytes: &[u8]) {
    let mut iter = BlockIter::new(Arc::new(block));
    let mut there = iter.first();
    let mut steps = 0;
    while let Ok(true) = there {
        let _ = (iter.entry(), iter.key(), iter.kind(), iter.expires_at());
        steps += 1;
        assert!(steps <= bytes.len(), "the iteration does not end");
        there = iter.next();
    }
    let mut there = iter.last();
    for _ in 0..40 {
        if !matches!(there, Ok(true)) {
            break;
        }
        there = iter.prev();
    }
    for key in [&b""[..], b"key", b"key05", b"key05x", b"\xff\xff"] {
        for sequence in [0, 990, u64::MAX] {
            if let Ok(true) = iter.seek(key, sequence) {
                let _ = (iter.entry().key.len(), iter.prev());
            }
            if let Ok(true) = iter.seek_back(key, sequence) {
                let _ = (iter.entry().key.len(), iter.next());
            }
        }
    }
}

#[test]
fn prepared_block_gives_the_same_search_results() {
    for prefix in ["", "k", "user:00"] {
        let mut builder = BlockBuilder::new(2);
        let key = |i: u64| format!("{prefix}{:03}{}", i / 3, "y".repeat(i as usize / 3 % 12));
        for i in 0..200 {
            let (key, sequence) = (key(i), 1000 - i);
            let (key, kind) = (key.as_bytes(), Kind::Put);
            builder.add(EntryRef { key, sequence, kind, expires_at: 0, value: b"value" });
        }
        let bytes = builder.finish().to_vec();
        let parse = || Block::parse(bytes.clone(), bytes.len()).unwrap();
        let prepared = parse();
        prepared.prepare();
        assert!(format!("{prepared:?}") != format!("{:?}", parse()));
        let mut iters = [parse(), prepared].map(|block| BlockIter::new(Arc::new(block)));
        let others = ["", "a", "user", "user:000", "zzz"].map(str::to_owned);
        for key in (0..200).map(key).chain(others) {
            for key in [key.clone(), format!("{key}\0"), key[..key.len() / 2].to_owned()] {
                for sequence in [0, 800, 900, 999, u64::MAX] {
                    let [plain, prepared] = iters.each_mut().map(|iter| {
                        let is_valid = iter.seek(key.as_bytes(), sequence).unwrap();
                        is_valid.then(|| (iter.key().to_vec(), iter.sequence()))
                    });
                    assert_eq!(plain, prepared, "{key} {sequence}");
                }
            }
        }
    }
}

#[test]
fn truncated_or_flipped_block_does_not_panic() {
    let bytes = block();
    for len in 0..=bytes.len() {
        exercise(&bytes[..len]);
    }
    for at in 0..bytes.len() {
        for flip in [1, 0x80, 0xff, 0x7f] {
            let mut flipped = bytes.clone();
            flipped[at] ^= flip;
            exercise(&flipped);
        }
    }
}

/// Keys that share prefixes, end in zeros, and are prefixes of each other.
fn any_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, b'a', 0xff]), 0..9)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn search_in_prepared_block_finds_first_entry_not_less(
        keys in prop::collection::btree_set(any_key(), 1..60),
        targets in prop::collection::vec(any_key(), 20),
        common in prop::collection::vec(any::<u8>(), 0..6),
        (interval, value_len) in (1..20usize, 0..80usize),
    ) {
        let whole = |key: &Vec<u8>| [&common[..], key].concat();
        let keys: BTreeSet<Vec<u8>> = keys.iter().map(whole).collect();
        let mut builder = BlockBuilder::new(interval);
        for key in &keys {
            for sequence in [9, 4] {
                let (key, kind, value) = (&key[..], Kind::Put, &[7; 80][..value_len]);
                builder.add(EntryRef { key, sequence, kind, expires_at: 0, value });
            }
        }
        let bytes = builder.finish().to_vec();
        let block = Block::parse(bytes.clone(), bytes.len()).unwrap();
        block.prepare();
        let mut iter = BlockIter::new(Arc::new(block));
        for target in targets.iter().map(whole).chain(targets.clone()).chain(keys.clone()) {
            for (sequence, found) in [(20, 9), (9, 9), (5, 4), (4, 4)] {
                let is_valid = iter.seek(&target, sequence).unwrap();
                let at_or_after = keys.range(target.clone()..).next();
                let expected = at_or_after.map(|key| {
                    (key.clone(), if *key == target { found } else { 9 })
                });
                let actual = is_valid.then(|| (iter.key().to_vec(), iter.sequence()));
                prop_assert_eq!(actual, expected, "{:?} {}", &target, sequence);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_do_not_panic(
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        exercise(&bytes);
        // With one restart point at 0 any bytes parse as a block.
        bytes.extend([0, 0, 0, 0, 1, 0, 0, 0]);
        exercise(&bytes);
        let mut block = block();
        for (at, byte) in flips {
            let at = at.index(block.len());
            block[at] = byte;
        }
        exercise(&block);
    }
}
