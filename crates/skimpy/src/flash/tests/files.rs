//! Devices in files: other devices are rejected, damage is detected, and flushed pages survive
//! power cuts.

use siltstone_engine::Error;
use siltstone_faults::{FaultKind, FaultyVfs, Survival};

use super::*;

type Open = fn(&FaultyVfs, &FlashOptions) -> Result<Emulator, Error>;

const FORMS: [(&str, Open); 2] = [
    ("f", |vfs, options| Emulator::in_file(vfs, "f", options.clone())),
    ("device", |vfs, options| Emulator::in_zones(Arc::new(vfs.clone()), options.clone())),
];

fn refusal(result: Result<Emulator, Error>) -> String {
    let error = result.map(|device| device.name()).unwrap_err();
    assert!(matches!(error, Error::Refused { .. } | Error::Corruption { .. }), "{error}");
    error.to_string()
}

#[test]
fn device_of_another_geometry_or_form_is_rejected() {
    for (file, open) in FORMS {
        let vfs = FaultyVfs::new(1);
        drop(open(&vfs, &options(4, 3)).unwrap());
        for other in [options(5, 3), options(4, 4)] {
            let text = refusal(open(&vfs, &other));
            assert!(text.contains(file) && text.contains("another geometry"), "{text}");
            assert!(text.contains("3 blocks of 4 pages of 512 bytes"), "{text}");
        }
        drop(open(&vfs, &options(4, 3)).unwrap());
        let label = vfs.read_raw(file).unwrap();
        for bit in 0..32 * 8 {
            vfs.flip_bit(file, bit / 8, (bit % 8) as u8).unwrap();
            assert!(refusal(open(&vfs, &options(4, 3))).contains(file));
            vfs.write_raw(file, 0, &label).unwrap();
        }
        let mut newer = label.clone();
        newer[8] = 2;
        let sum = crc32c::crc32c(&newer[..28]).to_le_bytes();
        newer[28..32].copy_from_slice(&sum);
        vfs.write_raw(file, 0, &newer).unwrap();
        assert!(refusal(open(&vfs, &options(4, 3))).contains("version 2"));
        vfs.truncate(file, 100).unwrap();
        assert!(refusal(open(&vfs, &options(4, 3))).contains("too short"));
    }
}

#[test]
fn other_form_or_truncated_device_is_rejected() {
    let vfs = FaultyVfs::new(1);
    drop(Emulator::in_zones(Arc::new(vfs.clone()), options(4, 3)).unwrap());
    let text = refusal(Emulator::in_file(&vfs, "device", options(4, 3)));
    assert!(text.contains("other layout"), "{text}");
    drop(Emulator::in_file(&vfs, "f", options(4, 3)).unwrap());
    vfs.truncate("f", 1000).unwrap();
    assert!(refusal(Emulator::in_file(&vfs, "f", options(4, 3))).contains("truncated"));

    let zones = FaultyVfs::new(1);
    let device = Emulator::in_zones(Arc::new(zones.clone()), options(4, 3)).unwrap();
    program(&device, 0, 0).unwrap();
    zones.remove("device").unwrap();
    let text = refusal(Emulator::in_zones(Arc::new(zones), options(4, 3)));
    assert!(text.contains("zone-00000"), "{text}");
}

/// Flips every bit of a small device except those of page contents, and some of those.
#[test]
fn flipped_bit_is_never_a_wrong_answer() {
    for (_, open) in FORMS {
        let vfs = FaultyVfs::new(1);
        let device = open(&vfs, &options(3, 2)).unwrap();
        (0..3).for_each(|number| program(&device, number, 7).unwrap());
        device.erase(0, WHY).unwrap();
        (0..2).for_each(|number| program(&device, number, number.into()).unwrap());
        (3..6).for_each(|number| program(&device, number, number.into()).unwrap());
        drop(device);
        for file in vfs.files() {
            for byte in 0..file.len {
                if file.path == "device" || (file.path == "f" && byte < 512) {
                    continue;
                }
                let bit = (byte % 8) as u8;
                vfs.flip_bit(&file.path, byte, bit).unwrap();
                let device = open(&vfs, &options(3, 2)).unwrap();
                for number in 0..6 {
                    let what = format!("{} byte {byte} page {number}", file.path);
                    match read(&device, number) {
                        Ok(bytes) => {
                            assert_ne!(number, 2, "{what} is erased");
                            assert_eq!(bytes, page(number.into()), "{what}");
                        }
                        Err(FlashError::Erased { .. }) => assert_eq!(number, 2, "{what}"),
                        Err(FlashError::Unreadable { .. }) => {}
                        Err(FlashError::Medium(error)) => assert!(error.is_corruption(), "{what}"),
                        Err(other) => panic!("{what}: {other}"),
                    }
                }
                vfs.flip_bit(&file.path, byte, bit).unwrap();
            }
        }
    }
}

