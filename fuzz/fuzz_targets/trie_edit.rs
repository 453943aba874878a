//! Does an arbitrary edit of a trie's manifest come back from its bytes if it is taken for one?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| siltstone_trie::fuzzing::edit(bytes));
