//! Is an arbitrary RecSplit index refused, or looked up in; is one that was built right?
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_structures::rank::HashKey;
use siltstone_structures::recsplit::{RecSplit, RecSplitBuilder, RecSplitOptions};

/// Sorted distinct hashes of bytes, of which those of one kind share a prefix.
fn hashes(bytes: &[u8]) -> Vec<HashKey> {
    let (words, _) = bytes.as_chunks::<5>();
    let mut hashes: Vec<HashKey> = words
        .iter()
        .map(|&[kind, a, b, c, d]| {
            let mut hash = [kind; 20];
            hash[usize::from(kind % 17)..][..4].copy_from_slice(&[a, b, c, d]);
            hash
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Builds an index and gives the hashes in the order that their entries would have.
fn build(
    options: RecSplitOptions,
    expected: u64,
    hashes: &[HashKey],
) -> Option<(RecSplit, Vec<HashKey>)> {
    let mut builder = RecSplitBuilder::new(options, expected).ok()?;
    let mut written = Vec::new();
    for hash in hashes {
        let order = builder.push(hash).ok()?;
        let from = written.len();
        written.extend(order.iter().map(|&at| hashes[from + at as usize]));
    }
    let (index, order) = builder.finish().ok()?;
    let from = written.len();
    written.extend(order.iter().map(|&at| hashes[from + at as usize]));
    assert_eq!(written.len(), hashes.len());
    Some((index, written))
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(index) = RecSplit::from_bytes(bytes) {
        assert_eq!(index.to_bytes(), bytes);
        for hash in [[0; 20], [255; 20], [0x5a; 20]].into_iter().chain(hashes(bytes)) {
            assert!(index.lookup(&hash) < index.len().max(1), "a position that is not there");
        }
    }
    let Some((&[g, leaf, expected], rest)) = bytes.split_first_chunk() else { return };
    let options =
        RecSplitOptions { keys_per_bucket: u32::from(g) + 1, leaf: u32::from(leaf % 5) + 2 };
    let Some((index, written)) = build(options, expected.into(), &hashes(rest)) else { return };
    let read = RecSplit::from_bytes(&index.to_bytes()).expect("what was built is refused");
    for (position, hash) in (0..).zip(&written) {
        assert_eq!((index.lookup(hash), read.lookup(hash)), (position, position));
    }
});
