//! Power cuts: guaranteed outcomes, and every allowed one.

use std::collections::BTreeSet;

use super::*;

/// The history of a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Program(u64),
    Erase,
}

/// The possible content of a page.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PossibleContent {
    Intact(u64),
    /// This content, garbage or unreadable.
    Spoilt(u64),
    Unreadable,
}

fn apply(steps: &[Step]) -> Vec<PossibleContent> {
    let mut pages = Vec::new();
    for step in steps {
        match step {
            Step::Program(seed) => pages.push(PossibleContent::Intact(*seed)),
            Step::Erase => pages.clear(),
        }
    }
    pages
}

/// Every state that a cut may leave of a block whose first `sure` steps have happened.
fn allowed(steps: &[Step], sure: usize, per_block: u32) -> Vec<Vec<PossibleContent>> {
    let mut states = Vec::new();
    for happened in sure..=steps.len() {
        let whole = apply(&steps[..happened]);
        match steps.get(happened) {
            Some(Step::Program(seed)) => {
                states.push([whole.as_slice(), &[PossibleContent::Spoilt(*seed)]].concat());
            }
            Some(Step::Erase) => {
                let spoilt = |page: &PossibleContent| match page {
                    PossibleContent::Intact(seed) => PossibleContent::Spoilt(*seed),
                    other => *other,
                };
                let mut pages: Vec<PossibleContent> = whole.iter().map(spoilt).collect();
                pages.resize(per_block as usize, PossibleContent::Unreadable);
                states.push(pages);
            }
            None => {}
        }
        states.push(whole);
    }
    states
}

fn is_of(device: &Emulator, block: u32, state: &[PossibleContent], per_block: u32) -> bool {
    device.programmed(block).unwrap() as usize == state.len()
        && (0..per_block).all(|index| {
            let found = read(device, block * per_block + index);
            match (state.get(index as usize), found) {
                (Some(PossibleContent::Intact(seed)), Ok(bytes)) => bytes == page(*seed),
                (Some(PossibleContent::Spoilt(_)), Ok(_)) => true,
                (
                    Some(PossibleContent::Spoilt(_) | PossibleContent::Unreadable),
                    Err(FlashError::Unreadable { .. }),
                ) => true,
                (None, Err(FlashError::Erased { .. })) => true,
                _ => false,
            }
        })
}

/// A history with few waits and a cut; checks the survivors of some seeds.
fn history(seed: u64, timing: Timing, open: &Reopen) {
    let mut random = SplitMix64::new(seed);
    let (per_block, blocks) = (1 + random.below(4) as u32, 1 + random.below(6) as u32);
    let device = open(&FlashOptions { timing, ..options(per_block, blocks) });
    let cut_at = random.below(60);
    device.cut_power_at(cut_at);
    let mut steps: Vec<Vec<(Step, Completion)>> = vec![Vec::new(); blocks as usize];
    let mut waited = device.now();
    let never = Completion { done: std::time::Duration::MAX };
    for number in 0.. {
        let block = random.below(blocks.into()) as u32;
        let next = device.programmed(block).unwrap();
        let (step, done) = match next == per_block || random.below(8) == 0 {
            true => (Step::Erase, device.submit_erase(block, WHY)),
            false => {
                let bytes = page(number);
                let done = device.submit_program(block * per_block + next, &bytes, WHY);
                (Step::Program(number), done)
            }
        };
        steps[block as usize].push((step, *done.as_ref().unwrap_or(&never)));
        match done {
            Err(FlashError::PowerOff { .. }) => break,
            Err(other) => panic!("seed {seed}: {other}"),
            Ok(done) if random.below(5) == 0 => {
                device.wait(done).unwrap();
                waited = waited.max(done.at());
            }
            Ok(_) => {}
        }
    }
    assert_eq!(device.operations(), cut_at + 1);
    assert!(matches!(
        read(&device, 0),
        Err(FlashError::PowerOff { .. } | FlashError::Erased { .. })
    ));
    assert!(matches!(device.erase(0, WHY), Err(FlashError::PowerOff { .. })));
    assert!(matches!(device.flush(WHY), Err(FlashError::PowerOff { .. })));
    for cut in 0..4 {
        let survivor = device.survivor(cut).unwrap();
        for (block, steps) in steps.iter().enumerate() {
            let sure = steps.iter().filter(|(_, completion)| completion.at() <= waited).count();
            let steps: Vec<Step> = steps.iter().map(|(step, _)| *step).collect();
            let allowed = allowed(&steps, sure, per_block);
            assert!(
                allowed.iter().any(|state| is_of(&survivor, block as u32, state, per_block)),
                "seed {seed}, cut {cut}, block {block}: not what a cut may leave"
            );
            // In any state, it can be erased and used.
            let (block, first) = (block as u32, block as u32 * per_block);
            survivor.erase(block, WHY).unwrap();
            program(&survivor, first, 99).unwrap();
            assert_eq!(read(&survivor, first).unwrap(), page(99));
        }
    }
}

