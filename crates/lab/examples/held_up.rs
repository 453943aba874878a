//! How often does this machine hold up a thread that does nothing but look at its clock?
//!
//! Every p99.9 of some microseconds is to be read beside that: it can't be shorter than what one operation in a
//! thousand meets of ticks, of interrupts and of a host that gives the processor to somebody else.
//!
//! `cargo run --release -p siltstone-lab --example held_up`
//!
//! Source: ours.

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

const LASTS: Duration = Duration::from_secs(10);

fn main() {
    let begin = Instant::now();
    let (mut before, mut gaps) = (begin, Vec::new());
    while before - begin < LASTS {
        let now = Instant::now();
        let gap = now - before;
        if gap > Duration::from_micros(2) {
            gaps.push(gap);
        }
        before = now;
    }
    for micros in [2, 5, 10, 20, 30, 50, 100, 1000] {
        let longer = gaps.iter().filter(|gap| **gap > Duration::from_micros(micros)).count();
        println!("longer than {micros:>4} µs: {:.0} a second", longer as f64 / LASTS.as_secs_f64());
    }
}
