//! CLIENT: names, list and control of client connections.
//!
//! Source: the documentation of Redis's CLIENT commands.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::context::Context;
use super::definition::NO_KEYS;
use super::elements::integer;
use super::entry::{self, Command};
use super::failure::{
    Failure, Outcome, SYNTAX, reply_error, unknown_subcommand, wrong_subcommand_arity,
};
use super::session::ReplyMode;
use super::{help, pause, tracking};
use crate::acl::users::Acl;
use crate::clients::{Address, Client, RunningCall, flag};
use crate::mailbox::Completion;
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    vec![entry::command(
        "connection",
        "client",
        -2,
        0,
        NO_KEYS,
        client,
        "Names this client, lists and closes clients.",
    )]
}

fn client(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"id", 2) => {
            let id = context.session.client().id;
            context.replies.int(id as i64);
        }
        (b"getname", 2) => {
            let name = context.session.client().names.lock().name.clone();
            context.replies.bulk_or_null((!name.is_empty()).then_some(name.as_bytes()));
        }
        (b"setname", 3) => {
            context.session.client().names.lock().name = check_name(&args[2])?;
            context.replies.ok();
        }
        (b"setinfo", 4) => set_info(context, args)?,
        (b"info", 2) => {
            let mut text = String::new();
            let call = running_call(context, args);
            context.session.client().describe(context.shared.commands, Some(&call), &mut text);
            context.replies.verbatim(&text);
        }
        (b"list", _) => list(context, args)?,
        (b"reply", 3) => reply(context, &args[2])?,
        (b"kill", 3..) => kill(context, args)?,
        (b"unblock", 3 | 4) => unblock(context, args)?,
        (b"pause", 3 | 4) => pause::pause(context, args.from(2))?,
        (b"unpause", 2) => pause::unpause(context)?,
        (b"tracking", 3..) => tracking::tracking(context, args.from(2))?,
        (b"caching", 3) => tracking::caching(context, &args[2])?,
        (b"getredir", 2) => tracking::get_redirection(context),
        (b"trackinginfo", 2) => tracking::info(context),
        (b"no-evict", 3) => set_flag(context, flag::NO_EVICT, &args[2])?,
        (b"no-touch", 3) => {
            set_flag(context, flag::NO_TOUCH, &args[2])?;
            context.session.is_no_touch = context.session.client().has_flag(flag::NO_TOUCH);
        }
        (b"hold-expiry", 3) => hold_expiry(context, &args[2])?,
        (b"help", 2) => return help::reply(context.replies, "CLIENT", &HELP),
        (
            b"id" | b"getname" | b"setname" | b"setinfo" | b"info" | b"reply" | b"kill"
            | b"unblock" | b"tracking" | b"caching" | b"getredir" | b"trackinginfo" | b"no-evict"
            | b"no-touch" | b"pause" | b"unpause" | b"hold-expiry" | b"help",
            _,
        ) => return Err(wrong_subcommand_arity("client", &args[1])),
        _ => return Err(unknown_subcommand("CLIENT", &args[1])),
    }
    Ok(())
}

/// Sets a flag of the client ON or OFF.
fn set_flag(context: &mut Context<'_>, flag: u32, word: &[u8]) -> Outcome {
    let is_set = match word.to_ascii_lowercase().as_slice() {
        b"on" => true,
        b"off" => false,
        _ => return Err(SYNTAX),
    };
    context.session.client().set_flags(flag, is_set);
    context.replies.ok();
    Ok(())
}

/// Validates a client name: it must fit into a line of CLIENT LIST.
pub(super) fn check_name(name: &[u8]) -> Result<String, Failure> {
    const MAX_NAME_BYTES: usize = 1024;
    let is_plain = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if !is_plain || name.len() > MAX_NAME_BYTES {
        return Err(reply_error(
            "ERR Client names cannot contain spaces, newlines or special characters.",
        ));
    }
    Ok(String::from_utf8_lossy(name).into_owned())
}

fn set_info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let value = check_name(&args[3])?;
    let mut names = context.session.client().names.lock();
    match args[2].to_ascii_lowercase().as_slice() {
        b"lib-name" => names.library = value,
        b"lib-ver" => names.library_version = value,
        _ => {
            let option = String::from_utf8_lossy(&args[2][..args[2].len().min(128)]);
            return Err(format!("ERR Unrecognized option '{option}'").into());
        }
    }
    drop(names);
    context.replies.ok();
    Ok(())
}

