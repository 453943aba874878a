//! XGROUP: consumer groups and their consumers.
//!
//! Source: the documentation of Redis's stream commands; replies of Redis 7.2.

use siltstone_collections::Stream;

use super::context::Context;
use super::definition::WRITE;
use super::elements::{integer, is};
use super::entry::{self, Command};
use super::events::name_event;
use super::failure::{
    Failure, Outcome, bad_subcommand, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::help;
use super::stream_args::{any_id, no_group_of, strict_id};
use crate::keyspace_events::EventClass;
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let summary = "Creates, changes and removes consumer groups.";
    vec![entry::command("stream", "xgroup", -2, WRITE, (2, 2, 1), xgroup, summary)]
}

const NO_KEY: Failure = reply_error(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use \
     the MKSTREAM option to create an empty stream automatically.",
);

fn xgroup(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let word = args[1].to_ascii_lowercase();
    let (handler, arity): (fn(&mut Context<'_>, Args<'_>) -> Outcome, i32) = match word.as_slice() {
        b"create" => (create, -5),
        b"setid" => (set_id, -5),
        b"destroy" => (destroy, 4),
        b"createconsumer" => (create_consumer, 5),
        b"delconsumer" => (remove_consumer, 5),
        b"help" => (show_help, 2),
        _ => return Err(unknown_subcommand("XGROUP", &args[1])),
    };
    let len = args.len() as i32;
    if arity > 0 && len != arity || len < -arity {
        return Err(wrong_subcommand_arity("xgroup", &word));
    }
    handler(context, args)
}

/// Options of CREATE and SETID.
#[derive(Default)]
struct Options {
    creates_stream: bool,
    read: Option<u64>,
}

impl Options {
    fn parse(args: Args<'_>, is_create: bool) -> Result<Self, Failure> {
        let (mut options, mut at) = (Options::default(), 5);
        while let Some(word) = args.get(at) {
            if is_create && is(word, "mkstream") {
                options.creates_stream = true;
            } else if is(word, "entriesread") && at + 1 < args.len() {
                at += 1;
                options.read = match integer(&args[at])? {
                    -1 => None,
                    read => Some(u64::try_from(read).map_err(|_| {
                        reply_error("ERR value for ENTRIESREAD must be positive or -1")
                    })?),
                };
            } else {
                return Err(bad_subcommand("XGROUP", &args[1]));
            }
            at += 1;
        }
        Ok(options)
    }
}

fn create(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(args, true)?;
    let (key, group) = (&args[2], &args[3]);
    context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        if !stream.exists() && !options.creates_stream {
            return Err(NO_KEY);
        }
        let last = match &args[4] {
            b"$" => stream.state().last,
            id => strict_id(id, 0)?,
        };
        match stream.create_group(group, last, options.read)? {
            true => Ok(()),
            false => Err(reply_error("BUSYGROUP Consumer Group name already exists")),
        }
    })?;
    name_event(context, key, EventClass::STREAM, "xgroup-create");
    context.replies.ok();
    Ok(())
}

/// Runs an operation on an existing stream.
fn change<T>(
    context: &mut Context<'_>,
    args: Args<'_>,
    operation: impl FnOnce(&mut Stream<'_, '_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let key = &args[2];
    context.change(key, |writes| {
        let mut stream = Stream::open(writes, key)?;
        if !stream.exists() { Err(NO_KEY) } else { operation(&mut stream) }
    })
}

fn set_id(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = Options::parse(args, false)?;
    change(context, args, |stream| {
        let missing = || no_group_of(&args[2], &args[3]);
        let mut group = stream.group(&args[3])?.ok_or_else(missing)?;
        group.last = match &args[4] {
            b"$" => stream.state().last,
            id => any_id(id, 0)?,
        };
        group.read = options.read;
        stream.save_group(&group);
        Ok(())
    })?;
    name_event(context, &args[2], EventClass::STREAM, "xgroup-setid");
    context.replies.ok();
    Ok(())
}

fn destroy(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let removed = change(context, args, |stream| {
        let group = stream.group(&args[3])?;
        if let Some(group) = &group {
            stream.remove_group(group)?;
        }
        Ok(group.is_some())
    })?;
    if removed {
        name_event(context, &args[2], EventClass::STREAM, "xgroup-destroy");
    }
    context.replies.flag(removed);
    Ok(())
}

fn create_consumer(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let now = context.now();
    let created = change(context, args, |stream| {
        let missing = || no_group_of(&args[2], &args[3]);
        let mut group = stream.group(&args[3])?.ok_or_else(missing)?;
        let is_new = stream.consumer(&group, &args[4])?.is_none();
        if is_new {
            stream.create_consumer(&mut group, &args[4], now);
        }
        Ok(is_new)
    })?;
    if created {
        name_event(context, &args[2], EventClass::STREAM, "xgroup-createconsumer");
    }
    context.replies.flag(created);
    Ok(())
}

fn remove_consumer(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let pending = change(context, args, |stream| {
        let missing = || no_group_of(&args[2], &args[3]);
        let mut group = stream.group(&args[3])?.ok_or_else(missing)?;
        let Some(consumer) = stream.consumer(&group, &args[4])? else { return Ok(None) };
        stream.remove_consumer(&mut group, &consumer)?;
        Ok(Some(consumer.pending))
    })?;
    if pending.is_some() {
        name_event(context, &args[2], EventClass::STREAM, "xgroup-delconsumer");
    }
    context.replies.count(pending.unwrap_or(0) as usize);
    Ok(())
}

fn show_help(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    help::reply(context.replies, "XGROUP", &HELP)
}

const HELP: [&str; 14] = [
    "CREATE <key> <groupname> <id|$> [option]",
    "    Create a new consumer group. Options are:",
    "    * MKSTREAM",
    "      Create the empty stream if it does not exist.",
    "    * ENTRIESREAD entries_read",
    "      Set the group's entries_read counter (internal use).",
    "CREATECONSUMER <key> <groupname> <consumer>",
    "    Create a new consumer in the specified group.",
    "DELCONSUMER <key> <groupname> <consumer>",
    "    Remove the specified consumer.",
    "DESTROY <key> <groupname>",
    "    Remove the specified group.",
    "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
    "    Set the current group ID and entries_read counter.",
];
