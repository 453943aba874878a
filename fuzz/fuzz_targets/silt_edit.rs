//! Arbitrary manifest edits and cursor positions of silt are rejected or read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    siltstone_silt::fuzzing::edit(bytes);
    siltstone_silt::fuzzing::position(bytes);
});
