//! The workload of a table that is being served, from the server's metrics.
//!
//! The counters are those since the server was started. They give the number of keys, the size of
//! items and the mix of operations; the size of keys and their popularity are not counted.

use siltstone_model::Popularity;
use siltstone_model::advise::Requirements;

use crate::metrics_page::Page;
use crate::outcome::Failure;

/// With a smaller share of seeks a workload has no scans.
const MIN_SCANS: f64 = 0.001;

/// What a server has counted of a table.
pub(super) struct Observed {
    pub(super) table: String,
    pub(super) engine: String,
    pub(super) uptime_s: f64,
    pub(super) keys: f64,
    /// Mean bytes per item that was written, key and value.
    pub(super) item_bytes: f64,
    pub(super) gets: f64,
    /// Seeks of cursors.
    pub(super) seeks: f64,
    pub(super) writes: f64,
    /// Bytes written to the disk per byte that clients wrote.
    pub(super) write_amplification: f64,
    pub(super) memory_bytes: f64,
}

impl Observed {
    /// The table with this name, or the only one.
    pub(super) fn of(page: &Page, table: Option<&str>) -> Result<Self, Failure> {
        let label = |row: &crate::metrics_page::Row, name: &str| {
            row.labels.get(name).cloned().unwrap_or_default()
        };
        let infos = page.rows("table_info", ("", ""));
        let tables: Vec<_> = infos.map(|row| (label(row, "table"), label(row, "engine"))).collect();
        let names = || tables.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
        let found = match table {
            Some(wanted) => tables.iter().find(|(name, _)| name == wanted),
            None if tables.len() == 1 => tables.first(),
            None => None,
        };
        let (table, engine) = found.cloned().ok_or_else(|| {
            Failure::Usage(format!("name one of the server's tables with --table: {}", names()))
        })?;
        let of = |name: &str| page.of(&table, name, ("", ""));
        let (keys, writes) = (of("table_keys"), of("table_writes_total"));
        if keys < 2.0 {
            return Err(Failure::Usage(format!(
                "table {table} has no keys yet, or only one, or {engine} does not count them: give \
                 --keys instead"
            )));
        }
        let item_bytes = match writes > 0.0 {
            true => of("table_user_bytes_written_total") / writes,
            false => of("table_live_bytes") / keys,
        };
        Ok(Observed {
            uptime_s: page.sum("uptime_seconds"),
            keys,
            item_bytes,
            gets: of("table_gets_total"),
            seeks: of("table_seeks_total"),
            writes,
            write_amplification: of("table_write_amplification"),
            memory_bytes: of("table_memory_bytes"),
            table,
            engine,
        })
    }

    fn operations(&self) -> f64 {
        self.gets + self.seeks + self.writes
    }

    /// The share of operations that are lookups; 0 if there were no operations.
    pub(super) fn reads(&self) -> f64 {
        self.share(self.gets)
    }

    /// The share of operations that are scans. A few seeks are the server's own.
    pub(super) fn scans(&self) -> f64 {
        let share = self.share(self.seeks);
        if share < MIN_SCANS { 0.0 } else { share }
    }

    fn share(&self, count: f64) -> f64 {
        if self.operations() > 0.0 { count / self.operations() } else { 0.0 }
    }

    /// Operations per second on average; `None` if there were none.
    pub(super) fn ops_per_second(&self) -> Option<f64> {
        let rate = self.operations() / self.uptime_s;
        (rate.is_finite() && rate > 0.0).then_some(rate)
    }

    /// The workload with keys of this size and popularity.
    pub(super) fn requirements(&self, key_bytes: f64, skew: f64) -> Result<Requirements, Failure> {
        let keys = Popularity::zipf(self.keys, skew)?;
        let value_bytes = (self.item_bytes - key_bytes).max(0.0);
        Ok(Requirements {
            reads: self.reads(),
            scans: self.scans(),
            ops_per_second: self.ops_per_second(),
            ..Requirements::new(keys, key_bytes, value_bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics_page::parse;

    const PAGE: &str = "siltstone_uptime_seconds 10\n\
        siltstone_table_info{table=\"a\",engine=\"lsm\"} 1\n\
        siltstone_table_info{table=\"b\",engine=\"trie\"} 1\n\
        siltstone_table_keys{table=\"a\"} 1000\n\
        siltstone_table_writes_total{table=\"a\"} 20\n\
        siltstone_table_user_bytes_written_total{table=\"a\"} 2400\n\
        siltstone_table_gets_total{table=\"a\"} 70\n\
        siltstone_table_seeks_total{table=\"a\"} 10\n\
        siltstone_table_live_bytes{table=\"a\"} 50000\n";

    fn page() -> Page {
        Page { rows: parse(PAGE).unwrap() }
    }

    #[test]
    fn workload_is_that_of_the_counters() {
        let observed = Observed::of(&page(), Some("a")).unwrap();
        assert_eq!(observed.engine, "lsm");
        let workload = observed.requirements(20.0, 0.0).unwrap();
        assert_eq!((workload.keys(), workload.value_bytes), (1000.0, 100.0));
        assert_eq!((workload.reads, workload.scans), (0.7, 0.1));
        assert_eq!(workload.ops_per_second, Some(10.0));
    }

    #[test]
    fn without_writes_the_space_tells_the_size_of_items() {
        let mut page = page();
        page.rows.retain(|row| row.name != "siltstone_table_writes_total");
        assert_eq!(Observed::of(&page, Some("a")).unwrap().item_bytes, 50.0);
    }

    #[test]
    fn unknown_ambiguous_and_empty_tables_are_refused() {
        for (table, reason) in [(None, "a, b"), (Some("c"), "a, b"), (Some("b"), "--keys")] {
            let refused = Observed::of(&page(), table).map(drop).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
