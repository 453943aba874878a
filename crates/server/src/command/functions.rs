//! FUNCTION and FCALL.
//!
//! Functions run as scripts do ([`super::scripts`]). The libraries are kept in a log beside the
//! tables, or by the first group of a replicated table: its leader changes them, and all nodes
//! follow. Which commands that are, [`changes_libraries`] says.
//!
//! Source: the documentation of Redis's functions; error texts of Redis 7.0.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use siltstone_rdb::{libraries, payload};
use siltstone_vfs::Disk;

use super::context::Context;
use super::definition::{Definition, NO_KEYS, SCRIPT};
use super::entry::{self, Command};
use super::failure::{
    Failure, Outcome, bad_subcommand, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::scripts::{self, Invocation};
use super::{help, info};
use crate::replication::group_set::only;
use crate::replication::named_rows::{Rows, Unseen};
use crate::resp::{Args, number};
use crate::script::function_library::{Library, LoadedLibrary};
use crate::script::functions::{Change, Functions, RestorePolicy, Storage};
use crate::script::host::with_host;
use crate::script::library_log::LibraryLog;
use crate::script::limits::TimeLimit;
use crate::script::long_runs::LongRun;
use crate::shared::Shared;
use crate::{glob, process};

/// Maximum time for a library to register its functions, as in Redis.
const LOAD_TIME: Duration = Duration::from_millis(500);

/// Maximum time for a library that has run before.
const FOLLOWED_LOAD_TIME: Duration = Duration::from_secs(10);

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
    wait_for_commit(context);
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
pub(super) fn changes_libraries(command: &Definition, args: Args<'_>) -> bool {
    const CHANGES: [&str; 4] = ["delete", "flush", "load", "restore"];
    let is = |name: &&str| args.get(1).is_some_and(|arg| arg.eq_ignore_ascii_case(name.as_bytes()));
    command.name == "function" && CHANGES.iter().any(is)
}

fn function(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    wait_for_commit(context);
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"load", 3..) => load(context, args.from(2)),
        (b"list", _) => list(context, args.from(2)),
        (b"delete", 3) => {
            if !context.shared.functions.remove(&args[2])? {
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
            context.shared.functions.flush()?;
            context.replies.ok();
            Ok(())
        }
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
        (b"restore", 3 | 4) => restore(context, args.from(2)),
        (b"restore" | b"flush", 4..) => Err(bad_subcommand("FUNCTION", &args[1])),
        (
            b"load" | b"delete" | b"flush" | b"kill" | b"stats" | b"help" | b"dump" | b"restore",
            _,
        ) => Err(wrong_subcommand_arity("function", &args[1])),
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
    let max_memory_bytes = context.shared.settings.script_memory_bytes.load(Relaxed);
    let loaded = run_library(&args[args.len() - 1], max_memory_bytes, LOAD_TIME)?;
    let name = loaded.library.name.clone();
    // Programs for Redis Cluster load a library at each of its masters.
    let is_there = context.shared.replication.is_some()
        && context
            .shared
            .functions
            .library(&name.to_lowercase())
            .is_some_and(|known| known.code == loaded.library.code);
    if !is_there {
        context.shared.functions.add(loaded, replaces)?;
    }
    context.replies.bulk(name.as_bytes());
    Ok(())
}

/// Runs the code of a library, which registers its functions. The interpreter has up to
/// `max_memory_bytes`; 0: any number.
fn run_library(
    code: &[u8],
    max_memory_bytes: usize,
    time: Duration,
) -> Result<LoadedLibrary, String> {
    let library = Arc::new(Library::parse(code)?);
    let functions = with_host(info::REDIS_VERSION, |host| {
        host.begin_load(TimeLimit::For(time));
        host.load(&library, max_memory_bytes)
    })??;
    match functions.is_empty() {
        true => Err("ERR No functions registered".to_owned()),
        false => Ok(LoadedLibrary { library, functions }),
    }
}

/// Runs the libraries of a payload. `limit` bounds its memory, `max_memory_bytes` that of the
/// interpreter.
fn run_payload(
    payload: &[u8],
    limit: usize,
    max_memory_bytes: usize,
) -> Result<Vec<LoadedLibrary>, String> {
    let body = payload::verify(payload)
        .ok_or_else(|| "ERR DUMP payload version or checksum are wrong".to_owned())?;
    let codes = libraries::restore(body, limit as u64).map_err(|error| format!("ERR {error}"))?;
    codes.iter().map(|code| run_library(code, max_memory_bytes, LOAD_TIME)).collect()
}

fn restore(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let policy = match args.get(1).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"append") => RestorePolicy::Append,
        Some(b"replace") => RestorePolicy::Replace,
        Some(b"flush") => RestorePolicy::Flush,
        Some(_) => {
            return Err(reply_error(
                "ERR Wrong restore policy given, policy should be either FLUSH, APPEND or REPLACE.",
            ));
        }
    };
    let shared = context.shared;
    let max_memory_bytes = shared.settings.script_memory_bytes.load(Relaxed);
    let restored = run_payload(&args[0], shared.options.max_request_bytes, max_memory_bytes)?;
    context.shared.functions.restore(restored, policy)?;
    context.replies.ok();
    Ok(())
}

