//! A single row compared with a sorted vector, before and after it is trimmed.

use siltstone_vfs::{MeteredVfs, PageClaims};

use super::super::{MIN_PAGE_BYTES, SearchStats};
use super::*;

fn check(row: &Arc<RowTable>, entries: &[Entry], probes: &[(Vec<u8>, u64)]) {
    assert_eq!(row.len(), entries.len());
    assert_eq!(all_entries(row), entries);
    row.verify(PURPOSE).unwrap();
    let mut iter = RowTableIter::new(row.clone(), PURPOSE);
    assert!(!iter.valid());
    iter.last().unwrap();
    for entry in entries.iter().rev() {
        assert_eq!(current_entry(&iter).as_ref(), Some(entry));
        iter.prev().unwrap();
    }
    assert!(!iter.valid());
    let own = entries.iter().map(|entry| (&entry.key, entry.sequence));
    for (key, sequence) in own.chain(probes.iter().map(|(key, at)| (key, *at))) {
        for at in [sequence, sequence.saturating_sub(1), u64::MAX] {
            assert_eq!(
                row.get(key, at, &mut SearchStats::default()).unwrap(),
                lookup(entries, key, at),
                "{key:?} {at}"
            );
            let order = |e: &Entry| kind::compare((&e.key, e.sequence), (key, at));
            let here = entries.partition_point(|e| order(e).is_lt());
            iter.seek(key, at).unwrap();
            assert_eq!(current_entry(&iter).as_ref(), entries.get(here), "seek {key:?} {at}");
            let back = entries.partition_point(|e| order(e).is_le()).checked_sub(1);
            iter.seek_back(key, at).unwrap();
            let expected = back.map(|i| &entries[i]);
            assert_eq!(current_entry(&iter).as_ref(), expected, "seek back {key:?} {at}");
        }
    }
}

/// Reopens the row from its handle, in a pool whose other pages were overwritten.
fn reopen(vfs: &dyn Vfs, page_bytes: usize, row: Arc<RowTable>) -> (PageClaims, Arc<RowTable>) {
    let (handle, number, live) = (row.handle(), row.number(), row.live().clone());
    let pages = row.pages();
    drop(row);
    let claims = claims(vfs, page_bytes);
    let row = Arc::new(RowTable::open(&claims, handle, number, live).unwrap());
    assert_eq!(row.pages(), pages, "as many pages as the trimmed row had");
    (claims, row)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn row_answers_like_a_sorted_vector(
        entries in entries(150),
        probes in prop::collection::vec((key(), 0..60u64), 20),
        wide: bool,
    ) {
        let page_bytes = if wide { 4096 } else { MIN_PAGE_BYTES };
        let row = build(&pool(page_bytes), 7, None, &entries);
        check(&row, &entries, &probes);
    }

    /// The cursor advances in steps; afterwards the row contains its live keys, before and after it
    /// is reopened, though its released pages were overwritten.
    #[test]
    fn trimmed_row_contains_its_live_keys_without_dead_pages(
        entries in entries(600),
        inserted_at in prop_oneof![key(), Just(Vec::new())],
        stops in prop::collection::vec(key(), 1..5),
        probes in prop::collection::vec((key(), 0..60u64), 10),
    ) {
        let ram = Ram::new();
        let pool = claims(&ram, MIN_PAGE_BYTES).ready();
        let mut row = build(&pool, 9, None, &entries);
        let mut stops = stops;
        // In the order in which the cursor passes them, from `inserted_at` on.
        stops.sort_by_key(|stop| (*stop < inserted_at, stop.clone()));
        stops.retain(|stop| *stop != inserted_at);
        let mut pages = row.pages();
        for stop in &stops {
            row = Arc::new(row.trim(LiveRange::new(stop, &inserted_at)).unwrap());
            assert!(row.pages() <= pages);
            pages = row.pages();
        }
        // The released pages get other content.
        let mut others = Vec::new();
        while let Ok(mut page) = pool.allocate() {
            page.store(0, &[0x5a; MIN_PAGE_BYTES], PURPOSE).unwrap();
            others.push(page);
        }
        let expected = live_entries(&entries, row.live());
        check(&row, &expected, &probes);
        drop((others, pool));
        let (_claims, row) = reopen(&ram, MIN_PAGE_BYTES, row);
        check(&row, &expected, &probes);
        let bytes: u64 = row.live_bytes().unwrap();
        assert_eq!(bytes > 0, !expected.is_empty());
    }
}

#[test]
fn values_of_many_pages_are_read_back() {
    for page_bytes in [MIN_PAGE_BYTES, 4096] {
        let entries: Vec<Entry> = (0..40u32)
            .map(|i| {
                let value: Vec<u8> = (0..i * 1000).map(|j| (i + j) as u8).collect();
                let key = [format!("{i:03}").into_bytes(), vec![b'k'; i as usize * 37]].concat();
                Entry::put(&key, 5, &value)
            })
            .collect();
        let row = build(&pool(page_bytes), 1, None, &entries);
        check(&row, &entries, &[]);
    }
}

