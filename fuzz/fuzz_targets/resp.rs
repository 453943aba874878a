//! Do arbitrary bytes from a client parse without a panic, whole and in pieces alike?
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| siltstone_server::resp::fuzz_parse(bytes));
