//! Reading an arbitrary log ends, in either mode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_table::LogMode;
use siltstone_table::log::parse_log;

fuzz_target!(|bytes: &[u8]| {
    for mode in [LogMode::Recover, LogMode::Sealed] {
        let _ = parse_log(bytes, 1, mode);
    }
});
