//! An arbitrary range filter is rejected or read; a built one passes its keys.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use siltstone_structures::{RangeFilter, RangeFilterBuilder};

fuzz_target!(|bytes: &[u8]| {
    let keys: BTreeSet<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    if let Ok(filter) = RangeFilter::from_bytes(bytes) {
        keys.iter().for_each(|key| _ = filter.may_contain_range(key, bytes));
    }

    let mut builder = RangeFilterBuilder::default();
    keys.iter().for_each(|key| builder.add(key));
    let stored = builder.finish().expect("there is a key");
    let filter = RangeFilter::from_bytes(&stored).expect("a built filter is refused");
    assert!(keys.iter().all(|key| filter.may_contain_range(key, key)));
    let keys: Vec<_> = keys.into_iter().collect();
    assert!(keys.windows(2).all(|pair| filter.may_contain_range(pair[0], pair[1])));
});
