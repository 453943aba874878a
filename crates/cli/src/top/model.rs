//! The state of a server: sizes and rates from two pages of its metrics.
//!
//! Sizes are those of the later page. Rates are differences of counters over the time between the
//! pages by the server's own clock (`uptime_seconds`), so a slow network does not distort them.
//! After a restart of the server counters begin again, and there are no rates until the next page.

use crate::metrics_page::{Page, Row};

/// A server between two times. Rates are per second; `None` while they are unknown.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) uptime: f64,
    pub(super) clients: f64,
    pub(super) commands: Option<f64>,
    pub(super) bytes_in: Option<f64>,
    pub(super) bytes_out: Option<f64>,
    pub(super) tables: Vec<Table>,
}

/// One table.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) engine: String,
    /// An estimate, if the engine has one.
    pub(super) keys: Option<f64>,
    pub(super) space: f64,
    pub(super) writes: Option<f64>,
    pub(super) written_bytes: Option<f64>,
    pub(super) gets: Option<f64>,
    pub(super) seeks: Option<f64>,
    /// Bytes written to disk per byte written by clients.
    pub(super) write_amplification: Ratio,
    /// Read requests to the disk per lookup.
    pub(super) read_amplification: Ratio,
    pub(super) levels: Vec<Level>,
    /// Level 0 in persistent memory, if it is there.
    pub(super) pmem_level0: Option<PmemLevel0>,
    /// The fraction of level 1 that the level-0 compaction cursor has passed.
    pub(super) cursor: Option<f64>,
    /// Bytes by structure, largest first, without empty ones.
    pub(super) memory: Vec<(String, f64)>,
    pub(super) stalls: Vec<Stall>,
    pub(super) longest_stall: f64,
    /// Hit ratios: of lookups, and of each cache.
    pub(super) hits: Vec<(String, Ratio)>,
}

/// A quotient of two counters, in total and over the last interval.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) total: Option<f64>,
    pub(super) now: Option<f64>,
}

#[derive(Debug)]
pub(super) struct Level {
    pub(super) name: String,
    pub(super) files: f64,
    pub(super) bytes: f64,
    /// 0 for a level without a target.
    pub(super) target: f64,
    /// Bytes written into it per second.
    pub(super) written: Option<f64>,
}

#[derive(Debug, PartialEq)]
pub(super) struct PmemLevel0 {
    pub(super) runs: f64,
    /// The fraction of its pages in use.
    pub(super) fill: f64,
}

/// Write stalls by cause.
#[derive(Debug, PartialEq)]
pub(super) struct Stall {
    pub(super) cause: String,
    /// In total, in seconds.
    pub(super) total: f64,
    /// Seconds stalled per second, over all writers.
    pub(super) now: Option<f64>,
}

/// The server at the later page, with rates if the earlier one is of the same run.
pub(super) fn server(before: Option<&Page>, now: &Page) -> Server {
    let seconds = |before: &Page| now.sum("uptime_seconds") - before.sum("uptime_seconds");
    let before = before.map(|page| (page, seconds(page))).filter(|(_, seconds)| *seconds > 0.0);
    let interval = Interval { before, now };
    let all = |name: &str| interval.rate(|page| page.sum(name));
    Server {
        uptime: now.sum("uptime_seconds"),
        clients: now.sum("connected_clients"),
        commands: all("command_duration_seconds_count"),
        bytes_in: all("received_bytes_total"),
        bytes_out: all("sent_bytes_total"),
        tables: tables(now).into_iter().map(|name| interval.table(name)).collect(),
    }
}

/// The names of all tables, in page order.
fn tables(page: &Page) -> Vec<String> {
    let rows = page.rows("table_user_bytes_written_total", ("", ""));
    rows.filter_map(|row| row.labels.get("table").cloned()).collect()
}

/// Two pages, with the seconds between them.
struct Interval<'a> {
    before: Option<(&'a Page, f64)>,
    now: &'a Page,
}

