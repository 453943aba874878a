//! Power cuts, flipped bits, and malformed rows with valid checksums.

use siltstone_engine::{Error, Result};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_table::FileSum;

use super::super::header::{DIRECTORY_POSITION, HEADER_POSITION, METADATA_POSITION};
use super::super::hints;
use super::super::item::{u32_at, u64_at};
use super::super::search_stats::SearchStats;
use super::super::{MIN_PAGE_BYTES, RowHandle};
use super::*;

const PAGE: usize = MIN_PAGE_BYTES;
/// Small, since each case maps it again.
const POOL_BYTES: u64 = 64 * PAGE as u64;

fn claims(vfs: &dyn Vfs, page_bytes: usize) -> siltstone_vfs::PageClaims {
    PmemPool::open(vfs.map("pool", POOL_BYTES).unwrap(), page_bytes).unwrap()
}

fn some_entries(number: u64, count: u32) -> Vec<Entry> {
    let entry = |i: u32| {
        let len = if i.is_multiple_of(17) { 1500 } else { i as usize % 60 };
        Entry::put(format!("key{:05}", i * 7 + number as u32).as_bytes(), number, &vec![3; len])
    };
    (0..count).map(entry).collect()
}

/// All versions of the row, by iteration and by lookups.
fn read_all(row: &Arc<RowTable>) -> Result<Vec<Entry>> {
    row.verify(PURPOSE)?;
    let mut iter = RowTableIter::new(row.clone(), PURPOSE);
    let mut all = Vec::new();
    iter.first()?;
    while let Some(entry) = current_entry(&iter) {
        let found = row.get(&entry.key, entry.sequence, &mut SearchStats::default())?;
        assert_eq!(found.as_ref(), Some(&entry.to_version()));
        all.push(entry);
        iter.next()?;
    }
    Ok(all)
}

#[test]
fn power_cut_leaves_earlier_rows_intact_and_the_pool_usable() {
    let (old, new) = (some_entries(1, 100), some_entries(2, 60));
    let before = |vfs: &FaultyVfs| {
        let pool = claims(vfs, PAGE).ready();
        vfs.sync_dir(PURPOSE).unwrap();
        let row = build(&pool, 1, None, &old);
        (pool, row)
    };
    let undisturbed = FaultyVfs::new(5);
    let (pool, row) = before(&undisturbed);
    let start = undisturbed.operations();
    let handle = row.handle();
    let new_handle = build(&pool, 2, Some(&row), &new).handle();
    let end = undisturbed.operations();
    assert!(end - start > 10);
    for cut in start..=end {
        for seed in 0..30 {
            let vfs = FaultyVfs::new(5);
            let (pool, row) = before(&vfs);
            vfs.cut_power_at(cut);
            let built = try_build(&pool, 2, Some(&row), &new);
            assert_eq!(built.is_ok(), cut == end);
            let survivor = vfs.survivors(seed);
            let claims = claims(&survivor, PAGE);
            let row = RowTable::open(&claims, handle, 1, LiveRange::all()).map(Arc::new).unwrap();
            assert_eq!(read_all(&row).unwrap(), old, "cut {cut}, seed {seed}");
            if built.is_ok() {
                let all = LiveRange::all();
                let row = RowTable::open(&claims, new_handle, 2, all).map(Arc::new).unwrap();
                assert_eq!(read_all(&row).unwrap(), new);
            }
            let pool = claims.ready();
            let again = build(&pool, 3, Some(&row), &new);
            assert_eq!(read_all(&again).unwrap(), new);
        }
    }
}

#[test]
fn row_with_a_failed_barrier_is_not_built() {
    let vfs = FaultyVfs::new(5);
    let pool = claims(&vfs, PAGE).ready();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(matches!(try_build(&pool, 1, None, &some_entries(1, 50)), Err(Error::Io { .. })));
    assert_eq!(pool.free_pages(), pool.pages());
    build(&pool, 1, None, &some_entries(1, 50));
}

