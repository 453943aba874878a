//! `mica-lines`: cache lines touched per operation.
//!
//! Counted in the code, by addresses, which only a build with the feature `lines` does:
//!
//! ```text
//! cargo run --release --manifest-path experiments/Cargo.toml --features lines -- \
//!     repro run mica-lines
//! ```
//!
//! The expectation is one bucket and one item: in store mode one line, and 1.375 lines for an item
//! of 32 bytes at a multiple of 8; in cache mode two lines for the bucket, and one for the item,
//! because a log of such items has them at multiples of 32.
//!
//! Invariant: all numbers are counts and reproducible.
//!
//! Source: Lim, thesis (2015), section 5.3.3: close to one random read for an index lookup.

use siltstone_engine::{Error, Result};
use siltstone_mica::{Action, Request, Value, lines};

use super::bars::bar;
use super::mica_bench::{PAPER, filled};
use super::{Experiment, Measurement};

const ITEMS: f64 = (1 << 20) as f64;
const SAMPLE: u64 = 100_000;

pub(super) struct MicaLines;

impl Experiment for MicaLines {
    fn id(&self) -> &'static str {
        "mica-lines"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 5.3.3"
    }

    fn claim(&self) -> &'static str {
        "an index lookup reads close to 1 bucket (cuckoo hashing: 1.5), and an operation one item"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let memory = items * 60 + (4 << 20);
        let mut checks = Vec::new();
        let modes = [("store", bar("mica-lines", "store")), ("cache", bar("mica-lines", "cache"))];
        for (turn, (mode, bar)) in (0..).zip(modes) {
            let text = format!("mode={mode} memory={memory} item=16 partitions=1 hash_seed=1");
            let store = filled(&text, items)?;
            let mut mean = |what: &str, first: u64, is_get: bool| -> Result<()> {
                let mut touched = 0;
                for number in first..first + SAMPLE {
                    let key = number.to_le_bytes();
                    let value = Value { bytes: &key, ..Value::default() };
                    let action = if is_get { Action::Get } else { Action::Put(value) };
                    let request = Request { hash: store.hash(&key), key: &key, action };
                    let mut found = Vec::with_capacity(8);
                    lines::begin();
                    store.one(&request, &mut found);
                    touched += lines::end().ok_or_else(|| {
                        let command = "cargo run --release --manifest-path experiments/Cargo.toml --features lines --";
                        Error::Invalid(format!("lines are not counted; run it with `{command}`"))
                    })?;
                }
                checks.push(bar.check(
                    format!("cache lines of {what}, {mode}"),
                    touched as f64 / SAMPLE as f64,
                ));
                Ok(())
            };
            mean("a lookup that finds", 0, true)?;
            mean("a put in place", SAMPLE, false)?;
            mean("a put of a new key", items, false)?;
            progress(turn + 1, 2);
        }
        Ok(Measurement { scale: format!("{items} items of 8 + 8 bytes"), checks, plot: None })
    }
}
