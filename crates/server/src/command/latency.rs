//! LATENCY: latencies above `latency-monitor-threshold`, and histograms of all commands.
//!
//! ```text
//! LATENCY LATEST      event, time of the last latency, last and worst latency in ms
//! LATENCY HISTOGRAM   calls per command, and cumulated calls by latency in microseconds
//! ```

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;

use super::context::Context;
use super::definition::{ADMIN, NO_KEYS};
use super::entry::{self, Command};
use super::failure::{Outcome, unknown_subcommand, wrong_subcommand_arity};
use super::help;
use crate::latency::LatencyEvent;
use crate::resp::Args;

/// Rows of a graph.
const GRAPH_ROWS: u64 = 4;
/// Maximum columns of a graph.
const GRAPH_COLUMNS: usize = 80;
/// Bound of the first bucket of a histogram in nanoseconds; each further one is twice as large.
const FIRST_BUCKET_NS: u64 = 1024;

pub(super) fn commands() -> Vec<Command> {
    let summary = "Shows latencies of commands.";
    vec![entry::command("server", "latency", -2, ADMIN, NO_KEYS, latency, summary)]
}

fn latency(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let monitor = &context.shared.latency;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"latest", 2) => latest(context),
        (b"history", 3) => history(context, &args[2]),
        (b"graph", 3) => return graph(context, &args[2]),
        (b"doctor", 2) => doctor(context),
        (b"histogram", _) => histogram(context, args.from(2)),
        (b"reset", 2) => context.replies.count(monitor.reset_all()),
        (b"reset", _) => {
            let reset = args.from(2).iter().filter(|event| monitor.reset(event)).count();
            context.replies.count(reset);
        }
        (b"help", 2) => return help::reply(context.replies, "LATENCY", &HELP),
        (b"latest" | b"history" | b"graph" | b"doctor" | b"help", _) => {
            return Err(wrong_subcommand_arity("latency", &args[1]));
        }
        _ => return Err(unknown_subcommand("LATENCY", &args[1])),
    }
    Ok(())
}

fn latest(context: &mut Context<'_>) {
    let events = context.shared.latency.all();
    context.replies.array(events.len());
    for (name, LatencyEvent { samples, max_ms }) in events {
        let (second, latency_ms) = samples.back().copied().unwrap_or_default();
        context.replies.array(4);
        context.replies.bulk(name.as_bytes());
        for number in [second, latency_ms, max_ms] {
            context.replies.int(number as i64);
        }
    }
}

fn history(context: &mut Context<'_>, name: &[u8]) {
    let samples = context.shared.latency.get(name).unwrap_or_default().samples;
    context.replies.array(samples.len());
    for (second, latency_ms) in samples {
        context.replies.array(2);
        context.replies.int(second as i64);
        context.replies.int(latency_ms as i64);
    }
}

/// A column per sample, the newest on the right, with its age in seconds below the bars.
fn graph(context: &mut Context<'_>, name: &[u8]) -> Outcome {
    let Some(event) = context.shared.latency.get(name) else {
        let name = String::from_utf8_lossy(&name[..name.len().min(128)]);
        return Err(format!("ERR No samples available for event '{name}'").into());
    };
    let skipped = event.samples.len().saturating_sub(GRAPH_COLUMNS);
    let samples: Vec<(u64, u64)> = event.samples.iter().skip(skipped).copied().collect();
    let high = samples.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = samples.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let mut text = String::new();
    let name = String::from_utf8_lossy(name);
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{name} - high {high} ms, low {low} ms (all time high {} ms)\n{}",
        event.max_ms,
        "-".repeat(GRAPH_COLUMNS)
    );
    for row in (0..GRAPH_ROWS).rev() {
        let bar = |(_, ms): &(u64, u64)| {
            let height = if high > low { (ms - low) * GRAPH_ROWS / (high - low) } else { 1 };
            if height > row {
                '#'
            } else if row == 0 {
                '_'
            } else {
                ' '
            }
        };
        let line: String = samples.iter().map(bar).collect();
        let _ = writeln!(text, "{line}");
    }
    let ages: Vec<_> =
        samples.iter().map(|(second, _)| format!("{}s", now.saturating_sub(*second))).collect();
    for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
        let letter = |age: &String| age.chars().nth(row).unwrap_or(' ');
        let line: String = ages.iter().map(letter).collect();
        let _ = writeln!(text, "{line}");
    }
    context.replies.verbatim(&text);
    Ok(())
}

