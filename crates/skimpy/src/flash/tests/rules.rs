//! Every rule is enforced, and a violation changes nothing.

use siltstone_engine::{Error, IoCounts, Purpose};

use super::*;

#[test]
fn violated_rule_is_a_distinct_error_without_effect() {
    for (kind, open) in kinds() {
        let device = open(&options(4, 3));
        program(&device, 4, 1).unwrap();
        let refusals = [
            program(&device, 4, 2),
            program(&device, 6, 2),
            program(&device, 12, 2),
            device.program(5, &[0; PAGE_BYTES + 1], WHY),
            read(&device, 5).map(drop),
            read(&device, 0).map(drop),
            read(&device, u32::MAX).map(drop),
            device.read(4, &mut [0; 100], WHY),
            device.erase(3, WHY),
            device.programmed(3).map(drop),
        ];
        let device_is = |error: &FlashError| Error::from(error.clone()).to_string();
        for (number, refusal) in refusals.iter().enumerate() {
            let error = refusal.as_ref().unwrap_err();
            let right = match number {
                0 => matches!(error, FlashError::AlreadyProgrammed { page: 4, block: 1, .. }),
                1 => matches!(error, FlashError::OutOfOrder { page: 6, next: 5, .. }),
                2 => matches!(error, FlashError::NoSuchPage { page: 12, last: 11, .. }),
                3 => matches!(error, FlashError::NotAPage { bytes: 513, page_bytes: 512, .. }),
                4 | 5 => matches!(error, FlashError::Erased { .. }),
                6 => matches!(error, FlashError::NoSuchPage { page: u32::MAX, .. }),
                7 => matches!(error, FlashError::NotAPage { bytes: 100, .. }),
                _ => matches!(error, FlashError::NoSuchBlock { block: 3, last: 2, .. }),
            };
            assert!(right, "{kind} {number}: {error:?}");
            assert!(device_is(error).contains(&device.name()), "{kind} {number}: {error}");
        }
        assert_eq!(read(&device, 4).unwrap(), page(1), "{kind}");
        assert_eq!(device.operations(), 1, "{kind}: refused requests are none");
        let state = (0..3).map(|b| (device.programmed(b).unwrap(), device.erases(b).unwrap()));
        assert_eq!(state.collect::<Vec<_>>(), [(0, 0), (1, 0), (0, 0)], "{kind}");
    }
}

#[test]
fn erase_affects_only_its_block() {
    for (kind, open) in kinds() {
        let device = open(&options(2, 2));
        (0..4).for_each(|number| program(&device, number, number.into()).unwrap());
        device.erase(1, WHY).unwrap();
        assert!(matches!(read(&device, 2), Err(FlashError::Erased { page: 2, .. })), "{kind}");
        program(&device, 2, 9).unwrap();
        assert!(matches!(read(&device, 3), Err(FlashError::Erased { page: 3, .. })), "{kind}");
        for (number, seed) in [(0, 0), (1, 1), (2, 9)] {
            assert_eq!(read(&device, number).unwrap(), page(seed), "{kind}");
        }
        assert_eq!((device.erases(0).unwrap(), device.erases(1).unwrap()), (0, 1), "{kind}");
    }
}

#[test]
fn worn_out_block_is_readable_but_not_erasable() {
    for (kind, open) in kinds() {
        let options = FlashOptions { endurance: 3, ..options(2, 2) };
        let device = open(&options);
        for round in 0..3 {
            program(&device, 0, round).unwrap();
            device.erase(0, WHY).unwrap();
        }
        program(&device, 0, 7).unwrap();
        let error = device.erase(0, WHY).unwrap_err();
        assert!(matches!(error, FlashError::WornOut { block: 0, erases: 3, .. }), "{kind}");
        assert_eq!(read(&device, 0).unwrap(), page(7), "{kind}");
        device.erase(1, WHY).unwrap();
        assert_eq!((device.erases(0).unwrap(), device.erases(1).unwrap()), (3, 1), "{kind}");
        if kind != "memory" {
            let again = open(&options);
            assert!(matches!(again.erase(0, WHY), Err(FlashError::WornOut { .. })), "{kind}");
        }
    }
}

#[test]
fn requests_are_counted_by_purpose_like_in_metered() {
    for (kind, open) in kinds() {
        let device = open(&options(4, 2));
        device.program(0, &page(1), Purpose::Flush).unwrap();
        device.program(1, &page(2), Purpose::Compaction).unwrap();
        device.program(3, &page(2), Purpose::Compaction).unwrap_err();
        device.read(0, &mut [0; PAGE_BYTES], Purpose::Get).unwrap();
        device.read(2, &mut [0; PAGE_BYTES], Purpose::Get).unwrap_err();
        device.flush(Purpose::Log).unwrap();
        let counters = device.counters();
        let none = IoCounts::default();
        let written = IoCounts { writes: 1, bytes_written: 512, ..none };
        assert_eq!(counters.get(Purpose::Flush), written, "{kind}");
        assert_eq!(counters.get(Purpose::Compaction), written, "{kind}");
        assert_eq!(counters.get(Purpose::Log), IoCounts { syncs: 1, ..none }, "{kind}");
        let got = IoCounts { reads: 1, bytes_read: 512, ..none };
        assert_eq!(counters.get(Purpose::Get), got, "{kind}");
    }
}
