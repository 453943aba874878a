//! COMMAND: the command table, for clients.
//!
//! Subcommands are described like commands, under names such as `config|get`, and have the summary
//! of their command.
//!
//! Source: the documentation of Redis's COMMAND. Of the ten fields of Redis 7 two, tips and key
//! specifications, are empty.

use super::context::Context;
use super::definition::{
    ADMIN, BLOCKING, FAST, KeyPositions, NO_AUTH, NO_KEYS, NO_MULTI, PUBSUB, READ, WRITE,
};
use super::entry::{self, Command};
use super::failure::{
    Failure, Outcome, SYNTAX, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::index::CommandIndex;
use super::{help, key_flags};
use crate::acl::categories;
use crate::acl::names::CommandNames;
use crate::glob;
use crate::resp::{Args, Replies};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Describes the commands.";
    vec![entry::command("server", "command", -1, 0, NO_KEYS, describe, summary)]
}

fn describe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (commands, names) = (context.shared.commands, &context.shared.acl.names);
    let Some(word) = args.get(1) else {
        reply_all(context.replies, names);
        return Ok(());
    };
    let named = args.from(2);
    match word.to_ascii_lowercase().as_slice() {
        b"count" if named.is_empty() => context.replies.count(commands.all().len()),
        b"help" if named.is_empty() => return help::reply(context.replies, "COMMAND", &HELP),
        b"list" => list(context.replies, names, named)?,
        b"info" if named.is_empty() => reply_all(context.replies, names),
        b"info" => {
            context.replies.array(named.len());
            for name in named.iter() {
                match names.find(name) {
                    Some(number) => reply_info(context.replies, names, number),
                    None => context.replies.null(),
                }
            }
        }
        b"docs" => {
            let all = named.is_empty();
            let found: Vec<usize> = if all {
                (0..commands.all().len()).collect()
            } else {
                named.iter().filter_map(|name| names.find(name)).collect()
            };
            context.replies.map(found.len());
            for number in found {
                reply_docs(context.replies, names, number);
            }
        }
        b"getkeys" if named.len() > 1 => {
            reply_keys(context.replies, commands, named, false)?;
        }
        b"getkeysandflags" if named.len() > 1 => {
            reply_keys(context.replies, commands, named, true)?;
        }
        b"count" | b"help" | b"getkeys" | b"getkeysandflags" => {
            return Err(wrong_subcommand_arity("command", word));
        }
        _ => return Err(unknown_subcommand("COMMAND", word)),
    }
    Ok(())
}

/// COMMAND LIST, of all commands and subcommands or those selected by a filter.
fn list(replies: &mut Replies, names: &CommandNames, args: Args<'_>) -> Outcome {
    if args.len() == 3
        && args[0].eq_ignore_ascii_case(b"filterby")
        && args[1].eq_ignore_ascii_case(b"aclcat")
    {
        // The commands and subcommands of ACL CAT.
        let category = categories::by_name(&args[2]).unwrap_or(0);
        let numbers: Vec<_> = names.in_category(category).collect();
        replies.array(numbers.len());
        numbers.iter().for_each(|number| replies.bulk(names.name(*number).as_bytes()));
        return Ok(());
    }
    let is_listed = filter(args)?;
    let listed: Vec<_> =
        (0..names.len()).map(|number| names.name(number)).filter(|name| is_listed(name)).collect();
    replies.array(listed.len());
    listed.iter().for_each(|name| replies.bulk(name.as_bytes()));
    Ok(())
}

type Filter<'a> = Box<dyn Fn(&str) -> bool + 'a>;

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
        b"pattern" => {
            let pattern = value.to_ascii_lowercase();
            Ok(Box::new(move |name| glob::matches(&pattern, name.as_bytes())))
        }
        _ => Err(SYNTAX),
    }
}

const HELP: [&str; 18] = [
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
    "GETKEYSANDFLAGS <full-command>",
    "    Return the keys and the access flags from a full Redis command.",
];

