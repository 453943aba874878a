//! Metrics of the server and its tables in Prometheus's text format.
//!
//! A renamed family keeps its old name for one release: [`DEPRECATED`] maps old names to new ones.
//!
//! Source: the Prometheus documentation, "Text-based format", version 0.0.4.

use std::collections::BTreeSet;
use std::fmt::{Display, Result, Write};
use std::sync::atomic::Ordering::Relaxed;

use siltstone_cluster::node::Status;
use siltstone_cluster::transport::PublicationCounts;
use siltstone_engine::Stats;

use crate::backups::Backups;
use crate::replication::groups::Groups;
use crate::shared::Shared;
use crate::store::Database;

/// Old names of families, their new names, and a change of labels from new to old.
const DEPRECATED: [(&str, &str, (&str, &str)); 7] = [
    ("udp_strangers_total", "udp_unverified_source_packets_total", ("", "")),
    ("udp_again_total", "udp_duplicate_packets_total", ("", "")),
    ("udp_handed_total", "udp_forwarded_requests_total", ("", "")),
    ("table_gets_found_total", "table_get_hits_total", ("", "")),
    ("table_space_bytes", "table_live_bytes", ("", "")),
    (
        "table_stall_seconds_total",
        "table_write_stall_seconds_total",
        ("cause=\"slowdown\"", "cause=\"insert\""),
    ),
    ("table_longest_stall_seconds", "table_write_stall_max_seconds", ("", "")),
];

/// Old names of engine counters, and their new names.
const RENAMED_COUNTERS: [(&str, &str); 16] = [
    ("container_bytes", "l0_bytes"),
    ("container_cursor_ppm", "l0_cursor_ppm"),
    ("hot_keys_carried", "hot_keys_retained"),
    ("indexes_made_again", "indexes_rebuilt"),
    ("nvm_comparisons", "pmem_comparisons"),
    ("nvm_data_bytes", "pmem_data_bytes"),
    ("nvm_directory_bytes", "pmem_directory_bytes"),
    ("nvm_lines", "pmem_lines"),
    ("nvm_metadata_bytes", "pmem_metadata_bytes"),
    ("nvm_pages", "pmem_pages"),
    ("nvm_pages_free", "pmem_pages_free"),
    ("nvm_rows", "pmem_runs"),
    ("nvm_rows_built", "pmem_runs_built"),
    ("nvm_rows_refused", "pmem_alloc_failures"),
    ("wear_least", "wear_min"),
    ("wear_most", "wear_max"),
];

/// Renders all metrics.
pub(crate) fn page(shared: &Shared) -> String {
    let mut page = Page { text: String::new() };
    // Writing to a string does not fail.
    let _ = page.server(shared);
    let _ = page.commands(shared);
    if let Some(groups) = &shared.replication {
        let _ = page.replication(groups);
    }
    let _ = page.tables(&shared.databases);
    let _ = page.deprecated();
    page.text
}

