//! An arbitrary SSTable is rejected or read.
#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use siltstone_table::{FileNumber, Table, TableMeta};

fuzz_target!(|bytes: &[u8]| {
    let _ = TableMeta::decode(bytes);
    let _ = siltstone_table::sst::index::Index::decode(bytes);
    let _ = siltstone_table::sst::filter::Filter::decode(bytes);
    if let Ok(table) = Table::from_bytes(bytes, FileNumber(1)) {
        let _ = table.verify(|_| ControlFlow::Continue(()));
    }
});