fn reply(context: &mut Context<'_>, mode: &[u8]) -> Outcome {
    context.session.reply = match mode.to_ascii_lowercase().as_slice() {
        b"on" => {
            context.replies.ok();
            ReplyMode::On
        }
        b"off" => ReplyMode::Off,
        // After OFF, SKIP changes nothing.
        b"skip" if context.session.reply == ReplyMode::Off => ReplyMode::Off,
        b"skip" => ReplyMode::SkipNext,
        _ => return Err(SYNTAX),
    };
    Ok(())
}

/// Redis's client types. The clients of this server are normal ones or subscribers.
const TYPES: [&str; 5] = ["normal", "master", "replica", "slave", "pubsub"];

/// Parses a client type.
fn client_type(word: &[u8]) -> Result<&'static str, Failure> {
    let found = TYPES.iter().find(|kind| word.eq_ignore_ascii_case(kind.as_bytes()));
    found.copied().ok_or_else(|| {
        let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
        format!("ERR Unknown client type '{word}'").into()
    })
}

/// Whether a client is of a type.
fn is_of_type(client: &Client, kind: &str) -> bool {
    kind == if client.is_subscriber() { "pubsub" } else { "normal" }
}

/// The running call of CLIENT LIST or CLIENT INFO.
fn running_call(context: &Context<'_>, args: Args<'_>) -> RunningCall {
    let digits = |number: usize| number.checked_ilog10().unwrap_or(0) as usize + 1;
    // `*2`, and per argument `$6` and its bytes, each with a line end.
    let strings = args.iter().map(|arg| digits(arg.len()) + arg.len() + 5);
    RunningCall {
        client: context.session.client().id,
        command: format!("client|{}", String::from_utf8_lossy(&args[1]).to_lowercase()),
        request_bytes: digits(args.len()) + 3 + strings.sum::<usize>(),
    }
}

/// CLIENT LIST: all clients, those of a type, or those with the given ids.
fn list(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let options = args.from(2);
    let call = running_call(context, args);
    let (mut ids, mut kind): (Option<Vec<u64>>, _) = (None, None);
    match options.get(0).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None => {}
        Some(b"type") if options.len() == 2 => {
            kind = Some(client_type(&options[1])?);
        }
        Some(b"id") if options.len() > 1 => {
            let id = |word| number::parse_i64(word).ok_or(reply_error("ERR Invalid client ID"));
            let given: Result<Vec<i64>, _> = options.from(1).iter().map(id).collect();
            // No client has a negative id.
            ids = Some(given?.into_iter().filter_map(|id| u64::try_from(id).ok()).collect());
        }
        Some(_) => return Err(SYNTAX),
    }
    let mut text = String::new();
    let commands = context.shared.commands;
    let clients = context.shared.clients.all();
    match ids {
        None => {
            for client in &clients {
                // One that is being closed is listed no more.
                let is_live = !client.killed.load(Relaxed);
                if is_live && kind.is_none_or(|kind| is_of_type(client, kind)) {
                    client.describe(commands, Some(&call), &mut text);
                }
            }
        }
        Some(ids) => {
            for id in ids {
                // Clients are ordered by id.
                if let Ok(index) = clients.binary_search_by_key(&id, |client| client.id) {
                    clients[index].describe(commands, Some(&call), &mut text);
                }
            }
        }
    }
    context.replies.verbatim(&text);
    Ok(())
}

/// Selection of clients by CLIENT KILL.
#[derive(Default)]
struct KillFilter<'a> {
    id: Option<u64>,
    address: Option<&'a [u8]>,
    local_address: Option<&'a [u8]>,
    kind: Option<&'static str>,
    user: Option<&'a [u8]>,
    min_age: Option<Duration>,
    may_kill_itself: bool,
}

