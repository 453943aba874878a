//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO.
//!
//! Source: the documentation of these commands; replies of Redis 7.2.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::context::Context;
use super::elements::integer;
use super::failure::{Failure, Outcome, SYNTAX, reply_error};
use super::session::SessionTracking;
use crate::clients::{Client, flag};
use crate::resp::Args;
use crate::tracking::TrackingOptions;

/// CLIENT TRACKING; `args` follow the subcommand.
pub(super) fn tracking(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let word = args[0].to_ascii_lowercase();
    let (options, receiver) = parse(context, args.from(1))?;
    match word.as_slice() {
        b"off" => context.session.untrack(context.shared),
        b"on" => start(context, options, receiver)?,
        _ => return Err(SYNTAX),
    }
    context.replies.ok();
    Ok(())
}

fn parse(
    context: &Context<'_>,
    args: Args<'_>,
) -> Result<(TrackingOptions, Option<Arc<Client>>), Failure> {
    let (mut options, mut receiver) = (TrackingOptions::default(), None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        match word.to_ascii_lowercase().as_slice() {
            b"redirect" => {
                let id = integer(words.next().ok_or(SYNTAX)?)?;
                if options.redirect.is_some() {
                    return Err(reply_error(
                        "ERR A client can only redirect to a single other client",
                    ));
                }
                let found = u64::try_from(id).ok().and_then(|id| context.shared.clients.find(id));
                let found = found
                    .ok_or(reply_error("ERR The client ID you want redirect to does not exist"))?;
                options.redirect = Some(found.id);
                receiver = Some(found);
            }
            b"bcast" => options.is_broadcast = true,
            b"optin" => options.opt_in = true,
            b"optout" => options.opt_out = true,
            b"noloop" => options.no_loop = true,
            b"prefix" => {
                options.prefixes.insert(words.next().ok_or(SYNTAX)?.to_vec());
            }
            _ => return Err(SYNTAX),
        }
    }
    Ok((options, receiver))
}

fn start(
    context: &mut Context<'_>,
    mut options: TrackingOptions,
    receiver: Option<Arc<Client>>,
) -> Outcome {
    let before = context.session.tracking.as_ref().map(|tracking| &tracking.options);
    if !options.is_broadcast && !options.prefixes.is_empty() {
        return Err(reply_error("ERR PREFIX option requires BCAST mode to be enabled"));
    }
    if before.is_some_and(|before| before.is_broadcast != options.is_broadcast) {
        return Err(reply_error(
            "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    if options.is_broadcast && (options.opt_in || options.opt_out) {
        return Err(reply_error("ERR OPTIN and OPTOUT are not compatible with BCAST"));
    }
    if options.opt_in && options.opt_out {
        return Err(reply_error("ERR You can't specify both OPTIN mode and OPTOUT mode"));
    }
    if before
        .is_some_and(|before| options.opt_in && before.opt_out || options.opt_out && before.opt_in)
    {
        return Err(reply_error(
            "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and \
             then re-enabling it with a different mode.",
        ));
    }
    let kept = before.map(|before| before.prefixes.clone()).unwrap_or_default();
    check_prefixes(&options, &kept)?;
    options.prefixes.extend(kept);
    // As in Redis, BCAST without prefixes is the empty prefix, and shown as such.
    if options.is_broadcast && options.prefixes.is_empty() {
        options.prefixes.insert(Vec::new());
    }
    // The session, the registry and its index store them.
    let memory = |prefix: &Vec<u8>| 3 * (prefix.len() + size_of::<Vec<u8>>());
    let bytes: usize = options.prefixes.iter().map(memory).sum();
    if bytes > context.shared.options.max_request_bytes {
        return Err(reply_error("ERR the prefixes exceed the request limit; use fewer or shorter"));
    }
    let client = context.session.client().clone();
    let receiver = receiver.unwrap_or_else(|| client.clone());
    client.set_flags(flag::TRACKING, true);
    client.redirect.store(options.redirect.unwrap_or(0), Relaxed);
    client.set_flags(flag::BROADCAST, options.is_broadcast);
    context.shared.observers.track(&client, receiver, options.clone());
    context.session.tracking = Some(Box::new(SessionTracking { options, caching: None }));
    Ok(())
}

/// One of the other prefixes that begins with this one, or the reverse. If there is one, a
/// neighbour in their order is: all between two such prefixes begin with the shorter one. The
/// others do not overlap, or are found to when it is their turn.
fn overlapping<'p>(prefix: &[u8], others: &'p BTreeSet<Vec<u8>>) -> Option<&'p Vec<u8>> {
    let before = others.range::<[u8], _>((Unbounded, Excluded(prefix))).next_back();
    let after = others.range::<[u8], _>((Excluded(prefix), Unbounded)).next();
    let before = before.filter(|before| prefix.starts_with(before));
    before.or(after.filter(|after| after.starts_with(prefix)))
}