struct Page {
    text: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) -> Result {
        writeln!(self.text, "# HELP siltstone_{name} {help}\n# TYPE siltstone_{name} {kind}")
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) -> Result {
        self.family(name, kind, help)?;
        writeln!(self.text, "siltstone_{name} {value}")
    }

    fn server(&mut self, shared: &Shared) -> Result {
        let metrics = &shared.metrics;
        let udp = &shared.udp;
        let connected = shared.clients.connected();
        self.one("connected_clients", "gauge", "Open client connections.", connected)?;
        let uptime = shared.started.elapsed().as_secs_f64();
        self.one("uptime_seconds", "gauge", "Time since the server was started.", uptime)?;
        for (name, help, value) in [
            ("clients_accepted_total", "Accepted connections.", &metrics.accepted),
            (
                "clients_rejected_total",
                "Connections rejected by the limit of clients.",
                &metrics.rejected_clients,
            ),
            ("passwords_rejected_total", "Wrong passwords.", &metrics.rejected_passwords),
            (
                "tls_errors_total",
                "Failed TLS handshakes, and invalid TLS records.",
                &metrics.tls_errors,
            ),
            ("protocol_errors_total", "Malformed requests.", &metrics.protocol_errors),
            (
                "slow_readers_total",
                "Connections closed for too many unread replies.",
                &metrics.slow_readers,
            ),
            (
                "timeouts_total",
                "Connections closed by the idle or stall timeout.",
                &metrics.timeouts,
            ),
            ("error_replies_total", "Commands that returned an error.", &metrics.errors),
            ("failed_syncs_total", "Failed syncs of tables.", &metrics.failed_syncs),
            ("received_bytes_total", "Bytes received from clients.", &metrics.bytes_in),
            ("sent_bytes_total", "Bytes sent to clients.", &metrics.bytes_out),
            ("udp_packets_total", "Request packets over UDP.", &udp.packets),
            ("udp_requests_total", "Requests over UDP.", &udp.requests),
            ("udp_malformed_total", "Malformed datagrams.", &udp.malformed),
            (
                "udp_unverified_source_packets_total",
                "Packets without a valid cookie, password or version.",
                &udp.unverified,
            ),
            ("udp_duplicate_packets_total", "Duplicate packets.", &udp.duplicates),
            (
                "udp_forwarded_requests_total",
                "Request packets forwarded between ports.",
                &udp.forwarded,
            ),
        ] {
            self.one(name, "counter", help, value.load(Relaxed))?;
        }
        if let Some(archive) = &shared.archive {
            let state = archive.state();
            let (name, help) = ("archive_lag_seconds", "Age of the newest moment in the archive.");
            self.one(name, "gauge", help, archive.lag().as_secs_f64())?;
            let (name, help) = ("archive_failures_total", "Failed steps of the archive.");
            self.one(name, "counter", help, state.failures)?;
            let (name, help) = ("archive_bytes_total", "Bytes written to the archive.");
            self.one(name, "counter", help, state.bytes)?;
        }
        let Some(backups) = shared.backups.as_ref().map(Backups::report) else { return Ok(()) };
        self.one("backups_total", "counter", "Complete backups.", backups.completed)?;
        self.one("backups_failed_total", "counter", "Failed backups.", backups.failed)?;
        let (name, help) = ("last_backup_timestamp_seconds", "End of the last complete backup.");
        backups.completed_at_s.map_or(Ok(()), |at| self.one(name, "gauge", help, at))
    }

    fn commands(&mut self, shared: &Shared) -> Result {
        let name = "command_duration_seconds";
        self.family(name, "summary", "Command latency, without the sync.")?;
        for (command, counts) in shared.metrics.commands() {
            let latencies = counts.latencies;
            let count = latencies.len();
            for quantile in [0.5, 0.9, 0.99, 0.999, 1.0] {
                let seconds = latencies.value_at_quantile(quantile) as f64 / 1e9;
                writeln!(
                    self.text,
                    "siltstone_{name}{{command=\"{command}\",quantile=\"{quantile}\"}} {seconds}"
                )?;
            }
            let sum = latencies.mean() * count as f64 / 1e9;
            writeln!(self.text, "siltstone_{name}_sum{{command=\"{command}\"}} {sum}")?;
            writeln!(self.text, "siltstone_{name}_count{{command=\"{command}\"}} {count}")?;
        }
        Ok(())
    }

    /// This node of a replicated table; with several groups by group.
    fn replication(&mut self, groups: &Groups) -> Result {
        let statuses: Vec<_> = groups.iter().map(|group| (group, group.node.status())).collect();
        let label = |group: usize, others: &str| match (groups.are_several(), others) {
            (false, "") => String::new(),
            (false, others) => format!("{{{others}}}"),
            (true, "") => format!("{{group=\"{group}\"}}"),
            (true, others) => format!("{{group=\"{group}\",{others}}}"),
        };
        type Value = fn(&Status) -> u64;
        let gauges: [(&str, &str, Value); 7] = [
            ("raft_node", "The number of this node.", |status| status.node),
            ("raft_leader", "The number of the leader; 0 if none is known.", |status| {
                status.leader.as_ref().map_or(0, |leader| leader.node)
            }),
            ("raft_term", "The term of the group.", |status| status.term),
            ("raft_commit_index", "The last entry known to be committed.", |status| status.commit),
            ("raft_applied_index", "The last entry applied here.", |status| status.applied),
            ("raft_log_bytes", "Bytes of the log's file.", |status| status.log_bytes),
            ("raft_voters", "Members that vote.", |status| status.voters.len() as u64),
        ];
        for (name, help, value) in gauges {
            self.family(name, "gauge", help)?;
            for (group, (_, status)) in statuses.iter().enumerate() {
                let label = label(group, "");
                writeln!(self.text, "siltstone_{name}{label} {}", value(status))?;
            }
        }
        let help = "Followers that the log was not retained for any more, as it was too large.";
        self.family("raft_given_up_followers_total", "counter", help)?;
        for (group, (_, status)) in statuses.iter().enumerate() {
            let (label, count) = (label(group, ""), status.given_up_followers);
            writeln!(self.text, "siltstone_raft_given_up_followers_total{label} {count}")?;
        }
        let PublicationCounts { sent, received, dropped } = groups.publication_counts();
        for (name, help, count) in [
            ("pubsub_sent_to_nodes_total", "Messages given to a connection to a node.", sent),
            ("pubsub_received_from_nodes_total", "Messages of other nodes.", received),
            ("pubsub_dropped_between_nodes_total", "Messages that a node did not get.", dropped),
        ] {
            self.one(name, "counter", help, count)?;
        }
        // Of the leader only.
        self.family("raft_peer_lag_entries", "gauge", "Entries that another node lacks.")?;
        for (group, (_, status)) in statuses.iter().enumerate() {
            for peer in &status.peers {
                let label = label(group, &format!("node=\"{}\"", peer.node));
                writeln!(self.text, "siltstone_raft_peer_lag_entries{label} {}", peer.lag)?;
            }
        }
        self.family("raft_peer_up", "gauge", "Whether another node was heard of lately.")?;
        for (group, (replication, status)) in statuses.iter().enumerate() {
            for peer in &status.peers {
                let is_up = u8::from(replication.membership.is_alive(peer.node));
                let label = label(group, &format!("node=\"{}\"", peer.node));
                writeln!(self.text, "siltstone_raft_peer_up{label} {is_up}")?;
            }
        }
        Ok(())
    }

    fn tables(&mut self, databases: &[Database]) -> Result {
        let all: Vec<_> = databases.iter().map(|d| (label(&d.name), d.engine.stats())).collect();
        let mut each = |name: &str, kind: &str, help: &str, rows: Rows| -> Result {
            self.family(name, kind, help)?;
            for (table, stats) in &all {
                for (labels, value) in rows(stats) {
                    writeln!(self.text, "siltstone_{name}{{table=\"{table}\"{labels}}} {value}")?;
                }
            }
            Ok(())
        };
        each("table_info", "gauge", "Always 1; the engine is a label.", |s| {
            vec![(format!(",engine=\"{}\"", s.engine), 1.0)]
        })?;
        each("table_user_bytes_written_total", "counter", "Bytes of keys and values.", |s| {
            plain(s.user_bytes_written as f64)
        })?;
        each("table_writes_total", "counter", "Operations written.", |s| plain(s.writes as f64))?;
        each("table_gets_total", "counter", "Lookups.", |s| plain(s.gets as f64))?;
        each("table_get_hits_total", "counter", "Lookups that returned a value.", |s| {
            plain(s.gets_found as f64)
        })?;
        each("table_seeks_total", "counter", "Iterator seeks.", |s| plain(s.seeks as f64))?;
        each("table_expired_entries_total", "counter", "Entries that expiry removed.", |s| {
            plain(s.expired_entries_dropped as f64)
        })?;
        each("table_keys", "gauge", "Estimated number of keys.", |s| {
            s.keys_estimate.map_or_else(Vec::new, |keys| plain(keys as f64))
        })?;
        each("table_live_bytes", "gauge", "Bytes of live files.", |s| plain(s.space_bytes as f64))?;
        each("table_write_amplification", "gauge", "I/O bytes per byte written.", |s| {
            s.write_amplification().map_or_else(Vec::new, plain)
        })?;
        each("table_io_bytes_total", "counter", "Bytes of I/O by purpose.", |s| {
            let both = |purpose: &str, direction: &str, bytes: u64| {
                let labels = format!(",purpose=\"{purpose}\",direction=\"{direction}\"");
                (labels, bytes as f64)
            };
            s.io.iter()
                .flat_map(|(purpose, io)| {
                    let written = both(purpose, "write", io.bytes_written);
                    [both(purpose, "read", io.bytes_read), written]
                })
                .collect()
        })?;
        each("table_io_requests_total", "counter", "I/O requests by purpose.", |s| {
            let one = |purpose: &str, kind: &str, count: u64| {
                (format!(",purpose=\"{purpose}\",kind=\"{kind}\""), count as f64)
            };
            s.io.iter()
                .flat_map(|(purpose, io)| {
                    let (reads, writes) = (one(purpose, "read", io.reads), io.writes);
                    [reads, one(purpose, "write", writes), one(purpose, "sync", io.syncs)]
                })
                .collect()
        })?;
        each("table_memory_bytes", "gauge", "Resident memory by structure.", |s| {
            let row =
                |(name, bytes): (&&str, &u64)| (format!(",structure=\"{name}\""), *bytes as f64);
            s.memory.iter().map(row).collect()
        })?;
        each("table_write_stall_seconds_total", "counter", "Write stall time by cause.", |s| {
            let causes = [
                ("slowdown", s.stall.slowdown_us),
                ("flush", s.stall.flush_us),
                ("compaction", s.stall.compaction_us),
            ];
            causes.map(|(c, us)| (format!(",cause=\"{c}\""), us as f64 / 1e6)).into()
        })?;
        each("table_write_stall_max_seconds", "gauge", "Longest write stall.", |s| {
            plain(s.stall.longest_us as f64 / 1e6)
        })?;
        each("table_level_files", "gauge", "Files per level.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.files as f64)).collect()
        })?;
        each("table_level_bytes", "gauge", "Bytes per level.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.bytes as f64)).collect()
        })?;
        each("table_level_target_bytes", "gauge", "Target size per level; 0: none.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.target_bytes as f64)).collect()
        })?;
        each("table_level_written_bytes_total", "counter", "Bytes written per level.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.bytes_written as f64)).collect()
        })?;
        self.engine_counters(&all)
    }

    /// One family per counter of the engines. Some are monotonic, others are not, so they are
    /// untyped.
    fn engine_counters(&mut self, tables: &[(String, Stats)]) -> Result {
        let names: BTreeSet<&str> =
            tables.iter().flat_map(|(_, stats)| stats.counters.keys().copied()).collect();
        for name in &names {
            self.family(&format!("engine_{name}"), "untyped", &format!("Engine counter {name}."))?;
            for (table, stats) in tables {
                if let Some(value) = stats.counters.get(name) {
                    writeln!(self.text, "siltstone_engine_{name}{{table=\"{table}\"}} {value}")?;
                }
            }
        }
        self.family(
            "table_counter_total",
            "counter",
            "Deprecated: use the siltstone_engine_ families.",
        )?;
        for (table, stats) in tables {
            for (name, value) in &stats.counters {
                let renamed = RENAMED_COUNTERS.iter().find(|(_, new)| new == name);
                let name = renamed.map_or(*name, |(old, _)| *old);
                writeln!(
                    self.text,
                    "siltstone_table_counter_total{{table=\"{table}\",name=\"{name}\"}} {value}"
                )?;
            }
        }
        Ok(())
    }

    /// Repeats renamed families under their old names.
    fn deprecated(&mut self) -> Result {
        let mut old_families = String::new();
        let engine = |name: &str| format!("engine_{name}");
        let counters = RENAMED_COUNTERS.map(|(old, new)| (engine(old), engine(new), ("", "")));
        let families =
            DEPRECATED.map(|(old, new, labels)| (old.to_owned(), new.to_owned(), labels));
        for (old, new, (new_label, old_label)) in families.into_iter().chain(counters) {
            if !self.text.contains(&format!("# TYPE siltstone_{new} ")) {
                continue;
            }
            writeln!(old_families, "# HELP siltstone_{old} Deprecated: use siltstone_{new}.")?;
            for line in self.text.lines() {
                if let Some(kind) = line.strip_prefix(&format!("# TYPE siltstone_{new} ")) {
                    writeln!(old_families, "# TYPE siltstone_{old} {kind}")?;
                }
                let sample = line.strip_prefix(&format!("siltstone_{new}"));
                if let Some(sample) = sample.filter(|sample| sample.starts_with(['{', ' '])) {
                    let sample = match new_label {
                        "" => sample.to_owned(),
                        _ => sample.replace(new_label, old_label),
                    };
                    writeln!(old_families, "siltstone_{old}{sample}")?;
                }
            }
        }
        self.text.push_str(&old_families);
        Ok(())
    }
}