impl Interval<'_> {
    fn increase(&self, value: impl Fn(&Page) -> f64) -> Option<f64> {
        self.before.map(|(before, _)| (value(self.now) - value(before)).max(0.0))
    }

    fn rate(&self, value: impl Fn(&Page) -> f64) -> Option<f64> {
        self.before.and_then(|(_, seconds)| self.increase(value).map(|more| more / seconds))
    }

    fn ratio(&self, above: impl Fn(&Page) -> f64, below: impl Fn(&Page) -> f64) -> Ratio {
        let divide = |above: f64, below: f64| (below > 0.0).then(|| above / below);
        Ratio {
            total: divide(above(self.now), below(self.now)),
            now: self.increase(&above).zip(self.increase(&below)).and_then(|(a, b)| divide(a, b)),
        }
    }

    fn table(&self, name: String) -> Table {
        let table = name.as_str();
        let all = ("", "");
        let plain = |metric: &'static str| move |page: &Page| page.of(table, metric, all);
        let count = |page: &Page, name: &str| page.of(table, &format!("engine_{name}"), all);
        let counter = |name: &str| count(self.now, name);
        let by = |metric: &str, label: &str| self.now.by(table, metric, label);

        let io = self.ratio(
            |page| page.of(table, "table_io_bytes_total", ("direction", "write")),
            plain("table_user_bytes_written_total"),
        );
        let has_disk = self.now.rows("table_io_bytes_total", ("table", table)).next().is_some();
        let reads = |page: &Page| {
            let get = |row: &&Row| {
                let is =
                    |label: &str, value: &str| row.labels.get(label).is_some_and(|v| v == value);
                is("purpose", "get") && is("kind", "read")
            };
            let rows = page.rows("table_io_requests_total", ("table", table));
            rows.filter(get).map(|row| row.value).sum()
        };

        let mut hits = vec![(
            "lookup hits".to_owned(),
            self.ratio(plain("table_get_hits_total"), plain("table_gets_total")),
        )];
        for name in self.now.engine_counters(table) {
            let Some(cache) = name.strip_suffix("_hits") else { continue };
            let misses = format!("{cache}_misses");
            let ratio = self
                .ratio(|page| count(page, name), |page| count(page, name) + count(page, &misses));
            hits.push((cache.replace('_', " "), ratio));
        }

        let level = |(name, bytes): (String, f64)| {
            let label = ("level", name.as_str());
            let written = |page: &Page| page.of(table, "table_level_written_bytes_total", label);
            Level {
                files: self.now.of(table, "table_level_files", label),
                target: self.now.of(table, "table_level_target_bytes", label),
                written: self.rate(written),
                bytes,
                name,
            }
        };
        let stall = |(cause, total): (String, f64)| {
            let waited = |page: &Page| {
                page.of(table, "table_write_stall_seconds_total", ("cause", cause.as_str()))
            };
            Stall { now: self.rate(waited), total, cause }
        };
        let mut memory = by("table_memory_bytes", "structure");
        memory.retain(|(_, bytes)| *bytes > 0.0);
        memory.sort_by(|a, b| b.1.total_cmp(&a.1));
        let keys = self.now.rows("table_keys", ("table", table)).next().map(|row| row.value);
        let (pages, cursor) = (counter("pmem_pages"), counter("l0_cursor_ppm"));

        Table {
            engine: by("table_info", "engine").pop().map(|(engine, _)| engine).unwrap_or_default(),
            keys,
            space: self.now.of(table, "table_live_bytes", all),
            writes: self.rate(plain("table_writes_total")),
            written_bytes: self.rate(plain("table_user_bytes_written_total")),
            gets: self.rate(plain("table_gets_total")),
            seeks: self.rate(plain("table_seeks_total")),
            write_amplification: if has_disk { io } else { Ratio::default() },
            read_amplification: if has_disk {
                self.ratio(reads, plain("table_gets_total"))
            } else {
                Ratio::default()
            },
            levels: by("table_level_bytes", "level").into_iter().map(level).collect(),
            pmem_level0: (pages > 0.0).then(|| PmemLevel0 {
                runs: counter("pmem_runs"),
                fill: 1.0 - counter("pmem_pages_free") / pages,
            }),
            cursor: (cursor > 0.0).then_some(cursor / 1e6),
            memory,
            stalls: by("table_write_stall_seconds_total", "cause").into_iter().map(stall).collect(),
            longest_stall: self.now.of(table, "table_write_stall_max_seconds", all),
            hits,
            name,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::metrics_page::parse;

    /// A page of a table on `lsm`, and one on `mica`, `step` steps after the start.
    pub(in super::super) fn page(step: u32) -> Page {
        let at = f64::from(step);
        let text = [
            ("uptime_seconds".to_owned(), 100.0 + 2.0 * at),
            ("connected_clients".to_owned(), 3.0),
            ("received_bytes_total".to_owned(), 4096.0 * at),
            ("sent_bytes_total".to_owned(), 2048.0 * at),
            ("command_duration_seconds_count{command=\"get\"}".to_owned(), 1000.0 * at),
            ("command_duration_seconds_count{command=\"set\"}".to_owned(), 500.0 * at),
            table("table_info", ",engine=\"lsm\"", 1.0),
            table("table_keys", "", 20e6),
            table("table_live_bytes", "", 3e9),
            table("table_writes_total", "", 500.0 * at),
            table("table_user_bytes_written_total", "", 1e6 + 1e6 * at),
            table("table_gets_total", "", 1000.0 + 1000.0 * at),
            table("table_get_hits_total", "", 500.0 + 900.0 * at),
            table("table_seeks_total", "", 8.0 * at),
            table("table_io_bytes_total", ",purpose=\"log\",direction=\"write\"", 1e6 + 1e6 * at),
            table("table_io_bytes_total", ",purpose=\"get\",direction=\"read\"", 9e9),
            table("table_io_bytes_total", ",purpose=\"flush\",direction=\"write\"", 1e6 + 2e6 * at),
            table("table_io_requests_total", ",purpose=\"get\",kind=\"read\"", 500.0 + 1500.0 * at),
            table("table_io_requests_total", ",purpose=\"seek\",kind=\"read\"", 7e9),
            table("table_memory_bytes", ",structure=\"filter\"", 25e6),
            table("table_memory_bytes", ",structure=\"row\"", 0.0),
            table("table_memory_bytes", ",structure=\"memtable\"", 60e6),
            table("table_write_stall_seconds_total", ",cause=\"insert\"", 0.0),
            table("table_write_stall_seconds_total", ",cause=\"flush\"", 0.5 * at),
            table("table_write_stall_max_seconds", "", 0.009),
            table("table_level_files", ",level=\"L0\"", 14.0),
            table("table_level_files", ",level=\"L1\"", 64.0),
            table("table_level_bytes", ",level=\"L0\"", f64::from(512 << 20)),
            table("table_level_bytes", ",level=\"L1\"", f64::from(1 << 30)),
            table("table_level_files", ",level=\"L2\"", 0.0),
            table("table_level_files", ",level=\"L3\"", 0.0),
            table("table_level_bytes", ",level=\"L2\"", 0.0),
            table("table_level_bytes", ",level=\"L3\"", 0.0),
            table("table_level_target_bytes", ",level=\"L0\"", 0.0),
            table("table_level_target_bytes", ",level=\"L1\"", f64::from(1 << 30)),
            table("table_level_written_bytes_total", ",level=\"L1\"", 2e6 * at),
            table("engine_block_cache_hits", "", 90.0 * at),
            table("engine_block_cache_misses", "", 10.0 * at),
            table("engine_pmem_pages", "", 400.0),
            table("engine_pmem_pages_free", "", 100.0),
            table("engine_pmem_runs", "", 11.0),
            table("engine_l0_cursor_ppm", "", 250_000.0),
            ("table_keys{table=\"cache\"}".to_owned(), 7.0),
            ("table_user_bytes_written_total{table=\"cache\"}".to_owned(), 70.0),
        ]
        .map(|(name, value)| format!("siltstone_{name} {value}\n"));
        Page { rows: parse(&text.concat()).unwrap() }
    }

    /// A metric of the table; `name` is without the prefix `siltstone_`.
    fn table(name: &str, labels: &str, value: f64) -> (String, f64) {
        (format!("{name}{{table=\"fruit\"{labels}}}"), value)
    }

    #[test]
    fn rates_are_differences_over_the_servers_clock() {
        let server = server(Some(&page(1)), &page(2));
        assert_eq!(server.clients, 3.0);
        assert_eq!(server.commands, Some(750.0));
        assert_eq!((server.bytes_in, server.bytes_out), (Some(2048.0), Some(1024.0)));
        let [fruit, cache] = &server.tables[..] else { panic!("{:?}", server.tables) };
        assert_eq!((fruit.name.as_str(), fruit.engine.as_str()), ("fruit", "lsm"));
        assert_eq!((fruit.writes, fruit.gets, fruit.seeks), (Some(250.0), Some(500.0), Some(4.0)));
        assert_eq!(fruit.written_bytes, Some(5e5));
        let ratio = |total, now| Ratio { total: Some(total), now: Some(now) };
        assert_eq!(fruit.write_amplification, ratio(8.0 / 3.0, 3.0));
        assert_eq!(fruit.read_amplification, ratio(3500.0 / 3000.0, 1.5));
        assert_eq!(fruit.hits[0].1, ratio(2300.0 / 3000.0, 0.9));
        assert_eq!(fruit.hits[1], ("block cache".to_owned(), ratio(0.9, 0.9)));
        assert_eq!(fruit.memory, [("memtable".to_owned(), 60e6), ("filter".to_owned(), 25e6)]);
        let flush = Stall { cause: "flush".to_owned(), total: 1.0, now: Some(0.25) };
        assert_eq!(fruit.stalls[1], flush);
        assert_eq!(fruit.levels[1].written, Some(1e6));
        assert_eq!(fruit.pmem_level0, Some(PmemLevel0 { runs: 11.0, fill: 0.75 }));
        assert_eq!((fruit.cursor, cache.cursor), (Some(0.25), None));
        // Without a disk there is no amplification, without lookups no hit ratio.
        assert_eq!(cache.name, "cache");
        assert_eq!(cache.write_amplification, Ratio::default());
        assert_eq!(cache.hits[0].1, Ratio::default());
    }

    #[test]
    fn restarted_server_has_no_rates_yet() {
        for server in [server(None, &page(1)), server(Some(&page(2)), &page(1))] {
            assert_eq!((server.commands, server.tables[0].writes), (None, None));
            assert_eq!(server.tables[0].write_amplification.now, None);
            assert_eq!(server.tables[0].write_amplification.total, Some(2.5));
        }
    }
}
