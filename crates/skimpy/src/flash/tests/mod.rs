//! Rules, times and durability of a device, on all kinds of cells.

use std::sync::Arc;

use siltstone_engine::Purpose;
use siltstone_structures::SplitMix64;
use siltstone_vfs::{Ram, Vfs};

use super::{Completion, Emulator, Flash, FlashError, FlashOptions, Geometry, Timing, VirtualTime};

mod failed_programs;
mod files;
mod model;
mod power;
mod rules;
mod time;

const WHY: Purpose = Purpose::Flush;
const PAGE_BYTES: usize = 512;

/// Small pages, few blocks, no latency, unlimited endurance.
fn options(pages_per_block: u32, blocks: u32) -> FlashOptions {
    FlashOptions {
        geometry: Geometry::new(PAGE_BYTES as u32, pages_per_block, blocks).unwrap(),
        timing: Timing::INSTANT,
        clock: Arc::new(VirtualTime::start()),
        endurance: u64::MAX,
    }
}

/// A device, and a function that reopens it.
type Reopen = Box<dyn Fn(&FlashOptions) -> Emulator>;

fn kinds() -> Vec<(&'static str, Reopen)> {
    let (file, zones): (Arc<dyn Vfs>, Arc<dyn Vfs>) = (Arc::new(Ram::new()), Arc::new(Ram::new()));
    vec![
        ("memory", Box::new(|options| Emulator::in_memory(options.clone()))),
        ("file", Box::new(move |options| Emulator::in_file(&*file, "f", options.clone()).unwrap())),
        (
            "zones",
            Box::new(move |options| Emulator::in_zones(zones.clone(), options.clone()).unwrap()),
        ),
    ]
}

fn page(seed: u64) -> Vec<u8> {
    let mut random = SplitMix64::new(seed);
    (0..PAGE_BYTES).map(|_| random.next_u64() as u8).collect()
}

fn read(device: &dyn Flash, number: u32) -> Result<Vec<u8>, FlashError> {
    let mut bytes = vec![0xAA; PAGE_BYTES];
    device.read(number, &mut bytes, WHY).map(|()| bytes)
}

fn program(device: &dyn Flash, number: u32, seed: u64) -> Result<(), FlashError> {
    device.program(number, &page(seed), WHY)
}
