//! Commands of a Redis client have the same replies and effects in a pipeline and one by one.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use siltstone_server::fuzzing::RedisHarness;

thread_local! {
    static HARNESS: RefCell<RedisHarness> = RefCell::new(RedisHarness::new().expect("a harness"));
}

fuzz_target!(|bytes: &[u8]| HARNESS.with_borrow_mut(|harness| harness.chosen_commands(bytes)));
