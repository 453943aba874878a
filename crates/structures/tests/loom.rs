//! Loom models of the B-link tree.
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
use siltstone_structures::blink_tree::{BLinkTree, NewVersion};

fn new(sequence: u64, value: &[u8]) -> NewVersion<'_> {
    NewVersion { sequence, kind: 0, expires_at: 0, position: 0, value }
}

fn explore(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 10_000;
    model.check(test);
}

/// Inserts from two threads concurrently, and passes the tree to `check` when both are done.
fn race(
    left: &'static [(&[u8], u64)],
    right: &'static [(&[u8], u64)],
    check: impl Fn(&BLinkTree) + Sync + Send + 'static,
) {
    explore(3, move || {
        let tree = Arc::new(BLinkTree::new());
        let other = Arc::clone(&tree);
        let thread = thread::spawn(move || {
            left.iter().for_each(|&(key, sequence)| other.insert(key, new(sequence, key)));
        });
        right.iter().for_each(|&(key, sequence)| tree.insert(key, new(sequence, key)));
        thread.join().unwrap();
        check(&tree);
    });
}

#[test]
fn concurrent_inserts_of_adjacent_keys_both_succeed() {
    race(&[(b"a", 1), (b"c", 2)], &[(b"b", 3), (b"d", 4)], |tree| {
        assert!(tree.iter().map(|entry| entry.key()).eq([b"a", b"b", b"c", b"d"]));
        assert!([b"a", b"b", b"c", b"d"].iter().all(|key| tree.get(*key, 9).is_some()));
        assert_eq!((tree.keys(), tree.versions()), (4, 4));
    });
}

#[test]
fn concurrent_inserts_of_one_key_give_one_entry_with_both_versions() {
    race(&[(b"k", 2)], &[(b"k", 1), (b"k", 3)], |tree| {
        assert_eq!((tree.keys(), tree.versions()), (1, 3));
        let entry = tree.entry(b"k").unwrap();
        assert_eq!(entry.updates(), 3);
        assert!(entry.versions().map(|version| version.sequence).eq([3, 2, 1]));
    });
}

#[test]
fn reader_sees_only_complete_entries() {
    // Outside loom's model: what readers saw in all interleavings together.
    static SEEN: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    explore(3, || {
        let tree = Arc::new(BLinkTree::new());
        let other = Arc::clone(&tree);
        let reader = thread::spawn(move || {
            // Loom fails this if a field is read that was not published to this thread.
            let seen = other.get(b"b", 9).map(|version| (version.sequence, version.value));
            let whole = [None, Some((1, b"one".as_slice())), Some((2, b"two".as_slice()))];
            let which = whole.iter().position(|whole| *whole == seen).expect("a whole version");
            SEEN[which].store(true, Relaxed);
            let keys: Vec<_> = other.iter().map(|entry| entry.key()).collect();
            assert!(keys.is_sorted());
        });
        tree.insert(b"b", new(1, b"one"));
        tree.insert(b"b", new(2, b"two"));
        tree.insert(b"a", new(3, b"three"));
        reader.join().unwrap();
        assert!(tree.iter().map(|entry| entry.key()).eq([b"a", b"b"]));
    });
    assert!(SEEN.iter().all(|seen| seen.load(Relaxed)), "loom left out an interleaving");
}

/// Inserts `first`, and then "c" beside a reader. Nodes have two slots under loom, so that leaves
/// with two keys are full: "c" takes the slot of "d" in its leaf, and "d" moves to a new one.
fn split_beside(
    first: &'static [&[u8]],
    read: impl Fn(&std::sync::Arc<BLinkTree>) + Copy + Sync + Send + 'static,
) {
    explore(3, move || {
        // The standard `Arc`, as cursors use.
        let tree = std::sync::Arc::new(BLinkTree::new());
        first.iter().for_each(|key| tree.insert(key, new(1, key)));
        let other = tree.clone();
        let reader = thread::spawn(move || read(&other));
        tree.insert(b"c", new(2, b"c"));
        reader.join().unwrap();
        read(&tree);
        assert_eq!(tree.iter().count(), first.len() + 1);
    });
}

/// Each key once, in order, and all that were there before.
fn check(keys: &[&[u8]]) {
    assert!(keys.is_sorted_by(|left, right| left < right), "{keys:?}");
    assert!([b"b", b"d"].iter().all(|key| keys.contains(&key.as_slice())), "{keys:?}");
}

#[test]
fn reader_finds_keys_while_leaf_and_root_split() {
    split_beside(&[b"b", b"d"], |tree| {
        assert!(tree.get(b"d", 9).is_some_and(|version| version.value == b"d"));
        assert!(tree.get(b"b", 9).is_some());
    });
}

#[test]
fn reader_finds_no_absent_key_while_leaf_splits() {
    split_beside(&[b"b", b"d"], |tree| {
        assert!(tree.get(b"cc", 9).is_none());
        assert!(tree.get(b"e", 9).is_none());
    });
}

#[test]
fn reader_finds_keys_while_inner_nodes_split() {
    split_beside(&[b"b", b"d", b"f", b"h"], |tree| {
        assert!([b"d", b"h"].iter().all(|key| tree.get(*key, 9).is_some()));
    });
}

#[test]
fn iteration_returns_each_key_once_while_leaves_split() {
    split_beside(&[b"b", b"d"], |tree| {
        let counted = tree.keys();
        let keys: Vec<_> = tree.iter().map(|entry| entry.key()).collect();
        assert!(
            keys.len() >= counted,
            "{counted} keys were counted before, but the keys are {keys:?}"
        );
        check(&keys);
    });
}

#[test]
fn reverse_iteration_returns_each_key_once_while_leaves_split() {
    split_beside(&[b"b", b"d"], |tree| {
        let (mut cursor, mut keys) = (tree.cursor(), Vec::new());
        cursor.seek_to_last();
        while let Some(entry) = cursor.entry() {
            keys.insert(0, entry.key().to_vec());
            cursor.prev();
        }
        let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
        check(&keys);
    });
}
