//! Which lane the next page goes to: the one that has least to do.
//!
//! ```text
//!   what lanes still have to do   ▂▁█▂▁▂▂▂      the third: its block is being erased, or a key in it is hot
//!   the next page goes to            ▲ the first of the least busy, in turn
//! ```
//!
//! Pages in turn would go to a crowded lane as often as to others, wait there, and make it more crowded: what was put
//! just now is what is asked for next. A lane that is busy for long is left behind by so many pages at most, so
//! that its block does not stay open while the log goes round.
//!
//! Source: ours.

use std::time::Duration;

pub(crate) struct Lanes {
    /// Pages that each lane was given.
    pages: Vec<u64>,
    /// The lane that goes first where none is busier than another.
    turn: usize,
}

impl Lanes {
    pub(crate) fn new(count: u32) -> Self {
        Lanes { pages: vec![0; count as usize], turn: 0 }
    }

    /// The lane whose turn it is.
    pub(crate) fn in_turn(&self) -> usize {
        self.turn
    }

    /// The lane that is done first, of those that are not so many pages ahead of another.
    pub(crate) fn idlest(&self, ahead: u32, done: impl Fn(usize) -> Duration) -> usize {
        let count = self.pages.len();
        let most = self.pages.iter().min().unwrap_or(&0) + u64::from(ahead.max(1));
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let open = in_turn.filter(|lane| self.pages[*lane] < most);
        open.min_by_key(|lane| done(*lane)).unwrap_or(self.turn)
    }

    /// A lane was given a page.
    pub(crate) fn took(&mut self, lane: usize) {
        self.pages[lane] += 1;
        self.turn = (lane + 1) % self.pages.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lanes of so many pages, where each is done as `done` says.
    fn given(pages: usize, done: impl Fn(usize) -> u64) -> Vec<usize> {
        let mut lanes = Lanes::new(4);
        let mut next = || {
            let lane = lanes.idlest(8, |lane| Duration::from_micros(done(lane)));
            lanes.took(lane);
            lane
        };
        (0..pages).map(|_| next()).collect()
    }

    #[test]
    fn lanes_that_are_as_busy_take_turns() {
        assert_eq!(given(6, |_| 7), [0, 1, 2, 3, 0, 1]);
    }

    #[test]
    fn a_busy_lane_is_passed_by_until_it_is_left_behind() {
        let given = given(400, |lane| if lane == 2 { 1000 } else { 0 });
        assert!(given[..24].iter().all(|lane| *lane != 2), "{given:?}");
        assert_eq!(given[24], 2);
        let pages = |lane: usize| given.iter().filter(|it| **it == lane).count();
        assert_eq!([0, 1, 2, 3].map(pages), [102, 102, 94, 102]);
    }

    #[test]
    fn of_all_lanes_the_one_that_is_done_first_goes_first() {
        assert_eq!(given(16, |lane| [40, 20, 10, 30][lane])[..9], [2, 2, 2, 2, 2, 2, 2, 2, 1]);
    }
}
