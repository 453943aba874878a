//! CONFIG: settings that clients query, and the one that can change at run time.
//!
//! The server is configured by its command line, and SET refers to it, except for `access`: the
//! access mode of the selected table, if it is a `mica` table.

use std::sync::Arc;

use siltstone_engine::names::unknown;
use siltstone_mica::{Access, Mode, Store};

use super::failure::{unknown_subcommand, wrong_subcommand_arity};
use super::{ADMIN, Command, Context, NO_KEYS, Outcome, help};
use crate::resp::Args;
use crate::{Fsync, glob};

pub(super) fn commands() -> Vec<Command> {
    vec![super::command(
        "server",
        "config",
        -2,
        ADMIN,
        NO_KEYS,
        config,
        "Returns the configuration of the server.",
    )]
}

fn config(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"get", 3..) => get(context, args.from(2)),
        (b"set", 4) if args[2].eq_ignore_ascii_case(b"access") => set_access(context, &args[3]),
        (b"set", 4..) => Err(format!(
            "ERR CONFIG SET is not supported: '{}' is set when the server is started",
            String::from_utf8_lossy(&args[2][..args[2].len().min(128)])
        )
        .into()),
        (b"resetstat", 2) => {
            context.shared.metrics.reset();
            context.replies.ok();
            Ok(())
        }
        (b"rewrite", 2) => {
            Err(super::failure::reply_error("ERR The server is running without a config file"))
        }
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
    "SET access (erew|crew|crcw)",
    "    Set the access mode of the selected table of mica. Other settings are set on the command line.",
    "RESETSTAT",
    "    Reset statistics reported by the INFO command.",
];

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

fn settings(context: &Context<'_>) -> Vec<(&'static str, String)> {
    let shared = context.shared;
    let options = &shared.options;
    let (appendfsync, timeout) = (
        match options.fsync {
            Fsync::Always => "always",
            Fsync::EverySecond => "everysec",
            Fsync::Never => "no",
        },
        options.idle_timeout.map_or(0, |timeout| timeout.as_secs()),
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
        ("maxclients", options.max_clients.to_string()),
        ("maxmemory", max_memory(context).to_string()),
        ("maxmemory-policy", policy(context).to_owned()),
        ("proto-max-bulk-len", options.max_request_bytes.to_string()),
        ("client-query-buffer-limit", options.max_request_bytes.to_string()),
        ("client-output-buffer-limit", format!("normal {} 0 0", options.max_output_bytes)),
        ("timeout", timeout.to_string()),
        ("io-threads", options.workers().to_string()),
        ("cluster-enabled", "no".to_owned()),
    ];
    all.into_iter().chain(access).collect()
}
