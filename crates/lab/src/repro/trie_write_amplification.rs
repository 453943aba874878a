//! `trie-write-amplification`: bytes of tables written for each of the user's, by level and cause.
//!
//! A *cycle* is the time in which each container of the last level gets one sub-level: 4,096 flushes with five
//! levels. The levels below the root are written in waves, so rates are taken over whole cycles: at the end of
//! one, all that was written lies at the last level. What is written is split at the tables: keys and
//! values; what buckets have beyond them, their headers and the room that is left; filters; the rest.
//!
//! Tables have 64 KiB, some 14 buckets; beyond scale 1 they grow instead of the number of cycles.
//!
//! Invariant: the parts add up to what was written.
//!
//! Source: LSM-trie paper, figure 11.

use siltstone_engine::{Error, Result, Stats};

use super::trie_bench::{Load, PAPER, Run, tables_written};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

pub(super) struct TrieWriteAmplification;

impl Experiment for TrieWriteAmplification {
    fn id(&self) -> &'static str {
        "trie-write-amplification"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 11"
    }

    fn claim(&self) -> &'static str {
        "write amplification is about 5 with five levels, and flat while the store grows at its last"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "what is above the 4.94 of keys and values (fewer than 5, since a merge drops what was overwritten) \
             is counted above. At scale 2.5 headers of buckets and what is left behind 35 items of 116 bytes \
             in 4 KiB are 0.9 %, filters of 16 bits 1.8 %, footers and directories 0.2 %: 2.9 % a level, where 5.1 \
             leaves 3.2 %. The paper's own tables, 95 % full, would be 5 × (1 / 0.95 + 0.017) = 5.35. Below scale 1 \
             footers and directories weigh more",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let table_bytes = (65536.0 * scale.max(1.0)) as u64;
        let load = Load { table_bytes, levels: 5, ..Load::of(24e6, scale) };
        let run = Run::of(load, &[("garbage", "1")], progress)?;
        // From the first full sub-level of the last level on.
        let cycles: Vec<&Stats> = run.cycles.iter().map(|(_, stats)| stats).collect();
        let [first, .., last] = cycles[..] else {
            let reason = "so few items end no two cycles; take a larger scale".to_owned();
            return Err(Error::Invalid(reason));
        };
        let middle = cycles[cycles.len() / 2];
        let all = tables_written(&Stats::default(), last);
        let (early, late) = (tables_written(first, middle), tables_written(middle, last));
        let bar = |what: &str, ours: f64| Check {
            what: what.to_owned(),
            claimed: 5.0,
            ours,
            tolerance: 0.02,
            direction: Direction::AtMost(5.1),
        };
        let checks = vec![
            bar("bytes of tables written for each of the user's, five levels", all),
            bar("the same in the last half of the cycles", late),
            Check {
                what: "the last half's over the first half's".to_owned(),
                claimed: 1.0,
                ours: late / early,
                tolerance: 0.05,
                direction: Direction::AtMost(1.05),
            },
            Check {
                what: "lookups that miss a key that is there, plus 1".to_owned(),
                claimed: 1.0,
                ours: 1.0 + run.missed,
                tolerance: 0.0,
                direction: Direction::None,
            },
        ];
        let share = |stats: &Stats, bytes: u64| bytes as f64 / stats.user_bytes_written as f64;
        let levels = (0..load.levels).map(|level| {
            let written = |stats: &Stats| stats.levels.get(level).map_or(0, |l| l.bytes_written);
            line(&run, format!("level {level}"), |stats| share(stats, written(stats)))
        });
        let total = Line {
            is_reference: true,
            ..line(&run, "all, with the log".to_owned(), |stats| {
                stats.write_amplification().unwrap_or(f64::NAN)
            })
        };
        let plot = Lines {
            title: "Write amplification over time, by level".to_owned(),
            x: "items written".to_owned(),
            y: "bytes written for each of the user's".to_owned(),
            series: levels.chain([total]).collect(),
        };
        let scale = format!(
            "{}; {} cycles; in the last half of them {}",
            load.words(),
            cycles.len(),
            causes(middle, last)
        );
        Ok(Measured { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

fn line(run: &Run, name: String, y: impl Fn(&Stats) -> f64) -> Line {
    let points = run.steps.iter().map(|(items, stats)| (*items as f64, y(stats))).collect();
    Line { name, points, is_reference: false }
}

/// What was written between two moments for each of the user's bytes, by what it is.
fn causes(before: &Stats, after: &Stats) -> String {
    let user = (after.user_bytes_written - before.user_bytes_written) as f64;
    let rate = |name| (after.counters[name] - before.counters[name]) as f64 / user;
    let items = rate("table_item_bytes");
    let room = rate("table_bucket_bytes") - items;
    let filters = rate("table_filter_bytes");
    let rest = tables_written(before, after) - items - room - filters;
    let levels = before.levels.iter().zip(&after.levels).map(|(before, after)| {
        format!("{:.2}", (after.bytes_written - before.bytes_written) as f64 / user)
    });
    format!(
        "keys and values {items:.3}, room and headers of buckets {room:.3}, filters {filters:.3}, the rest \
         {rest:.3}; by level {}",
        levels.collect::<Vec<_>>().join(", ")
    )
}