/// Flips one bit of each byte of the row's pages.
#[test]
fn flipped_bit_is_detected_or_harmless() {
    let vfs = FaultyVfs::new(5);
    let entries = some_entries(4, 120);
    let pool = claims(&vfs, PAGE).ready();
    let row = build(&pool, 4, None, &entries);
    let (handle, pages) = (row.handle(), row.pages());
    drop((row, pool));
    let (mut found, mut harmless) = (0, 0);
    for offset in 0..(pages * PAGE) as u64 {
        let bit = (offset * 5 % 8) as u8;
        vfs.flip_bit("pool", offset, bit).unwrap();
        let claims = PmemPool::open(vfs.map("pool", POOL_BYTES).unwrap(), PAGE).unwrap();
        let row = RowTable::open(&claims, handle, 4, LiveRange::all());
        match row.and_then(|row| read_all(&Arc::new(row))) {
            Ok(all) => {
                assert_eq!(all, entries, "a wrong answer after a flip at {offset}");
                harmless += 1;
            }
            Err(error) => {
                assert!(error.is_corruption(), "{error}");
                found += 1;
            }
        }
        drop(claims);
        vfs.flip_bit("pool", offset, bit).unwrap();
    }
    // Harmless flips are in padding and in the unused ends of pages.
    assert!(found > 12 * harmless / 10, "{found} found, {harmless} harmless");
}

/// Hints need the keys of the previous row, which are unreadable.
#[test]
fn row_over_a_damaged_row_is_built_without_hints() {
    let vfs = FaultyVfs::new(5);
    let entries = some_entries(1, 50);
    let pool = claims(&vfs, PAGE).ready();
    let row = build(&pool, 1, None, &entries);
    let handle = row.handle();
    drop((row, pool));
    vfs.flip_bit("pool", 26, 0).unwrap();
    let claims = claims(&vfs, PAGE);
    let row = Arc::new(RowTable::open(&claims, handle, 1, LiveRange::all()).unwrap());
    assert!(
        row.get(&entries[0].key, 9, &mut SearchStats::default())
            .is_err_and(|error| error.is_corruption())
    );
    let pool = claims.ready();
    let above = build(&pool, 2, Some(&row), &entries);
    assert_eq!((above.previous(), read_all(&above).unwrap()), (None, entries.clone()));
    let rows = [above, row];
    assert_eq!(
        hints::get(&rows, &entries[0].key, 9, &mut SearchStats::default()).unwrap(),
        Some(entries[0].to_version())
    );
}

#[test]
fn wrong_number_and_stale_handle_are_rejected() {
    let ram = Ram::new();
    let pool = claims(&ram, PAGE).ready();
    let row = build(&pool, 4, None, &some_entries(4, 10));
    let handle = row.handle();
    drop((row, pool));
    let claims = claims(&ram, PAGE);
    let open = |handle, number| RowTable::open(&claims, handle, number, LiveRange::all());
    for bad in [
        open(handle, 5),
        open(RowHandle { page: handle.page + 1, ..handle }, 4),
        open(RowHandle { page: u32::MAX, ..handle }, 4),
        open(RowHandle { bytes: handle.bytes - 1, ..handle }, 4),
        open(RowHandle { bytes: u32::MAX, ..handle }, 4),
        open(RowHandle { checksum: !handle.checksum, ..handle }, 4),
    ] {
        assert!(bad.is_err_and(|error| error.is_corruption()));
    }
    let row = open(handle, 4).unwrap();
    let error = open(handle, 4).err().unwrap();
    assert!(error.to_string().contains("claimed twice"), "{error}");
    drop(row);
}

