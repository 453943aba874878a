//! `stats`: every name that memcached 1.6.18 reports, in its order.
//!
//! | command | reports |
//! | --- | --- |
//! | `stats` | counters, connections, memory of items |
//! | `stats settings` | options |
//! | `stats items`, `stats slabs` | the single class, number 1 |
//! | `stats sizes` | that sizes are not tracked |
//! | `stats conns` | the listener (number 0) and each client by id |
//! | `stats cachedump` | keys: see [`super::dump`] |
//! | `stats detail on`, `off`, `dump` | counters per key prefix |
//! | `stats reset` | resets counters |
//!
//! Statistics of features that do not exist here, such as slabs, the LRU crawler and LRU segments,
//! are 0 or `no`: collectors find every name, and no value is invented.
//!
//! Source: memcached's `doc/protocol.txt`, "General-purpose statistics" and the following sections.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::Stats;
use siltstone_mica::Mode;

use super::commands::{CommandContext, CommandError};
use super::counters::Counter;
use super::dump;
use super::stat_names::{GENERAL, ITEMS, SETTINGS, SLABS};
use crate::clients::Address;
use crate::net::listen::BACKLOG;
use crate::process::CpuTimes;
use crate::resp::Replies;

/// memcached version whose commands are implemented. Clients choose features by it.
pub(super) const VERSION: &str = "1.6.18";

/// Data for a `stats` response.
struct Report<'a> {
    context: &'a CommandContext<'a>,
    engine: Stats,
}

impl Report<'_> {
    /// Bytes used by items: keys, values and metadata. For engines with files it is the size of the
    /// files, including overwritten data that is not collected yet.
    fn bytes(&self) -> u64 {
        let Stats { counters, memory, space_bytes, .. } = &self.engine;
        let counter = |name: &str| counters.get(name).copied();
        match (memory.get("items"), counter("log_bytes_used")) {
            (Some(items), _) => items.saturating_sub(counter("free_bytes").unwrap_or(0)),
            (None, Some(used)) => used,
            (None, None) => *space_bytes,
        }
    }

    /// Memory limit of the table in bytes; 0: the disk is the limit.
    fn limit(&self) -> u64 {
        self.context.database().mica.as_ref().map_or(0, |store| store.options().memory_bytes)
    }

    fn items(&self) -> u64 {
        self.engine.keys_estimate.unwrap_or(0)
    }

    fn total_evictions(&self) -> u64 {
        let counter = |name| self.engine.counters.get(name).copied().unwrap_or(0);
        counter("evictions") + counter("index_evictions")
    }

    fn evictions(&self) -> u64 {
        let before = self.context.shared.memcached.evictions_before.load(Relaxed);
        self.total_evictions().saturating_sub(before)
    }

    /// Value of a name of `stats`.
    fn general(&self, name: &str) -> String {
        let shared = self.context.shared;
        let (options, metrics) = (&shared.options, &shared.metrics);
        let connected = shared.clients.connected();
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        let seconds = |time: Duration| format!("{:.6}", time.as_secs_f64());
        let number = match name {
            "version" => return VERSION.to_owned(),
            "libevent" => return "none".to_owned(),
            "rusage_user" => return seconds(CpuTimes::of_process().user),
            "rusage_system" => return seconds(CpuTimes::of_process().system),
            "pid" => std::process::id().into(),
            "uptime" => shared.started.elapsed().as_secs(),
            "time" => self.context.now() / 1000,
            "pointer_size" => 8 * size_of::<usize>() as u64,
            "max_connections" => shared.settings.max_clients.load(Relaxed) as u64,
            "curr_connections" | "connection_structures" => connected as u64,
            "total_connections" => get(&metrics.accepted),
            "rejected_connections" => get(&metrics.rejected_clients),
            "bytes_read" => get(&metrics.bytes_in),
            "bytes_written" => get(&metrics.bytes_out),
            "limit_maxbytes" => self.limit(),
            "accepting_conns" => (connected < shared.settings.max_clients.load(Relaxed)).into(),
            "threads" => options.workers() as u64,
            "bytes" => self.bytes(),
            "curr_items" => self.items(),
            "evictions" => self.evictions(),
            name => shared.memcached.named(name).unwrap_or(0),
        };
        number.to_string()
    }

    /// Value of a name of `stats settings` that is not constant.
    fn setting(&self, name: &str) -> String {
        let shared = self.context.shared;
        let options = &shared.options;
        let address = shared.memcached_address;
        let yes_no = |is: bool| if is { "yes" } else { "no" }.to_owned();
        let port = |address: Option<std::net::SocketAddr>| address.map_or(0, |it| it.port());
        match name {
            "maxbytes" => self.limit().to_string(),
            "maxconns" => shared.settings.max_clients.load(Relaxed).to_string(),
            "tcpport" => port(address).to_string(),
            "udpport" => port(options.memcached_udp).to_string(),
            "inter" => address.map_or_else(|| "NULL".to_owned(), |it| it.ip().to_string()),
            "evictions" => {
                let store = self.context.database().mica.as_ref();
                let evicts = store.is_some_and(|store| store.options().mode == Mode::Cache);
                if evicts { "on" } else { "off" }.to_owned()
            }
            "num_threads" => options.workers().to_string(),
            "num_threads_per_udp" => u8::from(options.memcached_udp.is_some()).to_string(),
            "detail_enabled" => yes_no(shared.memcached.prefixes.is_enabled()),
            "tcp_backlog" => BACKLOG.to_string(),
            "auth_enabled_ascii" => yes_no(!shared.acl.is_open()),
            "item_size_max" => self.context.max_value_bytes().to_string(),
            "idle_timeout" => {
                shared.settings.idle_timeout().map_or(0, |time| time.as_secs()).to_string()
            }
            "engine" => self.engine.engine.to_owned(),
            _ => "0".to_owned(),
        }
    }

    /// Value of a name of `stats items`.
    fn of_items(&self, name: &str) -> u64 {
        match name {
            "number" => self.items(),
            "mem_requested" => self.bytes(),
            "evicted" => self.evictions(),
            "outofmemory" => self.context.shared.memcached.get(Counter::NoMemory),
            _ => 0,
        }
    }

    /// Value of a name of `stats slabs`.
    fn of_slabs(&self, name: &str) -> u64 {
        match name {
            // Maximum value size of the class.
            "chunk_size" => self.context.max_value_bytes() as u64,
            "used_chunks" => self.items(),
            name => self.context.shared.memcached.named(name).unwrap_or(0),
        }
    }

    /// Lines of `stats conns`.
    fn connections(&self) -> Vec<(String, String)> {
        let shared = self.context.shared;
        let mut lines = Vec::new();
        let mut line = |number: u64, name: &str, value: String| {
            lines.push((format!("{number}:{name}"), value));
        };
        if let Some(address) = shared.memcached_address {
            line(0, "addr", format!("tcp:{address}"));
            line(0, "state", "conn_listening".to_owned());
            line(0, "secs_since_last_cmd", shared.started.elapsed().as_secs().to_string());
        }
        for client in shared.clients.all() {
            let Address::Ip(local) = client.local else { continue };
            if Some(local.port()) != shared.memcached_address.map(|it| it.port()) {
                continue;
            }
            line(client.id, "addr", format!("tcp:{}", client.peer));
            line(client.id, "listen_addr", format!("tcp:{}", client.local));
            line(client.id, "state", "conn_read".to_owned());
            let last_received = Duration::from_millis(client.last_received_ms.load(Relaxed));
            let silent = client.since.elapsed().saturating_sub(last_received).as_secs();
            line(client.id, "secs_since_last_cmd", silent.to_string());
        }
        lines
    }
}

