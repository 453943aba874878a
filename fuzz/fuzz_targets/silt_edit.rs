//! Are arbitrary edits of silt's manifest, and positions of its cursors, refused or read?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    siltstone_silt::fuzzing::edit(bytes);
    siltstone_silt::fuzzing::position(bytes);
});