/// Recomputes the checksums of a changed row, whose parts are where they were.
fn forge(pool: &mut [u8], handle: RowHandle) -> RowHandle {
    let number = |bytes: &[u8], at| u32_at(bytes, at).unwrap();
    let page = |n: u32| n as usize * PAGE..(n as usize + 1) * PAGE;
    let start = page(handle.page).start;
    let header: Vec<u8> = pool[start..start + handle.bytes as usize].to_vec();
    let sum = FileSum::new(4);
    // The counts of the original row, from which every case starts.
    let (data, metadata) = (number(&header, 68) as usize, number(&header, 72) as usize);
    let directory_bytes = u64_at(&header, 56).unwrap() as usize;
    let directory: Vec<u32> = (0..number(&header, 76) as usize)
        .map_while(|i| u32_at(&header, 84 + 4 * i).filter(|&n| page(n).end <= pool.len()))
        .collect();
    let mut bytes: Vec<u8> = directory.iter().flat_map(|&n| pool[page(n)].to_vec()).collect();
    bytes.truncate(directory_bytes);
    let elements = number(&header, 64) as usize;
    for i in 0..metadata.min(PAGE) {
        let at = data * 4 + i * 8;
        let Some(n) = u32_at(&bytes, at).filter(|&n| page(n).end <= pool.len()) else { continue };
        let used = elements.saturating_sub(i * PAGE / 16).min(PAGE / 16) * 16;
        let fresh = sum.of(METADATA_POSITION + i as u64, &pool[page(n)][..used]);
        if let Some(place) = bytes.get_mut(at + 4..at + 8) {
            place.copy_from_slice(&fresh.to_le_bytes());
        }
    }
    for (piece, &n) in bytes.chunks(PAGE).zip(&directory) {
        let from = page(n).start;
        pool[from..from + piece.len()].copy_from_slice(piece);
    }
    let fresh = sum.of(DIRECTORY_POSITION, &bytes);
    pool[start + 80..start + 84].copy_from_slice(&fresh.to_le_bytes());
    let checksum = sum.of(HEADER_POSITION, &pool[start..start + handle.bytes as usize]);
    RowHandle { checksum, ..handle }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Random changes to header, directory and metadata under valid checksums: the result is an
    /// answer or an error, in limited memory, without a panic.
    #[test]
    fn malformed_bytes_with_valid_checksums_yield_an_answer_or_an_error(
        changes in prop::collection::vec(
            (0..3usize, any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cursor in key(),
    ) {
        let ram = Ram::new();
        let pool = claims(&ram, PAGE).ready();
        let row = build(&pool, 4, None, &some_entries(4, 150));
        let handle = row.handle();
        drop((row, pool));
        let mapping = ram.map("pool", POOL_BYTES).unwrap();
        let mut bytes = vec![0; 64 * PAGE];
        mapping.read(0, &mut bytes, PURPOSE).unwrap();
        // Pages were allocated in order: data, metadata, directory, header.
        let header = handle.page as usize;
        for (part, at, value) in changes {
            let range = match part {
                0 => header * PAGE..header * PAGE + handle.bytes as usize,
                1 => (header - 1) * PAGE..header * PAGE,
                _ => (header - 4) * PAGE..(header - 1) * PAGE,
            };
            bytes[range.start + at.index(range.len())] = value;
        }
        let forged = forge(&mut bytes, handle);
        mapping.store(0, &bytes, PURPOSE).unwrap();
        drop(mapping);
        for live in [LiveRange::all(), LiveRange::new(b"key00400", &cursor)] {
            let claims = claims(&ram, PAGE);
            let used = || {
                let row = Arc::new(RowTable::open(&claims, forged, 4, live.clone())?);
                row.verify(PURPOSE)?;
                row.get(b"key00404", 9, &mut SearchStats::default())?;
                row.live_bytes()?;
                let trimmed = row.trim(LiveRange::new(b"key00500", live.inserted_at()));
                drop(trimmed);
                let mut iter = RowTableIter::new(row, PURPOSE);
                iter.first()?;
                while iter.valid() {
                    assert!(iter.key().len() + iter.value().len() < 64 * PAGE);
                    iter.next()?;
                }
                Ok::<_, Error>(())
            };
            if let Err(error) = used() {
                prop_assert!(error.is_corruption(), "{error}");
            }
        }
    }
}
