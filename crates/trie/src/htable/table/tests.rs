//! Tables of all layouts and versions return the items that were written.

use super::*;
use crate::htable::bucket::BUCKET_HEADER_BYTES;
use crate::htable::{Build, ExpectedSize, TableWriter};
use proptest::prelude::*;
use siltstone_runtime::RateLimiter;
use siltstone_table::FileSum;
use siltstone_vfs::{Mode, Ram};

fn build(layout: Layout) -> Build {
    Build {
        bucket_bytes: 512,
        segment: 8,
        fill: 0.95,
        columns: 64,
        filter_bits: 16.0,
        cached_migrations: 0.2,
        layout,
    }
}

/// Item number n. Of 64 items `special_64ths` are deletions or puts that expire, the others puts.
fn item<'a>(n: u32, key: &'a [u8], value: &'a [u8], special_64ths: u32) -> Item<'a> {
    match n % 64 < special_64ths {
        true if n.is_multiple_of(2) => Item::delete(key),
        is_odd => Item { key, value: Some(value), expires_at: is_odd.then_some(7) },
    }
}

/// Writes a table of `keys` items; returns their hashes in order, and the length of the file.
fn write(
    vfs: &dyn Vfs,
    keys: u32,
    value: impl Fn(u32) -> usize,
    special_64ths: u32,
    kind: HashKind,
    build: Build,
) -> (Vec<(Hash, u32)>, u64) {
    let mut order: Vec<(Hash, u32)> = (0..keys).map(|n| (kind.hash(&n.to_le_bytes()), n)).collect();
    order.sort_unstable();
    let rate = RateLimiter::unlimited();
    let bytes = (0..keys).map(|n| value(n) as u64 + 7).sum();
    let expected = ExpectedSize { items: keys.into(), bytes };
    let mut writer =
        TableWriter::create(vfs, 7, build, Origin::default(), expected, &rate, Purpose::Flush)
            .unwrap();
    for &(hash, n) in &order {
        let (key, value) = (n.to_le_bytes(), vec![n as u8; value(n)]);
        writer.push(hash, &item(n, &key, &value, special_64ths)).unwrap();
    }
    (order, writer.finish().unwrap().bytes)
}

fn open(vfs: &Arc<dyn Vfs>, bytes: u64) -> Arc<HTable> {
    let tiers = StorageTiers { main: vfs.clone(), fast: None };
    Arc::new(HTable::open(&tiers, 7, bytes, true).unwrap())
}

/// Checks lookups of present and absent keys, and a complete scan.
fn round_trip(
    keys: u32,
    value: impl Fn(u32) -> usize,
    special_64ths: u32,
    kind: HashKind,
    build: Build,
) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let (order, bytes) = write(vfs.as_ref(), keys, &value, special_64ths, kind, build);
    let table = open(&vfs, bytes);
    table.verify(kind).unwrap();
    for n in 0..keys + 50 {
        let (key, hash) = (n.to_le_bytes(), kind.hash(&n.to_le_bytes()));
        let found = table.get(&key, hash, Purpose::Get).unwrap();
        let value = vec![n as u8; if n < keys { value(n) } else { 0 }];
        let expected = (n < keys).then(|| LookupResult::of(&item(n, &key, &value, special_64ths)));
        assert_eq!(found, expected, "key {n}");
        assert!(n >= keys || table.may_contain(hash).unwrap_or(true), "key {n}");
    }
    let mut stream = Stream::new(table, kind, Purpose::Scan);
    let mut streamed = Vec::new();
    while stream.load_next().unwrap() {
        for at in 0..stream.slots().len() {
            streamed.push(stream.slots()[at].hash);
            let number = |item: &Item<'_>| u32::from_le_bytes(item.key.try_into().unwrap());
            stream
                .with_item(at, |item| {
                    assert_eq!(kind.hash(item.key), *streamed.last().unwrap());
                    assert!(number(item) < keys);
                    Ok(())
                })
                .unwrap();
        }
    }
    assert_eq!(streamed, order.iter().map(|&(hash, _)| hash).collect::<Vec<_>>());
}

/// A cycle of cached migrations, as an old bug might have written it under valid checksums.
#[test]
fn cycle_of_cached_migrations_is_corruption() {
    let kind = HashKind { seed: 1, weak_bits: 0 };
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let (order, bytes) = write(vfs.as_ref(), 500, |_| 8, 0, kind, build(Layout::Buckets));
    let mut table = Arc::into_inner(open(&vfs, bytes)).unwrap();
    table.migrations = (0..table.footer.buckets)
        .map(|source| Migration { source, destination: source ^ 1, mark: 0 })
        .collect();
    let (hash, key) = order[0];
    let error = table.get(&key.to_le_bytes(), hash, Purpose::Get).unwrap_err().to_string();
    assert!(error.contains("migrations form a cycle"), "{error}");
}

