//! An arbitrary manifest edit of trie survives encoding and decoding.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| siltstone_trie::fuzzing::edit(bytes));
