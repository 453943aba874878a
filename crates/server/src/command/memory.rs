//! MEMORY: the size of a value, and of the server.
//!
//! Source: the documentation of Redis's MEMORY; replies of Redis 7.2.

use super::context::Context;
use super::definition::READ;
use super::entry::{self, Command};
use super::failure::{NOT_AN_INTEGER, Outcome, SYNTAX, unknown_subcommand, wrong_subcommand_arity};
use super::{help, info};
use crate::process::resident_bytes;
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Returns the size of a value, and of the server.";
    vec![entry::command("generic", "memory", -2, READ, (2, 2, 1), memory, summary)]
}

fn memory(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let word = args[1].to_ascii_lowercase();
    let mut samples = DEFAULT_SAMPLES;
    match (word.as_slice(), args.len()) {
        (b"help", 2) => return help::reply(context.replies, "MEMORY", &HELP),
        (b"usage", 3) => {}
        (b"usage", 5) if args[3].eq_ignore_ascii_case(b"samples") => {
            let count = number::parse_i64(&args[4]).ok_or(NOT_AN_INTEGER)?;
            samples = u64::try_from(count).map_err(|_| SYNTAX)?;
        }
        (b"usage", 4..) => return Err(SYNTAX),
        (b"stats", 2) => return stats(context),
        (b"doctor", 2) => {
            context.replies.verbatim(DOCTOR);
            return Ok(());
        }
        (b"malloc-stats", 2) => {
            context.replies.verbatim("Stats not supported for the current allocator");
            return Ok(());
        }
        // Memory that is free is returned to the system anyway.
        (b"purge", 2) => {
            context.replies.ok();
            return Ok(());
        }
        (b"help" | b"usage" | b"stats" | b"doctor" | b"malloc-stats" | b"purge", _) => {
            return Err(wrong_subcommand_arity("memory", &word));
        }
        _ => return Err(unknown_subcommand("MEMORY", &args[1])),
    }
    let key = &args[2];
    let Some(stored) = context.peek_any(key)? else {
        context.replies.null();
        return Ok(());
    };
    let _guard = context.lock(key);
    let elements = match stored.metadata {
        None => 0,
        // 0 samples: all elements.
        Some(_) => context.collections(|writes| Ok(writes.element_bytes(key, samples)?))?,
    };
    context.replies.count(key.len() + stored.entry.value.len() + elements as usize);
    Ok(())
}

/// Names of Redis, as far as they mean something here.
fn stats(context: &mut Context<'_>) -> Outcome {
    let used = info::used_bytes(context);
    let resident = resident_bytes().unwrap_or(used);
    let (_, scripts) = context.shared.scripts.counts();
    let numbers = [
        ("total.allocated", used),
        ("lua.caches", scripts as u64),
        ("dataset.bytes", used),
        ("allocator.resident", resident),
        ("rss-overhead.bytes", resident.saturating_sub(used)),
    ];
    let replies = &mut *context.replies;
    replies.map(numbers.len() + 1);
    for (name, bytes) in numbers {
        replies.bulk(name.as_bytes());
        replies.int(bytes as i64);
    }
    replies.bulk(b"fragmentation");
    replies.double(resident as f64 / used.max(1) as f64);
    Ok(())
}

const DOCTOR: &str = "The memory of the tables is what their options allow; see INFO memory and \
                      INFO tables.";

/// Elements that MEMORY USAGE reads, as in Redis.
const DEFAULT_SAMPLES: u64 = 5;

const HELP: [&str; 10] = [
    "DOCTOR",
    "    Return where memory problems are shown.",
    "MALLOC-STATS",
    "    Return that there are no statistics of the allocator.",
    "PURGE",
    "    Does nothing.",
    "STATS",
    "    Return information about the memory usage of the server.",
    "USAGE <key> [SAMPLES <count>]",
    "    Return the bytes of <key> and its value, uncompressed.",
];
