//! CONFIG: settings that clients query, and those that can change at run time.
//!
//! SET checks all values before it changes any. What is set by the command line alone is immutable.
//! `access` is the access mode of the selected table, if it is a `mica` table.
//!
//! Source: the documentation of Redis's CONFIG; error texts of Redis 7.2.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::names::unknown;
use siltstone_mica::{Access, Mode, Store};

use super::context::Context;
use super::definition::{ADMIN, NO_KEYS};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::help;
use crate::acl::user::DEFAULT_USER;
use crate::keyspace_events::KeyspaceEvents;
use crate::resp::{Args, number};
use crate::shared::Shared;
use crate::store::observers::LOG_ALL;
use crate::tls::TlsState;
use crate::{ClientAuth, Fsync, TlsFiles, TlsVersion, glob};

pub(super) fn commands() -> Vec<Command> {
    vec![entry::command(
        "server",
        "config",
        -2,
        ADMIN,
        NO_KEYS,
        config,
        "Returns or changes the configuration of the server.",
    )]
}

fn config(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"get", 3..) => get(context, args.from(2)),
        (b"set", 4) if args[2].eq_ignore_ascii_case(b"access") => set_access(context, &args[3]),
        (b"set", 4) if args[2].eq_ignore_ascii_case(b"requirepass") => {
            set_password(context, &args[3])
        }
        (b"set", 4..) if args.len().is_multiple_of(2) => set(context, args.from(2)),
        (b"resetstat", 2) => {
            context.shared.metrics.reset();
            context.shared.clients.reset_overflows();
            context.replies.ok();
            Ok(())
        }
        (b"rewrite", 2) => Err(reply_error("ERR The server is running without a config file")),
        (b"help", 2) => help::reply(context.replies, "CONFIG", &HELP),
        (b"get" | b"set" | b"resetstat" | b"rewrite" | b"help", _) => {
            Err(wrong_subcommand_arity("config", &args[1]))
        }
        _ => Err(unknown_subcommand("CONFIG", &args[1])),
    }
}

const HELP: [&str; 6] = [
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
];

/// What an interpreter needs for a small script, in bytes.
const MIN_SCRIPT_MEMORY_BYTES: usize = 1 << 20;

/// A checked change of a setting.
type Change<'a> = Box<dyn FnOnce(&Shared) + 'a>;

/// CONFIG SET of one or more settings: all of them, or none.
fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut changes: Vec<(String, Change<'_>)> = Vec::new();
    let mut files = context.shared.tls.as_ref().map(TlsState::files);
    let mut has_new_files = false;
    let known: Vec<&str> = settings(context).into_iter().map(|(name, _)| name).collect();
    for (name, value) in args.iter().step_by(2).zip(args.from(1).iter().step_by(2)) {
        let shown = String::from_utf8_lossy(&name[..name.len().min(128)]).to_lowercase();
        let failed = |reason: &str| {
            Failure::from(format!(
                "ERR CONFIG SET failed (possibly related to argument '{shown}') - {reason}"
            ))
        };
        if !known.contains(&shown.as_str()) {
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            )
            .into());
        }
        if changes.iter().any(|(other, _)| *other == shown) {
            return Err(failed("duplicate parameter"));
        }
        let change: Change<'_> = match &mut files {
            Some(files) if shown.starts_with("tls-") => {
                change_files(files, &shown, value).map_err(|reason| failed(&reason))?;
                has_new_files = true;
                Box::new(|_| ())
            }
            _ => change(context.shared, &shown, value).map_err(|reason| failed(&reason))?,
        };
        changes.push((shown, change));
    }
    // Together, since a certificate and its key change at once.
    if let (Some(tls), Some(files), true) = (&context.shared.tls, files, has_new_files) {
        let prepared = tls.prepare(files).map_err(|reason| {
            Failure::from(format!("ERR CONFIG SET failed - Unable to update TLS: {reason}"))
        })?;
        tls.replace(prepared);
    }
    for (_, change) in changes {
        change(context.shared);
    }
    let settings = &context.shared.settings;
    settings.update();
    let logs_all = settings.slow_command_us.load(Relaxed) == 0;
    context.shared.observers.set(LOG_ALL, logs_all);
    context.replies.ok();
    Ok(())
}