/// `SILTSTONE_FLASH_CUTS` histories per kind of cells; 150 by default.
#[test]
fn awaited_requests_survive_and_the_rest_is_a_torn_prefix_per_block() {
    let cuts = std::env::var("SILTSTONE_FLASH_CUTS").map_or(150, |n| n.parse().unwrap());
    for seed in 0..cuts {
        for (_, open) in kinds() {
            history(seed, Timing { channels: 1 + (seed % 3) as u32, ..Timing::PAPER }, &open);
        }
        history(seed, Timing::INSTANT, &kinds()[0].1);
    }
}

/// With one program in flight, every allowed outcome occurs.
#[test]
fn interrupted_program_is_erased_garbage_unreadable_or_complete() {
    let mut seen = BTreeSet::new();
    for seed in 0..60 {
        let device = Emulator::in_memory(options(4, 1));
        program(&device, 0, 1).unwrap();
        device.cut_power_at(1);
        assert!(matches!(program(&device, 1, 2), Err(FlashError::PowerOff { .. })));
        let outcome = |survivor: Emulator| {
            assert_eq!(read(&survivor, 0).unwrap(), page(1));
            match read(&survivor, 1) {
                Err(FlashError::Erased { .. }) => "erased",
                Err(FlashError::Unreadable { .. }) => "unreadable",
                Ok(bytes) if bytes == page(2) => "whole",
                Ok(_) => "garbage",
                Err(other) => panic!("{other}"),
            }
        };
        let first = outcome(device.survivor(seed).unwrap());
        assert_eq!(first, outcome(device.survivor(seed).unwrap()), "a seed decides");
        seen.insert(first);
    }
    assert_eq!(seen.len(), 4, "{seen:?}");
}