/// The libraries of a directory, in force, and kept there from now on.
///
/// # Errors
/// If they cannot be read, are damaged, or one of them fails.
pub(crate) fn open_functions(dir: &Path) -> Result<Functions, String> {
    let opened = Disk::open(dir).and_then(|vfs| LibraryLog::open(Arc::new(vfs)));
    let (log, codes) = opened.map_err(|error| error.to_string())?;
    let functions = Functions::new(Storage::Log(log));
    let run = |(name, code): (String, Vec<u8>)| match run_library(&code, 0, FOLLOWED_LOAD_TIME) {
        Ok(loaded) => Ok((name, loaded)),
        Err(text) => {
            let text = text.strip_prefix("ERR ").unwrap_or(&text);
            Err(format!("the library '{name}' of functions in '{}': {text}", dir.display()))
        }
    };
    let added = codes.into_iter().map(run).collect::<Result<_, _>>()?;
    functions.follow(Change { added, ..Change::default() });
    Ok(functions)
}

/// Puts in force which libraries of a replicated table this node has applied since the last call.
/// The worker calls it between commands.
pub(crate) fn follow_functions(shared: &Shared) {
    let Some(groups) = &shared.replication else { return };
    let (rows, table) = (&groups.first().functions, &shared.databases[0].engine);
    // If it fails, a received snapshot has just replaced the table, and the next call reads it.
    let _ = rows.follow(&groups.first().node.table(), |unseen| {
        let is_all = matches!(unseen, Unseen::All);
        let mut found = rows.read(table.as_ref(), unseen)?;
        if is_all {
            for LoadedLibrary { library, .. } in shared.functions.all() {
                found.entry(library.name.to_lowercase().into_bytes()).or_default();
            }
        }
        follow_rows(shared, found);
        Ok(())
    });
}

fn follow_rows(shared: &Shared, rows: Rows) {
    let mut change = Change::default();
    for (name, code) in rows {
        let Ok(name) = String::from_utf8(name) else { continue };
        let known = shared.functions.library(&name);
        if known.as_ref().map(|known| &known.code) == code.as_ref() {
            continue;
        }
        // It has run at the leader.
        match code.map(|code| run_library(&code, 0, FOLLOWED_LOAD_TIME)) {
            Some(Ok(loaded)) => drop(change.added.insert(name, loaded)),
            Some(Err(text)) => {
                process::log(&format!("the library '{name}' of functions fails here: {text}"));
                change.removed.insert(name);
            }
            None => drop(change.removed.insert(name)),
        }
    }
    shared.functions.follow(change);
}

/// Makes the reply wait until the libraries that the command sees are committed.
fn wait_for_commit(context: &mut Context<'_>) {
    if let Some(groups) = &context.shared.replication
        && groups.first().table.has_uncommitted()
    {
        context.session.needs_commit |= only(0);
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
