//! INFO: the server and its tables as text.
//!
//! Sections and field names are those of Redis's INFO, as far as they apply, plus `# Tables`.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use siltstone_engine::Stats;

use super::cluster as nodes;
use super::config;
use super::context::Context;
use super::definition::{NO_KEYS, REDIS_VERSION};
use super::entry::{self, Command};
use super::failure::Outcome;
use super::keyspace::Keyspace;
use super::table_moves;
use crate::acl::log::Reason;
use crate::backups::Backups;
use crate::clients::Client;
use crate::process::{CpuTimes, resident_bytes};
use crate::replication::group_set::members;
use crate::replication::groups::Groups;
use crate::resp::Args;
use crate::store::Database;

pub(super) fn commands() -> Vec<Command> {
    vec![entry::command(
        "server",
        "info",
        -1,
        0,
        NO_KEYS,
        info,
        "Returns information about the server.",
    )]
}

type Section = fn(&Context<'_>, &mut String) -> std::fmt::Result;

const SECTIONS: [(&str, Section); 13] = [
    ("Server", server),
    ("Clients", clients),
    ("Memory", memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("CPU", cpu),
    ("Commandstats", command_stats),
    ("Latencystats", latency_stats),
    ("Errorstats", error_stats),
    ("Cluster", cluster),
    ("Keyspace", keyspace),
    ("Tables", tables),
];

fn info(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let requested: Vec<_> = args.from(1).iter().map(<[u8]>::to_ascii_lowercase).collect();
    let is_requested = |name: &str| requested.iter().any(|word| word == name.as_bytes());
    let is_all = is_requested("all") || is_requested("everything");
    let is_default = requested.is_empty() || is_requested("default");
    let mut text = String::new();
    for (name, section) in SECTIONS {
        // As in Redis, statistics of commands are shown only on request.
        let is_shown = is_all || is_default && !["Commandstats", "Latencystats"].contains(&name);
        if is_shown || is_requested(&name.to_lowercase()) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            // Writing to a string does not fail.
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
    let mode = if shared.replication.is_some() { "cluster" } else { "standalone" };
    write!(out, "redis_mode:{mode}\r\nos:{}\r\n", std::env::consts::OS)?;
    write!(out, "process_id:{}\r\n", std::process::id())?;
    write!(out, "tcp_port:{}\r\n", shared.address.port())?;
    if let Some((path, _)) = &shared.options.unix_socket {
        let (ip, port) = (shared.address.ip(), shared.address.port());
        write!(out, "listener0:name=tcp,bind={ip},port={port}\r\n")?;
        write!(out, "listener1:name=unix,bind={}\r\n", path.display())?;
    }
    write!(out, "io_threads_active:{}\r\n", shared.options.workers())?;
    write!(out, "uptime_in_seconds:{}\r\n", shared.started.elapsed().as_secs())
}

fn clients(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let shared = context.shared;
    write!(out, "connected_clients:{}\r\n", shared.clients.connected())?;
    write!(
        out,
        "cluster_connections:0\r\nmaxclients:{}\r\n",
        shared.settings.max_clients.load(Relaxed)
    )?;
    write!(out, "blocked_clients:{}\r\n", shared.clients.blocked())?;
    let clients = shared.clients.all();
    let count = |is_counted: fn(&Client) -> bool| {
        clients.iter().filter(|client| is_counted(client)).count()
    };
    write!(out, "pubsub_clients:{}\r\n", count(Client::is_subscriber))?;
    write!(out, "watching_clients:{}\r\n", count(Client::is_watching))?;
    let watched: usize = shared.databases.iter().map(|database| database.watches.len()).sum();
    write!(out, "total_watched_keys:{watched}\r\n")?;
    let (keys, without_key) = shared.observers.blocked.count();
    write!(out, "total_blocking_keys:{keys}\r\n")?;
    write!(out, "total_blocking_keys_on_nokey:{without_key}\r\n")?;
    write!(out, "tracking_clients:{}\r\n", shared.observers.tracking.clients())
}

/// Memory of all tables.
pub(super) fn used_bytes(context: &Context<'_>) -> u64 {
    let tables = context.shared.databases.iter();
    let tables: Vec<_> = tables.map(|table| table.engine.stats()).collect();
    // A cache that the tables share is that of the store in each of their statistics.
    let shared = tables.iter().filter_map(|stats| stats.counters.get("store_block_cache")).max();
    tables.iter().map(Stats::memory_bytes).sum::<u64>() + shared.unwrap_or(&0)
}

fn memory(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let used = used_bytes(context);
    let resident = resident_bytes().unwrap_or(used);
    let (limit, policy) = (config::max_memory(context), config::policy(context));
    for (name, bytes) in
        [("used_memory", used), ("used_memory_rss", resident), ("maxmemory", limit)]
    {
        write!(out, "{name}:{bytes}\r\n{name}_human:{}\r\n", human(bytes))?;
    }
    write!(out, "maxmemory_policy:{policy}\r\n")?;
    let (scripts, bytes) = context.shared.scripts.counts();
    let (libraries, functions) = context.shared.functions.counts();
    write!(out, "number_of_functions:{functions}\r\nnumber_of_libraries:{libraries}\r\n")?;
    write!(out, "number_of_cached_scripts:{scripts}\r\nused_memory_scripts_eval:{bytes}\r\n")
}

/// Bytes in Redis's human-readable format.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["K", "M", "G", "T", "P"];
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    format!("{value:.2}{}", UNITS[unit])
}

fn persistence(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let shared = context.shared;
    let failed = shared.metrics.failed_syncs.load(Relaxed);
    let has_repository = u8::from(shared.backups.is_some());
    let backups = shared.backups.as_ref().map(Backups::report).unwrap_or_default();
    let is_running = u8::from(backups.is_in_progress());
    let seconds = |time: Option<Duration>| time.map_or(-1, |time| time.as_secs() as i64);
    write!(out, "loading:0\r\nasync_loading:0\r\nrdb_bgsave_in_progress:{is_running}\r\n")?;
    write!(out, "rdb_last_save_time:{}\r\n", shared.last_save_s())?;
    let status = if backups.has_last_failed { "err" } else { "ok" };
    write!(out, "rdb_last_bgsave_status:{status}\r\n")?;
    write!(out, "rdb_last_bgsave_time_sec:{}\r\n", seconds(backups.last_duration))?;
    let current = backups.running_since.map(|since| since.elapsed());
    write!(
        out,
        "rdb_current_bgsave_time_sec:{}\r\nrdb_saves:{}\r\n",
        seconds(current),
        backups.completed
    )?;
    write!(out, "siltstone_backup_repository:{has_repository}\r\n")?;
    if let Some(archive) = &shared.archive {
        let (state, lag) = (archive.state(), archive.lag().as_secs());
        let status = if state.has_last_failed { "err" } else { "ok" };
        write!(out, "siltstone_archive_last_mark_ms:{}\r\n", state.mark)?;
        write!(out, "siltstone_archive_lag_seconds:{lag}\r\n")?;
        write!(out, "siltstone_archive_status:{status}\r\n")?;
        write!(out, "siltstone_archive_failures:{}\r\n", state.failures)?;
    }
    write!(out, "aof_enabled:1\r\naof_rewrite_in_progress:0\r\n")?;
    write!(out, "aof_last_write_status:{}\r\n", if failed == 0 { "ok" } else { "err" })?;
    table_moves::report(context, out)
}

fn stats(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let metrics = &context.shared.metrics;
    write!(out, "total_connections_received:{}\r\n", metrics.accepted.load(Relaxed))?;
    write!(out, "total_commands_processed:{}\r\n", metrics.total_commands())?;
    write!(out, "instantaneous_ops_per_sec:{}\r\n", metrics.commands_per_second())?;
    for (name, value) in [
        ("total_net_input_bytes", &metrics.bytes_in),
        ("total_net_output_bytes", &metrics.bytes_out),
        ("rejected_connections", &metrics.rejected_clients),
    ] {
        write!(out, "{name}:{}\r\n", value.load(Relaxed))?;
    }
    let [channels, patterns, shard_channels] = context.shared.pubsub.counts();
    write!(out, "pubsub_channels:{channels}\r\npubsub_patterns:{patterns}\r\n")?;
    write!(out, "pubsubshard_channels:{shard_channels}\r\n")?;
    if let Some(groups) = &context.shared.replication {
        let dropped = groups.publication_counts().dropped;
        write!(out, "pubsub_dropped_between_nodes:{dropped}\r\n")?;
    }
    let [keys, items, prefixes] = context.shared.observers.tracking.counts();
    write!(out, "tracking_total_keys:{keys}\r\ntracking_total_items:{items}\r\n")?;
    write!(out, "tracking_total_prefixes:{prefixes}\r\n")?;
    // MIGRATE keeps no connections.
    write!(out, "migrate_cached_sockets:0\r\n")?;
    let overflows = context.shared.clients.overflows();
    write!(out, "client_output_buffer_limit_disconnections:{overflows}\r\n")?;
    let tables = context.shared.databases.iter();
    let expired: u64 = tables.map(|table| table.engine.stats().expired_entries_dropped).sum();
    let expired_fields = metrics.expired_fields.load(Relaxed);
    write!(out, "expired_keys:{expired}\r\nexpired_subkeys:{expired_fields}\r\n")?;
    let evicted: u64 = context.shared.databases.iter().map(evictions).sum();
    write!(out, "evicted_keys:{evicted}\r\n")?;
    for (name, value) in [
        ("keyspace_hits", &metrics.keyspace_hits),
        ("keyspace_misses", &metrics.keyspace_misses),
        ("total_error_replies", &metrics.errors),
    ] {
        write!(out, "{name}:{}\r\n", value.load(Relaxed))?;
    }
    for reason in [Reason::Auth, Reason::Command, Reason::Key, Reason::Channel] {
        let (name, count) = (reason.short_name(), context.shared.acl.log.count(reason));
        write!(out, "acl_access_denied_{name}:{count}\r\n")?;
    }
    Ok(())
}

/// Number of evicted keys; only `mica` caches evict.
fn evictions(database: &Database) -> u64 {
    let Some(store) = &database.mica else { return 0 };
    let counters = store.counters();
    ["evictions", "index_evictions"].iter().filter_map(|name| counters.get(name)).sum()
}

fn replication(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    if let Some(groups) = &context.shared.replication {
        return nodes::replication_info(groups, out);
    }
    write!(out, "role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\n")?;
    write!(out, "master_repl_offset:0\r\nrepl_backlog_active:0\r\n")
}

fn cpu(_context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    let CpuTimes { system, user } = CpuTimes::of_process();
    let (system, user) = (system.as_secs_f64(), user.as_secs_f64());
    write!(out, "used_cpu_sys:{system:.6}\r\nused_cpu_user:{user:.6}\r\n")?;
    // There are no child processes.
    write!(out, "used_cpu_sys_children:0.000000\r\nused_cpu_user_children:0.000000\r\n")
}

fn command_stats(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    for (name, counts) in context.shared.metrics.commands() {
        // Rejected calls did not run, but their time was recorded.
        let calls = counts.latencies.len().saturating_sub(counts.rejected);
        let mean = counts.latencies.mean() / 1000.0;
        write!(out, "cmdstat_{name}:calls={calls},usec={:.0},", mean * calls as f64)?;
        write!(out, "usec_per_call={mean:.2},rejected_calls={},", counts.rejected)?;
        write!(out, "failed_calls={}\r\n", counts.failed)?;
    }
    Ok(())
}

fn error_stats(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    for (code, count) in context.shared.metrics.error_codes() {
        write!(out, "errorstat_{code}:count={count}\r\n")?;
    }
    Ok(())
}

fn latency_stats(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    for (name, counts) in context.shared.metrics.commands() {
        let micros = |quantile| counts.latencies.value_at_quantile(quantile) as f64 / 1000.0;
        let [median, p99, p999] = [0.5, 0.99, 0.999].map(micros);
        write!(out, "latency_percentiles_usec_{name}:p50={median:.3},p99={p99:.3},")?;
        write!(out, "p99.9={p999:.3}\r\n")?;
    }
    Ok(())
}

fn cluster(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    write!(out, "cluster_enabled:{}\r\n", u8::from(context.shared.replication.is_some()))
}

fn keyspace(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    if let Some(groups) = context.shared.replication.as_ref().filter(|groups| groups.are_several())
    {
        return keyspace_of_groups(context, groups, out);
    }
    for (index, database) in context.shared.databases.iter().enumerate() {
        // A table that cannot be read reports it to its readers; INFO covers the others too.
        let Ok(keyspace) = Keyspace::of(database, context.now()) else { continue };
        let Keyspace { keys, expires, average_ttl, .. } = keyspace;
        if keys > 0 {
            write!(out, "db{index}:keys={keys},expires={expires},avg_ttl={average_ttl}\r\n")?;
        }
    }
    Ok(())
}

/// The keys of the groups that this node leads, together.
fn keyspace_of_groups(
    context: &Context<'_>,
    groups: &Groups,
    out: &mut String,
) -> std::fmt::Result {
    let shared = context.shared;
    let of_group = |group| Keyspace::of(&shared.databases[group], shared.now(group)).ok();
    let (mut keys, mut expires, mut ttl_sum) = (0, 0, 0);
    for found in members(groups.led()).filter_map(of_group) {
        (keys, expires) = (keys + found.keys, expires + found.expires);
        ttl_sum += u128::from(found.average_ttl) * u128::from(found.expires);
    }
    let average_ttl = ttl_sum / u128::from(expires.max(1));
    match keys > 0 {
        true => write!(out, "db0:keys={keys},expires={expires},avg_ttl={average_ttl}\r\n"),
        false => Ok(()),
    }
}

fn tables(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    for (index, database) in context.shared.databases.iter().enumerate() {
        let stats = database.engine.stats();
        let keyspace = Keyspace::of(database, context.now()).unwrap_or_default();
        write!(
            out,
            "table{index}:name={},engine={},keys={},keys_exact={},space_bytes={},\
             write_amplification={:.2}\r\n",
            database.name,
            database.engine.name(),
            keyspace.keys,
            if keyspace.is_exact { "yes" } else { "no" },
            stats.space_bytes,
            stats.write_amplification().unwrap_or(0.0),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_sizes_have_the_format_of_redis() {
        let shown = [0, 1023, 1024, 1_930_808, 25_276_502_016, u64::MAX].map(human);
        assert_eq!(shown, ["0B", "1023B", "1.00K", "1.84M", "23.54G", "16384.00P"]);
    }
}
