//! Reports a finished command to monitors, the slow log and the latency monitor.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::definition::{ADMIN, Definition, FAST};
use super::session::Session;
use super::shown_call::ShownCall;
use super::subcommands::subcommands_of;
use super::waiters::Waiter;
use crate::clients::{Address, Client};
use crate::resp::Args;
use crate::shared::Shared;
use crate::slow_log;
use crate::store::observers::MONITORS;

/// Reports a command that took `duration`. Cost if nobody observes: two atomic loads.
#[inline]
pub(super) fn observe(
    shared: &Shared,
    session: &Session,
    command: &Definition,
    args: Args<'_>,
    duration: Duration,
) {
    show(shared, session, command, args);
    if shared.settings.is_slow(duration) {
        log(shared, session.client(), command, args, duration);
    }
}

/// Reports a parked command whose work another thread has done in `duration`.
pub(super) fn observe_job(shared: &Shared, waiter: &Waiter, duration: Duration) {
    if shared.settings.is_slow(duration) {
        let command = &shared.commands[waiter.command.command];
        log(shared, &waiter.client, command, waiter.command.args(), duration);
    }
}

/// Shows a command to the monitors. Administrative commands are not shown.
#[inline]
pub(super) fn show(shared: &Shared, session: &Session, command: &Definition, args: Args<'_>) {
    if shared.observers.has_any(MONITORS) && !is_administrative(command, args) {
        let args = redacted(command, args);
        let args = args.iter().map(Vec::as_slice);
        let origin: &dyn std::fmt::Display = match &session.client().peer {
            Address::Unix(path) => &format!("unix:{path}"),
            address => address,
        };
        shared.monitors.show(shared.select_index(session.table), origin, args);
    }
}

/// Whether the command, or the subcommand that is called, is administrative.
fn is_administrative(command: &Definition, args: Args<'_>) -> bool {
    let word = args.get(1).unwrap_or_default();
    let mut subcommands = subcommands_of(command.name).iter();
    match subcommands.find(|(name, ..)| is_word(word, name)) {
        Some((.., flags)) => flags & ADMIN != 0,
        None => command.has(ADMIN),
    }
}

/// Shows the commands that a script ran to the monitors, after the script itself.
#[inline]
pub(super) fn show_script_calls(shared: &Shared, session: &mut Session) {
    for ShownCall { table, args } in session.script_calls.drain(..) {
        let index = shared.select_index(table);
        shared.monitors.show(index, &"lua", args.iter().map(Vec::as_slice));
    }
}

#[cold]
fn log(shared: &Shared, client: &Client, command: &Definition, args: Args<'_>, duration: Duration) {
    let event = if command.has(FAST) { "fast-command" } else { "command" };
    shared.record_latency(event, duration);
    let slow_us = shared.settings.slow_command_us.load(Relaxed);
    if u64::try_from(slow_us).is_ok_and(|slow_us| duration >= Duration::from_micros(slow_us)) {
        let args = redacted(command, args);
        let args = slow_log::shorten(args.iter().map(Vec::as_slice));
        let name = client.names.lock().name.clone();
        let max_len = shared.settings.slow_log_len.load(Relaxed);
        shared.slow_log.add(max_len, duration, args, client.peer.to_string(), name);
    }
}

fn is_word(arg: &[u8], word: &str) -> bool {
    arg.eq_ignore_ascii_case(word.as_bytes())
}

/// The arguments without passwords.
fn redacted(command: &Definition, args: Args<'_>) -> Vec<Vec<u8>> {
    let mut args: Vec<Vec<u8>> = args.iter().map(<[u8]>::to_vec).collect();
    // What follows a word, wherever that is: it may be a name, too.
    let behind = |word: &str, from: usize, count: usize| {
        let found = args.iter().enumerate().skip(from).filter(move |(_, arg)| is_word(arg, word));
        found.flat_map(move |(at, _)| at + 1..at + 1 + count).collect::<Vec<usize>>()
    };
    let secrets: Vec<usize> = match command.name {
        "auth" => (1..args.len()).collect(),
        "hello" => behind("auth", 1, 2),
        "migrate" => {
            let is_login = |arg: &Vec<u8>| is_word(arg, "auth") || is_word(arg, "auth2");
            match args.iter().skip(6).position(is_login) {
                Some(place) => {
                    let at = 7 + place;
                    let words = if is_word(&args[at - 1], "auth") { 1 } else { 2 };
                    (at..at + words).collect()
                }
                None => Vec::new(),
            }
        }
        "config" => behind("requirepass", 1, args.len()),
        "acl" if args.get(1).is_some_and(|word| is_word(word, "setuser")) => {
            (2..args.len()).collect()
        }
        _ => Vec::new(),
    };
    for at in secrets {
        if let Some(arg) = args.get_mut(at) {
            *arg = b"(redacted)".to_vec();
        }
    }
    args
}