/// Samples of a family for one table: additional labels, and a value.
type Rows = fn(&Stats) -> Vec<(String, f64)>;

fn plain(value: f64) -> Vec<(String, f64)> {
    vec![(String::new(), value)]
}

fn level(name: &str) -> String {
    format!(",level=\"{}\"", label(name))
}

/// Escapes a label value.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_family_is_repeated_under_its_old_name() {
        let mut page = Page { text: String::new() };
        page.one("udp_duplicate_packets_total", "counter", "Duplicate packets.", 3).unwrap();
        page.family("table_write_stall_seconds_total", "counter", "Write stalls.").unwrap();
        page.text +=
            "siltstone_table_write_stall_seconds_total{table=\"a\",cause=\"slowdown\"} 1\n";
        let mut stats = Stats::default();
        stats.counters.insert("pmem_runs", 7);
        page.engine_counters(&[("a".to_owned(), stats)]).unwrap();
        page.deprecated().unwrap();
        for line in [
            "# HELP siltstone_udp_again_total Deprecated: use siltstone_udp_duplicate_packets_total.",
            "# TYPE siltstone_udp_again_total counter",
            "siltstone_udp_again_total 3",
            "siltstone_table_stall_seconds_total{table=\"a\",cause=\"insert\"} 1",
            "# TYPE siltstone_engine_nvm_rows untyped",
            "siltstone_engine_nvm_rows{table=\"a\"} 7",
            "siltstone_table_counter_total{table=\"a\",name=\"nvm_rows\"} 7",
        ] {
            assert!(page.text.lines().any(|found| found == line), "{line}\n{}", page.text);
        }
    }
}