impl<'a> KillFilter<'a> {
    fn parse(acl: &Acl, options: Args<'a>) -> Result<Self, Failure> {
        let mut filter = KillFilter::default();
        let mut options = options.iter();
        while let Some(word) = options.next() {
            let value = options.next().ok_or(SYNTAX)?;
            match word.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number::parse_u64(value).filter(|id| *id > 0);
                    let refusal = reply_error("ERR client-id should be greater than 0");
                    filter.id = Some(id.ok_or(refusal)?);
                }
                b"type" => filter.kind = Some(client_type(value)?),
                b"addr" => filter.address = Some(value),
                b"laddr" => filter.local_address = Some(value),
                b"user" if acl.user(value).is_some() => filter.user = Some(value),
                b"user" => {
                    let user = String::from_utf8_lossy(&value[..value.len().min(128)]);
                    return Err(format!("ERR No such user '{user}'").into());
                }
                b"maxage" => {
                    let seconds = number::parse_i64(value);
                    let refusal = reply_error("ERR maxage is not an integer or out of range");
                    let seconds = u64::try_from(seconds.ok_or(refusal)?).ok().filter(|s| *s > 0);
                    let refusal = reply_error("ERR maxage should be greater than 0");
                    filter.min_age = Some(Duration::from_secs(seconds.ok_or(refusal)?));
                }
                b"skipme" => match value.to_ascii_lowercase().as_slice() {
                    b"yes" => filter.may_kill_itself = false,
                    b"no" => filter.may_kill_itself = true,
                    _ => return Err(SYNTAX),
                },
                _ => return Err(SYNTAX),
            }
        }
        Ok(filter)
    }

    fn includes(&self, client: &Client, own_id: u64) -> bool {
        let is_at = |address: &Address, wanted: Option<&[u8]>| {
            wanted.is_none_or(|wanted| address.to_string().as_bytes() == wanted)
        };
        self.id.is_none_or(|id| client.id == id)
            && self.kind.is_none_or(|kind| is_of_type(client, kind))
            && self.user.is_none_or(|user| client.is_of_user(user))
            && self.min_age.is_none_or(|min_age| client.since.elapsed() >= min_age)
            && is_at(&client.peer, self.address)
            && is_at(&client.local, self.local_address)
            && (self.may_kill_itself || client.id != own_id)
    }
}

fn kill(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let own_id = context.session.client().id;
    let clients = context.shared.clients.all();
    if args.len() == 3 {
        let found = clients.iter().find(|c| c.peer.to_string().as_bytes() == &args[2]);
        close(context, found.ok_or(reply_error("ERR No such client"))?);
        context.replies.ok();
        return Ok(());
    }
    let filter = KillFilter::parse(&context.shared.acl, args.from(2))?;
    let chosen = clients.iter().filter(|client| filter.includes(client, own_id));
    let count = chosen.inspect(|client| close(context, client)).count();
    context.replies.count(count);
    Ok(())
}

/// Closes a client; the own one after its reply, and nothing of it runs any more.
fn close(context: &mut Context<'_>, client: &Client) {
    if client.id == context.session.client().id {
        context.session.is_closing = true;
    } else {
        client.kill();
    }
}

/// Ends the parked command of a client, as if its time were over or with an error.
fn unblock(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let completion = match args.get(3).map(<[u8]>::to_ascii_lowercase).as_deref() {
        None | Some(b"timeout") => Completion::TimedOut,
        Some(b"error") => Completion::Unblocked,
        Some(_) => {
            return Err(reply_error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"));
        }
    };
    let id = integer(&args[2])?;
    let client = u64::try_from(id).ok().and_then(|id| context.shared.clients.find(id));
    let ticket = client.as_ref().and_then(|client| *client.parked.lock());
    let (waiters, observers) = (&context.shared.waiters, &context.shared.observers);
    let is_ended = ticket.is_some_and(|ticket| waiters.unblock(observers, ticket));
    if let (Some(client), true) = (client, is_ended) {
        client.complete(completion);
    }
    context.replies.flag(is_ended);
    Ok(())
}

/// CLIENT HOLD-EXPIRY: a time in milliseconds since 1970, or OFF.
fn hold_expiry(context: &mut Context<'_>, time: &[u8]) -> Outcome {
    let Some(clock) = &context.shared.options.holdable_clock else {
        return Err(reply_error("ERR this server's clock cannot be held"));
    };
    let id = context.session.client().id;
    if time.eq_ignore_ascii_case(b"off") {
        clock.release(id);
    } else {
        let refusal = reply_error("ERR the time is not an integer or out of range");
        clock.hold(id, number::parse_u64(time).ok_or(refusal)?);
        context.session.holds_expiry = true;
    }
    context.replies.ok();
    Ok(())
}

const HELP: [&str; 58] = [
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "HOLD-EXPIRY (<unix-time-ms>|OFF)",
    "    Hold the clock at a time, so that no key expires after it, until this",
    "    connection ends.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR <ip:port>",
    "      Kill connections made from the specified address",
    "    * LADDR <ip:port>",
    "      Kill connections made to specified local address",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections of a user.",
    "    * ID <client-id>",
    "      Kill the connection with the specified ID",
    "    * MAXAGE <seconds>",
    "      Kill connections that are at least that old.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * ID <client-id> [<client-id> ...]",
    "      Return the clients with the specified IDs.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, commands of clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETINFO <option> <value>",
    "    Set the name (LIB-NAME) or the version (LIB-VER) of the client's library.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "UNPAUSE",
    "    Stop the current client pause, resuming commands.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Accepted without effect: no client is evicted.",
    "NO-TOUCH (ON|OFF)",
    "    With ON, reads of this connection do not change the idle times of keys.",
];
