//! SUBSCRIBE, PUBLISH and their variants.
//!
//! A subscription is confirmed by a push, which in RESP2 is an array. A RESP2 client with
//! subscriptions may only call a few commands, since its arrays could be messages as well
//! ([`mod@super::execute`] checks it).
//!
//! In a replicated table PUBLISH reaches the subscribers at all nodes. A channel of a shard has a
//! slot, as a key has: its subscribers and publishers are at the leader of the slot's group, which
//! ends the subscriptions when it leads no more (decision record 0088).
//!
//! Source: the documentation of Redis's pub/sub commands; replies of Redis 7.2.

use std::sync::atomic::Ordering::Relaxed;

use super::context::Context;
use super::definition::{FAST, NO_KEYS, PUBSUB, PUSHES};
use super::entry::{self, Command};
use super::failure::{
    Outcome, reply_error, reply_too_large, unknown_subcommand, wrong_subcommand_arity,
};
use super::help;
use super::session::Session;
use crate::clients::Client;
use crate::glob::Pattern;
use crate::pubsub::Kind;
use crate::resp::{Args, Replies, RespVersion};
use crate::shared::Shared;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("pubsub", name, arity, flags | PUBSUB, NO_KEYS, handler, summary)
    };
    vec![
        command("subscribe", -2, PUSHES, subscribe, "Subscribes to channels."),
        command("unsubscribe", -1, PUSHES, unsubscribe, "Ends subscriptions to channels."),
        command(
            "psubscribe",
            -2,
            PUSHES,
            psubscribe,
            "Subscribes to all channels that match patterns.",
        ),
        command("punsubscribe", -1, PUSHES, punsubscribe, "Ends subscriptions to patterns."),
        command("ssubscribe", -2, PUSHES, ssubscribe, "Subscribes to shard channels."),
        command("sunsubscribe", -1, PUSHES, sunsubscribe, "Ends subscriptions to shard channels."),
        command("publish", 3, FAST, publish, "Sends a message to the subscribers of a channel."),
        command("spublish", 3, FAST, spublish, "Sends a message to a shard channel."),
        command("pubsub", -2, 0, pubsub, "Shows channels, patterns and subscribers."),
    ]
}

fn subscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, args, Kind::Channel, "subscribe")
}

fn psubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, args, Kind::Pattern, "psubscribe")
}

fn ssubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    add(context, args, Kind::ShardChannel, "ssubscribe")
}

fn unsubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove(context, args, Kind::Channel, "unsubscribe")
}

fn punsubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove(context, args, Kind::Pattern, "punsubscribe")
}

fn sunsubscribe(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    remove(context, args, Kind::ShardChannel, "sunsubscribe")
}

/// Memory of a subscription: the session and the registry store its name, and the registry a
/// compiled pattern.
fn memory_bytes(kind: Kind, name: &[u8]) -> usize {
    let compiled = if kind == Kind::Pattern { Pattern::max_memory_bytes(name) } else { 0 };
    2 * (name.len() + size_of::<Vec<u8>>()) + compiled
}

/// Bytes of a confirmation without the name, or more.
const CONFIRMATION_BYTES: usize = 64;

fn add(context: &mut Context<'_>, args: Args<'_>, kind: Kind, word: &str) -> Outcome {
    // An error in place of the confirmations would leave a subscriber that does not know it.
    let reply_bytes = args.from(1).iter().map(|name| name.len() + CONFIRMATION_BYTES);
    if reply_bytes.sum::<usize>() > context.shared.options.reply_bytes() {
        return Err(reply_too_large(context.shared.options.max_output_bytes));
    }
    let bytes: usize = args.from(1).iter().map(|name| memory_bytes(kind, name)).sum();
    if context.session.subscription_bytes + bytes > context.shared.options.max_request_bytes {
        return Err(reply_error(
            "ERR the subscriptions exceed the request limit; subscribe to fewer channels",
        ));
    }
    for name in args.from(1).iter() {
        if context.session.subscriptions[kind as usize].insert(name.to_vec()) {
            context.session.subscription_bytes += memory_bytes(kind, name);
            let client = context.session.client().clone();
            context.shared.pubsub.subscribe(kind, name, &client);
        }
        confirm(context.replies, context.session.client(), kind, word, Some(name));
    }
    check_again(context, args, kind);
    Ok(())
}

/// Closes the connection if its user may not use the channels any more: the user may have changed
/// between the check of the command and the subscriptions, when they were not yet seen.
fn check_again(context: &mut Context<'_>, args: Args<'_>, kind: Kind) {
    let (acl, session) = (&context.shared.acl, &mut *context.session);
    if session.access.is_free(acl) {
        return;
    }
    let is_current = session.access.refresh(acl).is_ok();
    let user = session.access.user();
    let mut names = args.from(1).iter();
    if !is_current || !names.all(|name| user.allows_channel(name, kind == Kind::Pattern)) {
        session.is_closing = true;
    }
}