fn doctor(context: &mut Context<'_>) {
    let threshold_ms = context.shared.settings.latency_threshold_ms.load(Relaxed);
    let events = context.shared.latency.all();
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = match (threshold_ms, events.is_empty()) {
        (0, _) => writeln!(
            text,
            "Latency monitoring is disabled. Enable it with CONFIG SET latency-monitor-threshold \
             <milliseconds>."
        ),
        (_, true) => writeln!(text, "No latency of {threshold_ms} ms or more was observed."),
        (_, false) => writeln!(text, "Latencies of {threshold_ms} ms or more were observed:"),
    };
    for (name, LatencyEvent { samples, max_ms }) in events {
        let sum: u64 = samples.iter().map(|(_, ms)| ms).sum();
        let count = samples.len().max(1) as u64;
        let _ = writeln!(
            text,
            "{name}: {} seconds with a latency, on average {} ms, worst {max_ms} ms.",
            samples.len(),
            sum / count
        );
        let _ = writeln!(
            text,
            "  {}",
            match name {
                "aof-fsync-always" => {
                    "The device is slow to sync. Use --fsync everysec if it is safe enough."
                }
                _ => "See SLOWLOG GET for the commands; use SCAN instead of KEYS.",
            }
        );
    }
    context.replies.verbatim(&text);
}

fn histogram(context: &mut Context<'_>, names: Args<'_>) {
    let is_wanted = |name: &str| {
        // A command stands for its subcommands.
        let parent = name.split('|').next().unwrap_or_default();
        let is_named = |named: &[u8]| {
            [name, parent].iter().any(|known| named.eq_ignore_ascii_case(known.as_bytes()))
        };
        names.is_empty() || names.iter().any(is_named)
    };
    let mut commands = context.shared.metrics.commands();
    commands.retain(|(name, _)| is_wanted(name));
    context.replies.map(commands.len());
    for (name, counts) in commands {
        let buckets = buckets(&counts.latencies);
        let replies = &mut *context.replies;
        replies.bulk(name.as_bytes());
        replies.map(2);
        replies.bulk(b"calls");
        replies.int(counts.latencies.len() as i64);
        replies.bulk(b"histogram_usec");
        replies.map(buckets.len());
        for (bound_us, calls) in buckets {
            replies.int(bound_us as i64);
            replies.int(calls as i64);
        }
    }
}

/// Bounds in microseconds, and the calls up to each. As in Redis, only bounds at which the number
/// of calls rises.
fn buckets(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    let (mut buckets, mut bound_ns, mut before) = (Vec::new(), FIRST_BUCKET_NS, 0);
    while before < latencies.len() {
        let calls = latencies.count_between(0, bound_ns);
        if calls > before {
            buckets.push((latencies.highest_equivalent(bound_ns) / 1000, calls));
            before = calls;
        }
        bound_ns *= 2;
    }
    buckets
}

const HELP: [&str; 14] = [
    "DOCTOR",
    "    Return a human readable latency analysis report.",
    "GRAPH <event>",
    "    Return an ASCII latency graph for the <event> class.",
    "HISTORY <event>",
    "    Return time-latency samples for the <event> class.",
    "LATEST",
    "    Return the latest latency samples for all events.",
    "RESET [<event> ...]",
    "    Reset latency data of one or more <event> classes.",
    "    (default: reset all data for all event classes)",
    "HISTOGRAM [COMMAND ...]",
    "    Return a cumulative distribution of latencies in the format of a histogram for the \
     specified command names.",
    "    If no commands are specified then all histograms are replied.",
];
