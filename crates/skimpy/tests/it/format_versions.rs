//! A device of another format version is read, or refused by its version without being changed.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, Purpose, WriteBatch};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::{Emulator, Flash, FlashOptions, Geometry, RealTime, Timing};
use siltstone_skimpy::{Mapping, Options, Skimpy};

#[test]
fn pages_of_an_older_version_are_refused_by_version() {
    for mapping in [Mapping::Skimpy, Mapping::Semel, Mapping::Vftl] {
        let options = Options { capacity_bytes: 8 << 20, mapping, ..Options::default() };
        let geometry: Geometry = options.geometry().unwrap();
        let device = Arc::new(Emulator::in_memory(FlashOptions {
            geometry,
            timing: Timing::INSTANT,
            clock: Arc::new(RealTime::start()),
            endurance: u64::MAX,
        }));
        // A page of records of version 1 with a valid checksum.
        let (page, mut bytes) = (geometry.page(3, 0), vec![0; geometry.page_bytes()]);
        bytes[4..6].copy_from_slice(&[1, 1]);
        bytes[8] = 1;
        bytes[16..20].copy_from_slice(&page.to_le_bytes());
        seal(page, &mut bytes);
        device.program(page, &bytes, Purpose::Flush).unwrap();

        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let opened = Skimpy::over(device.clone(), env, options).map(drop);
        let Err(Error::Refused { reason, .. }) = opened else { panic!("{mapping:?}: {opened:?}") };
        let said = format!("page {page}: the page is of version 1 of the format");
        assert!(reason.starts_with(&said) && reason.contains("reads versions 2 to 3"), "{reason}");
        assert_eq!(device.operations(), 1, "{mapping:?}: the device was written to");
    }
}

/// Writes the checksum of a page whose other bytes are complete.
fn seal(page: u32, bytes: &mut [u8]) {
    let sum = crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), &bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The programmed pages of a device.
fn pages(device: &Emulator) -> Vec<(u32, Vec<u8>)> {
    let geometry = device.geometry();
    let of_block = |block| (0..device.programmed(block).unwrap()).map(move |it| (block, it));
    let read = |(block, index)| {
        let (page, mut bytes) = (geometry.page(block, index), vec![0; geometry.page_bytes()]);
        device.read(page, &mut bytes, Purpose::Maintenance).unwrap();
        (page, bytes)
    };
    (0..geometry.blocks()).flat_map(of_block).map(read).collect()
}

/// A copy of a device whose pages state another version of the format.
fn of_version(version: u8, device: &Emulator, options: FlashOptions) -> Emulator {
    let copy = Emulator::in_memory(options);
    for (page, mut bytes) in pages(device) {
        bytes[5] = version;
        seal(page, &mut bytes);
        copy.program(page, &bytes, Purpose::Flush).unwrap();
    }
    copy
}

#[test]
fn pages_of_version_2_are_read_and_replaced_by_collection() {
    for mapping in [Mapping::Skimpy, Mapping::Semel] {
        let options = Options { capacity_bytes: 8 << 20, mapping, ..Options::default() };
        let of_device = FlashOptions {
            geometry: options.geometry().unwrap(),
            timing: Timing::INSTANT,
            clock: Arc::new(RealTime::start()),
            endurance: u64::MAX,
        };
        let device = Arc::new(Emulator::in_memory(of_device.clone()));
        let open = |device: &Arc<Emulator>| {
            let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
            Skimpy::over(device.clone(), env, options.clone()).unwrap()
        };
        let put = |table: &Skimpy, value: &[u8]| {
            for key in 0..200u32 {
                let mut batch = WriteBatch::new();
                table.write(batch.put(&key.to_le_bytes(), value), Durability::Buffered).unwrap();
            }
        };
        let holds = |table: &Skimpy, value: &[u8]| {
            (0..200u32).all(|key| {
                table.get(&key.to_le_bytes()).unwrap().is_some_and(|entry| entry.value == value)
            })
        };
        let table = open(&device);
        put(&table, &[1; 9000]);
        table.close().unwrap();

        let old = Arc::new(of_version(2, &device, of_device));
        let table = open(&old);
        assert!(holds(&table, &[1; 9000]), "{mapping:?}");
        for round in 2..10 {
            put(&table, &[round; 9000]);
        }
        table.close().unwrap();
        assert!(holds(&open(&old), &[9; 9000]), "{mapping:?}");
        assert!(pages(&old).iter().all(|(_, bytes)| bytes[5] == 3), "{mapping:?}");
    }
}
