//! Arbitrary bytes parse as a batch only if they are one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_engine::WriteBatch;

fuzz_target!(|input: (u32, &[u8])| {
    let (count, bytes) = input;
    if let Ok(batch) = WriteBatch::from_bytes(bytes, count % 64) {
        // What was accepted is really a batch: it has as many operations as it says.
        assert_eq!(batch.iter().count(), batch.len());
    }
});
