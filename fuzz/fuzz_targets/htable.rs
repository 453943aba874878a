//! An HTable of arbitrary contents with valid checksums is rejected or read.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u8, &[u8], [&[u8]; 4], bool)| {
    let (layout, entries, buckets, [filter, specials, migrations, pages], has_directory) = input;
    let count = buckets.chunks(256).count() as u32;
    // Mostly a directory that is in order, else nothing behind it is looked at.
    let in_order = [&0u64.to_le_bytes()[..], &count.to_le_bytes()].concat();
    let directory = if has_directory { &in_order } else { filter };
    siltstone_trie::fuzzing::table(
        layout,
        entries.into(),
        buckets,
        [filter, specials, migrations, directory, pages],
    );
});
