//! Reads of several keys from a slow device: the reads of the next keys are started before the
//! device is waited for again.
#![allow(clippy::unwrap_used, reason = "tests panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::HookedVfs;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::{Ram, Vfs};

const KEYS: u32 = 20_000;
const ASKED: u32 = 40;
/// Longer than any lookup in memory.
const DEVICE_READ: Duration = Duration::from_millis(2);

fn key(number: u32) -> Vec<u8> {
    format!("{number:08}").into_bytes()
}

/// The requests of reads of a `multi_get` in a table with these options, in their order.
fn requests_with(given: &[(&str, &str)]) -> Vec<(&'static str, String)> {
    let (is_slow, requests) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
    let (slow, noted) = (is_slow.clone(), requests.clone());
    let vfs = HookedVfs::wrap(&(Arc::new(Ram::new()) as Arc<dyn Vfs>), move |request| {
        if slow.load(SeqCst) && ["read", "begin read"].contains(&request.operation) {
            noted.lock().push((request.operation, request.name.to_owned()));
            if request.operation == "read" {
                std::thread::sleep(DEVICE_READ);
            }
        }
        Ok(())
    });
    let options = given.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options::from_map(&options.collect()).unwrap();
    let open = || {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        Trie::open(vfs.clone(), env, options.clone()).unwrap()
    };
    let trie = open();
    for numbers in (0..KEYS).collect::<Vec<_>>().chunks(100) {
        let mut batch = WriteBatch::new();
        numbers.iter().for_each(|&number| _ = batch.put(&key(number), &[number as u8; 100]));
        trie.write(&batch, Durability::Buffered).unwrap();
        trie.maintain().unwrap();
    }
    trie.flush().unwrap();
    trie.close().unwrap();
    drop(trie);
    let trie = open();
    is_slow.store(true, SeqCst);
    let asked: Vec<_> = (0..ASKED).map(|at| key(at * KEYS / ASKED)).collect();
    let asked: Vec<_> = asked.iter().map(Vec::as_slice).collect();
    let entries = trie.multi_get(&asked, None).unwrap();
    for (at, entry) in (0..ASKED).zip(entries) {
        let value = entry.map(|entry| entry.value);
        assert_eq!(value, Some(vec![(at * KEYS / ASKED) as u8; 100]), "{at}");
    }
    std::mem::take(&mut *requests.lock())
}

#[test]
fn reads_of_further_keys_are_started_together() {
    // One table, and levels whose filters are on the device.
    let deep = [
        ("htable_size", "64KiB"),
        ("bucket_size", "1KiB"),
        ("fanout_bits", "1"),
        ("levels", "3"),
        ("filter_memory", "0"),
        ("experimental.segment_buckets", "32"),
    ];
    for given in [&[][..], &deep] {
        let requests = requests_with(given);
        let begins = |request: &&(&str, String)| request.0 == "begin read";
        let started = requests.iter().skip_while(|request| !begins(request)).take_while(begins);
        assert!(started.count() >= ASKED as usize - 2, "{given:?}: {requests:?}");
        // What was started is read then; a page of filters twice.
        let count = |operation: &str| requests.iter().filter(|it| it.0 == operation).count();
        assert!(count("begin read") * 10 >= count("read") * 6, "{given:?}: {requests:?}");
    }
}
