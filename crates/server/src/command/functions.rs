//! FUNCTION and FCALL.
//!
//! Functions run as scripts do ([`super::scripts`]). The libraries are kept in a log beside the
//! tables, or in rows of the first group of a replicated table ([`super::cluster_changes`]). Which
//! commands change them, [`changes_libraries`] says.
//!
//! Source: the documentation of Redis's functions; error texts of Redis 7.0.

use std::time::{Duration, Instant};

use super::cluster_changes::change_or_park;
use super::context::Context;
use super::definition::{NO_KEYS, SCRIPT};
use super::elements::is;
use super::entry::{self, Command};
use super::failure::{
    Failure, Outcome, bad_subcommand, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::help;
use super::libraries::{self, follow_functions};
use super::scripts::{self, Invocation};
use crate::glob;
use crate::replication::cluster_changes::ClusterChange;
use crate::resp::{Args, number};
use crate::script::function_library::{Library, LoadedLibrary};
use crate::script::functions::NO_LIBRARY;
use crate::script::long_runs::LongRun;

/// How long a committed change may take until it is in force here.
const FOLLOWING: Duration = Duration::from_secs(1);

pub(super) fn commands() -> Vec<Command> {
    let call = |name, handler, summary| {
        entry::command("scripting", name, -3, SCRIPT, NO_KEYS, handler, summary)
            .with_counted_keys(2)
    };
    let summary = "Loads, lists and removes libraries of functions.";
    vec![
        call("fcall", fcall, "Runs a function."),
        call("fcall_ro", fcall_ro, "Runs a function that does not write."),
        entry::command("scripting", "function", -2, 0, NO_KEYS, function, summary),
    ]
}

fn fcall(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    call(context, args, false)
}

fn fcall_ro(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    call(context, args, true)
}

fn call(context: &mut Context<'_>, args: Args<'_>, is_read_only: bool) -> Outcome {
    let script = context.shared.functions.find(&args[1]);
    let script = script.ok_or(reply_error("ERR Function not found"))?;
    let count = number::parse_i64(&args[2]);
    let count = count.ok_or(reply_error("ERR Bad number of keys provided"))?;
    let (keys, rest) = scripts::split_keys(args, count)?;
    if is_read_only && !script.is_read_only {
        return Err(scripts::MAY_WRITE);
    }
    let is_read_only = script.is_read_only;
    scripts::invoke(context, args, &Invocation { script, keys, args: rest, is_read_only })
}

/// Whether the call changes the libraries.
pub(super) fn changes_libraries(args: Args<'_>) -> bool {
    const CHANGES: [&str; 4] = ["delete", "flush", "load", "restore"];
    let is = |name: &&str| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    CHANGES.iter().any(is)
}

fn function(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"load", 3..) | (b"delete", 3) | (b"flush", 2 | 3) | (b"restore", 3 | 4) => {
            change(context, args)
        }
        (b"list", _) => list(context, args.from(2)),
        (b"kill", 2) => scripts::kill(context, true),
        (b"stats", 2) => {
            stats(context);
            Ok(())
        }
        (b"help", 2) => help::reply(context.replies, "FUNCTION", &HELP),
        (b"dump", 2) => {
            let payload = context.shared.functions.dump();
            context.replies.bulk(&payload);
            Ok(())
        }
        (b"restore" | b"flush", 4..) => Err(bad_subcommand("FUNCTION", &args[1])),
        (
            b"load" | b"delete" | b"flush" | b"kill" | b"stats" | b"help" | b"dump" | b"restore",
            _,
        ) => Err(wrong_subcommand_arity("function", &args[1])),
        _ => Err(unknown_subcommand("FUNCTION", &args[1])),
    }
}

/// Changes the libraries: of this server, or of all nodes of a cluster.
fn change(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let shared = context.shared;
    let words: Vec<_> = args.from(1).iter().map(<[u8]>::to_vec).collect();
    if shared.replication.is_none() {
        let edit = libraries::parse_edit(shared, &words)?;
        shared.functions.edit(edit)?;
    } else if !change_in_cluster(context, args, words)? {
        return Ok(());
    }
    match args[1].eq_ignore_ascii_case(b"load") {
        // It was parsed before.
        true => {
            let library = Library::parse(&args[args.len() - 1])?;
            context.replies.bulk(library.name.as_bytes());
        }
        false => context.replies.ok(),
    }
    Ok(())
}

