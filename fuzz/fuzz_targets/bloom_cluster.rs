//! A BloomCluster of arbitrary contents with valid checksums is rejected or read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: ([u16; 3], &[u8], &[u8])| {
    let (numbers, pages, directory) = input;
    siltstone_trie::fuzzing::cluster(numbers.map(u32::from), pages, directory);
});
