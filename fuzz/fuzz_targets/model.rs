//! Arbitrary parameters cause an error or a finite result, in bounded time.
#![no_main]

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use siltstone_model::silt::SiltExample;
use siltstone_model::simulate::{Load, Selection, Simulation, Variation};
use siltstone_model::{
    Breakdown, Cola, InterpolatedPopularity, InvalidParameter, LevelDb, Lsm, Popularity, Samt,
    Silt, Skimpy, Trie, Wait,
};

/// Half of all numbers are ordinary, so that checks are passed as well as met.
fn number(u: &mut Unstructured<'_>) -> Result<f64> {
    Ok(match u.int_in_range(0..=5)? {
        0 => f64::arbitrary(u)?,
        1 => 0.0,
        2 => f64::from(u.int_in_range(0..=1000u32)?) / 1000.0,
        3 => f64::from(u.int_in_range(0..=10_000u32)?),
        _ => f64::from(u32::arbitrary(u)?),
    })
}

fn numbers(u: &mut Unstructured<'_>) -> Result<Vec<f64>> {
    let mut numbers = Vec::new();
    for _ in 0..u.int_in_range(0..=5)? {
        numbers.push(number(u)?);
    }
    if bool::arbitrary(u)? {
        numbers.sort_by(f64::total_cmp);
    }
    Ok(numbers)
}

fn popularity(
    u: &mut Unstructured<'_>,
) -> Result<std::result::Result<Popularity, InvalidParameter>> {
    Ok(match u.int_in_range(0..=2)? {
        0 => Popularity::uniform(number(u)?),
        // More groups than this would only take longer.
        1 => Popularity::zipf(number(u)?, number(u)?.min(3.0)),
        _ => Popularity::empirical(&<[u64; 6]>::arbitrary(u)?),
    })
}

fn check_costs(wa: std::result::Result<Breakdown, InvalidParameter>) {
    if let Ok(wa) = wa {
        for (stage, cost) in &wa.by_stage {
            assert!(cost.is_finite() && *cost >= 0.0, "{stage}: {cost} in {wa:?}");
        }
    }
}

fn try_all(u: &mut Unstructured<'_>) -> Result<()> {
    let Ok(keys) = popularity(u)? else { return Ok(()) };
    let (log_items, growth, levels) =
        (number(u)?, u.int_in_range(0..=40)?, u.int_in_range(0..=70)?);
    let tree = LevelDb { log_items, level0_tables: number(u)?, level_items: numbers(u)? };
    match u.int_in_range(0..=8)? {
        0 => check_costs(tree.write_amplification(&keys)),
        1 => check_costs(tree.write_amplification(&InterpolatedPopularity::new(&keys))),
        2 => check_costs(tree.worst_case(keys.keys())),
        3 => check_costs(Cola { log_items, growth, levels }.write_amplification(&keys)),
        4 => check_costs(Samt { log_items, growth, levels }.write_amplification(&keys)),
        5 => {
            let silt =
                Silt { table_slots: number(u)?, occupancy: number(u)?, hash_stores: number(u)? };
            check_costs(silt.write_amplification(&keys));
            let example = SiltExample {
                merge_entries: number(u)?,
                tag_bits: number(u)?,
                keys: number(u)?,
                ..SiltExample::default()
            };
            if let Ok(costs) = example.costs() {
                assert!(
                    costs.lifetime_years.is_finite() && costs.memory_overhead.is_finite(),
                    "{costs:?}"
                );
            }
        }
        6 => {
            let wait = Wait { overlap: number(u)?, max_runs: u.int_in_range(0..=20)? };
            let lsm = Lsm {
                tree,
                hot_keys: number(u)?,
                flush_share: number(u)?,
                index_share: if bool::arbitrary(u)? { Some(number(u)?) } else { None },
                wait: if bool::arbitrary(u)? { Some(wait) } else { None },
                l0_items: if bool::arbitrary(u)? { Some(number(u)?) } else { None },
            };
            check_costs(lsm.write_amplification(&keys));
        }
        7 => {
            let trie = Trie { log_items, growth, levels, garbage_share: number(u)? };
            check_costs(trie.write_amplification(&keys));
            let skimpy = Skimpy {
                capacity_items: number(u)?,
                window_requests: number(u)?,
                page_fill: number(u)?,
            };
            check_costs(skimpy.write_amplification(&keys));
        }
        _ => {
            let simulation = Simulation {
                design: tree,
                // Enough to compact, few enough to finish.
                keys: u.int_in_range(0..=3000)?,
                skew: number(u)?,
                selection: if bool::arbitrary(u)? {
                    Selection::RoundRobin
                } else {
                    Selection::Largest
                },
                table_items: u.int_in_range(0..=200)?,
                overlap_tables: if bool::arbitrary(u)? {
                    Some(u.int_in_range(0..=20)?)
                } else {
                    None
                },
                load: if bool::arbitrary(u)? { Load::KeyOrder } else { Load::Shuffled },
                rounds: number(u)?.min(2.0),
                seed: u64::arbitrary(u)?,
                variation: Variation {
                    deletes: number(u)?,
                    tombstone_size: number(u)?,
                    item_sizes: (0..u.int_in_range(0..=3)?)
                        .map(|_| Ok((number(u)?, number(u)?)))
                        .collect::<Result<_>>()?,
                    phase: if bool::arbitrary(u)? { Some(u64::arbitrary(u)?) } else { None },
                },
            };
            check_costs(simulation.run(|_, _| ()));
        }
    }
    Ok(())
}

fuzz_target!(|bytes: &[u8]| {
    let _ = try_all(&mut Unstructured::new(bytes));
});
