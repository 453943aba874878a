//! A block of arbitrary bytes can be iterated and searched.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use siltstone_table::{Block, BlockIter};

fuzz_target!(|bytes: &[u8]| {
    let Ok(block) = Block::parse(bytes.to_vec(), bytes.len()) else { return };
    let mut iter = BlockIter::new(Arc::new(block));
    let mut steps = 0;
    let mut there = iter.first();
    while let Ok(true) = there {
        let _ = (iter.key(), iter.value(), iter.sequence(), iter.kind());
        steps += 1;
        assert!(steps <= bytes.len(), "a walk longer than the block");
        there = iter.next();
    }
    let key = &bytes[..bytes.len().min(8)];
    let _ = iter.seek(key, 7);
    let _ = iter.seek_back(key, 7);
    let _ = iter.last();
    let _ = iter.valid() && iter.prev().is_ok();
});
