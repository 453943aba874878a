//! An arbitrary cuckoo table or filter is rejected or read; a built one contains every inserted
//! key.
#![no_main]

use libfuzzer_sys::fuzz_target;
use siltstone_structures::cuckoo::{CuckooFilter, CuckooTable};

fn check_queries<const TAG: u32>(bytes: &[u8], hashes: &[u64]) {
    if let Ok(table) = CuckooTable::<TAG>::from_bytes(bytes) {
        assert_eq!(table.to_bytes(), bytes);
        assert_eq!(table.iter().count(), table.len() as usize);
        for &hash in hashes {
            assert!(table.candidates(hash).count() <= 8);
        }
        // Whatever the entries, a table goes on working.
        let mut table = table;
        for (&hash, offset) in hashes.iter().zip(1..) {
            if table.insert(hash, offset).is_ok() {
                assert!(table.candidates(hash).any(|found| found == offset));
            }
        }
    }
    if let Ok(filter) = CuckooFilter::<TAG>::from_bytes(bytes) {
        assert_eq!(filter.to_bytes(), bytes);
        for &hash in hashes {
            let slots = filter.slots();
            assert!(filter.candidates(hash).all(|slot| u64::from(slot) < slots));
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let (words, _) = bytes.as_chunks();
    let hashes: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    check_queries::<15>(bytes, &hashes);
    check_queries::<3>(bytes, &hashes);

    let slots = bytes.first().copied().unwrap_or(0);
    let mut table = CuckooTable::<15>::with_slots(slots.into());
    let mut held = Vec::new();
    for (&hash, offset) in hashes.iter().zip(0..) {
        match hash % 8 {
            0 if !held.is_empty() => {
                let (hash, offset) = held.swap_remove(hash as usize / 8 % held.len());
                assert!(table.remove(hash, offset));
            }
            _ if table.insert(hash, offset).is_ok() => held.push((hash, offset)),
            _ => {}
        }
    }
    assert_eq!(table.len() as usize, held.len());
    let read = CuckooTable::<15>::from_bytes(&table.to_bytes()).expect("a table is refused");
    assert_eq!(read, table);
    let filter = CuckooFilter::from_table(&table);
    let filter = CuckooFilter::<15>::from_bytes(&filter.to_bytes()).expect("a filter is refused");
    for (hash, offset) in held {
        assert!(table.candidates(hash).any(|found| found == offset));
        assert!(filter.contains(hash));
    }
});
