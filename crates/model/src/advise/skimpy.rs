//! SkimpyFTL: every version since the watermark, in one log over a flash device; four bytes of memory for a few keys.
//!
//! ```text
//! settings    a device three times as large as what is wanted of it, or all of the flash; five keys a bucket; places
//!             of a tenth of the keys cached
//! writes      once to the packing buffer's keeper, once to a page, and as often as collection comes round
//! lookups     one read if the key's place is cached or its bucket was written last when it was collected; else the
//!             bucket's newest record leads to the key's
//! history     a time: as many versions as are written in it
//! ```
//!
//! Source: SkimpyFTL, sections 3 and 4; `skimpy` for what is written; bytes about a record from the engine's formats.

use super::{Costs, Design, Settings, Wanted, size};
use crate::error::BadParameter;
use crate::{Breakdown, Popularity, Skimpy};

pub(super) const DESIGN: Design = Design {
    engine: "skimpy",
    is_ordered: false,
    is_durable: true,
    has_versions: true,
    has_history: true,
    fit,
};

/// What a device holds for each that is wanted of it, if nobody says how large it may be.
const SPARE: f64 = 3.0;
/// The share of the device that collection keeps free.
const FREE: f64 = 0.1;
const KEYS_A_BUCKET: f64 = 5.0;
/// A bucket's head and stamp.
const BUCKET_BYTES: f64 = 5.0;
const KEYS_A_CACHED: f64 = 10.0;
const CACHED_BYTES: f64 = 16.0;
/// Bytes about an item in the packing buffer's keeper: a frame's, and an operation's in its batch (`stage.rs`).
const STAGED_BYTES: f64 = 43.0;
/// In a record of a put, with half of the detours that it may have, and in one of a collected bucket, with its part of
/// what the first of a group has (`record.rs`).
const PUT_BYTES: f64 = 33.0;
const REMAPPED_BYTES: f64 = 21.0;
/// A page, what of it is for records, and for the payload of one that is larger.
const PAGE_BYTES: f64 = 4096.0;
const RECORDS_BYTES: f64 = 4048.0;
const PAYLOAD_BYTES: f64 = 4040.0;
const MIB: f64 = 1048576.0;
/// Pages that collection keeps, and the packing buffer.
const BUFFER_BYTES: f64 = MIB;
/// The smallest device, and the largest, of 2²⁹ pages of 4 KiB less a few.
const LEAST_BYTES: f64 = 8.0 * MIB;
const MOST_BYTES: f64 = 2e12;
const MOST_BUCKETS: f64 = 1073741823.0;
/// Steps of time, each so many times as long as the one before, in which a turn of collection is looked at, and the
/// first as a share of it.
const STEPS: u32 = 48;
const SHORTEST: f64 = 1e-6;

#[derive(Debug, Clone)]
struct Flash {
    capacity: f64,
    buckets: f64,
    cached: f64,
    /// Versions that are younger than the watermark, and the seconds that takes.
    history: f64,
    retention: f64,
}

fn fit(wanted: &Wanted) -> Result<Box<dyn Settings>, String> {
    let retention = wanted.needs.history.unwrap_or_default().as_secs_f64();
    let history = match (retention > 0.0, wanted.ops_per_second) {
        (true, None) => {
            return Err("how much history is, nobody said: give the operations a second".to_owned());
        }
        (_, ops) => ops.unwrap_or(0.0) * wanted.writes() * retention,
    };
    let versions = wanted.keys() + history;
    let least = versions * stored_bytes(wanted, REMAPPED_BYTES) / (1.0 - FREE);
    let capacity = wanted.flash_bytes.map_or(SPARE * least, |flash| flash.min(SPARE * least));
    let flash = Flash {
        capacity: capacity.max(LEAST_BYTES),
        buckets: (wanted.keys() / KEYS_A_BUCKET).ceil(),
        cached: (wanted.keys() / KEYS_A_CACHED).ceil(),
        history,
        retention,
    };
    if flash.buckets > MOST_BUCKETS || flash.capacity > MOST_BYTES {
        return Err("it is made for fewer keys and a smaller device".to_owned());
    }
    Ok(Box::new(flash))
}

/// Whether an item lies in its record; a larger one has pages of its own.
fn is_inline(wanted: &Wanted) -> bool {
    wanted.item_bytes() + PUT_BYTES <= RECORDS_BYTES
}

fn payload_pages(wanted: &Wanted) -> f64 {
    (wanted.item_bytes() / PAYLOAD_BYTES).ceil()
}

/// Bytes of pages that a record takes whose item has so many bytes about it.
fn stored_bytes(wanted: &Wanted, about: f64) -> f64 {
    match is_inline(wanted) {
        true => PAGE_BYTES / (RECORDS_BYTES / (wanted.item_bytes() + about)).floor(),
        false => payload_pages(wanted) * PAGE_BYTES + about,
    }
}

