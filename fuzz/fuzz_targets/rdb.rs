//! An arbitrary value or dump file of Redis is rejected or read; a value can be written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_rdb::{DumpFile, Encoding, payload};

const LIMIT: u64 = 16 << 20;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(value) = payload::restore(bytes, LIMIT) {
        for encoding in [Encoding::Compact, Encoding::Large] {
            let payload = payload::dump(&value, encoding);
            let body = payload::verify(&payload).expect("the checksum was just written");
            assert_eq!(payload::restore(body, u64::MAX).expect("a value"), value);
        }
    }
    let file = [b"REDIS0012", bytes].concat();
    let mut file = DumpFile::open(&file[..], LIMIT).expect("a header");
    while let Ok(Some(_)) = file.next_item() {}
});