fn stat(replies: &mut Replies, name: impl Display, value: impl Display) {
    replies.raw(format!("STAT {name} {value}\r\n").as_bytes());
}

/// Writes the response to `stats` followed by these words.
pub(super) fn answer<'a>(
    context: &mut CommandContext<'_>,
    mut words: impl Iterator<Item = &'a [u8]>,
) -> Result<(), CommandError> {
    let (shared, counters) = (context.shared, &context.shared.memcached);
    let what = words.next();
    if what == Some(b"detail") {
        match words.next() {
            Some(b"dump") => counters.prefixes.dump(context.replies),
            Some(word @ (b"on" | b"off")) => {
                counters.prefixes.set_enabled(word == b"on");
                context.replies.raw(b"OK\r\n");
            }
            _ => {
                return Err(CommandError::Text("CLIENT_ERROR usage: stats detail on|off|dump"));
            }
        }
        return Ok(());
    }
    if what == Some(b"cachedump") {
        return dump::answer(context, words);
    }
    let engine = context.database().engine.stats();
    let report = Report { context, engine };
    let mut lines: Vec<(String, String)> = Vec::new();
    match what {
        None => {
            lines.extend(GENERAL.iter().map(|name| (name.to_string(), report.general(name))));
            if shared.settings.idle_timeout().is_some() {
                // As in memcached, which shows it only with that option.
                let cut_off = shared.metrics.timeouts.load(Relaxed);
                lines.push(("idle_kicks".to_owned(), cut_off.to_string()));
            }
        }
        Some(b"settings") => lines.extend(SETTINGS.iter().map(|(name, value)| {
            (name.to_string(), value.map_or_else(|| report.setting(name), str::to_owned))
        })),
        // A class is shown while it has items.
        Some(b"items") if report.items() > 0 => lines.extend(
            ITEMS.iter().map(|name| (format!("items:1:{name}"), report.of_items(name).to_string())),
        ),
        Some(b"items") => {}
        Some(b"slabs") => {
            let has_class = report.items() > 0;
            let names = if has_class { SLABS } else { &[] };
            lines.extend(
                names.iter().map(|name| (format!("1:{name}"), report.of_slabs(name).to_string())),
            );
            lines.push(("active_slabs".to_owned(), u8::from(has_class).to_string()));
            lines.push(("total_malloced".to_owned(), report.engine.memory_bytes().to_string()));
        }
        Some(b"sizes") => lines.push(("sizes_status".to_owned(), "disabled".to_owned())),
        Some(b"conns") => lines = report.connections(),
        Some(b"reset") => {
            counters.reset(report.total_evictions());
            context.replies.raw(b"RESET\r\n");
            return Ok(());
        }
        Some(_) => return Err(CommandError::Text("ERROR")),
    }
    for (name, value) in lines {
        stat(context.replies, name, value);
    }
    context.replies.raw(b"END\r\n");
    Ok(())
}