/// The possible contents of a page: everything since the last flushed erase, and what it must
/// contain.
#[derive(Clone, Default)]
struct KnownContent {
    ever: Vec<u64>,
    /// Programmed and not erased since.
    now: Option<u64>,
    flushed: Option<u64>,
    /// From this index on, `ever` is after the last erase.
    since_erase: usize,
}

struct Run {
    pages: Vec<KnownContent>,
    /// Whether power was cut.
    cut: bool,
}

fn run(device: &Emulator, seed: u64, per_block: u32) -> Run {
    let mut random = SplitMix64::new(seed);
    let geometry = device.geometry();
    let mut pages = vec![KnownContent::default(); geometry.pages() as usize];
    for step in 0..60 {
        let block = random.below(geometry.blocks().into()) as u32;
        let first = block * per_block;
        let done = match (random.below(6), device.programmed(block)) {
            (_, Err(error)) => Err(error),
            (0, _) => device.flush(WHY).map(|()| {
                for page in &mut pages {
                    page.flushed = page.now;
                    page.ever.drain(..page.since_erase);
                    page.since_erase = 0;
                }
            }),
            (1..5, Ok(next)) if next < per_block => {
                // The page may be there even if the program failed.
                let page = &mut pages[(first + next) as usize];
                page.ever.push(step);
                program(device, first + next, step).map(|()| page.now = Some(step))
            }
            _ => {
                let erased = &mut pages[first as usize..(first + per_block) as usize];
                erased.iter_mut().for_each(|page| page.flushed = None);
                device.erase(block, WHY).map(|()| {
                    for page in erased {
                        page.now = None;
                        page.since_erase = page.ever.len();
                    }
                })
            }
        };
        if done.is_err() {
            return Run { pages, cut: true };
        }
    }
    Run { pages, cut: false }
}

/// Power cuts at operations of the underlying file system: `SILTSTONE_FLASH_CUTS` histories per
/// form, 40 by default.
#[test]
fn flushed_pages_survive_power_cuts_and_no_page_is_invented() {
    let cuts = std::env::var("SILTSTONE_FLASH_CUTS").map_or(40, |n| n.parse().unwrap());
    let mut cut_runs = 0;
    for (form, open) in FORMS {
        for seed in 0..cuts {
            let (per_block, options) = (4, options(4, 3));
            let vfs = FaultyVfs::new(seed);
            let device = open(&vfs, &options).unwrap();
            vfs.cut_power_at(vfs.operations() + SplitMix64::new(seed).below(70));
            let ran = run(&device, seed, per_block);
            cut_runs += u64::from(ran.cut);
            vfs.cut_power();
            for mode in Survival::ALL {
                let device = open(&vfs.survivors_as(mode, seed), &options).unwrap();
                for (number, known) in ran.pages.iter().enumerate() {
                    let what = format!("{form}, seed {seed}, {mode:?}, page {number}");
                    let found = read(&device, number as u32);
                    match (known.flushed, found) {
                        (Some(seed), found) => assert_eq!(found.unwrap(), page(seed), "{what}"),
                        (None, Ok(bytes)) => {
                            assert!(known.ever.iter().any(|&s| bytes == page(s)), "{what}");
                        }
                        (None, Err(FlashError::Erased { .. } | FlashError::Unreadable { .. })) => {}
                        (None, Err(other)) => panic!("{what}: {other}"),
                    }
                }
                for block in 0..3 {
                    let next = device.programmed(block).unwrap();
                    if next == per_block {
                        device.erase(block, WHY).unwrap();
                    }
                    let number = block * per_block + next % per_block;
                    program(&device, number, 1000).unwrap();
                    assert_eq!(read(&device, number).unwrap(), page(1000));
                }
                device.flush(WHY).unwrap();
            }
        }
    }
    assert!(cut_runs > cuts, "most histories are cut: {cut_runs}");
}

