//! FUNCTION and FCALL.
//!
//! Functions run as scripts do ([`super::scripts`]). Their libraries are in memory.
//!
//! Source: the documentation of Redis's functions; error texts of Redis 7.0.

use std::sync::Arc;

use super::context::Context;
use super::definition::{NO_KEYS, SCRIPT};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::scripts::{self, Invocation};
use super::{help, info};
use crate::glob;
use crate::resp::{Args, number};
use crate::script::functions::{Library, Loaded};
use crate::script::host::with_host;
use crate::script::limits::TimeLimit;

/// Maximum time for a library to register its functions, as in Redis.
const LOAD_TIME: std::time::Duration = std::time::Duration::from_millis(500);

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

fn function(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"load", 3..) => load(context, args.from(2)),
        (b"list", _) => list(context, args.from(2)),
        (b"delete", 3) => {
            if !context.shared.functions.remove(&args[2]) {
                return Err(reply_error("ERR Library not found"));
            }
            context.replies.ok();
            Ok(())
        }
        (b"flush", 2 | 3) => {
            let is_known = |word: &[u8]| {
                word.eq_ignore_ascii_case(b"sync") || word.eq_ignore_ascii_case(b"async")
            };
            if !args.get(2).is_none_or(is_known) {
                return Err(reply_error("ERR FUNCTION FLUSH only supports SYNC|ASYNC option"));
            }
            context.shared.functions.flush();
            context.replies.ok();
            Ok(())
        }
        (b"kill", 2) => scripts::kill(context),
        (b"stats", 2) => {
            stats(context);
            Ok(())
        }
        (b"help", 2) => help::reply(context.replies, "FUNCTION", &HELP),
        (b"dump" | b"restore", _) => Err(reply_error(
            "ERR FUNCTION DUMP and RESTORE are not supported; use FUNCTION LIST WITHCODE and \
             FUNCTION LOAD",
        )),
        (b"load" | b"delete" | b"flush" | b"kill" | b"stats" | b"help", _) => {
            Err(wrong_subcommand_arity("function", &args[1]))
        }
        _ => Err(unknown_subcommand("FUNCTION", &args[1])),
    }
}

fn load(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = args.up_to(args.len() - 1);
    let mut replaces = false;
    for option in options.iter() {
        if !option.eq_ignore_ascii_case(b"replace") {
            let option = String::from_utf8_lossy(&option[..option.len().min(128)]);
            return Err(format!("ERR Unknown option given: {option}").into());
        }
        replaces = true;
    }
    let library = Arc::new(Library::parse(&args[args.len() - 1])?);
    let registered = with_host(info::REDIS_VERSION, |host| {
        host.begin_load(TimeLimit::For(LOAD_TIME));
        host.load(&library)
    })??;
    if registered.is_empty() {
        return Err(reply_error("ERR No functions registered"));
    }
    let name = library.name.clone();
    context.shared.functions.add(library, registered, replaces)?;
    context.replies.bulk(name.as_bytes());
    Ok(())
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
    libraries.retain(|Loaded { library, .. }| {
        let name = library.name.to_ascii_lowercase();
        pattern.as_ref().is_none_or(|pattern| glob::matches(pattern, name.as_bytes()))
    });
    let replies = &mut *context.replies;
    replies.array(libraries.len());
    for Loaded { library, functions } in libraries {
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
    let replies = &mut *context.replies;
    replies.map(2);
    replies.bulk(b"running_script");
    replies.null();
    replies.bulk(b"engines");
    replies.map(1);
    replies.bulk(b"LUA");
    replies.map(2);
    replies.bulk(b"libraries_count");
    replies.count(libraries);
    replies.bulk(b"functions_count");
    replies.count(functions);
}

const HELP: [&str; 12] = [
    "LOAD [REPLACE] <FUNCTION CODE>",
    "    Create a new library with the given library name and code.",
    "DELETE <LIBRARY NAME>",
    "    Delete the given library.",
    "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
    "    Return general information on all the libraries.",
    "STATS",
    "    Return the number of libraries and functions.",
    "KILL",
    "    Kill the current running function.",
    "FLUSH [ASYNC|SYNC]",
    "    Delete all the libraries.",
];
