//! Speed of the B-link tree as a memtable, compared with a `BTreeMap` under a lock.
//!
//! Half a million random keys of 16 bytes with values of 100 bytes: loaded in random and in
//! ascending order by one thread, in random order by two, then read at random.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::{Arc, RwLock};

use divan::Bencher;
use divan::counter::ItemsCount;
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

/// The order in which keys are inserted.
#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    Ascending,
}

impl Order {
    fn keys(self) -> Vec<[u8; 16]> {
        let mut keys = random_keys();
        if let Order::Ascending = self {
            keys.sort_unstable();
        }
        keys
    }
}

#[divan::bench(sample_count = 10, args = [Order::Random, Order::Ascending])]
fn insert(bencher: Bencher, order: Order) {
    let keys = order.keys();
    let bencher = bencher.counter(ItemsCount::new(KEYS)).with_inputs(BLinkTree::new);
    bencher.bench_refs(|list| load(list, &keys));
}

#[divan::bench(sample_count = 10, args = [Order::Random, Order::Ascending])]
fn insert_into_btree(bencher: Bencher, order: Order) {
    let keys = order.keys();
    let bencher = bencher.counter(ItemsCount::new(KEYS)).with_inputs(Tree::default);
    bencher.bench_refs(|tree| load_tree(tree, &keys));
}

#[divan::bench(sample_count = 10)]
fn insert_by_two_threads(bencher: Bencher) {
    let keys = random_keys();
    let bencher = bencher.counter(ItemsCount::new(KEYS)).with_inputs(BLinkTree::new);
    bencher.bench_refs(|list| {
        let list = &*list;
        std::thread::scope(|scope| {
            keys.chunks(KEYS / 2).for_each(|half| drop(scope.spawn(move || load(list, half))));
        });
    });
}

#[divan::bench]
fn get(bencher: Bencher) {
    let (keys, list, mut rng) = (random_keys(), BLinkTree::new(), StdRng::seed_from_u64(2));
    load(&list, &keys);
    bencher.bench_local(|| {
        let key = &keys[rng.random_range(0..KEYS)];
        list.get(key, u64::MAX).map(|version| version.value[0])
    });
}

#[divan::bench]
fn get_from_btree(bencher: Bencher) {
    let (keys, tree, mut rng) = (random_keys(), Tree::default(), StdRng::seed_from_u64(2));
    load_tree(&tree, &keys);
    bencher.bench_local(|| {
        let key = &keys[rng.random_range(0..KEYS)];
        let tree = tree.read().expect("nobody panics here");
        tree.get(key.as_slice()).and_then(|versions| Some(versions.last_key_value()?.1[0]))
    });
}

#[divan::bench]
fn scan_100(bencher: Bencher) {
    let keys = random_keys();
    let (list, mut rng) = (Arc::new(BLinkTree::new()), StdRng::seed_from_u64(2));
    load(&list, &keys);
    let mut cursor = list.cursor();
    bencher.bench_local(|| {
        cursor.seek(&keys[rng.random_range(0..KEYS)]);
        for _ in 0..100 {
            if !cursor.valid() {
                break;
            }
            black_box(cursor.newest().value[0]);
            cursor.next();
        }
    });
}

fn main() {
    divan::main();
}
