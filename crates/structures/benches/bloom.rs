//! Cost of a query of a cached Bloom filter.

use criterion::{Criterion, criterion_group, criterion_main};
use siltstone_structures::bloom::{BlockedBloom, ClassicBloom};
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

criterion_group!(benches, queries);
criterion_main!(benches);