/// Version 2 has a full-size last bucket, and numbers of buckets in its directory.
#[test]
fn table_of_version_2_is_read() {
    let kind = HashKind { seed: 1, weak_bits: 0 };
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    // One segment, with as many items as fill all buckets: 492 bytes are 41 items.
    let build = Build { fill: 1.0, segment: 128, ..build(Layout::Buckets) };
    let keys = 41 * 20;
    let (order, bytes) = write(vfs.as_ref(), keys, |_| 8, 0, kind, build);
    let table = open(&vfs, bytes);
    assert_eq!((table.directory().bits(), table.footer.buckets), (0, 20));
    let name = table.name().to_owned();
    let Footer { frames, .. } = table.footer;
    let (mut footer, sum) = (table.footer, FileSum::new(7));
    footer.version = FULL_SIZE_BUCKETS_VERSION;
    let at = footer.frame_at(DIRECTORY);
    let mut directory = Vec::new();
    let stated = [&0u64.to_le_bytes()[..], &20u32.to_le_bytes()].concat();
    sum.seal(&mut directory, at, &stated);
    assert_eq!(directory.len(), frames[DIRECTORY] as usize);
    drop(table);
    let file = vfs.open(&name, Mode::ReadWrite).unwrap();
    file.write_at(at, &directory, Purpose::Flush).unwrap();
    file.write_at(bytes - FOOTER_BYTES as u64, &footer.encode(&sum, 7), Purpose::Flush).unwrap();
    let table = open(&vfs, bytes);
    assert_eq!(table.footer.version, FULL_SIZE_BUCKETS_VERSION);
    table.verify(kind).unwrap();
    for (hash, n) in order {
        assert!(table.get(&n.to_le_bytes(), hash, Purpose::Get).unwrap().is_some(), "key {n}");
    }
}

#[test]
fn table_of_equal_items_has_no_slack_and_a_short_last_bucket() {
    let kind = HashKind { seed: 1, weak_bits: 0 };
    let build = Build { fill: 1.0, segment: 128, ..build(Layout::Buckets) };
    for keys in [1, 41, 42, 41 * 20 + 1, 41 * 20 + 40] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let (_, bytes) = write(vfs.as_ref(), keys, |_| 8, 0, kind, build);
        let table = open(&vfs, bytes);
        let buckets = keys.div_ceil(41);
        assert_eq!(table.footer.buckets, buckets);
        let end = u64::from(buckets) * BUCKET_HEADER_BYTES as u64 + 12 * u64::from(keys);
        assert_eq!(table.footer.segments_end(), end, "{keys}");
    }
}

/// In a bucket's header the key length 0 means that there are no common items.
#[test]
fn item_of_the_empty_key_is_found_in_every_layout() {
    let kind = HashKind { seed: 1, weak_bits: 0 };
    let layouts = [Layout::Buckets, Layout::Run, Layout::Sorted];
    for (layout, others) in layouts.into_iter().flat_map(|layout| [(layout, 0), (layout, 200)]) {
        for len in [0, 5, 300, 3000] {
            let value = vec![9; len];
            let put = |expires_at| Item { key: b"", value: Some(&value), expires_at };
            for item in [put(None), put(Some(7)), Item::delete(b"")] {
                let keys: Vec<_> = (0..others).map(u32::to_le_bytes).collect();
                let mut items: Vec<_> = keys
                    .iter()
                    .map(|key| Item { key, value: Some(&value[..len.min(30)]), expires_at: None })
                    .chain([item])
                    .map(|item| (kind.hash(item.key), item))
                    .collect();
                items.sort_unstable_by_key(|(hash, _)| *hash);
                let (vfs, rate) = (Arc::new(Ram::new()), RateLimiter::unlimited());
                let expected = ExpectedSize { items: items.len() as u64, bytes: 4000 };
                let (build, origin) = (build(layout), Origin::default());
                let mut writer = TableWriter::create(
                    vfs.as_ref(),
                    7,
                    build,
                    origin,
                    expected,
                    &rate,
                    Purpose::Flush,
                )
                .unwrap();
                items.iter().for_each(|(hash, item)| writer.push(*hash, item).unwrap());
                let bytes = writer.finish().unwrap().bytes;
                let vfs: Arc<dyn Vfs> = vfs;
                let table = open(&vfs, bytes);
                table.verify(kind).unwrap();
                for (hash, item) in &items {
                    let found = table.get(item.key, *hash, Purpose::Get).unwrap();
                    assert_eq!(found, Some(LookupResult::of(item)), "{layout:?} {others} {len}");
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Small buckets create migration chains; large values and a weak hash use the special bucket
    /// and create collisions.
    #[test]
    fn every_item_is_found_in_every_layout(
        keys in 0u32..900,
        spread in 1usize..200,
        special_64ths in prop_oneof![Just(0u32), Just(3), Just(64)],
        bucket_bytes in prop_oneof![Just(256u32), Just(512), Just(4096)],
        segment in prop_oneof![Just(1u32), Just(6), Just(128)],
        fill in prop_oneof![Just(1.0), 0.5f64..1.0],
        weak_bits in prop_oneof![Just(0u32), Just(1), Just(4), Just(9)],
        cached_migrations in prop_oneof![Just(0.0), Just(0.2), Just(1.0)],
        filter_bits in prop_oneof![Just(0.0), Just(16.0)],
        layout in prop_oneof![Just(Layout::Buckets), Just(Layout::Run), Just(Layout::Sorted)],
    ) {
        let build = Build {
            bucket_bytes, segment, fill, filter_bits, cached_migrations, ..build(layout)
        };
        let value = |n: u32| (n as usize).wrapping_mul(7919) % spread;
        round_trip(keys, value, special_64ths, HashKind { seed: 1, weak_bits }, build);
    }
}
