//! SLOWLOG: the newest slow commands.

use super::context::Context;
use super::definition::{ADMIN, NO_KEYS};
use super::entry::{self, Command};
use super::failure::{Outcome, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::help;
use crate::resp::{Args, number};

/// Commands that SLOWLOG GET returns without a count.
const DEFAULT_COUNT: usize = 10;

pub(super) fn commands() -> Vec<Command> {
    let summary = "Returns or clears the log of slow commands.";
    vec![entry::command("server", "slowlog", -2, ADMIN, NO_KEYS, slowlog, summary)]
}

fn slowlog(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let log = &context.shared.slow_log;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"get", 2) => get(context, DEFAULT_COUNT),
        (b"get", 3) => {
            let count = number::parse_i64(&args[2]).filter(|count| *count >= -1);
            let refusal = reply_error("ERR count should be greater than or equal to -1");
            // -1: all.
            get(context, usize::try_from(count.ok_or(refusal)?).unwrap_or(usize::MAX));
        }
        (b"get", _) => {
            return Err(reply_error(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ));
        }
        (b"len", 2) => context.replies.count(log.len()),
        (b"reset", 2) => {
            log.clear();
            context.replies.ok();
        }
        (b"help", 2) => return help::reply(context.replies, "SLOWLOG", &HELP),
        (b"len" | b"reset" | b"help", _) => {
            return Err(wrong_subcommand_arity("slowlog", &args[1]));
        }
        _ => return Err(unknown_subcommand("SLOWLOG", &args[1])),
    }
    Ok(())
}

fn get(context: &mut Context<'_>, count: usize) {
    let newest = context.shared.slow_log.newest(count);
    let replies = &mut *context.replies;
    replies.array(newest.len());
    for entry in newest {
        replies.array(6);
        replies.int(entry.id as i64);
        replies.int(entry.time as i64);
        replies.int(entry.duration.as_micros() as i64);
        replies.array(entry.args.len());
        entry.args.iter().for_each(|arg| replies.bulk(arg));
        replies.bulk(entry.client.as_bytes());
        replies.bulk(entry.client_name.as_bytes());
    }
}

const HELP: [&str; 9] = [
    "GET [<count>]",
    "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
    "    Entries are made of:",
    "    id, timestamp, time in microseconds, arguments array, client IP and port,",
    "    client name",
    "LEN",
    "    Return the length of the slowlog.",
    "RESET",
    "    Reset the slowlog.",
];
