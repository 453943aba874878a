//! COMMAND: the command table, for clients.
//!
//! Source: the documentation of Redis's COMMAND. Of the ten fields of Redis 7 the last four, ACL
//! categories and key specifications, are empty.

use super::context::Context;
use super::definition::{
    ADMIN, BLOCKING, Definition, FAST, NO_AUTH, NO_KEYS, NO_MULTI, PUBSUB, READ, WRITE,
};
use super::entry::{self, Command};
use super::failure::{
    Failure, Outcome, SYNTAX, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::help;
use super::index::CommandIndex;
use crate::glob;
use crate::resp::{Args, Replies};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Describes the commands.";
    vec![entry::command("server", "command", -1, 0, NO_KEYS, describe, summary)]
}

fn describe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let commands = context.shared.commands;
    let Some(word) = args.get(1) else {
        reply_all(context.replies, commands);
        return Ok(());
    };
    let named = args.from(2);
    match word.to_ascii_lowercase().as_slice() {
        b"count" if named.is_empty() => context.replies.count(commands.all().len()),
        b"help" if named.is_empty() => return help::reply(context.replies, "COMMAND", &HELP),
        b"list" => list(context.replies, commands, named)?,
        b"info" if named.is_empty() => reply_all(context.replies, commands),
        b"info" => {
            context.replies.array(named.len());
            for name in named.iter() {
                match commands.find(name) {
                    Some(index) => reply_info(context.replies, &commands[index]),
                    None => context.replies.null(),
                }
            }
        }
        b"docs" => {
            let all = named.is_empty();
            let found: Vec<usize> = if all {
                (0..commands.all().len()).collect()
            } else {
                named.iter().filter_map(|name| commands.find(name)).collect()
            };
            context.replies.map(found.len());
            for index in found {
                reply_docs(context.replies, &commands[index]);
            }
        }
        b"getkeys" if named.len() > 1 => reply_keys(context.replies, commands, named)?,
        b"count" | b"help" | b"getkeys" => return Err(wrong_subcommand_arity("command", word)),
        _ => return Err(unknown_subcommand("COMMAND", word)),
    }
    Ok(())
}

/// COMMAND LIST, of all commands or those selected by a filter.
fn list(replies: &mut Replies, commands: &CommandIndex, args: Args<'_>) -> Outcome {
    let is_listed = filter(args)?;
    let listed: Vec<_> = commands.all().iter().filter(|command| is_listed(command)).collect();
    replies.array(listed.len());
    for command in listed {
        replies.bulk(command.name.as_bytes());
    }
    Ok(())
}

type Filter<'a> = Box<dyn Fn(&Definition) -> bool + 'a>;

/// `FILTERBY (MODULE name | ACLCAT category | PATTERN pattern)`, or nothing.
fn filter(args: Args<'_>) -> Result<Filter<'_>, Failure> {
    if args.is_empty() {
        return Ok(Box::new(|_| true));
    }
    if args.len() != 3 || !args[0].eq_ignore_ascii_case(b"filterby") {
        return Err(SYNTAX);
    }
    let value = args.from(2).get(0).unwrap_or_default();
    match args[1].to_ascii_lowercase().as_slice() {
        // There are no modules.
        b"module" => Ok(Box::new(|_| false)),
        b"aclcat" => Ok(Box::new(move |command| has_category(command, value))),
        b"pattern" => {
            let pattern = value.to_ascii_lowercase();
            Ok(Box::new(move |command| glob::matches(&pattern, command.name.as_bytes())))
        }
        _ => Err(SYNTAX),
    }
}

/// Whether a command is in an ACL category of Redis, as far as they apply.
fn has_category(command: &Definition, category: &[u8]) -> bool {
    match category.to_ascii_lowercase().as_slice() {
        b"read" => command.has(READ),
        b"write" => command.has(WRITE),
        b"fast" => command.has(FAST),
        b"slow" => !command.has(FAST),
        b"admin" => command.has(ADMIN),
        b"pubsub" => command.has(PUBSUB),
        b"blocking" => command.has(BLOCKING),
        b"string" | b"bitmap" | b"geo" | b"hyperloglog" | b"hash" | b"list" | b"set"
        | b"stream" => command.group.as_bytes().eq_ignore_ascii_case(category),
        b"sortedset" => command.group == "sorted-set",
        b"keyspace" => command.group == "generic",
        b"connection" => command.group == "connection",
        b"scripting" => command.group == "scripting",
        b"transaction" => command.group == "transactions",
        _ => false,
    }
}

const HELP: [&str; 16] = [
    "(no subcommand)",
    "    Return details about all Redis commands.",
    "COUNT",
    "    Return the total number of commands in this Redis server.",
    "LIST [FILTERBY (MODULE <module>|ACLCAT <category>|PATTERN <pattern>)]",
    "    Return a list of all commands in this Redis server.",
    "INFO [<command-name> ...]",
    "    Return details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "DOCS [<command-name> ...]",
    "    Return documentation details about multiple Redis commands.",
    "    If no command names are given, documentation details for all",
    "    commands are returned.",
    "GETKEYS <full-command>",
    "    Return the keys from a full Redis command.",
];

fn reply_all(replies: &mut Replies, commands: &CommandIndex) {
    replies.array(commands.all().len());
    for command in commands.all() {
        reply_info(replies, command);
    }
}

fn reply_info(replies: &mut Replies, command: &Definition) {
    let flags = [
        (WRITE, "write"),
        (READ, "readonly"),
        (FAST, "fast"),
        (ADMIN, "admin"),
        (NO_AUTH, "no_auth"),
        (NO_MULTI, "no_multi"),
        (PUBSUB, "pubsub"),
        (BLOCKING, "blocking"),
    ];
    let mut flags: Vec<_> =
        flags.iter().filter(|(flag, _)| command.has(*flag)).map(|(_, name)| *name).collect();
    flags.extend((!command.is_allowed_in_scripts()).then_some("noscript"));
    // The keys of others begin and end at fixed positions.
    let is_movable = command.keys.count_at > 0 || command.keys.option.is_some();
    flags.extend(is_movable.then_some("movablekeys"));
    replies.array(10);
    replies.bulk(command.name.as_bytes());
    replies.int(i64::from(command.arity));
    replies.set(flags.len());
    for name in flags {
        replies.simple(name);
    }
    replies.count(command.keys.first);
    replies.int(i64::from(command.keys.last));
    replies.count(command.keys.step);
    for _ in 0..4 {
        replies.array(0);
    }
}

fn reply_docs(replies: &mut Replies, command: &Definition) {
    replies.bulk(command.name.as_bytes());
    replies.map(2);
    for (field, value) in [("summary", command.summary), ("group", command.group)] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

fn reply_keys(replies: &mut Replies, commands: &CommandIndex, args: Args<'_>) -> Outcome {
    let found = args.get(0).and_then(|name| commands.find(name));
    let command = &commands[found.ok_or(reply_error("ERR Invalid command specified"))?];
    if !command.takes(args.len()) {
        return Err(reply_error("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<_> = command.keys_in(args).collect();
    if keys.is_empty() {
        return Err(reply_error("ERR The command has no key arguments"));
    }
    replies.array(keys.len());
    for key in keys {
        replies.bulk(key);
    }
    Ok(())
}
