//! The advisor's model of `skimpy`: its settings for a workload, and what they cost.
//!
//! All versions since the watermark are in one log over a flash device, with four bytes of memory
//! per few keys.
//!
//! ```text
//! settings    a device three times as large as the live versions, or all of the flash; five keys
//!             per bucket; locations of a tenth of the keys cached
//! writes      once to the write buffer's journal, once to a page, and once per collection
//! lookups     one read if the key's location is cached, or if its bucket was not written since its
//!             last collection; else the bucket's newest record leads to the key's record
//! history     a duration: as many versions as are written in it
//! ```
//!
//! Source: SkimpyFTL, sections 3 and 4; overheads per record from the engine's formats.

use super::costs::Costs;
use super::design::{Design, Settings, size};
use super::requirements::Requirements;
use crate::error::InvalidParameter;
use crate::{Breakdown, Popularity, Skimpy};

pub(super) const DESIGN: Design = Design {
    engine: "skimpy",
    is_ordered: false,
    is_durable: true,
    has_versions: true,
    has_history: true,
    fit,
};

/// Capacity of the device over the live versions, if the flash has no limit.
const SPARE: f64 = 3.0;
/// Share of the device that collection keeps free.
const FREE: f64 = 0.1;
const KEYS_PER_BUCKET: f64 = 5.0;
/// Head and timestamp of a bucket.
const BUCKET_BYTES: f64 = 5.0;
const KEYS_PER_CACHED: f64 = 10.0;
const CACHED_BYTES: f64 = 16.0;
/// Overhead in bytes per item in the write buffer's journal: a frame's, and an operation's in its
/// batch.
const STAGED_BYTES: f64 = 43.0;
/// Overhead in bytes per record of a put, with half of its possible skip links, and per record of a
/// collected bucket, with its share of a group's header (`record.rs`).
const PUT_BYTES: f64 = 33.0;
const RELOCATED_BYTES: f64 = 21.0;
/// Bytes of a page, its bytes for records, and its bytes for the payload of a larger record.
const PAGE_BYTES: f64 = 4096.0;
const RECORDS_BYTES: f64 = 4048.0;
const PAYLOAD_BYTES: f64 = 4040.0;
const MIB: f64 = 1048576.0;
/// The buffers of collection, and the write buffer.
const BUFFER_BYTES: f64 = MIB;
/// The smallest device, and the largest, of almost 2²⁹ pages of 4 KiB.
const MIN_DEVICE_BYTES: f64 = 8.0 * MIB;
const MAX_DEVICE_BYTES: f64 = 2e12;
const MAX_BUCKETS: f64 = 1073741823.0;
/// Number of geometric time steps into which a pass of collection is divided for numerical
/// integration, and the length of the first step as a share of the pass.
const STEPS: u32 = 48;
const FIRST_STEP: f64 = 1e-6;

#[derive(Debug, Clone)]
struct Flash {
    capacity: f64,
    buckets: f64,
    cached: f64,
    /// Versions younger than the watermark, and the seconds in which they are written.
    history: f64,
    retention: f64,
}

fn fit(wanted: &Requirements) -> Result<Box<dyn Settings>, String> {
    let retention = wanted.needs.history.unwrap_or_default().as_secs_f64();
    let history = match (retention > 0.0, wanted.ops_per_second) {
        (true, None) => {
            return Err(
                "the number of versions in the history is unknown: give the operations per second"
                    .to_owned(),
            );
        }
        (_, ops) => ops.unwrap_or(0.0) * wanted.writes() * retention,
    };
    let versions = wanted.keys() + history;
    let least = versions * stored_bytes(wanted, RELOCATED_BYTES) / (1.0 - FREE);
    let capacity = wanted.flash_bytes.map_or(SPARE * least, |flash| flash.min(SPARE * least));
    let flash = Flash {
        capacity: capacity.max(MIN_DEVICE_BYTES),
        buckets: (wanted.keys() / KEYS_PER_BUCKET).ceil(),
        cached: (wanted.keys() / KEYS_PER_CACHED).ceil(),
        history,
        retention,
    };
    if flash.buckets > MAX_BUCKETS || flash.capacity > MAX_DEVICE_BYTES {
        return Err("it supports fewer keys and smaller devices".to_owned());
    }
    Ok(Box::new(flash))
}

/// Whether an item is stored in its record; a larger one has its own pages.
fn is_inline(wanted: &Requirements) -> bool {
    wanted.item_bytes() + PUT_BYTES <= RECORDS_BYTES
}

fn payload_pages(wanted: &Requirements) -> f64 {
    (wanted.item_bytes() / PAYLOAD_BYTES).ceil()
}

/// Bytes of pages per record with this overhead.
fn stored_bytes(wanted: &Requirements, overhead: f64) -> f64 {
    match is_inline(wanted) {
        true => PAGE_BYTES / (RECORDS_BYTES / (wanted.item_bytes() + overhead)).floor(),
        false => payload_pages(wanted) * PAGE_BYTES + overhead,
    }
}

