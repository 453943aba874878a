//! A client's packets are executed or dropped, and never answered with more bytes than allowed.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use siltstone_server::fuzzing::UdpHarness;

thread_local! {
    static HARNESS: RefCell<UdpHarness> = RefCell::new(UdpHarness::new(true).expect("a harness"));
}

fuzz_target!(|packets: Vec<(Vec<u8>, u16, bool)>| {
    HARNESS.with_borrow_mut(|harness| harness.burst(&mut packets.clone()));
});
