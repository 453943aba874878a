//! `trie-write-amplification`: bytes of tables written per byte that the user wrote, by level and
//! cause.
//!
//! A *cycle* is the time in which each container of the last level receives one sub-level: 4,096
//! flushes with five levels. The levels below the root are written in waves, so rates are computed
//! over whole cycles: at the end of one, all data is in the last level. Bytes are split by content
//! of the tables: keys and values; headers and empty space of buckets; filters; the rest.
//!
//! Tables have 64 KiB, about 14 buckets; beyond scale 1 they grow instead of the number of cycles.
//!
//! Invariant: the parts add up to the bytes written.
//!
//! Source: LSM-trie paper, figure 11.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{Error, Result, Stats};

use super::bars::bar;
use super::trie_bench::{Load, PAPER, Run, tables_written};
use super::{Experiment, Measurement};

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
            "keys and values are 4.94 (less than 5, because a merge drops overwritten versions). \
             At scale 2.5 headers of buckets and the remainder of 35 items of 116 bytes in 4 KiB \
             are 0.9 %, filters of 16 bits 1.8 %, footers and directories 0.2 %: 2.9 % per \
             level, where 5.1 allows 3.2 %. The paper's own tables, 95 % full, would be 5 × (1 / \
             0.95 + 0.017) = 5.35. Below scale 1 footers and directories have a larger share",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let table_bytes = (65536.0 * scale.max(1.0)) as u64;
        let load = Load { table_bytes, levels: 5, ..Load::of(24e6, scale) };
        let run = Run::of(load, &[("gc_garbage_ratio", "1")], progress)?;
        // Starting at the first full sub-level of the last level.
        let cycles: Vec<&Stats> = run.cycles.iter().map(|(_, stats)| stats).collect();
        let [first, .., last] = cycles[..] else {
            let reason = "fewer than two complete cycles; use a larger scale".to_owned();
            return Err(Error::Invalid(reason));
        };
        let middle = cycles[cycles.len() / 2];
        let all = tables_written(&Stats::default(), last);
        let (early, late) = (tables_written(first, middle), tables_written(middle, last));
        let total =
            |what: &str, ours: f64| bar("trie-write-amplification", "total").check(what, ours);
        let checks = vec![
            total("bytes of tables written per byte of the user, five levels", all),
            total("the same in the last half of the cycles", late),
            bar("trie-write-amplification", "halves")
                .check("the last half's over the first half's", late / early),
            bar("trie-write-amplification", "missed")
                .check("lookups that miss an existing key, plus 1", 1.0 + run.missed),
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
            y: "bytes written per byte of the user".to_owned(),
            series: levels.chain([total]).collect(),
        };
        let scale = format!(
            "{}; {} cycles; in the last half of them {}",
            load.words(),
            cycles.len(),
            causes(middle, last)
        );
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

fn line(run: &Run, name: String, y: impl Fn(&Stats) -> f64) -> Line {
    let points = run.steps.iter().map(|(items, stats)| (*items as f64, y(stats))).collect();
    Line { name, points, is_reference: false }
}

/// Bytes written between two times per byte that the user wrote, by kind of content.
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
