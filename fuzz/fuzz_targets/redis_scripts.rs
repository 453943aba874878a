//! A script gets one reply, and leaves the sandbox as it was.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use siltstone_server::fuzzing::RedisHarness;

thread_local! {
    static HARNESS: RefCell<RedisHarness> = RefCell::new(RedisHarness::new().expect("a harness"));
}

fuzz_target!(|bytes: &[u8]| {
    HARNESS.with_borrow_mut(|harness| harness.chosen_script(bytes));
});
