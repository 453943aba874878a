//! The universal codes read to the end of their bits, and no further.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_structures::{BitReader, HyperLogLog};

fuzz_target!(|bytes: &[u8]| {
    let _ = HyperLogLog::from_bytes(bytes);
    let mut reader = BitReader::new(bytes);
    for turn in 0.. {
        let before = reader.position();
        let read = match turn % 3 {
            0 => reader.read_unary(),
            1 => reader.read_gamma(),
            _ => reader.read_exp_golomb(turn % 7),
        };
        if read.is_err() {
            break;
        }
        assert!(reader.position() > before, "a code of no bits");
    }
});
