//! ACL: users, their passwords and rights.
//!
//! A change takes effect on connected clients at their next command. Clients of removed users, and
//! subscribers who lose a channel, are closed. In a replicated table changes are those of all nodes
//! ([`super::cluster_changes`]).
//!
//! Source: the documentation of Redis's ACL commands; replies of Redis 7.2.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::Timestamp;

use super::cluster_changes::change_or_park;
use super::context::Context;
use super::definition::{ADMIN, NO_KEYS};
use super::entry::{self, Command};
use super::failure::{
    Failure, NOT_AN_INTEGER, Outcome, bad_subcommand, unknown_subcommand, wrong_arity,
    wrong_subcommand_arity,
};
use super::help;
use super::user_clients::{close_clients, close_subscribers};
use crate::acl::categories;
use crate::acl::log::LogEntry;
use crate::acl::user::{DEFAULT_USER, User, denial_text};
use crate::acl::users;
use crate::replication::cluster_changes::ClusterChange;
use crate::resp::{Args, Replies, number};

pub(super) fn commands() -> Vec<Command> {
    let summary = "Shows and changes users.";
    vec![entry::command("server", "acl", -2, ADMIN, NO_KEYS, acl, summary)]
}

fn acl(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.shared.replication.is_some() && changes_users(args) {
        return change_users_of_cluster(context, args);
    }
    let users = &context.shared.acl;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"cat", 2) => {
            context.replies.array(categories::NAMES.len());
            categories::NAMES.iter().for_each(|name| context.replies.bulk(name.as_bytes()));
        }
        (b"cat", 3) => category(context, &args[2])?,
        (b"deluser", 3..) => remove(context, args.from(2))?,
        (b"dryrun", 4..) => dry_run(context, args)?,
        (b"genpass", 2 | 3) => generate_password(context, args.get(2))?,
        (b"getuser", 3) => match users.user(&args[2]) {
            None => context.replies.null(),
            Some(user) => reply_user(context.replies, &user),
        },
        (b"list", 2) => {
            let users = users.all();
            context.replies.array(users.len());
            users.iter().for_each(|user| context.replies.bulk(&user.describe()));
        }
        (b"load", 2) => load(context)?,
        (b"log", 2 | 3) => log(context, args.get(2))?,
        (b"save", 2) => {
            users.save().map_err(failure)?;
            context.replies.ok();
        }
        (b"setuser", 3..) => {
            let user = users.set(&args[2], args.from(3).iter()).map_err(failure)?;
            context.session.is_closing |= close_subscribers(context.shared, &user, own_id(context));
            context.replies.ok();
        }
        (b"users", 2) => {
            let users = users.all();
            context.replies.array(users.len());
            users.iter().for_each(|user| context.replies.bulk(&user.name));
        }
        (b"whoami", 2) => context.replies.bulk(&context.session.access.user().name),
        (b"help", 2) => return help::reply(context.replies, "ACL", &HELP),
        (b"cat" | b"genpass" | b"log", _) => return Err(bad_subcommand("ACL", &args[1])),
        (
            b"deluser" | b"dryrun" | b"getuser" | b"list" | b"load" | b"save" | b"setuser"
            | b"users" | b"whoami" | b"help",
            _,
        ) => return Err(wrong_subcommand_arity("acl", &args[1])),
        _ => return Err(unknown_subcommand("ACL", &args[1])),
    }
    Ok(())
}

/// Whether the call changes users.
pub(super) fn changes_users(args: Args<'_>) -> bool {
    const CHANGES: [(&str, usize); 3] = [("deluser", 3), ("load", 2), ("setuser", 3)];
    CHANGES.iter().any(|(name, count)| {
        let has_all = if *name == "load" { args.len() == *count } else { args.len() >= *count };
        has_all && args[1].eq_ignore_ascii_case(name.as_bytes())
    })
}

