//! Fuzzing harness: files of arbitrary content under valid checksums.
//!
//! Checksums protect the parsers from random damage, but not from crafted files. These functions
//! seal their input and read it as the engine does. The result is ignored: the failures are a
//! panic, an endless loop, or more memory than the input justifies.

use std::sync::Arc;

use siltstone_durable::VersionEdit;
use siltstone_engine::Purpose;
use siltstone_table::{FileSum, SUM_BYTES};
use siltstone_vfs::{Ram, Vfs};

use crate::cluster;
use crate::files::{Kind, StorageTiers};
use crate::hash::{Hash, HashKind};
use crate::htable::format::{FOOTER_BYTES, FRAMES, Footer, VERSION};
use crate::htable::{HTable, Layout, Stream};
use crate::version::Edit;

const NUMBER: u64 = 7;
const BUCKET_BYTES: usize = 256;

/// Keys to look up.
fn keys() -> impl Iterator<Item = (Vec<u8>, Hash)> {
    let kind = HashKind::default();
    (0..20u8).map(move |n| (vec![n], kind.hash(&[n])))
}

fn tiers(name: &str, bytes: &[u8]) -> StorageTiers {
    let vfs = Ram::new();
    if let Ok(file) = vfs.create(name) {
        let _ = file.write_at(0, bytes, Purpose::Maintenance);
    }
    StorageTiers { main: Arc::new(vfs), fast: None }
}

/// Reads an HTable of these buckets, each sealed, and these frames, with layout 0 to 2.
pub fn table(layout: u8, entries: u64, buckets: &[u8], frames: [&[u8]; 5]) {
    let sum = FileSum::new(NUMBER);
    let mut bytes = Vec::new();
    for bucket in buckets.chunks(BUCKET_BYTES) {
        let mut bucket = bucket.to_vec();
        bucket.resize(BUCKET_BYTES, 0);
        let crc = sum.of(bytes.len() as u64, &bucket[4..]);
        bucket[..4].copy_from_slice(&crc.to_le_bytes());
        bytes.extend(bucket);
    }
    let layout = match layout % 3 {
        0 => Layout::Buckets,
        1 => Layout::Run,
        _ => Layout::Sorted,
    };
    let mut footer = Footer {
        buckets: buckets.chunks(BUCKET_BYTES).count() as u32,
        bucket_bytes: BUCKET_BYTES as u32,
        layout,
        entries,
        frames: [0; FRAMES],
        version: VERSION,
        ..Footer::default()
    };
    for (frame, len) in frames.iter().zip(&mut footer.frames) {
        if !frame.is_empty() {
            let offset = bytes.len() as u64;
            sum.seal(&mut bytes, offset, frame);
            *len = (frame.len() + SUM_BYTES) as u32;
        }
    }
    footer.file_bytes = (bytes.len() + FOOTER_BYTES) as u64;
    bytes.extend(footer.encode(&sum, NUMBER));
    let tiers = tiers(&Kind::HTable.name(NUMBER), &bytes);
    let Ok(table) = HTable::open(&tiers, NUMBER, bytes.len() as u64, true) else { return };
    let table = Arc::new(table);
    for (key, hash) in keys() {
        let _ = table.may_contain(hash);
        let _ = table.get(&key, hash, Purpose::Get);
    }
    let _ = table.sample_range(0, u64::MAX / 3, HashKind::default(), 0, Purpose::Get);
    let _ = table.verify(HashKind::default());
    let mut stream = Stream::new(table, HashKind::default(), Purpose::Scan);
    while let Ok(true) = stream.load_next() {
        for at in 0..stream.slots().len() {
            let _ = stream.with_item(at, |item| Ok(item.key.len()));
        }
    }
}

/// Reads a BloomCluster of these pages, each sealed, this directory, and these footer numbers.
pub fn cluster(numbers: [u32; 3], pages: &[u8], directory: &[u8]) {
    let bytes = cluster::seal(NUMBER, numbers, pages, directory);
    let tiers = tiers(&Kind::Cluster.name(NUMBER), &bytes);
    let Ok(cluster) = cluster::Cluster::open(&tiers, NUMBER, bytes.len() as u64) else { return };
    for (_, hash) in keys() {
        if let Ok(column) = cluster.column(hash, Purpose::Get) {
            (0..9).for_each(|table| _ = column.may_contain(table, hash));
        }
    }
    let _ = cluster.load(Purpose::Get);
}

/// Decodes a manifest edit; a valid one must survive encoding.
///
/// # Panics
/// If it does not: a bug.
pub fn edit(bytes: &[u8]) {
    if let Ok(edit) = Edit::decode(bytes) {
        assert_eq!(Edit::decode(&edit.encode()), Ok(edit));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    fn bytes(max: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..max)
    }

    /// Found by fuzzing: the first was read beyond its end, the second took minutes.
    #[test]
    fn pages_too_small_for_their_content_are_rejected() {
        super::cluster([1, 1, 0], &[], &[]);
        super::cluster([u32::MAX, u32::MAX, 64], &[0; 64], &[]);
    }

    proptest! {
        #[test]
        fn sealed_nonsense_does_not_panic(
            layout: u8, entries in 0u64..9, buckets in bytes(600),
            frames in [bytes(60), bytes(70), bytes(30), bytes(40), bytes(60)],
            numbers in [0u32..9, 0u32..9, 0u32..300], pages in bytes(600), directory in bytes(40),
        ) {
            let [a, b, c, d, e] = &frames;
            super::table(layout, entries, &buckets, [a, b, c, d, e]);
            // With a valid directory the other parts are read.
            let whole = buckets.chunks(256).count() as u32 * 256;
            let valid_directory = [&0u64.to_le_bytes()[..], &whole.to_le_bytes()].concat();
            super::table(layout, entries, &buckets, [a, b, c, &valid_directory, e]);
            super::cluster(numbers, &pages, &directory);
            super::edit(a);
        }
    }
}
