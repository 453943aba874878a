//! Cost of a query of a cached Bloom filter, and of many.

use criterion::{Criterion, criterion_group, criterion_main};
use siltstone_structures::bloom::{
    BlockedBloom, BloomProbe, ClassicBloom, PlaneSource, SlicedBloom,
};
use siltstone_structures::hash::hash64;

fn queries(criterion: &mut Criterion) {
    let present: Vec<u64> = (0..8_000u64).map(|key| hash64(&key.to_le_bytes())).collect();
    let absent: Vec<u64> = (8_000..16_000u64).map(|key| hash64(&key.to_le_bytes())).collect();
    let (blocked, classic) =
        (BlockedBloom::build(&present, 10.0), ClassicBloom::build(&present, 10.0));
    let (blocked, classic) = (blocked.view(), classic.view());
    let mut group = criterion.benchmark_group("query");
    for (name, hashes) in [("present", &present), ("absent", &absent)] {
        let mut hashes = hashes.iter().cycle();
        let mut next = move || hashes.next().copied().unwrap_or_default();
        group.bench_function(format!("blocked/{name}"), |bencher| {
            bencher.iter(|| blocked.contains(next()));
        });
        group.bench_function(format!("classic/{name}"), |bencher| {
            bencher.iter(|| classic.contains(next()));
        });
    }
    group.finish();
    criterion.bench_function("build/blocked, 8000 keys", |bencher| {
        bencher.iter(|| BlockedBloom::build(&present, 10.0));
    });
}

/// 64 filters asked one by one, and sliced.
fn queries_of_64_filters(criterion: &mut Criterion) {
    let hashes = |from: u64| (from..from + 8_000).map(|key| hash64(&key.to_le_bytes()));
    let filters: Vec<_> = (0..64)
        .map(|i| BlockedBloom::build(&hashes(8_000 * i).collect::<Vec<_>>(), 10.0))
        .collect();
    let (planes, _) = filters.as_chunks::<{ SlicedBloom::COLUMNS_PER_PLANE }>();
    let planes: Vec<_> = (planes.iter())
        .map(|plane| PlaneSource::Filters(plane.each_ref().map(BlockedBloom::view)))
        .collect();
    let Some(sliced) = SlicedBloom::build(&planes) else { return };
    let absent: Vec<u64> = hashes(1 << 40).collect();
    let mut absent = absent.iter().cycle();
    let mut next = move || absent.next().copied().unwrap_or_default();
    criterion.bench_function("query of 64 filters/one by one", |bencher| {
        bencher.iter(|| {
            let mut probe = BloomProbe::new(next());
            filters.iter().filter(|filter| probe.is_in(&filter.view())).count()
        });
    });
    criterion.bench_function("query of 64 filters/sliced", |bencher| {
        bencher.iter(|| sliced.columns_of(next()));
    });
    criterion.bench_function("build/sliced, 64 filters of 8000 keys", |bencher| {
        bencher.iter(|| SlicedBloom::build(&planes));
    });
}

criterion_group!(benches, queries, queries_of_64_filters);
criterion_main!(benches);