/// Changes the users of all nodes.
fn change_users_of_cluster(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let acl = &context.shared.acl;
    let name = args[1].to_ascii_lowercase();
    let change = match name.as_slice() {
        b"setuser" => {
            let rules = users::hashed_rules(&args[2], args.from(3).iter()).map_err(failure)?;
            let allows_channels = acl.allows_channels.load(Relaxed);
            ClusterChange::Set { name: args[2].to_vec(), rules, allows_channels }
        }
        b"deluser" => {
            check_removal(args.from(2))?;
            ClusterChange::Remove(args.from(2).iter().map(<[u8]>::to_vec).collect())
        }
        _ => {
            let users = acl.read_file().map_err(failure)?;
            ClusterChange::Replace(users.values().map(|user| user.describe()).collect())
        }
    };
    let Some(count) = change_or_park(context, args, &change)? else { return Ok(()) };
    match change {
        ClusterChange::Remove(_) => context.replies.count(count as usize),
        _ => context.replies.ok(),
    }
    Ok(())
}

fn own_id(context: &Context<'_>) -> u64 {
    context.session.client().id
}

fn check_removal(names: Args<'_>) -> Outcome {
    match names.iter().any(|name| name == DEFAULT_USER) {
        true => Err(failure("The 'default' user cannot be removed".to_owned())),
        false => Ok(()),
    }
}

fn failure(text: String) -> Failure {
    Failure::Text(format!("ERR {text}").into())
}

/// The commands and subcommands of a category.
fn category(context: &mut Context<'_>, name: &[u8]) -> Outcome {
    let category = categories::by_name(name).ok_or_else(|| {
        failure(format!(
            "Unknown category '{}'",
            String::from_utf8_lossy(&name[..name.len().min(128)])
        ))
    })?;
    let names = &context.shared.acl.names;
    let numbers: Vec<_> = names.in_category(category).collect();
    context.replies.array(numbers.len());
    numbers.iter().for_each(|number| context.replies.bulk(names.name(*number).as_bytes()));
    Ok(())
}

fn remove(context: &mut Context<'_>, names: Args<'_>) -> Outcome {
    check_removal(names)?;
    let removed = context.shared.acl.remove(names.iter());
    for user in &removed {
        let is_own = close_clients(context.shared, &user.name, own_id(context));
        context.session.is_closing |= is_own;
    }
    context.replies.count(removed.len());
    Ok(())
}

fn load(context: &mut Context<'_>) -> Outcome {
    let acl = &context.shared.acl;
    let removed = acl.load().map_err(failure)?;
    let mut is_own = false;
    for name in &removed {
        is_own |= close_clients(context.shared, name, own_id(context));
    }
    for user in acl.all() {
        is_own |= close_subscribers(context.shared, &user, own_id(context));
    }
    context.session.is_closing |= is_own;
    context.replies.ok();
    Ok(())
}

/// Replies whether a user may run a command.
fn dry_run(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let acl = &context.shared.acl;
    let shown = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(128)]).into_owned();
    let user = acl.user(&args[2]);
    let user = user.ok_or_else(|| failure(format!("User '{}' not found", shown(&args[2]))))?;
    let number = context.shared.commands.find(&args[3]);
    let number =
        number.ok_or_else(|| failure(format!("Command '{}' not found", shown(&args[3]))))?;
    let (command, call) = (&context.shared.commands[number], args.from(3));
    if !command.takes(call.len()) {
        return Err(wrong_arity(&command.full_name(call)));
    }
    match user.check(&acl.names, number, call) {
        Ok(()) => context.replies.ok(),
        Err(denial) => {
            let text = denial_text(&acl.names, &user, (number, call), &denial, true);
            context.replies.bulk(text.as_bytes());
        }
    }
    Ok(())
}