fn remove(context: &mut Context<'_>, args: Args<'_>, kind: Kind, word: &str) -> Outcome {
    let names: Vec<Vec<u8>> = match args.len() {
        1 => context.session.subscriptions[kind as usize].iter().cloned().collect(),
        _ => args.from(1).iter().map(<[u8]>::to_vec).collect(),
    };
    if names.is_empty() {
        confirm(context.replies, context.session.client(), kind, word, None);
    }
    for name in names {
        forget(context.shared, context.session, kind, &name);
        // A message that came before the end of the subscription must not follow its confirmation.
        // Inside EXEC it would be taken for a reply, and follows.
        if !context.is_in_transaction() {
            context.session.client().mailbox.receive_messages(context.replies);
        }
        confirm(context.replies, context.session.client(), kind, word, Some(&name));
    }
    Ok(())
}

/// Ends a subscription, if there is one.
fn forget(shared: &Shared, session: &mut Session, kind: Kind, name: &[u8]) {
    if session.subscriptions[kind as usize].remove(name) {
        session.subscription_bytes -= memory_bytes(kind, name);
        shared.pubsub.unsubscribe(kind, name, session.client());
    }
}

/// Ends the subscriptions to channels of shards that this node does not serve any more, and sends
/// the client a push for each, behind the messages that it has not got yet.
pub(crate) fn end_shard_subscriptions(
    shared: &Shared,
    session: &mut Session,
    is_lost: impl Fn(&[u8]) -> bool,
) {
    let kind = Kind::ShardChannel;
    let names = session.subscriptions[kind as usize].iter();
    let lost: Vec<_> = names.filter(|name| is_lost(name)).cloned().collect();
    for name in lost {
        forget(shared, session, kind, &name);
        let client = session.client();
        let mut replies = Replies::new(usize::MAX);
        if client.is_resp3.load(Relaxed) {
            replies.version = RespVersion::Resp3;
        }
        confirm(&mut replies, client, kind, "sunsubscribe", Some(&name));
        client.push(&replies.unsent().into());
    }
}

/// Writes the push that confirms a change: word, name, and the number of subscriptions left.
fn confirm(replies: &mut Replies, client: &Client, kind: Kind, word: &str, name: Option<&[u8]>) {
    let counts = &client.subscriptions;
    let count = match kind {
        Kind::ShardChannel => counts[2].load(Relaxed),
        Kind::Channel | Kind::Pattern => counts[0].load(Relaxed) + counts[1].load(Relaxed),
    };
    replies.push(3);
    replies.bulk(word.as_bytes());
    replies.bulk_or_null(name);
    replies.int(i64::from(count));
}

fn publish(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let receivers = context.shared.publish(&args[1], &args[2]);
    context.replies.count(receivers);
    Ok(())
}

fn spublish(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let receivers = context.shared.pubsub.publish_to_shard(&args[1], &args[2]);
    context.replies.count(receivers);
    Ok(())
}

fn pubsub(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let registry = &context.shared.pubsub;
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"channels", 2 | 3) => {
            reply_channels(context, registry.channels(Kind::Channel, args.get(2)));
        }
        (b"shardchannels", 2 | 3) => {
            reply_channels(context, registry.channels(Kind::ShardChannel, args.get(2)));
        }
        (b"numsub", _) => reply_numbers(context, args.from(2), Kind::Channel),
        (b"shardnumsub", _) => reply_numbers(context, args.from(2), Kind::ShardChannel),
        (b"numpat", 2) => context.replies.count(registry.counts()[1]),
        (b"help", 2) => return help::reply(context.replies, "PUBSUB", &HELP),
        (b"channels" | b"shardchannels" | b"numpat" | b"help", _) => {
            return Err(wrong_subcommand_arity("pubsub", &args[1]));
        }
        _ => return Err(unknown_subcommand("PUBSUB", &args[1])),
    }
    Ok(())
}

fn reply_channels(context: &mut Context<'_>, channels: Vec<Vec<u8>>) {
    context.replies.array(channels.len());
    for channel in channels {
        context.replies.bulk(&channel);
    }
}

/// Pairs of channel and number of subscribers, flat in both protocol versions.
fn reply_numbers(context: &mut Context<'_>, channels: Args<'_>, kind: Kind) {
    context.replies.array(2 * channels.len());
    for channel in channels.iter() {
        context.replies.bulk(channel);
        context.replies.count(context.shared.pubsub.subscribers(kind, channel));
    }
}

const HELP: [&str; 11] = [
    "CHANNELS [<pattern>]",
    "    Return the currently active channels matching a <pattern> (default: '*').",
    "NUMPAT",
    "    Return number of subscriptions to patterns.",
    "NUMSUB [<channel> ...]",
    "    Return the number of subscribers for the specified channels, excluding",
    "    pattern subscriptions(default: no channels).",
    "SHARDCHANNELS [<pattern>]",
    "    Return the currently active shard level channels matching a <pattern> (default: '*').",
    "SHARDNUMSUB [<shardchannel> ...]",
    "    Return the number of subscribers for the specified shard level channel(s)",
];