fn reply_all(replies: &mut Replies, names: &CommandNames) {
    let count = names.commands().all().len();
    replies.array(count);
    for number in 0..count {
        reply_info(replies, names, number);
    }
}

/// The fields of a command or subcommand.
fn reply_info(replies: &mut Replies, names: &CommandNames, number: usize) {
    let container = names.container(number);
    let command = &names.commands()[container.map_or(number, |(command, _)| command)];
    let (arity, flags, keys) = match container {
        None => (command.arity, command.flags, command.keys),
        // Those that read or write a value have the key where the command has it.
        Some((_, (_, arity, flags))) => match flags & (READ | WRITE) {
            0 => (*arity, *flags, KeyPositions { first: 0, last: 0, step: 0, ..command.keys }),
            _ => (*arity, *flags, command.keys),
        },
    };
    let known = [
        (WRITE, "write"),
        (READ, "readonly"),
        (FAST, "fast"),
        (ADMIN, "admin"),
        (NO_AUTH, "no_auth"),
        (NO_MULTI, "no_multi"),
        (PUBSUB, "pubsub"),
        (BLOCKING, "blocking"),
    ];
    let mut shown: Vec<_> =
        known.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, name)| *name).collect();
    shown.extend((!command.is_allowed_in_scripts()).then_some("noscript"));
    // The keys of others begin and end at fixed positions.
    let is_movable =
        keys.count_at > 0 || keys.option.is_some() || ["sort", "sort_ro"].contains(&command.name);
    shown.extend(is_movable.then_some("movablekeys"));
    replies.array(10);
    replies.bulk(names.name(number).as_bytes());
    replies.int(i64::from(arity));
    replies.set(shown.len());
    for name in shown {
        replies.simple(name);
    }
    replies.count(keys.first);
    replies.int(i64::from(keys.last));
    replies.count(keys.step);
    let categories: Vec<_> = categories::names(names.categories(number)).collect();
    replies.set(categories.len());
    categories.iter().for_each(|name| replies.simple(&format!("@{name}")));
    replies.array(0);
    replies.array(0);
    let subcommands = names.subcommands(number);
    replies.array(subcommands.len());
    subcommands.for_each(|number| reply_info(replies, names, number));
}

fn reply_docs(replies: &mut Replies, names: &CommandNames, number: usize) {
    let container = names.container(number).map_or(number, |(command, _)| command);
    let command = &names.commands()[container];
    let subcommands = names.subcommands(number);
    replies.bulk(names.name(number).as_bytes());
    replies.map(if subcommands.is_empty() { 2 } else { 3 });
    for (field, value) in [("summary", command.summary), ("group", command.group)] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    if !subcommands.is_empty() {
        replies.bulk(b"subcommands");
        replies.map(subcommands.len());
        subcommands.for_each(|number| reply_docs(replies, names, number));
    }
}

/// The keys of a call, with what it does to them if `with_flags`.
fn reply_keys(
    replies: &mut Replies,
    commands: &CommandIndex,
    args: Args<'_>,
    with_flags: bool,
) -> Outcome {
    let found = args.get(0).and_then(|name| commands.find(name));
    let command = &commands[found.ok_or(reply_error("ERR Invalid command specified"))?];
    if !command.takes(args.len()) {
        return Err(reply_error("ERR Invalid number of arguments specified for command"));
    }
    if !command.has_counted_keys(args) {
        return Err(reply_error("ERR Invalid arguments specified for command"));
    }
    let keys: Vec<_> = key_flags::keys_with_flags(command, args).collect();
    // A script may have none.
    if keys.is_empty() && command.keys.count_at == 0 {
        return Err(reply_error("ERR The command has no key arguments"));
    }
    replies.array(keys.len());
    for (key, flags) in keys {
        if !with_flags {
            replies.bulk(key);
            continue;
        }
        replies.array(2);
        replies.bulk(key);
        let names: Vec<_> = key_flags::names(flags).collect();
        replies.set(names.len());
        names.iter().for_each(|name| replies.simple(name));
    }
    Ok(())
}