/// Changes the TLS files. Setting a file that is in force reads it again.
fn change_files(files: &mut TlsFiles, name: &str, value: &[u8]) -> Result<(), String> {
    let path = || PathBuf::from(OsStr::from_bytes(value));
    match name {
        "tls-cert-file" => files.certificate = path(),
        "tls-key-file" => files.key = path(),
        "tls-ca-cert-file" => files.client_ca = (!value.is_empty()).then(path),
        "tls-auth-clients" => {
            let is = |(word, _): &&(&str, ClientAuth)| value.eq_ignore_ascii_case(word.as_bytes());
            let found = CLIENT_AUTH.iter().find(is).map(|(_, auth)| *auth);
            files.client_auth = found.ok_or_else(|| {
                "argument(s) must be one of the following: no, yes, optional".to_owned()
            })?;
        }
        _ => return Err("can't set immutable config".to_owned()),
    }
    Ok(())
}

/// Values of `tls-auth-clients`.
const CLIENT_AUTH: [(&str, ClientAuth); 3] =
    [("no", ClientAuth::No), ("yes", ClientAuth::Required), ("optional", ClientAuth::Optional)];

/// Checks a change.
fn change<'a>(shared: &Shared, name: &str, value: &[u8]) -> Result<Change<'a>, String> {
    let within = |min: i64, max: i64| {
        let number = number::parse_i64(value)
            .ok_or_else(|| "argument couldn't be parsed into an integer".to_owned())?;
        match (min..=max).contains(&number) {
            true => Ok(number),
            false => Err(format!("argument must be between {min} and {max} inclusive")),
        }
    };
    let count = |min: i64, max: i64| {
        within(min, max).map(|number| usize::try_from(number).unwrap_or_default())
    };
    match name {
        "maxclients" => {
            let max = count(1, i64::from(u32::MAX))?;
            Ok(Box::new(move |shared| shared.settings.max_clients.store(max, Relaxed)))
        }
        "timeout" => {
            let seconds = count(0, i64::from(i32::MAX))? as u64;
            Ok(Box::new(move |shared| shared.settings.set_idle_timeout_seconds(seconds)))
        }
        "slowlog-log-slower-than" => {
            let micros = within(-1, i64::MAX)?;
            Ok(Box::new(move |shared| shared.settings.slow_command_us.store(micros, Relaxed)))
        }
        "slowlog-max-len" => {
            let len = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.settings.slow_log_len.store(len, Relaxed)))
        }
        "latency-monitor-threshold" => {
            let millis = count(0, i64::MAX)? as u64;
            Ok(Box::new(move |shared| {
                shared.settings.latency_threshold_ms.store(millis, Relaxed);
            }))
        }
        "busy-reply-threshold" | "lua-time-limit" => {
            let millis = count(0, i64::MAX)? as u64;
            Ok(Box::new(move |shared| shared.settings.busy_threshold_ms.store(millis, Relaxed)))
        }
        "script-memory-limit" => {
            let bytes = std::str::from_utf8(value).ok().and_then(bytes_of);
            let bytes = bytes.ok_or_else(|| "argument must be a memory value".to_owned())?;
            if bytes != 0 && bytes < MIN_SCRIPT_MEMORY_BYTES {
                return Err(format!(
                    "argument must be 0 (unlimited) or at least {MIN_SCRIPT_MEMORY_BYTES}"
                ));
            }
            Ok(Box::new(move |shared| shared.settings.script_memory_bytes.store(bytes, Relaxed)))
        }
        "stream-node-max-entries" => {
            let entries = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.settings.stream_node_entries.store(entries, Relaxed)))
        }
        "tracking-table-max-keys" => {
            let max = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.observers.tracking.set_max_keys(max)))
        }
        "acllog-max-len" => {
            let len = count(0, i64::MAX)?;
            Ok(Box::new(move |shared| shared.acl.log.max_entries.store(len, Relaxed)))
        }
        "acl-pubsub-default" => {
            let is_all = match value.to_ascii_lowercase().as_slice() {
                b"allchannels" => true,
                b"resetchannels" => false,
                _ => {
                    return Err("argument(s) must be one of the following: allchannels, \
                                resetchannels"
                        .to_owned());
                }
            };
            Ok(Box::new(move |shared| shared.acl.allows_channels.store(is_all, Relaxed)))
        }
        "notify-keyspace-events" => {
            let flags = std::str::from_utf8(value).ok().and_then(KeyspaceEvents::parse);
            let flags = flags.ok_or_else(|| {
                "Invalid event class character. Use 'Ag$lshzxeKEtmdn'.".to_owned()
            })?;
            Ok(Box::new(move |shared| {
                shared.events.set(flags);
                let (any, expired) = shared.events.active();
                shared.observers.set_events(any, expired);
            }))
        }
        "client-output-buffer-limit" => output_limits(shared, value),
        _ => Err("can't set immutable config".to_owned()),
    }
}

