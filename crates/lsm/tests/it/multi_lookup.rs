//! Reads of several keys from a slow device: the reads of the next keys are started before the
//! device is waited for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::HookedVfs;
use siltstone_vfs::{Ram, Vfs};

const KEYS: u32 = 4000;
/// Longer than any lookup in memory.
const DEVICE_READ: Duration = Duration::from_millis(2);

/// The requests of reads, in their order.
#[derive(Default)]
struct Device {
    is_slow: AtomicBool,
    requests: Mutex<Vec<(&'static str, String)>>,
}

impl Device {
    fn take_requests(&self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut *self.requests.lock())
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("{:08}", number * 7).into_bytes()
}

/// A table on a device, just opened, so that no block is cached.
fn on_device(given: &[(&str, &str)], is_compacted: bool) -> (Lsm, Arc<Device>) {
    let device = Arc::new(Device::default());
    let hooked = device.clone();
    let vfs = HookedVfs::wrap(&(Arc::new(Ram::new()) as Arc<dyn Vfs>), move |request| {
        if hooked.is_slow.load(SeqCst) && ["read", "begin read"].contains(&request.operation) {
            hooked.requests.lock().push((request.operation, request.name.to_owned()));
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
        Lsm::open(vfs.clone(), env, options.clone()).unwrap()
    };
    let lsm = open();
    // Not in order: such a load has its values in its tables.
    for number in (0..KEYS).map(|at| at * 1009 % KEYS) {
        let mut batch = WriteBatch::new();
        batch.put(&key(number), &vec![number as u8; 600]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.flush().unwrap();
    if is_compacted {
        lsm.compact_range(&KeyRange::all()).unwrap();
    }
    lsm.close().unwrap();
    drop(lsm);
    let lsm = open();
    device.is_slow.store(true, SeqCst);
    (lsm, device)
}

/// Looks up keys with distant blocks, and some that do not exist.
fn look_up(lsm: &Lsm) {
    let numbers: Vec<u32> = (0..40).map(|at| at * KEYS / 40).collect();
    let keys: Vec<_> =
        numbers.iter().flat_map(|&n| [key(n), [&key(n)[..], b"x"].concat()]).collect();
    let keys: Vec<_> = keys.iter().map(Vec::as_slice).collect();
    let entries = lsm.multi_get(&keys, None).unwrap();
    for (number, pair) in numbers.iter().zip(entries.chunks(2)) {
        let value = pair[0].as_ref().map(|entry| entry.value.clone());
        assert_eq!(value, Some(vec![*number as u8; 600]), "{number}");
        assert!(pair[1].is_none());
    }
}

#[test]
fn reads_of_further_keys_are_started_before_the_second_wait() {
    let (lsm, device) = on_device(&[], true);
    look_up(&lsm);
    let operations: Vec<_> = device.take_requests().into_iter().map(|(name, _)| name).collect();
    let started = operations.iter().skip(1).take_while(|name| **name == "begin read").count();
    assert!(started >= 38, "{operations:?}");
    // All is in the cache now.
    look_up(&lsm);
    assert_eq!(device.take_requests(), []);
}

#[test]
fn reads_of_values_in_logs_are_started_too() {
    // The log of a full memtable has the values of its run.
    let full = [("memtable", "1MiB"), ("l0_capacity", "64MiB")];
    for (options, is_compacted) in [(&full[..], false), (&[("blob_threshold", "512")], true)] {
        let (lsm, device) = on_device(options, is_compacted);
        look_up(&lsm);
        let requests = device.take_requests();
        let of_values = |wanted: &str| {
            let is_value = |name: &str| name.ends_with(".log") || name.ends_with(".blob");
            requests
                .iter()
                .filter(|(operation, name)| *operation == wanted && is_value(name))
                .count()
        };
        let (started, read) = (of_values("begin read"), of_values("read"));
        // Not that of the first key, and not the second part of a record.
        assert!(read >= 20 && started >= read * 9 / 10, "{options:?}: {started} of {read}");
    }
}
