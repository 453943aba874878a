//! COMMAND: the table of commands, for clients that ask.
//!
//! Source: the documentation of Redis's COMMAND; of the ten fields of Redis 7 the last four, which
//! describe access lists and key specifications, are empty.

use super::failure::{unknown_subcommand, words};
use super::{
    ADMIN, Command, Context, FAST, NO_AUTH, NO_KEYS, NO_MULTI, Outcome, READ, WRITE, find, table,
};
use crate::resp::{Args, Replies};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Tells about the commands.";
    vec![super::command("server", "command", -1, 0, NO_KEYS, describe, summary)]
}

fn describe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let Some(word) = args.get(1) else {
        context.replies.array(table().len());
        for command in table() {
            reply_info(context.replies, command);
        }
        return Ok(());
    };
    let named = args.from(2);
    match word.to_ascii_lowercase().as_slice() {
        b"count" => context.replies.count(table().len()),
        b"list" => {
            context.replies.array(table().len());
            for command in table() {
                context.replies.bulk(command.name.as_bytes());
            }
        }
        b"info" if named.is_empty() => {
            context.replies.array(table().len());
            for command in table() {
                reply_info(context.replies, command);
            }
        }
        b"info" => {
            context.replies.array(named.len());
            for name in named.iter() {
                match find(name) {
                    Some(index) => reply_info(context.replies, &table()[index]),
                    None => context.replies.null_array(),
                }
            }
        }
        b"docs" => {
            let all = named.is_empty();
            let found: Vec<usize> = if all {
                (0..table().len()).collect()
            } else {
                named.iter().filter_map(find).collect()
            };
            context.replies.map(found.len());
            for index in found {
                reply_docs(context.replies, &table()[index]);
            }
        }
        b"getkeys" => reply_keys(context.replies, named)?,
        _ => return Err(unknown_subcommand("COMMAND", word)),
    }
    Ok(())
}

fn reply_info(replies: &mut Replies, command: &Command) {
    let flags = [
        (WRITE, "write"),
        (READ, "readonly"),
        (FAST, "fast"),
        (ADMIN, "admin"),
        (NO_AUTH, "no_auth"),
        (NO_MULTI, "no_multi"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(flag, _)| command.has(*flag)).collect();
    replies.array(10);
    replies.bulk(command.name.as_bytes());
    replies.int(i64::from(command.arity));
    replies.set(flags.len());
    for (_, name) in flags {
        replies.simple(name);
    }
    replies.count(command.keys.first);
    replies.int(i64::from(command.keys.last));
    replies.count(command.keys.step);
    for _ in 0..4 {
        replies.array(0);
    }
}

fn reply_docs(replies: &mut Replies, command: &Command) {
    replies.bulk(command.name.as_bytes());
    replies.map(2);
    for (field, value) in [("summary", command.summary), ("group", command.group)] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
}

fn reply_keys(replies: &mut Replies, args: Args<'_>) -> Outcome {
    let index = args.get(0).and_then(find).ok_or(words("ERR Invalid command specified"))?;
    let command = &table()[index];
    if !command.takes(args.len()) {
        return Err(words("ERR Invalid number of arguments specified for command"));
    }
    let keys: Vec<_> = command.keys_in(args).collect();
    if keys.is_empty() {
        return Err(words("ERR The command has no key arguments"));
    }
    replies.array(keys.len());
    for key in keys {
        replies.bulk(key);
    }
    Ok(())
}