/// Replies with random bits in hexadecimal, 256 if their number is not given.
fn generate_password(context: &mut Context<'_>, bits: Option<&[u8]>) -> Outcome {
    const MAX_BITS: usize = 4096;
    let bits = bits.map_or(Ok(256), |bits| number::parse_i64(bits).ok_or(NOT_AN_INTEGER))?;
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=MAX_BITS).contains(bits));
    let bits = bits.ok_or_else(|| {
        failure(format!(
            "ACL GENPASS argument must be the number of bits for the output password, a positive \
             number up to {MAX_BITS}"
        ))
    })?;
    let mut bytes = [0; MAX_BITS / 8];
    getrandom::fill(&mut bytes)
        .map_err(|error| failure(format!("the system has no random numbers: {error}")))?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(bits.div_ceil(4));
    context.replies.bulk(text.as_bytes());
    Ok(())
}

fn reply_user(replies: &mut Replies, user: &User) {
    replies.map(6);
    replies.bulk(b"flags");
    let flags = user.flags();
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
    replies.bulk(b"passwords");
    let passwords = user.password_hashes();
    replies.array(passwords.len());
    passwords.for_each(|hash| replies.bulk(hash.as_bytes()));
    for (place, selector) in user.selectors.iter().enumerate() {
        match place {
            0 => {}
            1 => {
                replies.bulk(b"selectors");
                replies.array(user.selectors.len() - 1);
                replies.map(3);
            }
            _ => replies.map(3),
        }
        for (field, value) in [
            ("commands", selector.describe_commands()),
            ("keys", selector.describe_keys()),
            ("channels", selector.describe_channels()),
        ] {
            replies.bulk(field.as_bytes());
            replies.bulk(&value);
        }
    }
    if user.selectors.len() == 1 {
        replies.bulk(b"selectors");
        replies.array(0);
    }
}

/// ACL LOG, of up to 10 entries if no number is given.
fn log(context: &mut Context<'_>, option: Option<&[u8]>) -> Outcome {
    let log = &context.shared.acl.log;
    let count = match option {
        None => 10,
        Some(word) if word.eq_ignore_ascii_case(b"reset") => {
            log.reset();
            context.replies.ok();
            return Ok(());
        }
        Some(word) => number::parse_i64(word).ok_or(NOT_AN_INTEGER)?,
    };
    let entries = log.latest(usize::try_from(count).unwrap_or(0));
    let now = context.now();
    context.replies.array(entries.len());
    entries.iter().for_each(|entry| reply_entry(context.replies, entry, now));
    Ok(())
}

fn reply_entry(replies: &mut Replies, entry: &LogEntry, now: Timestamp) {
    replies.map(10);
    replies.bulk(b"count");
    replies.int(entry.count as i64);
    for (field, value) in [
        ("reason", entry.reason.name().as_bytes()),
        ("context", entry.context.name().as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ] {
        replies.bulk(field.as_bytes());
        replies.bulk(value);
    }
    replies.bulk(b"age-seconds");
    replies.double(now.saturating_sub(entry.updated_at) as f64 / 1000.0);
    replies.bulk(b"client-info");
    replies.bulk(entry.client.as_bytes());
    for (field, value) in [
        ("entry-id", entry.id),
        ("timestamp-created", entry.created_at),
        ("timestamp-last-updated", entry.updated_at),
    ] {
        replies.bulk(field.as_bytes());
        replies.int(value as i64);
    }
}

const HELP: [&str; 24] = [
    "CAT [<category>]",
    "    List the categories, or the commands of a category.",
    "DELUSER <username> [<username> ...]",
    "    Remove users and close their connections.",
    "DRYRUN <username> <command> [<arg> ...]",
    "    Tell whether a user may run a command, without running it.",
    "GETUSER <username>",
    "    Show a user.",
    "GENPASS [<bits>]",
    "    Generate a random password, of 256 bits if their number is not given.",
    "LIST",
    "    Show all users in the format of the file of users.",
    "LOAD",
    "    Replace all users by those of the file of users.",
    "LOG [<count> | RESET]",
    "    Show or clear the log of denied commands and logins.",
    "SAVE",
    "    Save all users to the file of users.",
    "SETUSER <username> <rule> [<rule> ...]",
    "    Create or change a user.",
    "USERS",
    "    List the names of all users.",
    "WHOAMI",
    "    Show the user of this connection.",
];
