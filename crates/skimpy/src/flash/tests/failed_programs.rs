//! Programs that the underlying file system fails: no partial page is valid.
//!
//! Invariant: such a page reads as unreadable or erased, at once and after the device was reopened,
//! even if the missing bytes are zeros.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose};
use siltstone_faults::{FaultKind, FaultyVfs};
use siltstone_vfs::Vfs;

use super::super::{Emulator, Flash, FlashOptions, Geometry, RealTime, Timing};

const WHY: Purpose = Purpose::Flush;

fn options() -> FlashOptions {
    FlashOptions {
        geometry: Geometry::new(4096, 4, 4).unwrap(),
        timing: Timing::INSTANT,
        clock: Arc::new(RealTime::start()),
        endurance: u64::MAX,
    }
}

/// A page that ends in zeros, like one of records with free space.
fn page() -> Vec<u8> {
    let mut page = vec![0; 4096];
    page[..100].fill(7);
    page
}

fn is_readable(device: &Emulator, page: u32) -> bool {
    device.read(page, &mut vec![0; 4096], WHY).is_ok()
}

/// Devices in one file and in zones.
fn devices(disk: &FaultyVfs) -> [Emulator; 2] {
    let zones: Arc<dyn Vfs> = disk.subdirectory("zones").unwrap();
    [
        Emulator::in_file(disk, "flash", options()).unwrap(),
        Emulator::in_zones(zones, options()).unwrap(),
    ]
}

#[test]
fn page_that_does_not_fit_is_invalid_now_and_after_reopening() {
    let disk = FaultyVfs::new(1);
    for (at, device) in devices(&disk).iter().enumerate() {
        device.program(0, &page(), WHY).unwrap();
        // The header and all non-zero bytes are written.
        disk.set_torn_on_full(true);
        disk.set_capacity(disk.space_used() + 1024);
        let refused = device.program(1, &page(), WHY).unwrap_err();
        assert!(Error::from(refused).is_disk_full());
        assert!(is_readable(device, 0) && !is_readable(device, 1));
        disk.set_capacity(u64::MAX);
        device.program(2, &page(), WHY).unwrap();
        let again = &devices(&disk)[at];
        assert_eq!([0, 1, 2].map(|page| is_readable(again, page)), [true, false, true]);
        assert_eq!(again.programmed(0).unwrap(), 3);
    }
}

#[test]
fn failed_page_that_may_be_valid_makes_the_device_read_only() {
    let disk = FaultyVfs::new(1);
    for device in &devices(&disk) {
        device.program(0, &page(), WHY).unwrap();
        disk.set_torn_on_full(true);
        disk.set_capacity(disk.space_used() + 1024);
        disk.fail_next(FaultKind::Sync, 1);
        let refused = Error::from(device.program(1, &page(), WHY).unwrap_err());
        let Error::ReadOnly { cause } = refused else { panic!("{refused}") };
        assert!(cause.contains("no storage space"), "{cause}");
        disk.set_capacity(u64::MAX);
    }
}
