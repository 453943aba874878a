//! An arbitrary sketch is rejected or merged; the merged one is that of the union.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_structures::HyperLogLog;

fn sketch(hashes: &[u64]) -> HyperLogLog {
    let mut sketch = HyperLogLog::new();
    hashes.iter().for_each(|&hash| sketch.insert(hash));
    sketch
}

fuzz_target!(|bytes: &[u8]| {
    // A short input stands for a whole sketch that repeats it, which random bytes seldom are.
    let mut registers = [0; HyperLogLog::BYTES];
    registers.iter_mut().zip(bytes.iter().cycle()).for_each(|(register, byte)| *register = *byte);
    for read in [HyperLogLog::from_bytes(bytes), HyperLogLog::from_bytes(&registers)] {
        if let Ok(mut read) = read {
            assert!(read.estimate() >= 0.0);
            let before = read.clone();
            read.merge(&before);
            assert_eq!(read, before);
        }
    }

    let (words, _) = bytes.as_chunks();
    let hashes: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let (one, other) = hashes.split_at(hashes.len() / 3);
    let mut union = sketch(one);
    union.merge(&sketch(other));
    assert_eq!(union, sketch(&hashes));
    let read = HyperLogLog::from_bytes(union.as_bytes()).expect("a sketch is refused");
    assert!((read.estimate() - union.estimate()).abs() < 1e-9);
});
