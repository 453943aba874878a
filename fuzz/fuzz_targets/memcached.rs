//! Are arbitrary bytes from a memcached client answered the same, whole, in pieces and in
//! datagrams?
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use siltstone_server::fuzzing::Bench;

thread_local! {
    static BENCH: RefCell<Bench> = RefCell::new(Bench::new().expect("a bench"));
}

fuzz_target!(|bytes: &[u8]| {
    let piece = bytes.first().map_or(1, |byte| usize::from(*byte));
    BENCH.with_borrow_mut(|bench| match piece {
        0 => bench.memcached_datagram(&bytes[1..]),
        _ => bench.memcached(bytes, piece),
    });
});
