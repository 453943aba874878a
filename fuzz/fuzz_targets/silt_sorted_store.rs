//! Is an arbitrary SortedStore, with its index, whose checksums fit refused, or read, without a
//! panic?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    siltstone_silt::fuzzing::sorted_store(bytes);
});
