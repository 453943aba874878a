//! Does the skip list hold under every interleaving and every reordering the memory model allows?
//!
//! Small instances, explored exhaustively up to a bound of preemptions:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p siltstone-structures --test loom --release
//! ```

#![cfg(loom)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use loom::sync::Arc;
use loom::thread;
use siltstone_structures::skiplist::{NewVersion, SkipList};

/// Under this seed, "b", "c" and "k" have towers of two levels, "a" and "d" of one.
const SEED: u64 = 90;

fn new(sequence: u64, value: &[u8]) -> NewVersion<'_> {
    NewVersion { sequence, kind: 0, expires_at: 0, position: 0, value }
}

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(test);
}

/// Inserts from two threads at once, and hands the list to `check` when both are done.
fn race(
    left: &'static [(&[u8], u64)],
    right: &'static [(&[u8], u64)],
    check: impl Fn(&SkipList) + Sync + Send + 'static,
) {
    explore(3, move || {
        let list = Arc::new(SkipList::new(SEED));
        let other = Arc::clone(&list);
        let thread = thread::spawn(move || {
            left.iter().for_each(|&(key, sequence)| other.insert(key, new(sequence, key)));
        });
        right.iter().for_each(|&(key, sequence)| list.insert(key, new(sequence, key)));
        thread.join().unwrap();
        check(&list);
    });
}

#[test]
fn do_two_writers_of_neighbouring_keys_both_get_in() {
    race(&[(b"a", 1), (b"c", 2)], &[(b"b", 3), (b"d", 4)], |list| {
        assert!(list.iter().map(|entry| entry.key()).eq([b"a", b"b", b"c", b"d"]));
        assert!([b"a", b"b", b"c", b"d"].iter().all(|key| list.get(*key, 9).is_some()));
        assert_eq!((list.keys(), list.versions()), (4, 4));
    });
}

#[test]
fn do_two_writers_of_one_key_make_one_node_with_both_versions() {
    race(&[(b"k", 2)], &[(b"k", 1), (b"k", 3)], |list| {
        assert_eq!((list.keys(), list.versions()), (1, 3));
        let entry = list.entry(b"k").unwrap();
        assert_eq!(entry.updates(), 3);
        assert!(entry.versions().map(|version| version.sequence).eq([3, 2, 1]));
    });
}

#[test]
fn does_a_reader_see_only_whole_entries() {
    // Outside loom's model: what readers saw in all interleavings together.
    static SEEN: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    explore(3, || {
        let list = Arc::new(SkipList::new(SEED));
        let other = Arc::clone(&list);
        let reader = thread::spawn(move || {
            // Loom fails this if a field is read that was not published to this thread.
            let seen = other.get(b"b", 9).map(|version| (version.sequence, version.value));
            let whole = [None, Some((1, b"one".as_slice())), Some((2, b"two".as_slice()))];
            let which = whole.iter().position(|whole| *whole == seen).expect("a whole version");
            SEEN[which].store(true, Relaxed);
            let keys: Vec<_> = other.iter().map(|entry| entry.key()).collect();
            assert!(keys.is_sorted());
        });
        list.insert(b"b", new(1, b"one"));
        list.insert(b"b", new(2, b"two"));
        list.insert(b"a", new(3, b"three"));
        reader.join().unwrap();
        assert!(list.iter().map(|entry| entry.key()).eq([b"a", b"b"]));
    });
    assert!(SEEN.iter().all(|seen| seen.load(Relaxed)), "loom left out an interleaving");
}
