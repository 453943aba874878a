//! A client's commands have the same effect whole, in pieces and in datagrams, and the store is
//! consistent afterwards.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use siltstone_server::fuzzing::ProtocolHarness;

thread_local! {
    static HARNESS: RefCell<ProtocolHarness> = RefCell::new(ProtocolHarness::new().expect("a harness"));
}

fuzz_target!(|bytes: &[u8]| {
    let piece = bytes.first().map_or(1, |byte| usize::from(*byte));
    HARNESS.with_borrow_mut(|harness| match piece {
        0 => harness.memcached_datagram(&bytes[1..]),
        _ => harness.memcached(bytes, piece),
    });
});
