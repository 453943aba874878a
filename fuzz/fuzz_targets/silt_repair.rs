//! A table of arbitrary bytes opens after its repair.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    siltstone_silt::fuzzing::repair(bytes);
});
