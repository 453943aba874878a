//! An arbitrary entropy-coded trie is rejected or read; a built one is correct.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_structures::ect::{Ect, EctBuilder, EctOptions, HashKey};

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

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ect) = Ect::from_bytes(bytes) {
        assert_eq!(ect.to_bytes(), bytes);
        let blocks = ect.len().div_ceil(ect.entries_per_block().into()).max(1);
        for hash in [[0; 20], [255; 20], [0x5a; 20]].into_iter().chain(hashes(bytes)) {
            assert!(ect.lookup(&hash) < blocks, "a block that is not there");
        }
    }
    let Some((&[g, hmax, block, expected], rest)) = bytes.split_first_chunk() else { return };
    let options = EctOptions {
        keys_per_bucket: u32::from(g) + 1,
        hmax: u32::from(hmax % 65),
        entries_per_block: u32::from(block % 40) + 1,
    };
    let hashes = hashes(rest);
    let Ok(mut builder) = EctBuilder::new(options, expected.into()) else { return };
    if hashes.iter().any(|hash| builder.push(hash).is_err()) {
        return;
    }
    let Ok(ect) = builder.finish() else { return };
    let read = Ect::from_bytes(&ect.to_bytes()).expect("what was built is refused");
    for (rank, hash) in (0..).zip(&hashes) {
        let wanted = rank / u64::from(options.entries_per_block);
        assert_eq!((ect.lookup(hash), read.lookup(hash)), (wanted, wanted));
    }
});
