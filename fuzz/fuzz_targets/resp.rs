//! A client's bytes parse the same whole and in pieces.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| siltstone_server::resp::fuzz_parse(bytes));
