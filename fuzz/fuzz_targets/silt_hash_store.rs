//! An arbitrary HashStore with matching checksums is rejected or read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    siltstone_silt::fuzzing::hash_store(bytes);
});
