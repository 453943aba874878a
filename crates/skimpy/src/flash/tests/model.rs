//! Random histories with reopenings, compared with a list of lists.

use std::cmp::Ordering;

use super::*;

/// The seeds of the pages programmed in each block since its last erase, and its number of erases.
#[derive(Clone, Default)]
struct Model {
    pages: Vec<u64>,
    erases: u64,
}

fn check(device: &dyn Flash, model: &[Model], what: &str) {
    let per_block = device.geometry().pages_per_block();
    for (block, is) in model.iter().enumerate() {
        let block = block as u32;
        assert_eq!(device.programmed(block).unwrap() as usize, is.pages.len(), "{what}");
        assert_eq!(device.erases(block).unwrap(), is.erases, "{what}");
        for index in 0..per_block {
            let found = read(device, block * per_block + index);
            match is.pages.get(index as usize) {
                Some(&seed) => assert_eq!(found.unwrap(), page(seed), "{what}"),
                None => assert!(matches!(found, Err(FlashError::Erased { .. })), "{what}"),
            }
        }
    }
}

/// `SILTSTONE_FLASH_HISTORIES` histories per kind of cells; 12 by default.
#[test]
fn random_history_matches_the_model() {
    let histories = std::env::var("SILTSTONE_FLASH_HISTORIES");
    let histories: u64 = histories.map_or(12, |n| n.parse().unwrap());
    for seed in 0..histories {
        let mut random = SplitMix64::new(seed);
        let (per_block, blocks) = (1 + random.below(6) as u32, 1 + random.below(5) as u32);
        for (kind, open) in kinds() {
            let options = options(per_block, blocks);
            let mut device = open(&options);
            let mut model = vec![Model::default(); blocks as usize];
            let mut random = SplitMix64::stream(seed, 1);
            for step in 0..400 {
                let what = format!("{kind}, seed {seed}, step {step}");
                let block = random.below(blocks.into()) as u32;
                let is = &mut model[block as usize];
                match random.below(20) {
                    0..12 => {
                        // Sometimes another page than the next.
                        let next = is.pages.len() as u32;
                        let index = match random.below(4) {
                            0 => random.below(per_block.into()) as u32,
                            _ => next,
                        };
                        if index >= per_block {
                            continue;
                        }
                        let done = program(&device, block * per_block + index, step);
                        match (done, index.cmp(&next)) {
                            (Ok(()), Ordering::Equal) => is.pages.push(step),
                            (Err(FlashError::AlreadyProgrammed { .. }), Ordering::Less)
                            | (Err(FlashError::OutOfOrder { .. }), Ordering::Greater) => {}
                            (other, order) => panic!("{what}: {order:?} gave {other:?}"),
                        }
                    }
                    12..15 => {
                        device.erase(block, WHY).unwrap();
                        *is = Model { pages: Vec::new(), erases: is.erases + 1 };
                    }
                    15 => device.flush(WHY).unwrap(),
                    16 if kind != "memory" => device = open(&options),
                    // Only in memory: a survivor of a device in files is not in the files.
                    17 if kind == "memory" => device = device.survivor(random.next_u64()).unwrap(),
                    17 => check(&device.survivor(random.next_u64()).unwrap(), &model, &what),
                    _ if step % 10 == 0 => check(&device, &model, &what),
                    _ => {}
                }
            }
            check(&device, &model, &format!("{kind}, seed {seed}, at the end"));
        }
    }
}
