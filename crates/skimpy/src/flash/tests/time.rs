//! Times are reproducible, channels work in parallel, and real time passes.

use std::time::{Duration, Instant};

use super::*;
use crate::flash::{DeviceClock, RealTime};

fn timed(timing: Timing) -> (Emulator, Arc<VirtualTime>) {
    let clock = Arc::new(VirtualTime::start());
    let options = FlashOptions { timing, clock: clock.clone(), ..options(32, 64) };
    (Emulator::in_memory(options), clock)
}

fn micros(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Submits one program on each of `blocks` and waits for all.
fn program_each(device: &Emulator, blocks: impl Iterator<Item = u32>, index: u32) {
    let numbers = blocks.map(|block| block * 32 + index);
    let under_way: Vec<Completion> =
        numbers.map(|number| device.submit_program(number, &page(0), WHY).unwrap()).collect();
    under_way.into_iter().for_each(|completion| device.wait(completion).unwrap());
}

#[test]
fn channels_work_in_parallel_and_each_is_serial() {
    let timing = Timing { channels: 4, ..Timing::PAPER };
    let (device, clock) = timed(timing);
    program_each(&device, 0..4, 0);
    assert_eq!(clock.now(), micros(100), "four channels at once");
    program_each(&device, 4..12, 0);
    assert_eq!(clock.now(), micros(300), "two on each of four");
    let (device, clock) = timed(timing);
    program_each(&device, [0, 4, 8, 12].into_iter(), 0);
    assert_eq!(clock.now(), micros(400), "four on one channel");
    device.erase(1, WHY).unwrap();
    read(&device, 0).unwrap();
    assert_eq!(clock.now(), micros(1450), "waited for one by one");
}

#[test]
fn queue_depth_limits_parallelism() {
    for (queue_depth, took) in [(1, 800), (2, 400), (4, 200), (8, 100), (128, 100)] {
        let (device, clock) = timed(Timing { channels: 8, queue_depth, ..Timing::PAPER });
        program_each(&device, 0..8, 0);
        assert_eq!(clock.now(), micros(took), "depth {queue_depth}");
    }
}

#[test]
fn reads_wait_for_programs_and_programs_for_erases() {
    let (device, _) = timed(Timing::PAPER);
    let erased = device.submit_erase(0, WHY).unwrap();
    let programmed = device.submit_program(0, &page(1), WHY).unwrap();
    let was_read = device.submit_read(0, &mut [0; PAGE_BYTES], WHY).unwrap();
    assert_eq!([erased, programmed, was_read].map(|c| c.at()), [1000, 1100, 1150].map(micros));
}

/// A request at a later time leaves a gap on the channel; no request takes it before the one that
/// it depends on.
#[test]
fn requests_of_a_block_stay_in_order_with_gaps() {
    let at = |now: u64| {
        let (device, clock) = timed(Timing::PAPER);
        clock.set(micros(now));
        let _later = device.submit_program(16 * 32, &page(1), WHY).unwrap();
        clock.set(Duration::ZERO);
        device
    };
    let device = at(60);
    let programmed = device.submit_program(0, &page(1), WHY).unwrap();
    let was_read = device.submit_read(0, &mut [0; PAGE_BYTES], WHY).unwrap();
    assert_eq!([programmed, was_read].map(|c| c.at()), [260, 310].map(micros));
    let device = at(500);
    let erased = device.submit_erase(0, WHY).unwrap();
    let programmed = device.submit_program(0, &page(1), WHY).unwrap();
    assert_eq!([erased, programmed].map(|c| c.at()), [1600, 1700].map(micros));
}

/// Runs clients in one thread, always the one with the earliest time.
fn play(clients: usize, operations: usize, timing: Timing) -> Vec<Duration> {
    let (device, clock) = timed(timing);
    let mut random = SplitMix64::new(3);
    let mut times = vec![Duration::ZERO; clients];
    let mut finished = Vec::new();
    for _ in 0..operations {
        let client = (0..clients).min_by_key(|&client| times[client]).unwrap();
        clock.set(times[client]);
        let block = random.below(64) as u32;
        let next = device.programmed(block).unwrap();
        match next {
            32 => device.erase(block, WHY).unwrap(),
            _ if next == 0 || random.coin() => program(&device, block * 32 + next, 1).unwrap(),
            _ => drop(read(&device, block * 32 + random.below(next.into()) as u32).unwrap()),
        }
        times[client] = clock.now();
        finished.push(times[client]);
    }
    finished
}

#[test]
fn virtual_times_are_reproducible_and_more_clients_are_faster() {
    let runs: Vec<_> = (0..3).map(|_| play(16, 3000, Timing::PAPER)).collect();
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0], runs[2]);
    let end = |times: &[Duration]| times.iter().max().copied().unwrap();
    let (many, alone) = (end(&runs[0]), end(&play(1, 3000, Timing::PAPER)));
    let one_channel = end(&play(16, 3000, Timing { channels: 1, ..Timing::PAPER }));
    assert!(many * 6 < alone, "16 clients on 16 channels: {many:?}, one: {alone:?}");
    assert_eq!(alone, one_channel, "one channel serves one at a time, whoever asks");
}

#[test]
fn real_time_passes() {
    let options = FlashOptions {
        timing: Timing { channels: 8, ..Timing::PAPER },
        clock: Arc::new(RealTime::start()),
        ..options(32, 64)
    };
    let device = Emulator::in_memory(options);
    let before = Instant::now();
    (0..8).for_each(|block| device.erase(block, WHY).unwrap());
    assert!(before.elapsed() >= micros(8000));
    let before = device.now();
    let last = (0..8).map(|block| device.submit_erase(block, WHY).unwrap()).max().unwrap();
    // Submitting takes time, too; on a busy machine more than an erase, and then less overlaps.
    assert!(last.at() >= before + micros(1000) && last.at() <= device.now() + micros(1000));
    device.wait(last).unwrap();
    assert!(device.now() >= last.at());
}

#[test]
fn threads_share_a_device() {
    let (device, _) = timed(Timing::PAPER);
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                for round in 0..3u64 {
                    for index in 0..32 {
                        let number = thread * 32 + index;
                        program(device, number, round + u64::from(number)).unwrap();
                        assert_eq!(read(device, number).unwrap(), page(round + u64::from(number)));
                    }
                    device.erase(thread, WHY).unwrap();
                }
            });
        }
    });
    assert!((0..4).all(|block| device.erases(block).unwrap() == 3));
}
