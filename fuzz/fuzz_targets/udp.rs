//! Are arbitrary packets done or dropped, and never answered with more bytes than is allowed?
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use siltstone_server::fuzzing::UdpBench;

thread_local! {
    static BENCH: RefCell<UdpBench> = RefCell::new(UdpBench::new(true).expect("a bench"));
}

fuzz_target!(|packets: Vec<(Vec<u8>, u16, bool)>| {
    BENCH.with_borrow_mut(|bench| bench.burst(&mut packets.clone()));
});
