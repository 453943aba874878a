//! Block parsing and iteration on arbitrary bytes, without a checksum.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

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
    let Ok(block) = Block::parse(bytes.to_vec(), bytes.len()) else {
        return;
    };
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

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
