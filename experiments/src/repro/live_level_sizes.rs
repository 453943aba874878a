//! `live-level-sizes`: the saving of level sizes that the running tree chooses from the observed
//! keys.
//!
//! Random keys are loaded, then overwritten, uniformly and by Zipf; once with levels that grow by
//! ten, once with `experimental.level_sizes=model`. The write amplification of the overwrites is
//! compared, with tables selected round-robin, as the model assumes and LevelDB does, and by least
//! overlap, the tree's default. Each of the four is judged.
//!
//! Background work runs on the writing thread when it is due, so the counts are reproducible.
//!
//! Invariant: the two trees of a pair run the same operations and differ in one option.
//!
//! Source: Lim, thesis, section 4.6.3, figure 4.12; there sizes are chosen before the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_bench::engines::{Storage, Target};
use siltstone_bench::generate::ValueSize;
use siltstone_bench::plot::{Bars, Plot};
use siltstone_bench::run::{Session, Settings};
use siltstone_bench::workload::{Choices, Workload};
use siltstone_engine::{ManualClock, Result};
use siltstone_runtime::Env;

use super::bars::bar;
use super::thesis::PAPER;
use super::{Experiment, Measurement};

const KEYS: f64 = 300_000.0;
/// Overwrites per key.
const ROUNDS: f64 = 2.0;
const KEY: usize = 16;
const VALUE: usize = 100;
/// Number of keys per memtable.
const KEYS_PER_MEMTABLE: f64 = 600.0;
const OPTIONS: [(&str, &str); 2] = [("growth of ten", "given"), ("by the model", "model")];
const LOADS: [(&str, Option<f64>, &str); 4] = [
    ("uniform, round-robin", None, "round_robin"),
    ("Zipf 0.99, round-robin", Some(0.99), "round_robin"),
    ("uniform, least overlap", None, "min_overlap"),
    ("Zipf 0.99, least overlap", Some(0.99), "min_overlap"),
];

pub(super) struct LiveLevelSizes;

impl Experiment for LiveLevelSizes {
    fn id(&self) -> &'static str {
        "live-level-sizes"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.12"
    }

    fn claim(&self) -> &'static str {
        "optimised level sizes write up to 9.4 % less"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "the thesis chooses sizes before the run, for LevelDB. Here SSTables end where those \
             below end, which saves a part already (decision record 107), and the model does not \
             describe the selection by least overlap (76)",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let total = (LOADS.len() * OPTIONS.len()) as u64;
        let mut amplification = [[0.0; LOADS.len()]; OPTIONS.len()];
        for (l, &(_, skew, select)) in LOADS.iter().enumerate() {
            for (o, &(_, sizes)) in OPTIONS.iter().enumerate() {
                progress((l * OPTIONS.len() + o) as u64, total);
                amplification[o][l] = measure(skew, select, sizes, scale)?;
            }
        }
        progress(total, total);
        let saved = |load: usize| 1.0 - amplification[1][load] / amplification[0][load];
        let all_saved: Vec<f64> = (0..LOADS.len()).map(saved).collect();
        let details = LOADS.iter().zip(&all_saved);
        let details =
            details.map(|((load, ..), saved)| format!("{load}: {:.1} % saved", 100.0 * saved));
        let details: Vec<_> = details.collect();
        let checks = LOADS.iter().zip(&all_saved).map(|((load, ..), &ours)| {
            bar("live-level-sizes", "saved").check(format!("saved, {load}"), ours)
        });
        let checks = checks.collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        Ok(Measurement {
            scale: format!(
                "{:.0} keys of {KEY} + {VALUE} bytes, overwritten {ROUNDS} times; {}",
                KEYS * scale,
                details.join("; ")
            ),
            checks,
            plot: Some(Plot::Bars(Bars {
                title: "Level sizes that the running tree chooses".to_owned(),
                y: "write amplification of overwrites".to_owned(),
                groups: names(&LOADS.map(|load| load.0)),
                series: OPTIONS
                    .iter()
                    .zip(amplification)
                    .map(|(option, values)| (option.0.to_owned(), values.to_vec()))
                    .collect(),
            })),
        })
    }
}

fn measure(skew: Option<f64>, select: &str, sizes: &str, scale: f64) -> Result<f64> {
    let keys = KEYS * scale;
    let memtable = (keys / KEYS_PER_MEMTABLE * (KEY + VALUE) as f64).max(8192.0);
    let bytes = |memtables: f64| ((memtable * memtables) as u64).to_string();
    let options = [
        ("memtable", bytes(1.0)),
        ("target_file_size", bytes(0.5)),
        ("l0_capacity", bytes(16.0)),
        ("levels", [16.0, 160.0, 1600.0, 16e3, 160e3].map(bytes).join(":")),
        ("cache", bytes(16.0)),
        ("max_subcompactions", "1".to_owned()),
        ("experimental.compaction_pri", select.to_owned()),
        ("experimental.level_sizes", sizes.to_owned()),
    ];
    let target = Target {
        engine: "lsm".to_owned(),
        options: BTreeMap::from(options.map(|(name, value)| (name.to_owned(), value))),
        storage: Storage::Ram,
        keep: false,
        background_threads: 1,
    };
    let settings = Settings {
        keys: keys as u64,
        ops: Some((keys * ROUNDS) as u64),
        key_bytes: KEY,
        value: ValueSize::Fixed(VALUE),
        ..Settings::default()
    };
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let mut session = Session::new(target.open_in(env)?, settings)?;
    let choices = Choices { skew, ..Choices::default() };
    session.run(&Workload::named("load", &Choices::default())?, &mut |_| ())?;
    session.run(&Workload::named("overwrite", &choices)?, &mut |_| ())?;
    let overwrites = &session.phases()[1].counts;
    let written: u64 = overwrites.written.values().sum();
    Ok(written as f64 / overwrites.user_bytes as f64)
}
