//! Cost of a query of a cached Bloom filter, and of many.

use divan::Bencher;
use siltstone_structures::bloom::{
    BlockedBloom, BloomProbe, ClassicBloom, PlaneSource, SlicedBloom,
};
use siltstone_structures::hash::hash64;

const KEYS: u64 = 8_000;
const BITS_PER_KEY: f64 = 10.0;

/// Number of filters that are asked together.
const FILTERS: u64 = 64;

fn hashes(from: u64) -> Vec<u64> {
    (from..from + KEYS).map(|key| hash64(&key.to_le_bytes())).collect()
}

/// Hashes to look up, without end.
fn queries(present: bool) -> impl FnMut() -> u64 {
    let hashes = hashes(if present { 0 } else { 1 << 40 });
    let mut at = 0;
    move || {
        at = (at + 1) % hashes.len();
        hashes[at]
    }
}

#[divan::bench(args = [true, false])]
fn blocked(bencher: Bencher, present: bool) {
    let (filter, mut next) = (BlockedBloom::build(&hashes(0), BITS_PER_KEY), queries(present));
    let filter = filter.view();
    bencher.bench_local(|| filter.contains(next()));
}

#[divan::bench(args = [true, false])]
fn classic(bencher: Bencher, present: bool) {
    let (filter, mut next) = (ClassicBloom::build(&hashes(0), BITS_PER_KEY), queries(present));
    let filter = filter.view();
    bencher.bench_local(|| filter.contains(next()));
}

#[divan::bench]
fn build_blocked(bencher: Bencher) {
    let hashes = hashes(0);
    bencher.bench(|| BlockedBloom::build(&hashes, BITS_PER_KEY));
}

fn many_filters() -> Vec<BlockedBloom> {
    let of = |i| BlockedBloom::build(&hashes(KEYS * i), BITS_PER_KEY);
    (0..FILTERS).map(of).collect()
}

fn planes(filters: &[BlockedBloom]) -> Vec<PlaneSource<'_>> {
    let (planes, _) = filters.as_chunks::<{ SlicedBloom::COLUMNS_PER_PLANE }>();
    let views = planes.iter().map(|plane| plane.each_ref().map(BlockedBloom::view));
    views.map(PlaneSource::Filters).collect()
}

#[divan::bench]
fn many_one_by_one(bencher: Bencher) {
    let (filters, mut next) = (many_filters(), queries(false));
    bencher.bench_local(|| {
        let mut probe = BloomProbe::new(next());
        filters.iter().filter(|filter| probe.is_in(&filter.view())).count()
    });
}

#[divan::bench]
fn many_sliced(bencher: Bencher) {
    let (filters, mut next) = (many_filters(), queries(false));
    let sliced = SlicedBloom::build(&planes(&filters)).expect("the filters have one size");
    bencher.bench_local(|| sliced.columns_of(next()));
}

#[divan::bench]
fn build_sliced(bencher: Bencher) {
    let filters = many_filters();
    let planes = planes(&filters);
    bencher.bench(|| SlicedBloom::build(&planes));
}

fn main() {
    divan::main();
}
