//! A device that another version of the program wrote is refused by that version's number, and nothing is changed.

use std::sync::Arc;

use siltstone_engine::{Env, Error, ManualClock, Purpose};
use siltstone_media::flash::{Emulator, Flash, FlashOptions, Geometry, RealTime, Timing};
use siltstone_skimpy::{Mapping, Options, Skimpy};

#[test]
fn pages_of_an_older_version_are_refused_by_its_number() {
    for mapping in [Mapping::Skimpy, Mapping::Semel, Mapping::Vftl] {
        let options = Options { capacity_bytes: 8 << 20, mapping, ..Options::default() };
        let geometry: Geometry = options.geometry().unwrap();
        let device = Arc::new(Emulator::in_memory(FlashOptions {
            geometry,
            timing: Timing::INSTANT,
            clock: Arc::new(RealTime::start()),
            endurance: u64::MAX,
        }));
        // A page of records of version 1, whose checksum holds.
        let (page, mut bytes) = (geometry.page(3, 0), vec![0; geometry.page_bytes()]);
        bytes[4..6].copy_from_slice(&[1, 1]);
        bytes[8] = 1;
        bytes[16..20].copy_from_slice(&page.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&page.to_le_bytes()), &bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        let submitted = device.submit_program(page, &bytes, Purpose::Flush).unwrap();
        device.wait(submitted).unwrap();

        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let opened = Skimpy::over(device.clone(), env, options).map(drop);
        let Err(Error::Refused { reason, .. }) = opened else { panic!("{mapping:?}: {opened:?}") };
        let said = format!("page {page}: the page is of version 1 of the format");
        assert!(reason.starts_with(&said) && reason.contains("reads version 2"), "{reason}");
        assert_eq!(device.operations(), 1, "{mapping:?}: the device was written to");
    }
}
