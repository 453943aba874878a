//! Everything the server and its tables count, in Prometheus's text format.
//!
//! Source: the Prometheus documentation, "Text-based format", version 0.0.4.

use std::fmt::{Display, Result, Write};
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::Stats;

use crate::shared::Shared;
use crate::store::Database;

/// The page.
pub(crate) fn page(shared: &Shared) -> String {
    let mut page = Page { text: String::new() };
    // Writing into a string does not fail.
    let _ = page.server(shared);
    let _ = page.commands(shared);
    let _ = page.tables(&shared.databases);
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
        let connected = shared.clients.connected();
        self.one("connected_clients", "gauge", "Clients that are connected.", connected)?;
        let uptime = shared.started.elapsed().as_secs_f64();
        self.one("uptime_seconds", "gauge", "Time since the server was started.", uptime)?;
        for (name, help, value) in [
            ("clients_accepted_total", "Clients that came.", &metrics.accepted),
            ("clients_rejected_total", "Clients over the limit.", &metrics.rejected_clients),
            ("passwords_rejected_total", "Wrong passwords.", &metrics.rejected_passwords),
            ("protocol_errors_total", "Requests that were none.", &metrics.protocol_errors),
            ("slow_readers_total", "Clients cut off for unread replies.", &metrics.slow_readers),
            ("timeouts_total", "Clients cut off for silence.", &metrics.timeouts),
            ("error_replies_total", "Commands that failed.", &metrics.errors),
            ("failed_syncs_total", "Syncs of tables that failed.", &metrics.failed_syncs),
            ("received_bytes_total", "Bytes from clients.", &metrics.bytes_in),
            ("sent_bytes_total", "Bytes to clients.", &metrics.bytes_out),
            ("udp_packets_total", "Packets of requests over UDP.", &shared.udp.packets),
            ("udp_requests_total", "Requests over UDP.", &shared.udp.requests),
            ("udp_malformed_total", "Datagrams that were no packets.", &shared.udp.malformed),
            ("udp_strangers_total", "Packets of unproved addresses.", &shared.udp.unverified),
            ("udp_again_total", "Packets that came again.", &shared.udp.duplicates),
            ("udp_handed_total", "Parcels handed to other ports.", &shared.udp.forwarded),
        ] {
            self.one(name, "counter", help, value.load(Relaxed))?;
        }
        Ok(())
    }

    fn commands(&mut self, shared: &Shared) -> Result {
        let name = "command_duration_seconds";
        self.family(name, "summary", "Commands and how long they took, without the sync.")?;
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
        each("table_user_bytes_written_total", "counter", "Keys and values written.", |s| {
            plain(s.user_bytes_written as f64)
        })?;
        each("table_writes_total", "counter", "Operations written.", |s| plain(s.writes as f64))?;
        each("table_gets_total", "counter", "Lookups.", |s| plain(s.gets as f64))?;
        each("table_gets_found_total", "counter", "Lookups that found.", |s| {
            plain(s.gets_found as f64)
        })?;
        each("table_seeks_total", "counter", "Cursors placed.", |s| plain(s.seeks as f64))?;
        each("table_keys", "gauge", "Keys, estimated.", |s| {
            s.keys_estimate.map_or_else(Vec::new, |keys| plain(keys as f64))
        })?;
        each("table_space_bytes", "gauge", "Bytes of live files.", |s| {
            plain(s.space_bytes as f64)
        })?;
        each("table_write_amplification", "gauge", "Bytes to the medium by bytes written.", |s| {
            s.write_amplification().map_or_else(Vec::new, plain)
        })?;
        each("table_io_bytes_total", "counter", "Bytes at the medium.", |s| {
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
        each("table_io_requests_total", "counter", "Requests at the medium.", |s| {
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
        each("table_stall_seconds_total", "counter", "How long writers waited.", |s| {
            let causes = [
                ("insert", s.stall.insert_us),
                ("flush", s.stall.flush_us),
                ("compaction", s.stall.compaction_us),
            ];
            causes.map(|(c, us)| (format!(",cause=\"{c}\""), us as f64 / 1e6)).into()
        })?;
        each("table_longest_stall_seconds", "gauge", "The longest wait of a writer.", |s| {
            plain(s.stall.longest_us as f64 / 1e6)
        })?;
        each("table_level_files", "gauge", "Files by level.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.files as f64)).collect()
        })?;
        each("table_level_bytes", "gauge", "Bytes by level.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.bytes as f64)).collect()
        })?;
        each("table_level_target_bytes", "gauge", "Bytes a level aims at; 0: no aim.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.target_bytes as f64)).collect()
        })?;
        each("table_level_written_bytes_total", "counter", "Bytes written into a level.", |s| {
            s.levels.iter().map(|l| (level(&l.name), l.bytes_written as f64)).collect()
        })?;
        each("table_counter_total", "counter", "Counters of the engine.", |s| {
            let row = |(name, value): (&&str, &u64)| (format!(",name=\"{name}\""), *value as f64);
            s.counters.iter().map(row).collect()
        })
    }
}

/// The rows of a family for one table: further labels, and a value.
type Rows = fn(&Stats) -> Vec<(String, f64)>;

fn plain(value: f64) -> Vec<(String, f64)> {
    vec![(String::new(), value)]
}

fn level(name: &str) -> String {
    format!(",level=\"{}\"", label(name))
}

/// A label's value: quotes, backslashes and line breaks would end it.
fn label(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
