//! `cross-row-hints`: the cost of a lookup in level 0 with hints from each L0 run to the next.
//!
//! The paper fills 8 GB of persistent memory with L0 runs ("rows") and looks up random keys: 162.6
//! MB/s with hints, 9 MB/s without. Times depend on the memory; counts do not. Here a store of 64
//! runs is written once and opened with and without hints; key comparisons and cache lines per
//! lookup are counted, for existing keys (on average found in half of the runs) and for missing
//! keys. The factor grows with the runs: a full search takes log₂ of a run's keys, a narrowed one a
//! constant number. So scale 1 has runs of the paper's kind: 65 536 keys, as in a memtable of 64
//! MiB with items of 1 KiB. Values are short, because they are not read.
//!
//! Invariant: both configurations search the same runs for the same keys.
//!
//! Source: TriangleKV paper, sections 3.4 and 5.3.2 ("Cross-Row Hint Search").

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::RngExt;
use siltstone_bench::generate::stream;
use siltstone_engine::{Durability, Engine, Error, ManualClock, Result, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use super::bars::bar;
use super::{Experiment, Measurement};

const ROWS: u64 = 64;
/// Keys per L0 run at scale 1.
const KEYS: f64 = 65_536.0;
const LOOKUPS: usize = 2000;
/// Upper limit of the bytes per version in a pool, so that nothing is compacted.
const BYTES_PER_KEY: u64 = 200;
const BATCH: u64 = 512;
const TENS: u64 = 10_u64.pow(16);

pub(super) struct CrossRowHints;

/// Mean cost of a lookup.
#[derive(Debug, Clone, Copy)]
struct Cost {
    comparisons: f64,
    lines: f64,
}

impl Experiment for CrossRowHints {
    fn id(&self) -> &'static str {
        "cross-row-hints"
    }

    fn paper(&self) -> &'static str {
        "TriangleKV: Reducing Write Stalls and Write Amplification in LSM-Tree Based KV Stores with \
         Triangle Container in NVM"
    }

    fn figure(&self) -> &'static str {
        "section 5.3.2"
    }

    fn claim(&self) -> &'static str {
        "random reads of level 0 in persistent memory 18 times faster with hints (162.6 against 9 MB/s)"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).max(64.0) as u64;
        let media: Arc<dyn Vfs> = Arc::new(Ram::new());
        let mut rng = stream(1, 0);
        let lsm = open(&media, keys, true)?;
        let mut present = Vec::new();
        for row in 0..ROWS {
            progress(row, ROWS);
            let mut batch = WriteBatch::new();
            for at in 0..keys {
                let key = key(rng.random_range(0..TENS));
                batch.put(&key, b"12345678");
                if at % (ROWS * keys / LOOKUPS as u64).max(1) == 0 {
                    present.push(key);
                }
                if at % BATCH == BATCH - 1 || at == keys - 1 {
                    lsm.write(&batch, Durability::Buffered)?;
                    batch = WriteBatch::new();
                }
            }
            lsm.flush()?;
        }
        lsm.close()?;
        drop(lsm);
        let absent: Vec<_> = (0..LOOKUPS).map(|_| key(rng.random_range(0..TENS))).collect();
        let mut factors = Vec::new();
        for looked_up in [&present, &absent] {
            let hinted = cost(&open(&media, keys, true)?, looked_up)?;
            let plain = cost(&open(&media, keys, false)?, looked_up)?;
            factors.push((plain.comparisons / hinted.comparisons, plain.lines / hinted.lines));
        }
        progress(ROWS, ROWS);
        let check = |what: &str, ours: f64| bar("cross-row-hints", "times-fewer").check(what, ours);
        Ok(Measurement {
            scale: format!("{ROWS} L0 runs of {keys} keys"),
            checks: vec![
                check("existing keys, comparisons, times fewer", factors[0].0),
                check("existing keys, cache lines, times fewer", factors[0].1),
                check("missing keys, comparisons, times fewer", factors[1].0),
                check("missing keys, cache lines, times fewer", factors[1].1),
            ],
            plot: None,
        })
    }
}

fn key(i: u64) -> Vec<u8> {
    format!("user{i:016}").into_bytes()
}

fn open(media: &Arc<dyn Vfs>, keys: u64, hints: bool) -> Result<Lsm> {
    let options = BTreeMap::from([
        ("pmem.size".to_owned(), (ROWS * keys * BYTES_PER_KEY + (16 << 20)).to_string()),
        ("pmem.hints".to_owned(), if hints { "on" } else { "off" }.to_owned()),
        ("memtable".to_owned(), "1GiB".to_owned()),
    ]);
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(media.clone(), env, Options::from_map(&options)?)
}

/// Looks up keys and counts the cost in L0 runs.
fn cost(lsm: &Lsm, keys: &[Vec<u8>]) -> Result<Cost> {
    let counters = lsm.stats().counters;
    // The first run, whose keys have no common prefix yet, is a sorted table.
    if counters["pmem_runs"] != ROWS - 1 {
        let reason = format!("{} rows are in persistent memory", counters["pmem_runs"]);
        return Err(Error::Invalid(reason));
    }
    for key in keys {
        lsm.get(key)?;
    }
    let after = lsm.stats().counters;
    let each = |name: &str| (after[name] - counters[name]) as f64 / keys.len() as f64;
    Ok(Cost { comparisons: each("pmem_comparisons"), lines: each("pmem_lines") })
}
