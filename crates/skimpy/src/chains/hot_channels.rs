//! Detects hot channels: those with more lookups than others.
//!
//! ```text
//!   recent lookups by channel  ▂▁▂█▂▁▂▂      hot: the fourth
//! ```
//!
//! Under a skewed distribution a few keys get most lookups. If several of them are on one channel,
//! it limits the throughput of all clients while the others are idle. A page cannot move, but its
//! records can be relocated: a lookup that finds its key on a hot channel charges its bucket
//! (`Chains::charge_lookup`). A bucket that gets all lookups of its channel is not charged, because
//! the load would move with it.
//!
//! Counts are halved periodically, so they reflect recent lookups.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The minimum number of counted lookups per channel. More would include former locations of hot
/// keys.
const WINDOW_LOOKUPS: u64 = 32;

pub(super) struct HotChannels {
    channels: Vec<Channel>,
    all: AtomicU64,
}

#[derive(Default)]
struct Channel {
    lookups: AtomicU64,
    /// The bucket of the last lookup.
    last: AtomicU32,
}

impl HotChannels {
    pub(super) fn new(channels: u32) -> Self {
        let channels = (0..channels.max(1)).map(|_| Channel::default()).collect();
        HotChannels { channels, all: AtomicU64::new(0) }
    }

    /// Records that a key of a bucket was found in a block. Returns whether its channel has at
    /// least 1.5 times the mean number of lookups, and its previous lookup was of another bucket.
    pub(super) fn record_lookup(&self, block: u32, bucket: u32) -> bool {
        let count = self.channels.len() as u64;
        let channel = &self.channels[block as usize % self.channels.len()];
        let is_alone = channel.last.swap(bucket, Relaxed) == bucket;
        let of = channel.lookups.fetch_add(1, Relaxed) + 1;
        let all = self.all.fetch_add(1, Relaxed) + 1;
        // A concurrent count may be lost, which only affects the pace.
        let is_due = all >= 2 * WINDOW_LOOKUPS * count;
        if is_due && self.all.compare_exchange(all, all / 2, Relaxed, Relaxed).is_ok() {
            for channel in &self.channels {
                channel.lookups.store(channel.lookups.load(Relaxed) / 2, Relaxed);
            }
        }
        !is_alone && 2 * of * count > 3 * all && all >= WINDOW_LOOKUPS * count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The blocks of the lookups that found a hot channel; each lookup is of another bucket.
    fn hot_lookups(channels: &HotChannels, turns: u32, block_of: impl Fn(u32) -> u32) -> Vec<u32> {
        let hot = (0..turns).filter(|turn| channels.record_lookup(block_of(*turn), *turn));
        hot.map(&block_of).collect()
    }

    #[test]
    fn channel_with_half_as_many_lookups_again_as_the_mean_is_hot() {
        let channels = HotChannels::new(4);
        assert_eq!(hot_lookups(&channels, 1000, |turn| turn), [], "equal load");
        // Two of five lookups are on one channel, where the mean is 1.25.
        let hot = hot_lookups(&channels, 1000, |turn| [0, 1, 2, 3, 6][turn as usize % 5]);
        assert!(hot.len() > 150 && hot.iter().all(|block| block % 4 == 2), "{hot:?}");
        // Old counts fade.
        hot_lookups(&channels, 4 * 256, |turn| turn);
        assert_eq!(hot_lookups(&channels, 1000, |turn| turn), []);
    }

    #[test]
    fn four_of_eleven_lookups_do_not_make_one_of_four_channels_hot() {
        let channels = HotChannels::new(4);
        let block = |turn: u32| [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2][turn as usize % 11];
        hot_lookups(&channels, 200, block);
        assert_eq!(hot_lookups(&channels, 2000, block), []);
    }

    #[test]
    fn bucket_with_all_lookups_of_its_channel_is_not_charged() {
        let channels = HotChannels::new(4);
        assert!((0..1000).all(|_| !channels.record_lookup(3, 7)));
        // With two buckets it is.
        assert!((0..1000).filter(|turn| channels.record_lookup(3, turn % 2)).count() > 900);
    }

    #[test]
    fn single_channel_or_few_lookups_are_not_hot() {
        let one = HotChannels::new(1);
        assert!((0..1000).all(|turn| !one.record_lookup(turn, turn)));
        let many = HotChannels::new(16);
        let few = WINDOW_LOOKUPS as u32 * 16 - 1;
        assert!((0..few).all(|turn| !many.record_lookup(3, turn)) && many.record_lookup(3, few));
    }
}
