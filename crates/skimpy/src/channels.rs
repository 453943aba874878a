//! Channel striping: the next page goes to the least loaded channel.
//!
//! ```text
//!   remaining work by channel     ▂▁█▂▁▂▂▂      the third erases a block, or has a hot key
//!   the next page goes to            ▲ the first of the least loaded, round robin
//! ```
//!
//! Plain round robin would send pages to a hot channel as often as to others, where they wait, and
//! would make it hotter: recent writes are likely to be read. A busy channel falls behind by a
//! limited number of pages, so that its block does not stay open while the log wraps around.

use std::time::Duration;

pub(crate) struct Channels {
    /// Pages assigned to each channel.
    pages: Vec<u64>,
    /// The first channel among equally loaded ones.
    turn: usize,
}

impl Channels {
    pub(crate) fn new(count: u32) -> Self {
        Channels { pages: vec![0; count as usize], turn: 0 }
    }

    /// The next channel in round-robin order.
    pub(crate) fn round_robin(&self) -> usize {
        self.turn
    }

    /// The channel that completes first, among those less than `ahead` pages ahead of another.
    pub(crate) fn least_loaded(&self, ahead: u32, done: impl Fn(usize) -> Duration) -> usize {
        let count = self.pages.len();
        let most = self.pages.iter().min().unwrap_or(&0) + u64::from(ahead.max(1));
        let round_robin = (0..count).map(|step| (self.turn + step) % count);
        let open = round_robin.filter(|channel| self.pages[*channel] < most);
        open.min_by_key(|channel| done(*channel)).unwrap_or(self.turn)
    }

    /// Records that a channel was assigned a page.
    pub(crate) fn assign(&mut self, channel: usize) {
        self.pages[channel] += 1;
        self.turn = (channel + 1) % self.pages.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The channels of `pages` pages, if `done` is the load of each.
    fn given(pages: usize, done: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut channels = Channels::new(4);
        let mut next = || {
            let channel = channels.least_loaded(8, |channel| Duration::from_micros(done(channel)));
            channels.assign(channel);
            channel
        };
        (0..pages).map(|_| next()).collect()
    }

    #[test]
    fn equally_loaded_channels_take_turns() {
        assert_eq!(given(6, |_| 7), [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn busy_channel_is_skipped_up_to_the_limit() {
        let given = given(400, |channel| if channel == 2 { 1000 } else { 0 });
        assert!(given[..24].iter().all(|channel| *channel != 2), "{given:?}");
        assert_eq!(given[24], 2);
        let pages = |channel: usize| given.iter().filter(|it| **it == channel).count();
        assert_eq!([0, 1, 2, 3].map(pages), [102, 102, 94, 102]);
    }

    #[test]
    fn channel_that_completes_first_is_selected() {
        assert_eq!(
            given(16, |channel| [40, 20, 10, 30][channel])[..9],
            [2, 2, 2, 2, 2, 2, 2, 2, 1]
        );
    }
}
