//! The memory of conversions and merges is bounded by the options, whatever the amount of data.
//!
//! A counting allocator measures the peak. The limit is far below the data that is sorted, so the
//! test detects a buffer that grows, a vector that doubles, or an unbounded number of run readers.

#![allow(clippy::unwrap_used, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_vfs::{Disk, Vfs};

struct CountingAllocator;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches none of its memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller's guarantee about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the pointer came from `alloc` above, which had it from the system.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Writes `total` bytes in values of about `value` bytes and merges them. Returns the peak of
/// memory above the level before, and the bytes of sorted runs.
fn peak(total: usize, value: usize, is_even: bool) -> (usize, u64) {
    let directory = tempfile::tempdir().unwrap();
    let vfs: Arc<dyn Vfs> = Arc::new(Disk::open(directory.path()).unwrap());
    let options = [
        ("log_store_slots", "2048"),
        ("merge_trigger", "1000"),
        ("stop_trigger", "1001"),
        ("sort_memory", "1MiB"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 7);
    let options = Options { partitions: 1, ..Options::from_map(&options).unwrap() };
    let before = NOW.load(Relaxed);
    let silt = Silt::open(vfs.clone(), env.clone(), options.clone()).unwrap();
    let mut batch = WriteBatch::new();
    for i in 0..(total / value) as u32 {
        let len = if is_even { value } else { value / 2 + i as usize * 7 % value };
        batch.clear();
        batch.put(&i.to_le_bytes(), &vec![i as u8; len]);
        silt.write(&batch, Durability::Buffered).unwrap();
    }
    silt.close().unwrap();
    drop(silt);
    // One merge of all HashStores.
    let options = Options { merge_trigger: 1, stop_trigger: 1000, ..options };
    let silt = Silt::open(vfs, env, options).unwrap();
    PEAK.store(NOW.load(Relaxed), Relaxed);
    silt.flush().unwrap();
    silt.maintain().unwrap();
    let stats = silt.stats();
    assert_eq!(stats.counters["merges"], 1);
    (PEAK.load(Relaxed) - before, stats.counters["sort_run_bytes"])
}

#[test]
fn memory_does_not_grow_with_four_times_the_data() {
    for is_even in [true, false] {
        let (small, _) = peak(6 << 20, 100, is_even);
        let (large, runs) = peak(24 << 20, 100, is_even);
        // More than one tier of runs: eight runs are merged into one of the next tier.
        assert!(runs > 40 << 20, "{runs} bytes of runs");
        // The filters of HashStores and the index of the SortedStore grow by two bytes per entry.
        let grown = 2 * (18 << 20) / 100;
        assert!(large < small + grown + (2 << 20), "{small} bytes, then {large}");
        assert!(large < (8 << 20), "{large} bytes with 1 MiB to sort in");
    }
}