#[test]
fn interrupted_erase_leaves_the_block_unchanged_erased_or_half_erased() {
    let mut seen = BTreeSet::new();
    for seed in 0..80 {
        let device = Emulator::in_memory(options(4, 1));
        (0..2).for_each(|number| program(&device, number, number.into()).unwrap());
        device.cut_power_at(2);
        device.erase(0, WHY).unwrap_err();
        let survivor = device.survivor(seed).unwrap();
        seen.insert(match survivor.programmed(0).unwrap() {
            0 => "erased",
            2 => {
                assert_eq!(
                    (read(&survivor, 0).unwrap(), survivor.erases(0).unwrap()),
                    (page(0), 0)
                );
                program(&survivor, 2, 2).unwrap();
                "as it was"
            }
            _ => {
                assert_eq!(survivor.erases(0).unwrap(), 1, "half an erase wears as a whole one");
                let error = program(&survivor, 2, 5).unwrap_err();
                assert!(matches!(error, FlashError::AlreadyProgrammed { .. }));
                match read(&survivor, 0) {
                    Ok(bytes) if bytes == page(0) => "half, page as it was",
                    Ok(_) => "half, page is garbage",
                    Err(_) => "half, page is unreadable",
                }
            }
        });
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}

#[test]
fn requests_nobody_waited_for_may_not_have_started() {
    let mut lengths = BTreeSet::new();
    for seed in 0..60 {
        let options = FlashOptions { timing: Timing::PAPER, ..options(8, 1) };
        let device = Emulator::in_memory(options);
        device.watch_power();
        program(&device, 0, 0).unwrap();
        for number in 1..5 {
            let _in_flight = device.submit_program(number, &page(0), WHY).unwrap();
        }
        device.cut_power();
        lengths.insert(device.survivor(seed).unwrap().programmed(0).unwrap());
    }
    assert_eq!(lengths, (1..=5).collect());
}

/// On one channel an erase waits for a program of another block. If the program is in progress, the
/// block to be erased is unchanged.
#[test]
fn erase_that_has_not_started_leaves_its_block_unchanged() {
    let mut as_it_was = 0;
    for seed in 0..40 {
        let timing = Timing { channels: 1, ..Timing::PAPER };
        let device = Emulator::in_memory(FlashOptions { timing, ..options(4, 2) });
        device.watch_power();
        (0..2).for_each(|number| program(&device, number, number.into()).unwrap());
        let _in_flight = device.submit_program(4, &page(4), WHY).unwrap();
        let _in_flight = device.submit_erase(0, WHY).unwrap();
        let _in_flight = device.submit_program(0, &page(9), WHY).unwrap();
        device.cut_power();
        let survivor = device.survivor(seed).unwrap();
        let whole = matches!(read(&survivor, 4), Ok(bytes) if bytes == page(4));
        if survivor.erases(0).unwrap() == 0 {
            as_it_was += 1;
            assert_eq!(survivor.programmed(0).unwrap(), 2);
            (0..2).for_each(|n| assert_eq!(read(&survivor, n).unwrap(), page(n.into())));
        } else {
            assert!(whole, "seed {seed}: the erase came after");
        }
    }
    assert!(as_it_was > 5, "{as_it_was}");
}

#[test]
fn request_in_flight_at_the_cut_is_not_acknowledged_later() {
    let options = FlashOptions { timing: Timing::PAPER, ..options(8, 2) };
    let device = Emulator::in_memory(options);
    device.watch_power();
    let done = device.submit_program(0, &page(0), WHY).unwrap();
    device.wait(done).unwrap();
    let in_flight = device.submit_program(1, &page(1), WHY).unwrap();
    device.cut_power();
    assert!(matches!(device.wait(in_flight), Err(FlashError::PowerOff { .. })));
    device.wait(done).unwrap();
    let lengths: BTreeSet<u32> =
        (0..40).map(|seed| device.survivor(seed).unwrap().programmed(0).unwrap()).collect();
    assert_eq!(lengths, [1, 2].into());
}

/// Threads wait for each request while another thread's operation cuts power.
#[test]
fn acknowledged_page_is_in_every_survivor() {
    for seed in 0..40 {
        let device = Emulator::in_memory(FlashOptions { timing: Timing::PAPER, ..options(16, 4) });
        device.cut_power_at(4 + seed % 40);
        let acknowledged = std::thread::scope(|scope| {
            let threads = (0..4).map(|block| {
                let device = &device;
                let done = move |index: &u32| program(device, block * 16 + index, 7).is_ok();
                scope.spawn(move || (0..16).take_while(done).count() as u32)
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        let survivor = device.survivor(seed).unwrap();
        for (block, &pages) in acknowledged.iter().enumerate() {
            let first = block as u32 * 16;
            (first..first + pages).for_each(|n| assert_eq!(read(&survivor, n).unwrap(), page(7)));
        }
    }
}
