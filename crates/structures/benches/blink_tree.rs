//! Speed of the B-link tree as a memtable, compared with a `BTreeMap` under a lock.
//!
//! Half a million random keys of 16 bytes with values of 100 bytes: loaded in random and in
//! ascending order by one thread, in random order by two, then read at random.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use siltstone_structures::blink_tree::{BLinkTree, NewVersion};

const KEYS: usize = 500_000;
const VALUE: [u8; 100] = [7; 100];

type Tree = RwLock<BTreeMap<Vec<u8>, BTreeMap<u64, Vec<u8>>>>;

fn random_keys() -> Vec<[u8; 16]> {
    let mut rng = StdRng::seed_from_u64(1);
    (0..KEYS).map(|_| rng.random()).collect()
}

fn load(list: &BLinkTree, keys: &[[u8; 16]]) {
    for (key, sequence) in keys.iter().zip(1..) {
        list.insert(
            key,
            NewVersion { sequence, kind: 0, expires_at: 0, position: 0, value: &VALUE },
        );
    }
}

fn load_tree(tree: &Tree, keys: &[[u8; 16]]) {
    for (key, sequence) in keys.iter().zip(1..) {
        let mut tree = tree.write().expect("nobody panics here");
        tree.entry(key.to_vec()).or_default().insert(sequence, VALUE.to_vec());
    }
}

fn inserts(criterion: &mut Criterion) {
    let keys = random_keys();
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let mut group = criterion.benchmark_group("insert");
    group.throughput(Throughput::Elements(KEYS as u64)).sample_size(10);
    for (name, keys) in [("random", &keys), ("ascending", &sorted)] {
        group.bench_function(format!("blink_tree/{name}"), |bencher| {
            let fresh = || BLinkTree::new();
            bencher.iter_batched_ref(fresh, |list| load(list, keys), BatchSize::PerIteration);
        });
        group.bench_function(format!("btree/{name}"), |bencher| {
            let fresh = Tree::default;
            bencher.iter_batched_ref(fresh, |tree| load_tree(tree, keys), BatchSize::PerIteration);
        });
    }
    group.bench_function("blink_tree/random, two threads", |bencher| {
        let fresh = || BLinkTree::new();
        let two = |list: &mut BLinkTree| {
            let list = &*list;
            std::thread::scope(|scope| {
                keys.chunks(KEYS / 2).for_each(|half| drop(scope.spawn(move || load(list, half))));
            });
        };
        bencher.iter_batched_ref(fresh, two, BatchSize::PerIteration);
    });
    group.finish();
}

fn reads(criterion: &mut Criterion) {
    let keys = random_keys();
    let list = Arc::new(BLinkTree::new());
    load(&list, &keys);
    let tree = Tree::default();
    load_tree(&tree, &keys);
    let mut group = criterion.benchmark_group("read");
    let mut rng = StdRng::seed_from_u64(2);
    group.bench_function("blink_tree/get", |bencher| {
        bencher.iter(|| {
            let key = &keys[rng.random_range(0..KEYS)];
            list.get(key, u64::MAX).map(|version| version.value[0])
        });
    });
    group.bench_function("btree/get", |bencher| {
        bencher.iter(|| {
            let key = &keys[rng.random_range(0..KEYS)];
            let tree = tree.read().expect("nobody panics here");
            tree.get(key.as_slice()).and_then(|versions| Some(versions.last_key_value()?.1[0]))
        });
    });
    group.bench_function("blink_tree/scan 100", |bencher| {
        let mut cursor = list.cursor();
        bencher.iter(|| {
            cursor.seek(&keys[rng.random_range(0..KEYS)]);
            for _ in 0..100 {
                if !cursor.valid() {
                    break;
                }
                black_box(cursor.newest().value[0]);
                cursor.next();
            }
        });
    });
    group.finish();
}

criterion_group!(benches, inserts, reads);
criterion_main!(benches);