#[test]
fn failed_flush_is_not_repaired_by_a_later_one() {
    for (_, open) in FORMS {
        let vfs = FaultyVfs::new(1);
        let device = open(&vfs, &options(4, 2)).unwrap();
        program(&device, 0, 1).unwrap();
        vfs.fail_next(FaultKind::Sync, 1);
        device.flush(WHY).unwrap_err();
        device.flush(WHY).unwrap_err();
        assert_eq!(read(&device, 0).unwrap(), page(1), "reads go on");
    }
}

#[test]
fn failed_program_consumes_its_page_and_failed_erase_its_block() {
    for (form, open) in FORMS {
        let vfs = FaultyVfs::new(1);
        let options = options(4, 2);
        let device = open(&vfs, &options).unwrap();
        program(&device, 0, 0).unwrap();
        vfs.fail_next(FaultKind::Write, 1);
        assert!(matches!(program(&device, 1, 1), Err(FlashError::Medium(_))), "{form}");
        assert!(matches!(program(&device, 1, 1), Err(FlashError::AlreadyProgrammed { .. })));
        program(&device, 2, 2).unwrap();
        // The remains of a failed write are unknown.
        match read(&device, 1) {
            Ok(bytes) => assert_eq!(bytes, page(1), "{form}"),
            Err(error) => {
                assert!(matches!(error, FlashError::Unreadable { page: 1, .. }), "{form}")
            }
        }
        vfs.fail_next(FaultKind::Write, 1);
        assert!(matches!(device.erase(0, WHY), Err(FlashError::Medium(_))), "{form}");
        assert!(matches!(program(&device, 3, 3), Err(FlashError::AlreadyProgrammed { .. })));
        device.erase(0, WHY).unwrap();
        program(&device, 0, 9).unwrap();
        device.flush(WHY).unwrap();
        let again = open(&vfs, &options).unwrap();
        assert_eq!(read(&again, 0).unwrap(), page(9), "{form}");
        assert_eq!((again.erases(0).unwrap(), again.programmed(0).unwrap()), (1, 1), "{form}");
    }
}

/// If the file system reports holes, a sparse device opens fast, and no page is missed.
#[test]
fn sparse_device_opens_without_reading_its_holes() {
    let scratch = tempfile::tempdir().unwrap();
    let disk: Arc<dyn Vfs> = Arc::new(siltstone_vfs::Disk::create(scratch.path()).unwrap());
    let vfs = siltstone_vfs::MeteredVfs::new(disk);
    let options = options(256, 64);
    let reads = || vfs.counters().unwrap().snapshot().values().map(|io| io.reads).sum::<u64>();
    let reopened = || {
        let (device, before) = (Emulator::in_file(&vfs, "f", options.clone()).unwrap(), reads());
        let states: Vec<_> = (0..64).map(|block| device.programmed(block).unwrap()).collect();
        (device, states, reads() - before)
    };
    let (device, states, count) = reopened();
    assert_eq!(states, vec![0; 64]);
    // In the file system page of the label.
    assert!(count < 10, "{count} reads");
    // Blocks that are full, started, erased, and started again after an erase.
    (0..256).for_each(|index| program(&device, index, index.into()).unwrap());
    (0..100).for_each(|index| program(&device, 3 * 256 + index, 3).unwrap());
    for block in [5, 63] {
        (0..90).for_each(|index| program(&device, block * 256 + index, 5).unwrap());
        device.erase(block, WHY).unwrap();
    }
    (0..7).for_each(|index| program(&device, 63 * 256 + index, 63).unwrap());
    let mut expected = vec![0; 64];
    (expected[0], expected[3], expected[63]) = (256, 100, 7);
    drop(device);
    let (device, states, count) = reopened();
    assert_eq!(states, expected);
    assert!(count < 1000, "{count} reads");
    assert_eq!(read(&device, 3 * 256 + 99).unwrap(), page(3));
    assert_eq!(device.erases(63).unwrap(), 1);
}

/// A power cut may keep a page but not the one before it.
#[test]
fn page_after_an_unwritten_one_is_found() {
    let vfs = FaultyVfs::new(1);
    let device = Emulator::in_file(&vfs, "f", options(4, 1)).unwrap();
    (0..3).for_each(|number| program(&device, number, 7).unwrap());
    drop(device);
    // The header of page 1, after the label, the block's header and the slot of page 0.
    vfs.write_raw("f", 512 + 512 + (16 + 512), &[0; 16]).unwrap();
    let device = Emulator::in_file(&vfs, "f", options(4, 1)).unwrap();
    assert_eq!(device.programmed(0).unwrap(), 3);
    assert_eq!(read(&device, 2).unwrap(), page(7));
    assert!(read(&device, 1).is_err());
}