/// Groups of class, hard limit, soft limit and seconds. The limit of the class `normal` is that of
/// `--max-output`; there are no replicas.
fn output_limits<'a>(shared: &Shared, value: &[u8]) -> Result<Change<'a>, String> {
    let text = String::from_utf8_lossy(value).to_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() || !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.".to_owned());
    }
    let mut limits = None;
    for group in words.chunks_exact(4) {
        let bytes = |text: &str| {
            let bytes = bytes_of(text);
            bytes.ok_or_else(|| {
                "Error in hard, soft or soft_seconds setting in buffer limit configuration."
                    .to_owned()
            })
        };
        let (hard, soft, seconds) = (bytes(group[1])?, bytes(group[2])?, bytes(group[3])? as u64);
        match group[0] {
            "pubsub" => limits = Some((hard, soft, seconds)),
            "normal" if (hard, soft, seconds) == (shared.options.max_output_bytes, 0, 0) => {}
            "normal" => {
                return Err("the limit of the class normal is set by --max-output".to_owned());
            }
            "replica" | "slave" => {}
            _ => {
                return Err(
                    "Invalid client class specified in buffer limit configuration.".to_owned()
                );
            }
        }
    }
    Ok(Box::new(move |shared| {
        if let Some((hard, soft, seconds)) = limits {
            shared.clients.limits.set(hard, soft, seconds);
        }
    }))
}