/// Changes the libraries of all nodes; false: the job thread does. As programs for Redis Cluster
/// send a change to each master, a removal for which another node was asked lately is one for
/// which this node is asked, once.
fn change_in_cluster(
    context: &mut Context<'_>,
    args: Args<'_>,
    words: Vec<Vec<u8>>,
) -> Result<bool, Failure> {
    let functions = &context.shared.functions;
    let (name, rest) = (args[1].to_ascii_lowercase(), args.from(2));
    let changed = change_or_park(context, args, &ClusterChange::Libraries(words));
    if name != b"delete" {
        let flushes = name == b"flush" || rest.get(1).is_some_and(|word| is(word, "flush"));
        if flushes && matches!(changed, Ok(Some(_))) {
            functions.take_removals();
        }
        return Ok(changed?.is_some());
    }
    match changed {
        Err(Failure::Text(text)) if text == NO_LIBRARY => {
            // It may still be in force here.
            let deadline = Instant::now() + FOLLOWING;
            let lower = String::from_utf8_lossy(&rest[0]).to_lowercase();
            while functions.library(&lower).is_some() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
                follow_functions(context.shared);
            }
            match functions.take_removal(&rest[0]) {
                true => Ok(true),
                false => Err(reply_error(NO_LIBRARY)),
            }
        }
        changed => {
            let is_done = changed?.is_some();
            if is_done {
                functions.take_removal(&rest[0]);
            }
            Ok(is_done)
        }
    }
}

fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (mut pattern, mut with_code) = (None, false);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.to_ascii_lowercase().as_slice() {
            b"withcode" if !with_code => with_code = true,
            b"libraryname" if pattern.is_none() => {
                let given = words.next();
                let missing = reply_error("ERR library name argument was not given");
                pattern = Some(given.ok_or(missing)?.to_ascii_lowercase());
            }
            _ => {
                let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
                return Err(Failure::from(format!("ERR Unknown argument {word}")));
            }
        }
    }
    let mut libraries = context.shared.functions.all();
    libraries.retain(|LoadedLibrary { library, .. }| {
        let name = library.name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name.as_bytes()))
    });
    let replies = &mut *context.replies;
    replies.array(libraries.len());
    for LoadedLibrary { library, functions } in libraries {
        replies.map(if with_code { 4 } else { 3 });
        replies.bulk(b"library_name");
        replies.bulk(library.name.as_bytes());
        replies.bulk(b"engine");
        replies.bulk(b"LUA");
        replies.bulk(b"functions");
        replies.array(functions.len());
        for function in functions {
            replies.map(3);
            replies.bulk(b"name");
            replies.bulk(function.name.as_bytes());
            replies.bulk(b"description");
            replies.bulk_or_null(function.description.as_deref().map(str::as_bytes));
            replies.bulk(b"flags");
            replies.set(function.flags.len());
            for flag in function.flags {
                replies.simple(flag);
            }
        }
        if with_code {
            replies.bulk(b"library_code");
            replies.bulk(&library.code);
        }
    }
    Ok(())
}

fn stats(context: &mut Context<'_>) {
    let (libraries, functions) = context.shared.functions.counts();
    let running = context.shared.long_runs.running().filter(|running| running.name.is_some());
    let replies = &mut *context.replies;
    replies.map(2);
    replies.bulk(b"running_script");
    match running {
        None => replies.null(),
        Some(LongRun { name, command, since }) => {
            replies.map(3);
            replies.bulk(b"name");
            replies.bulk(name.unwrap_or_default().as_bytes());
            replies.bulk(b"command");
            replies.array(command.len());
            command.iter().for_each(|arg| replies.bulk(arg));
            replies.bulk(b"duration_ms");
            replies.count(since.elapsed().as_millis() as usize);
        }
    }
    replies.bulk(b"engines");
    replies.map(1);
    replies.bulk(b"LUA");
    replies.map(2);
    replies.bulk(b"libraries_count");
    replies.count(libraries);
    replies.bulk(b"functions_count");
    replies.count(functions);
}

const HELP: [&str; 16] = [
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries.",
    "STATS",
    "    Return the running function, and the number of libraries and functions.",
    "KILL",
    "    Kill the current running function.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
    "DUMP",
    "    Return the libraries in Redis's format.",
    "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
    "    Add the libraries that DUMP has returned.",
];