/// Rejects prefixes of which one begins with another: each change would be reported twice.
fn check_prefixes(options: &TrackingOptions, kept: &BTreeSet<Vec<u8>>) -> Outcome {
    for prefix in &options.prefixes {
        let show = String::from_utf8_lossy;
        if let Some(other) = overlapping(prefix, kept) {
            return Err(format!(
                "ERR Prefix '{}' overlaps with an existing prefix '{}'. Prefixes for a single client \
                 must not overlap.",
                show(prefix),
                show(other)
            )
            .into());
        }
        if let Some(other) = overlapping(prefix, &options.prefixes) {
            return Err(format!(
                "ERR Prefix '{}' overlaps with another provided prefix '{}'. Prefixes for a single \
                 client must not overlap.",
                show(prefix),
                show(other)
            )
            .into());
        }
    }
    Ok(())
}

/// CLIENT CACHING.
pub(super) fn caching(context: &mut Context<'_>, word: &[u8]) -> Outcome {
    let Some(tracking) = &mut context.session.tracking else {
        return Err(reply_error(
            "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or \
             OPTOUT mode enabled",
        ));
    };
    match word.to_ascii_lowercase().as_slice() {
        b"yes" if tracking.options.opt_in => tracking.caching = Some(true),
        b"yes" => {
            return Err(reply_error(
                "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.",
            ));
        }
        b"no" if tracking.options.opt_out => tracking.caching = Some(false),
        b"no" => {
            return Err(reply_error(
                "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.",
            ));
        }
        _ => return Err(SYNTAX),
    }
    context.replies.ok();
    Ok(())
}

/// Id of the receiver: 0 for the client itself, -1 without tracking.
fn redirection(context: &Context<'_>) -> i64 {
    let tracking = context.session.tracking.as_ref();
    tracking.map_or(-1, |tracking| tracking.options.redirect.map_or(0, |id| id as i64))
}

/// CLIENT GETREDIR.
pub(super) fn get_redirection(context: &mut Context<'_>) {
    let id = redirection(context);
    context.replies.int(id);
}

/// CLIENT TRACKINGINFO.
pub(super) fn info(context: &mut Context<'_>) {
    let redirect = redirection(context);
    let is_broken =
        u64::try_from(redirect).is_ok_and(|id| id > 0 && context.shared.clients.find(id).is_none());
    let (mut flags, mut prefixes) = (vec!["off"], Vec::new());
    if let Some(SessionTracking { options, caching }) = context.session.tracking.as_deref() {
        flags = vec!["on"];
        flags.extend(options.is_broadcast.then_some("bcast"));
        flags.extend(options.opt_in.then_some("optin"));
        flags.extend((*caching == Some(true)).then_some("caching-yes"));
        flags.extend(options.opt_out.then_some("optout"));
        flags.extend((*caching == Some(false)).then_some("caching-no"));
        flags.extend(options.no_loop.then_some("noloop"));
        flags.extend(is_broken.then_some("broken_redirect"));
        prefixes.extend(options.prefixes.iter().cloned());
    }
    let replies = &mut *context.replies;
    replies.map(3);
    replies.bulk(b"flags");
    replies.set(flags.len());
    flags.iter().for_each(|flag| replies.bulk(flag.as_bytes()));
    replies.bulk(b"redirect");
    replies.int(redirect);
    replies.bulk(b"prefixes");
    replies.array(prefixes.len());
    prefixes.iter().for_each(|prefix| replies.bulk(prefix));
}
