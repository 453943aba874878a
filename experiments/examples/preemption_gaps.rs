//! How often does this machine suspend a thread that only reads the clock?
//!
//! A p99.9 of a few microseconds must be compared with this: it cannot be shorter than the
//! interruption that one operation in a thousand meets: timer ticks, interrupts, and a host that
//! suspends the virtual processor. The more operations per second, the more of them are one in a
//! thousand, and the shorter is that interruption; so the output has one line per rate.
//!
//! `cargo run --release --manifest-path experiments/Cargo.toml --example preemption_gaps`

#![allow(clippy::print_stdout)]

use std::time::{Duration, Instant};

const DURATION: Duration = Duration::from_secs(10);
/// Shorter gaps are the cost of reading the clock.
const MIN_GAP: Duration = Duration::from_micros(2);

fn main() {
    let begin = Instant::now();
    let (mut before, mut gaps) = (begin, Vec::new());
    while before - begin < DURATION {
        let now = Instant::now();
        let gap = now - before;
        if gap > MIN_GAP {
            gaps.push(gap);
        }
        before = now;
    }
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    for micros in [2, 5, 10, 20, 30, 50, 100, 1000] {
        let longer = gaps.iter().filter(|gap| **gap > Duration::from_micros(micros)).count();
        let per_second = longer as f64 / DURATION.as_secs_f64();
        println!("longer than {micros:>4} µs: {per_second:.0} per second");
    }
    for rate in [100_000, 200_000, 500_000, 1_000_000, 2_000_000] {
        let one_in_a_thousand = rate / 1000 * DURATION.as_secs();
        let longest =
            gaps.get(one_in_a_thousand as usize).map_or(0.0, |gap| gap.as_secs_f64() * 1e6);
        println!("p99.9 at {rate:>7} operations per second: at least {longest:.1} µs");
    }
}