impl Flash {
    /// Reads for a lookup beyond that of a first page, with so many puts in a turn of collection.
    fn further_reads(&self, wanted: &Wanted, turn: f64) -> f64 {
        let popularity = &wanted.popularity;
        let others = popularity.keys() / self.buckets;
        let reach = popularity.unique_inverse(self.cached.min(popularity.keys()));
        let not_cached = |rate: f64| (-rate * reach).exp();
        // Where all keys of a bucket don't fit a page, a key that is not cached may be in the second.
        let is_split = is_inline(wanted)
            && (others + 1.0) * (wanted.item_bytes() + REMAPPED_BYTES) > RECORDS_BYTES;
        let before = if is_split { others / 2.0 } else { 0.0 };
        let beyond = before * stored_bytes(wanted, REMAPPED_BYTES) / PAGE_BYTES;
        let all_beyond = beyond * popularity.first_time_share(reach);
        let payload = if is_inline(wanted) { 0.0 } else { payload_pages(wanted) };
        all_beyond + payload + self.hidden_share(popularity, turn, not_cached)
    }

    /// The share of lookups whose key's place is not cached, and since whose bucket was collected another of
    /// its keys was put after theirs: they read its page first.
    fn hidden_share(
        &self,
        popularity: &Popularity,
        turn: f64,
        not_cached: impl Fn(f64) -> f64,
    ) -> f64 {
        let others = popularity.keys() / self.buckets;
        let is_first_after =
            |puts: f64| (-others * popularity.unique(puts) / popularity.keys()).exp();
        let step = |step: u32| turn * SHORTEST.powf(1.0 - f64::from(step) / f64::from(STEPS));
        let of_step = |number: u32| {
            let (from, to) = (step(number), step(number + 1));
            let middle = (from * to).sqrt();
            // Neither put nor collected for so long: the bucket was collected at some time of the turn.
            let lasts = |rate: f64| (-rate * middle).exp() * (1.0 - middle / turn);
            let share = popularity.share_of_requests(|rate| not_cached(rate) * lasts(rate));
            (is_first_after(from) - is_first_after(to)) * share
        };
        (0..STEPS).map(of_step).sum()
    }
}

impl Settings for Flash {
    fn costs(&self, wanted: &Wanted) -> Result<Costs, BadParameter> {
        let item = wanted.item_bytes();
        let put = stored_bytes(wanted, PUT_BYTES);
        let remapped = stored_bytes(wanted, REMAPPED_BYTES);
        let log = Skimpy {
            capacity_items: self.capacity * (1.0 - FREE) / remapped,
            window_requests: self.history,
            page_fill: remapped / put,
        };
        let stages = log.write_amplification(&wanted.popularity)?.by_stage;
        let collected = stages.last().map_or(0.0, |(_, cost)| *cost);
        // What fills a page by itself does not wait for others.
        let staged = item + STAGED_BYTES;
        let staged = if staged < PAGE_BYTES { staged } else { 0.0 };
        let writes = Breakdown {
            by_stage: vec![
                ("packing buffer".to_owned(), staged / item),
                ("put".to_owned(), put / item),
                ("garbage collection".to_owned(), collected * remapped / item),
            ],
        };
        let turn = (wanted.keys() + self.history) / collected;
        Ok(Costs {
            write_amplification: writes.total(),
            writes,
            reads_per_lookup: 1.0 + self.further_reads(wanted, turn),
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
            ("pack", "1s".to_owned()),
        ];
        if self.retention > 0.0 {
            options.push(("retention", format!("{}s", self.retention)));
        }
        options
    }

    fn scaled(&self, share: f64) -> Box<dyn Settings> {
        Box::new(Flash {
            capacity: (self.capacity * share).max(LEAST_BYTES),
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
    fn who_is_not_cached_and_has_others_in_its_bucket_is_read_twice() {
        let further = |cached: f64, keys_a_bucket: f64, skew: f64, value: f64| {
            let wanted = Wanted::new(Popularity::zipf(1e6, skew).unwrap(), 16.0, value);
            let buckets = 1e6 / keys_a_bucket;
            let flash = Flash { capacity: 1e9, buckets, cached, history: 0.0, retention: 0.0 };
            flash.further_reads(&wanted, 1.7e6)
        };
        let uniform = further(1e5, 5.0, 0.0, 100.0);
        let skewed = further(1e5, 5.0, 0.99, 100.0);
        assert!(0.0 < skewed && skewed < uniform && uniform < 0.9, "{skewed} {uniform}");
        assert!(further(5e5, 5.0, 0.0, 100.0) < uniform && uniform < further(1e5, 9.0, 0.0, 100.0));
        assert!(further(1e6, 5.0, 0.0, 100.0) < 1e-3);
        // Six records of a kilobyte lie in two pages, and 9000 bytes in three of their own.
        assert!(further(1e5, 5.0, 0.0, 1000.0) > uniform + 0.5);
        assert!((further(1e6, 5.0, 0.0, 9000.0) - 3.0).abs() < 1e-3);
    }
}
