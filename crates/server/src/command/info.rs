//! INFO: the server and its tables, as text.
//!
//! Source: the sections and names of Redis's INFO, as far as they apply; `# Tables` is ours.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;

use super::{Command, Context, NO_KEYS, Outcome};
use crate::resp::Args;

/// The version of Redis whose commands these are. Clients choose features by it.
pub(super) const REDIS_VERSION: &str = "7.0.0";

pub(super) fn commands() -> Vec<Command> {
    vec![super::command("server", "info", -1, 0, NO_KEYS, info, "Tells about the server.")]
}

type Section = fn(&Context<'_>, &mut String) -> std::fmt::Result;

const SECTIONS: [(&str, Section); 7] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Keyspace", keyspace),
    ("Tables", tables),
];

fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let wanted: Vec<_> = args.from(1).iter().map(<[u8]>::to_ascii_lowercase).collect();
    let is_all = |word: &Vec<u8>| matches!(word.as_slice(), b"all" | b"default" | b"everything");
    let all = wanted.is_empty() || wanted.iter().any(is_all);
    let mut text = String::new();
    for (name, section) in SECTIONS {
        if all || wanted.iter().any(|word| word.eq_ignore_ascii_case(name.as_bytes())) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // Writing into a string does not fail.
            let _ = write!(text, "# {name}\r\n");
            let _ = section(context, &mut text);
        }
    }
    context.replies.verbatim(&text);
    Ok(())
}

fn server(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let shared = context.shared;
    write!(out, "redis_version:{REDIS_VERSION}\r\n")?;
    write!(out, "siltstone_version:{}\r\n", env!("CARGO_PKG_VERSION"))?;
    write!(out, "redis_mode:standalone\r\nos:{}\r\n", std::env::consts::OS)?;
    write!(out, "process_id:{}\r\n", std::process::id())?;
    write!(out, "tcp_port:{}\r\n", shared.address.port())?;
    write!(out, "io_threads_active:{}\r\n", shared.options.workers())?;
    write!(out, "uptime_in_seconds:{}\r\n", shared.started.elapsed().as_secs())
}

fn clients(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let shared = context.shared;
    write!(out, "connected_clients:{}\r\n", shared.clients.connected())?;
    write!(out, "maxclients:{}\r\n", shared.options.max_clients)
}

fn memory(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let tables = context.shared.databases.iter();
    let used: u64 = tables.map(|table| table.engine.stats().memory_bytes()).sum();
    write!(out, "used_memory:{used}\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n")
}

fn persistence(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let shared = context.shared;
    let failed = shared.metrics.failed_syncs.load(Relaxed);
    write!(out, "loading:0\r\naof_enabled:1\r\n")?;
    write!(out, "rdb_last_save_time:{}\r\n", shared.last_sync.load(Relaxed))?;
    write!(out, "aof_last_write_status:{}\r\n", if failed == 0 { "ok" } else { "err" })
}

fn stats(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let metrics = &context.shared.metrics;
    for (name, value) in [
        ("total_connections_received", &metrics.accepted),
        ("total_net_input_bytes", &metrics.bytes_in),
        ("total_net_output_bytes", &metrics.bytes_out),
        ("rejected_connections", &metrics.rejected_clients),
        ("total_error_replies", &metrics.errors),
    ] {
        write!(out, "{name}:{}\r\n", value.load(Relaxed))?;
    }
    write!(out, "total_commands_processed:{}\r\n", metrics.total_commands())
}

fn keyspace(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    for (index, database) in context.shared.databases.iter().enumerate() {
        let keys = database.engine.stats().keys_estimate;
        if let Some(keys) = keys.filter(|keys| *keys > 0) {
            write!(out, "db{index}:keys={keys},expires=0,avg_ttl=0\r\n")?;
        }
    }
    Ok(())
}

fn tables(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    for (index, database) in context.shared.databases.iter().enumerate() {
        let stats = database.engine.stats();
        write!(
            out,
            "table{index}:name={},engine={}{},space_bytes={},write_amplification={:.2}\r\n",
            database.name,
            database.engine.name(),
            stats.keys_estimate.map_or(String::new(), |keys| format!(",keys={keys}")),
            stats.space_bytes,
            stats.write_amplification().unwrap_or(0.0),
        )?;
    }
    Ok(())
}
