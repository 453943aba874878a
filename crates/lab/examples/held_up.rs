//! How often does this machine hold up a thread that does nothing but look at its clock?
//!
//! Every p99.9 of some microseconds is to be read beside that: it can't be shorter than what one operation in a
//! thousand meets of ticks, of interrupts and of a host that gives the processor to somebody else. The faster the
//! operations are the more of them are one in a thousand, and the shorter is that: told for some speeds.
//!
//! `cargo run --release -p siltstone-lab --example held_up`
//!
//! Source: ours.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

const LASTS: Duration = Duration::from_secs(10);
/// Shorter gaps are the clock's own.
const TOLD_FROM: Duration = Duration::from_micros(2);

fn main() {
    let begin = Instant::now();
    let (mut before, mut gaps) = (begin, Vec::new());
    while before - begin < LASTS {
        let now = Instant::now();
        let gap = now - before;
        if gap > TOLD_FROM {
            gaps.push(gap);
        }
        before = now;
    }
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    for micros in [2, 5, 10, 20, 30, 50, 100, 1000] {
        let longer = gaps.iter().filter(|gap| **gap > Duration::from_micros(micros)).count();
        println!("longer than {micros:>4} µs: {:.0} a second", longer as f64 / LASTS.as_secs_f64());
    }
    for speed in [100_000, 200_000, 500_000, 1_000_000, 2_000_000] {
        let one_in_a_thousand = speed / 1000 * LASTS.as_secs();
        let longest =
            gaps.get(one_in_a_thousand as usize).map_or(0.0, |gap| gap.as_secs_f64() * 1e6);
        println!("p99.9 at {speed:>7} operations a second: {longest:.1} µs at least");
    }
}