#[test]
fn key_of_maximum_size_fits() {
    let key = |last: u8| [vec![7; siltstone_engine::MAX_KEY_BYTES - 1], vec![last]].concat();
    let entries: Vec<Entry> = (0..4).map(|i| Entry::put(&key(i), 1, b"v")).collect();
    check(&build(&pool(4096), 1, None, &entries), &entries, &[(key(9), 1), (vec![8], 1)]);
}

#[test]
fn row_reports_its_metadata() {
    let pool = pool(4096);
    let entries =
        [Entry::put(b"a", 9, b"new"), Entry::put(b"a", 3, b""), Entry::put(b"c", 5, b"v")];
    let mut builder = RowBuilder::new(&pool, 8, None, PURPOSE).unwrap();
    for entry in &entries {
        builder.add(entry.borrow()).unwrap();
    }
    let row = builder.finish().unwrap();
    assert_eq!((row.number(), row.previous(), row.sequences()), (8, None, (3, 9)));
    assert_eq!(row.bounds(), (&b"a"[..], &b"c"[..]));
    assert_eq!((row.entries(), row.pages(), row.live_bytes().unwrap()), (3, 4, row.data_bytes()));
    assert!((300..1000).contains(&row.memory_bytes()), "{}", row.memory_bytes());
    let row = row.trim(LiveRange::new(b"b", b"")).unwrap();
    assert_eq!((row.entries(), row.len()), (3, 1));
    assert_eq!(row.bytes_in(b"", None).unwrap(), row.live_bytes().unwrap());
}

#[test]
fn pages_are_freed_as_the_cursor_passes_and_completely_at_the_end() {
    let pool = pool(4096);
    let entries: Vec<Entry> =
        (0..4000u32).map(|i| Entry::put(format!("{i:06}").as_bytes(), 1, &[1; 200])).collect();
    let row = build(&pool, 1, None, &entries);
    let all = row.pages();
    assert_eq!(pool.pages() - pool.free_pages(), all as u32);
    let half = Arc::new(row.trim(LiveRange::new(b"002000", b"")).unwrap());
    assert_eq!(pool.pages() - pool.free_pages(), all as u32, "the whole row still reads them");
    assert_eq!(
        row.get(b"000005", 9, &mut SearchStats::default()).unwrap(),
        Some(entries[5].to_version())
    );
    assert_eq!(half.get(b"000005", 9, &mut SearchStats::default()).unwrap(), None);
    drop(row);
    let left = (pool.pages() - pool.free_pages()) as usize;
    assert!((all * 48 / 100..all * 54 / 100).contains(&left), "{left} of {all}");
    assert_eq!(half.bytes_in(b"003000", Some(b"003010")).unwrap(), 10 * 232);
    assert!(half.trim(LiveRange::all()).is_err_and(|e| e.to_string().contains("cannot grow")));
    drop(half);
    assert_eq!(pool.free_pages(), pool.pages());
}

#[test]
fn unordered_versions_and_empty_rows_are_rejected() {
    let pool = pool(4096);
    let again = [Entry::put(b"b", 5, b""), Entry::put(b"b", 5, b"")];
    let newer = [Entry::put(b"b", 5, b""), Entry::put(b"b", 6, b"")];
    let lower = [Entry::put(b"b", 5, b""), Entry::put(b"a", 9, b"")];
    for entries in [&again[..], &newer, &lower, &[]] {
        assert!(try_build(&pool, 1, None, entries).is_err());
    }
    assert_eq!(pool.free_pages(), pool.pages());
}

#[test]
fn full_pool_is_reported_as_storage_full_and_stays_usable() {
    let pool = pool(4096);
    let large = [Entry::put(b"k", 1, &vec![1; POOL_BYTES as usize])];
    let error = try_build(&pool, 1, None, &large).err().unwrap();
    assert!(error.is_disk_full(), "{error}");
    assert_eq!(pool.free_pages(), pool.pages());
    build(&pool, 1, None, &[Entry::put(b"k", 1, b"small")]);
}

#[test]
fn row_takes_one_barrier_and_little_more_than_its_items() {
    let vfs = MeteredVfs::new(Arc::new(Ram::new()));
    let pool = claims(&vfs, 4096).ready();
    let entries: Vec<Entry> =
        (0..2000u32).map(|i| Entry::put(format!("{i:016}").as_bytes(), 1, &[1; 1024])).collect();
    let row = build(&pool, 1, None, &entries);
    let counts = vfs.counters().unwrap().nvm(PURPOSE);
    assert_eq!(counts.barriers, 1);
    let user = 2000 * (16 + 1024);
    assert!(counts.bytes_stored < user * 106 / 100, "{counts:?}");
    assert!(counts.lines_persisted * 64 < user * 107 / 100, "{counts:?}");
    let mut stats = SearchStats::default();
    row.get(&entries[77].key, 9, &mut stats).unwrap().unwrap();
    let read = stats.bytes;
    assert!((1064..1500).contains(&read), "the item and the elements compared: {read}");
}
