//! CONFIG: settings that clients query, and those that can change at run time.
//!
//! SET checks all values before it changes any. What is set by the command line alone is immutable.
//! `access` is the access mode of the selected table, if it is a `mica` table; `table.NAME.OPTION`
//! is an option of any table ([`table_options`]).
//!
//! Source: the documentation of Redis's CONFIG; error texts of Redis 7.2.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::names::unknown;
use siltstone_mica::{Access, Mode, Store};

use super::cluster_changes::change_or_park;
use super::config_changes::{CLIENT_AUTH, Change, change, change_files};
use super::context::Context;
use super::definition::{ADMIN, NO_KEYS};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::{help, table_moves, table_options};
use crate::acl::user::DEFAULT_USER;
use crate::acl::users;
use crate::replication::cluster_changes::ClusterChange;
use crate::resp::Args;
use crate::shared::Shared;
use crate::store::observers::LOG_ALL;
use crate::tls::TlsState;
use crate::{Fsync, TlsVersion, glob};

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
        (b"set", 4) if sets_password(args) => set_password(context, args),
        (b"set", 4..) if args.len().is_multiple_of(2) && table_options::is_of_tables(&args[2]) => {
            table_options::set(context, args.from(2))
        }
        (b"set", 4..) if args.len().is_multiple_of(2) => set(context, args.from(2)),
        (b"move", 3..) => table_moves::move_table(context, args.from(2)),
        (b"resetstat", 2) => {
            context.shared.metrics.reset();
            context.shared.clients.reset_overflows();
            context.replies.ok();
            Ok(())
        }
        (b"rewrite", 2) => Err(reply_error("ERR The server is running without a config file")),
        (b"help", 2) => help::reply(context.replies, "CONFIG", &HELP),
        (b"get" | b"set" | b"move" | b"resetstat" | b"rewrite" | b"help", _) => {
            Err(wrong_subcommand_arity("config", &args[1]))
        }
        _ => Err(unknown_subcommand("CONFIG", &args[1])),
    }
}

const HELP: [&str; 10] = [
    "GET <pattern>",
    "    Return parameters matching the glob-like <pattern> and their values.",
    "SET <directive> <value>",
    "    Set the configuration <directive> to <value>.",
    "MOVE <table> <engine> [<option> <value> ...]",
    "    Move a table to another engine, or to other options, while it is served.",
    "MOVE ABORT",
    "    Cancel the move of a table.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
];

/// CONFIG SET of one or more settings: all of them, or none.
fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let _alone = context.shared.settings.changing.lock();
    let mut changes: Vec<(String, Change<'_>)> = Vec::new();
    let mut files = context.shared.tls.as_ref().map(TlsState::files);
    let mut has_new_files = false;
    let known = settings(context);
    for (name, value) in args.iter().step_by(2).zip(args.from(1).iter().step_by(2)) {
        let shown = String::from_utf8_lossy(&name[..name.len().min(128)]).to_lowercase();
        let failed = |reason: &str| {
            Failure::from(format!(
                "ERR CONFIG SET failed (possibly related to argument '{shown}') - {reason}"
            ))
        };
        let Some((_, current)) = known.iter().find(|(name, _)| *name == shown) else {
            return Err(format!(
                "ERR Unknown option or number of arguments for CONFIG SET - '{shown}'"
            )
            .into());
        };
        if changes.iter().any(|(other, _)| *other == shown) {
            return Err(failed("duplicate parameter"));
        }
        let change: Change<'_> = match &mut files {
            Some(files) if shown.starts_with("tls-") => {
                change_files(files, &shown, value).map_err(|reason| failed(&reason))?;
                has_new_files = true;
                Box::new(|_| ())
            }
            // Setting what is set changes nothing, so it is allowed for every setting.
            _ if value == current.as_bytes() => Box::new(|_| ()),
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

/// Whether the call sets the password of the user `default`.
pub(super) fn sets_password(args: Args<'_>) -> bool {
    args.len() == 4
        && args[1].eq_ignore_ascii_case(b"set")
        && args[2].eq_ignore_ascii_case(b"requirepass")
}

/// Sets the only password of the user `default`; empty: it needs none. In a replicated table that
/// is the user of all nodes.
fn set_password(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let failed = |text| Failure::from(format!("ERR CONFIG SET failed - {text}"));
    let rules = match &args[3] {
        [] => vec![b"nopass".to_vec()],
        password => vec![b"resetpass".to_vec(), [b">", password].concat()],
    };
    let words = rules.iter().map(Vec::as_slice);
    if context.shared.replication.is_some() {
        let rules = users::hashed_rules(DEFAULT_USER, words).map_err(failed)?;
        let name = DEFAULT_USER.to_vec();
        let change = ClusterChange::Set { name, rules, allows_channels: false };
        if change_or_park(context, args, &change)?.is_none() {
            return Ok(());
        }
    } else {
        context.shared.acl.set(DEFAULT_USER, words).map_err(failed)?;
    }
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
    let of_tables = table_options::matching(context, &patterns);
    context.replies.map(settings.len() + of_tables.len());
    let settings = settings.iter().map(|(name, value)| (*name, value));
    for (name, value) in settings.chain(of_tables.iter().map(|(name, value)| (&**name, value))) {
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
    let unix = options.unix_socket.as_ref();
    let access =
        context.database().mica.as_ref().map(|store| ("access", store.access().name().to_owned()));
    let all = [
        // No periodic snapshots; the engine's log is the append-only file.
        ("save", String::new()),
        ("appendonly", "yes".to_owned()),
        ("appendfsync", appendfsync.to_owned()),
        ("bind", shared.address.ip().to_string()),
        ("port", shared.address.port().to_string()),
        ("unixsocket", unix.map_or_else(String::new, |(path, _)| path.display().to_string())),
        ("unixsocketperm", format!("{:o}", unix.map_or(0, |(_, mode)| *mode))),
        ("databases", shared.select_count().to_string()),
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
        ("daemonize", "no".to_owned()),
        // There is no replication but that of the group.
        ("replicaof", String::new()),
        ("slaveof", String::new()),
    ];
    let encodings = settings.encodings.all().map(|(name, value)| (name, value.to_string()));
    all.into_iter().chain(encodings).chain(access).chain(tls_settings(shared)).collect()
}