/// Parses a size with Redis's units: `k` is 1000, `kb` is 1024.
fn bytes_of(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

/// Sets the only password of the user `default`; empty: it needs none.
fn set_password(context: &mut Context<'_>, password: &[u8]) -> Outcome {
    let rules = match password {
        [] => vec![b"nopass".to_vec()],
        password => vec![b"resetpass".to_vec(), [b">", password].concat()],
    };
    let set = context.shared.acl.set(DEFAULT_USER, rules.iter().map(Vec::as_slice));
    set.map_err(|text| Failure::from(format!("ERR CONFIG SET failed - {text}")))?;
    context.replies.ok();
    Ok(())
}

/// Requests in progress complete in the old mode.
fn set_access(context: &mut Context<'_>, given: &[u8]) -> Outcome {
    let database = context.database();
    let Some(store) = &database.mica else {
        let name = &database.name;
        return Err(
            format!("ERR the table '{name}' is not a mica table and has no access mode").into()
        );
    };
    let is_given = |(name, _): &&(&str, Access)| given.eq_ignore_ascii_case(name.as_bytes());
    let Some((_, access)) = Access::NAMED.iter().find(is_given) else {
        let given = String::from_utf8_lossy(&given[..given.len().min(128)]);
        let names = Access::NAMED.map(|(name, _)| name);
        return Err(format!("ERR {}", unknown(&given, &names)).into());
    };
    store.set_access(*access);
    context.replies.ok();
    Ok(())
}

fn get(context: &mut Context<'_>, patterns: Args<'_>) -> Outcome {
    let patterns: Vec<Vec<u8>> = patterns.iter().map(<[u8]>::to_ascii_lowercase).collect();
    let is_wanted =
        |name: &str| patterns.iter().any(|pattern| glob::matches(pattern, name.as_bytes()));
    let mut settings = settings(context);
    settings.retain(|(name, _)| is_wanted(name));
    context.replies.map(settings.len());
    for (name, value) in settings {
        context.replies.bulk(name.as_bytes());
        context.replies.bulk(value.as_bytes());
    }
    Ok(())
}

/// Memory limit of the selected table in bytes; 0 where the disk is the limit.
pub(super) fn max_memory(context: &Context<'_>) -> u64 {
    context.database().mica.as_ref().map_or(0, |store| store.options().memory_bytes)
}

/// Eviction policy of the selected table, by Redis's names.
pub(super) fn policy(context: &Context<'_>) -> &'static str {
    // Redis has no name for a log that overwrites its oldest items. All policies of `mica` evict
    // any key, and all but `fifo` spare recently read ones.
    let is_cache = |store: &Arc<Store>| store.options().mode == Mode::Cache;
    if context.database().mica.as_ref().is_some_and(is_cache) {
        "allkeys-lru"
    } else {
        "noeviction"
    }
}

/// Settings of TLS, if there is a listener for it.
fn tls_settings(shared: &Shared) -> Vec<(&'static str, String)> {
    let Some((tls, options)) = shared.tls.as_ref().zip(shared.options.tls.as_ref()) else {
        return Vec::new();
    };
    let files = tls.files();
    let auth = CLIENT_AUTH.iter().find(|(_, auth)| *auth == files.client_auth);
    let client_ca = files.client_ca.unwrap_or_default();
    vec![
        ("tls-port", options.listen.map_or(0, |address| address.port()).to_string()),
        ("tls-cert-file", files.certificate.display().to_string()),
        ("tls-key-file", files.key.display().to_string()),
        ("tls-ca-cert-file", client_ca.display().to_string()),
        ("tls-auth-clients", auth.map_or("no", |(word, _)| *word).to_owned()),
        (
            "tls-protocols",
            match files.min_version {
                TlsVersion::V1_2 => "TLSv1.2 TLSv1.3",
                TlsVersion::V1_3 => "TLSv1.3",
            }
            .to_owned(),
        ),
    ]
}

fn settings(context: &Context<'_>) -> Vec<(&'static str, String)> {
    let shared = context.shared;
    let (options, settings) = (&shared.options, &shared.settings);
    let (hard, soft, seconds) = shared.clients.limits.get();
    let (appendfsync, timeout) = (
        match options.fsync {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::Never => "no",
        },
        shared.settings.idle_timeout().map_or(0, |timeout| timeout.as_secs()),
    );
    let access =
        context.database().mica.as_ref().map(|store| ("access", store.access().name().to_owned()));
    let all = [
        // No periodic snapshots; the engine's log is the append-only file.
        ("save", String::new()),
        ("appendonly", "yes".to_owned()),
        ("appendfsync", appendfsync.to_owned()),
        ("bind", shared.address.ip().to_string()),
        ("port", shared.address.port().to_string()),
        ("databases", shared.databases.len().to_string()),
        ("maxclients", shared.settings.max_clients.load(Relaxed).to_string()),
        ("maxmemory", max_memory(context).to_string()),
        ("maxmemory-policy", policy(context).to_owned()),
        ("proto-max-bulk-len", options.max_request_bytes.to_string()),
        ("client-query-buffer-limit", options.max_request_bytes.to_string()),
        (
            "client-output-buffer-limit",
            format!(
                "normal {} 0 0 slave 0 0 0 pubsub {hard} {soft} {seconds}",
                options.max_output_bytes
            ),
        ),
        (
            "aclfile",
            shared.acl.file.as_ref().map_or_else(String::new, |file| file.display().to_string()),
        ),
        ("acllog-max-len", shared.acl.log.max_entries.load(Relaxed).to_string()),
        (
            "acl-pubsub-default",
            match shared.acl.allows_channels.load(Relaxed) {
                true => "allchannels",
                false => "resetchannels",
            }
            .to_owned(),
        ),
        ("notify-keyspace-events", shared.events.letters()),
        ("slowlog-log-slower-than", settings.slow_command_us.load(Relaxed).to_string()),
        ("slowlog-max-len", settings.slow_log_len.load(Relaxed).to_string()),
        ("latency-monitor-threshold", settings.latency_threshold_ms.load(Relaxed).to_string()),
        ("tracking-table-max-keys", shared.observers.tracking.max_keys().to_string()),
        ("busy-reply-threshold", settings.busy_threshold_ms.load(Relaxed).to_string()),
        ("lua-time-limit", settings.busy_threshold_ms.load(Relaxed).to_string()),
        ("script-memory-limit", settings.script_memory_bytes.load(Relaxed).to_string()),
        ("stream-node-max-entries", settings.stream_node_entries.load(Relaxed).to_string()),
        ("timeout", timeout.to_string()),
        ("io-threads", options.workers().to_string()),
        ("cluster-enabled", "no".to_owned()),
    ];
    all.into_iter().chain(access).chain(tls_settings(shared)).collect()
}
