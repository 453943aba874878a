//! Files of arbitrary contents under checksums that hold, for fuzzing: no part of the engine.
//!
//! A checksum keeps chance damage from the parsers behind it; it does not keep out a file that someone
//! made. These functions seal whatever they are given and look into it as the engine does. They answer
//! nothing: what must not happen is a panic, an endless loop, or memory beyond what the bytes allow.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_vfs::{Ram, Vfs};

use crate::cluster;
use crate::files::{FRAME_TRAILER, FileSum, Homes, Kind};
use crate::hash::{Hash, HashKind};
use crate::htable::format::{FOOTER_BYTES, FRAMES, Footer, VERSION};
use crate::htable::{HTable, Layout, Stream};
use crate::version::Edit;

const NUMBER: u64 = 7;
const BUCKET_BYTES: usize = 256;

/// Keys to look up in whatever there is.
fn keys() -> impl Iterator<Item = (Vec<u8>, Hash)> {
    let kind = HashKind::default();
    (0..20u8).map(move |n| (vec![n], kind.hash(&[n])))
}

fn homes(name: &str, bytes: &[u8]) -> Homes {
    let vfs = Ram::new();
    if let Ok(file) = vfs.create(name) {
        let _ = file.write_at(0, bytes, Purpose::Maintenance);
    }
    Homes { main: Arc::new(vfs), upper: None }
}

/// An HTable of these buckets, each sealed, and these frames, in a layout of 0 to 2.
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
            sum.frame(&mut bytes, offset, frame);
            *len = (frame.len() + FRAME_TRAILER) as u32;
        }
    }
    footer.file_bytes = (bytes.len() + FOOTER_BYTES) as u64;
    bytes.extend(footer.encode(&sum, NUMBER));
    let homes = homes(&Kind::HTable.name(NUMBER), &bytes);
    let Ok(table) = HTable::open(&homes, NUMBER, bytes.len() as u64, true) else { return };
    let table = Arc::new(table);
    for (key, hash) in keys() {
        let _ = table.may_hold(hash);
        let _ = table.get(&key, hash, Purpose::Get);
    }
    let _ = table.stretch(0, u64::MAX / 3, HashKind::default(), 0, Purpose::Get);
    let _ = table.verify(HashKind::default());
    let mut stream = Stream::new(table, HashKind::default(), Purpose::Scan);
    while let Ok(true) = stream.load_next() {
        for at in 0..stream.slots().len() {
            let _ = stream.with_item(at, |item| Ok(item.key.len()));
        }
    }
}

/// A BloomCluster of these pages, each sealed, this directory and these numbers in its footer.
pub fn cluster(numbers: [u32; 3], pages: &[u8], directory: &[u8]) {
    let bytes = cluster::seal(NUMBER, numbers, pages, directory);
    let homes = homes(&Kind::Cluster.name(NUMBER), &bytes);
    let Ok(cluster) = cluster::Cluster::open(&homes, NUMBER, bytes.len() as u64) else { return };
    for (_, hash) in keys() {
        if let Ok(column) = cluster.column(hash, Purpose::Get) {
            (0..9).for_each(|table| _ = column.may_hold(table, hash));
        }
    }
    let _ = cluster.load(Purpose::Get);
}

/// An edit of the manifest: what is taken for one comes back from its bytes.
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

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(0xff), any::<u8>()], 0..most)
    }

    /// Found by fuzzing: the first would be read beyond its end, the second walked for minutes.
    #[test]
    fn are_pages_without_room_for_what_they_hold_refused() {
        super::cluster([1, 1, 0], &[], &[]);
        super::cluster([u32::MAX, u32::MAX, 64], &[0; 64], &[]);
    }

    proptest! {
        #[test]
        fn is_no_sealed_nonsense_a_panic(
            layout: u8, entries in 0u64..9, buckets in bytes(600),
            frames in [bytes(60), bytes(70), bytes(30), bytes(40), bytes(60)],
            numbers in [0u32..9, 0u32..9, 0u32..300], pages in bytes(600), directory in bytes(40),
        ) {
            let [a, b, c, d, e] = &frames;
            super::table(layout, entries, &buckets, [a, b, c, d, e]);
            // A directory that is in order lets the rest be looked at.
            let whole = buckets.chunks(256).count() as u32 * 256;
            let sound = [&0u64.to_le_bytes()[..], &whole.to_le_bytes()].concat();
            super::table(layout, entries, &buckets, [a, b, c, &sound, e]);
            super::cluster(numbers, &pages, &directory);
            super::edit(a);
        }
    }
}