impl Flash {
    /// Page reads per lookup after the first, with `pass` puts per pass of collection.
    fn further_reads(&self, wanted: &Requirements, pass: f64) -> f64 {
        let popularity = &wanted.popularity;
        let others = popularity.keys() / self.buckets;
        let reach = popularity.unique_inverse(self.cached.min(popularity.keys()));
        let not_cached = |rate: f64| (-rate * reach).exp();
        // If the keys of a bucket do not fit one page, an uncached key may be in the second.
        let is_split = is_inline(wanted)
            && (others + 1.0) * (wanted.item_bytes() + RELOCATED_BYTES) > RECORDS_BYTES;
        let before = if is_split { others / 2.0 } else { 0.0 };
        let beyond = before * stored_bytes(wanted, RELOCATED_BYTES) / PAGE_BYTES;
        let all_beyond = beyond * popularity.first_time_share(reach);
        let payload = if is_inline(wanted) { 0.0 } else { payload_pages(wanted) };
        all_beyond + payload + self.hidden_share(popularity, pass, not_cached)
    }

    /// Share of lookups of an uncached key whose bucket received another key after it since the
    /// last collection: they read that key's page first.
    fn hidden_share(
        &self,
        popularity: &Popularity,
        pass: f64,
        not_cached: impl Fn(f64) -> f64,
    ) -> f64 {
        let others = popularity.keys() / self.buckets;
        let is_first_after =
            |puts: f64| (-others * popularity.unique(puts) / popularity.keys()).exp();
        let step = |step: u32| pass * FIRST_STEP.powf(1.0 - f64::from(step) / f64::from(STEPS));
        let of_step = |number: u32| {
            let (from, to) = (step(number), step(number + 1));
            let middle = (from * to).sqrt();
            // Probability of neither a put nor a collection for this long; collections are uniform
            // over a pass.
            let lasts = |rate: f64| (-rate * middle).exp() * (1.0 - middle / pass);
            let share = popularity.share_of_requests(|rate| not_cached(rate) * lasts(rate));
            (is_first_after(from) - is_first_after(to)) * share
        };
        (0..STEPS).map(of_step).sum()
    }
}

impl Settings for Flash {
    fn costs(&self, wanted: &Requirements) -> Result<Costs, InvalidParameter> {
        let item = wanted.item_bytes();
        let put = stored_bytes(wanted, PUT_BYTES);
        let relocated = stored_bytes(wanted, RELOCATED_BYTES);
        let log = Skimpy {
            capacity_items: self.capacity * (1.0 - FREE) / relocated,
            window_requests: self.history,
            page_fill: relocated / put,
        };
        let stages = log.write_amplification(&wanted.popularity)?.by_stage;
        let collected = stages.last().map_or(0.0, |(_, cost)| *cost);
        // An item that fills a page is not buffered.
        let staged = item + STAGED_BYTES;
        let staged = if staged < PAGE_BYTES { staged } else { 0.0 };
        let writes = Breakdown {
            by_stage: vec![
                ("write buffer".to_owned(), staged / item),
                ("put".to_owned(), put / item),
                ("garbage collection".to_owned(), collected * relocated / item),
            ],
        };
        let pass = (wanted.keys() + self.history) / collected;
        Ok(Costs {
            write_amplification: writes.total(),
            writes,
            reads_per_lookup: 1.0 + self.further_reads(wanted, pass),
            index_bytes: self.buckets * BUCKET_BYTES + self.cached * CACHED_BYTES,
            buffer_bytes: BUFFER_BYTES,
            space_bytes: self.capacity,
        })
    }

    fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = vec![
            ("capacity", size((self.capacity / MIB).ceil() * MIB)),
            ("buckets", self.buckets.to_string()),
            ("cache", self.cached.to_string()),
            ("buffer_delay", "1s".to_owned()),
        ];
        if self.retention > 0.0 {
            options.push(("retention", format!("{}s", self.retention)));
        }
        options
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        Box::new(Flash {
            capacity: (self.capacity * share).max(MIN_DEVICE_BYTES),
            buckets: (self.buckets * share).ceil(),
            cached: (self.cached * share).ceil(),
            history: self.history * share,
            retention: self.retention,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncached_key_in_a_shared_bucket_costs_a_second_read() {
        let further = |cached: f64, keys_per_bucket: f64, skew: f64, value: f64| {
            let wanted = Requirements::new(Popularity::zipf(1e6, skew).unwrap(), 16.0, value);
            let buckets = 1e6 / keys_per_bucket;
            let flash = Flash { capacity: 1e9, buckets, cached, history: 0.0, retention: 0.0 };
            flash.further_reads(&wanted, 1.7e6)
        };
        let uniform = further(1e5, 5.0, 0.0, 100.0);
        let skewed = further(1e5, 5.0, 0.99, 100.0);
        assert!(0.0 < skewed && skewed < uniform && uniform < 0.9, "{skewed} {uniform}");
        assert!(further(5e5, 5.0, 0.0, 100.0) < uniform && uniform < further(1e5, 9.0, 0.0, 100.0));
        assert!(further(1e6, 5.0, 0.0, 100.0) < 1e-3);
        // Six records of a kilobyte need two pages, and 9000 bytes three pages of their own.
        assert!(further(1e5, 5.0, 0.0, 1000.0) > uniform + 0.5);
        assert!((further(1e6, 5.0, 0.0, 9000.0) - 3.0).abs() < 1e-3);
    }
}
