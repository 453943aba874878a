//! Whether a thread looks for datagrams for a while before it sleeps, which is wrong on a core that others want.
//!
//! To be woken takes longer than most answers do, and costs who wakes it as well, so a thread looks first and
//! lets others run between two looks. Linux takes that for leave to run them for their whole slice: beside a
//! process that never sleeps, each look but the first takes milliseconds, where one who sleeps is woken within
//! microseconds, because it has used less than its share. So who was away for long between two looks
//! sleeps at once the next times, and then tries again: twice as often each time, since one long turn of another
//! happens on a core of one's own as well.
//!
//! Source: ours; the slices are those of Stoica and Abdel-Wahab, "Earliest Eligible Virtual Deadline First"
//! (1995), which Linux has scheduled by since its version 6.6.

use std::time::{Duration, Instant};

/// How long a thread looks before it sleeps.
const LOOKS_FOR: Duration = Duration::from_micros(50);
/// Whoever only answers what was sent is done before; a slice is some milliseconds.
const AWAY: Duration = Duration::from_millis(1);
/// So many times it sleeps at once the first time that it was away.
const FEWEST: u32 = 8;
/// So many times at most: what another slice costs is little among them.
const MOST: u32 = 1024;

/// What a thread knows of the others on its core.
#[derive(Debug)]
pub(crate) struct Looks {
    /// When it began to look.
    began: Instant,
    /// When it looked last.
    last: Instant,
    /// Whether others were let run since it began.
    has_yielded: bool,
    /// How many times it sleeps at once before it looks again.
    sleeps: u32,
    /// How many that will be when it is away next.
    next: u32,
}

impl Looks {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Looks { began: now, last: now, has_yielded: false, sleeps: 0, next: FEWEST }
    }

    /// Begins to look, or not: then it is to sleep at once.
    pub(crate) fn begin(&mut self, now: Instant) -> bool {
        (self.began, self.has_yielded) = (now, false);
        let looks = self.sleeps == 0;
        self.sleeps = self.sleeps.saturating_sub(1);
        looks
    }

    /// Whether to look once more, after others were let run.
    pub(crate) fn goes_on(&mut self, now: Instant) -> bool {
        self.last = now;
        self.sleeps == 0 && now - self.began <= LOOKS_FOR
    }

    /// Others were let run since it looked last.
    pub(crate) fn came_back(&mut self, now: Instant) {
        if now - self.last > AWAY {
            self.sleeps = self.next;
            self.next = MOST.min(2 * self.next);
        } else if !self.has_yielded {
            self.next = FEWEST.max(self.next / 2);
        }
        self.has_yielded = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_a_while_where_nobody_else_runs() {
        let (mut looks, start) = (Looks::new(), Instant::now());
        for _ in 0..3 {
            assert!(looks.begin(start), "it was never away");
            let mut micros = 0;
            while looks.goes_on(start + Duration::from_micros(micros)) {
                micros += 10;
            }
            assert_eq!(micros, 60, "ends once the while is over");
        }
    }

    /// Looks twice, where others run for so long between; how many times it sleeps at once then.
    fn sleeps_after(looks: &mut Looks, away: Duration) -> u32 {
        let start = Instant::now();
        assert!(looks.begin(start) && looks.goes_on(start));
        looks.came_back(start + away);
        let mut sleeps = 0;
        while !looks.begin(start) {
            sleeps += 1;
        }
        sleeps
    }

    #[test]
    fn sleeps_at_once_for_some_times_where_others_took_the_core() {
        let (mut looks, slice) = (Looks::new(), Duration::from_millis(4));
        let short = Duration::from_micros(900);
        assert_eq!(sleeps_after(&mut looks, short), 0, "who ran was done soon");
        assert_eq!(sleeps_after(&mut looks, slice), FEWEST);
        assert_eq!(sleeps_after(&mut looks, slice), 2 * FEWEST);
        assert_eq!(sleeps_after(&mut looks, short), 0);
        assert_eq!(
            sleeps_after(&mut looks, slice),
            2 * FEWEST,
            "that was once, and it is no core of its own"
        );
        (0..20).for_each(|_| _ = sleeps_after(&mut looks, slice));
        assert_eq!(sleeps_after(&mut looks, slice), MOST);
        (0..20).for_each(|_| _ = sleeps_after(&mut looks, short));
        assert_eq!(sleeps_after(&mut looks, slice), FEWEST);
    }

    #[test]
    fn is_a_while_over_that_others_took() {
        let (mut looks, start) = (Looks::new(), Instant::now());
        assert!(looks.begin(start) && looks.goes_on(start));
        looks.came_back(start + Duration::from_millis(4));
        assert!(!looks.goes_on(start + Duration::from_micros(1)), "whatever the clock says");
    }
}
