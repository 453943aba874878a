//! An arbitrary Bloom filter answers; a built one contains every inserted key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_structures::bloom::{BlockedBloom, BlockedBloomView, ClassicBloom, ClassicBloomView};

fuzz_target!(|bytes: &[u8]| {
    let Some((&[probes, tenths], rest)) = bytes.split_first_chunk() else { return };
    let (words, _) = rest.as_chunks();
    let hashes: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    if let Ok(view) = BlockedBloomView::open(rest, probes) {
        hashes.iter().for_each(|&hash| _ = view.contains(hash));
    }
    if let Ok(view) = ClassicBloomView::open(rest, probes) {
        hashes.iter().for_each(|&hash| _ = view.contains(hash));
    }

    let bits = f64::from(tenths) / 10.0;
    let blocked = BlockedBloom::build(&hashes, bits);
    let view = BlockedBloomView::open(blocked.as_bytes(), blocked.probes());
    let view = view.expect("a blocked filter is refused");
    assert!(hashes.iter().all(|&hash| blocked.contains(hash) && view.contains(hash)));
    let classic = ClassicBloom::build(&hashes, bits);
    let view = ClassicBloomView::open(classic.as_bytes(), classic.probes());
    let view = view.expect("a classic filter is refused");
    assert!(hashes.iter().all(|&hash| classic.contains(hash) && view.contains(hash)));
});
