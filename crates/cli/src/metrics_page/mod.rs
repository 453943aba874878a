//! A page of a server's metrics, fetched over HTTP and parsed.

mod fetch;
mod parse;

pub(crate) use fetch::fetch;
pub(crate) use parse::{Row, parse};

use std::net::SocketAddr;

use crate::outcome::Failure;

/// Reads the page of the server with this metrics address.
pub(crate) fn read(address: SocketAddr, password: Option<&str>) -> Result<Page, Failure> {
    fetch(address, password).map_err(|error| {
        Failure::Store(format!(
            "cannot read http://{address}/metrics: {error}; is a server running with `siltstone \
             serve --metrics {address}`?"
        ))
    })
}

/// The metrics at one time.
#[derive(Debug, Default)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
}

impl Page {
    /// Rows of one metric with this label.
    pub(crate) fn rows<'a>(
        &'a self,
        name: &str,
        label: (&str, &str),
    ) -> impl Iterator<Item = &'a Row> {
        let matches = move |row: &&Row| {
            row.name.strip_prefix("siltstone_") == Some(name)
                && (label.0.is_empty() || row.labels.get(label.0).is_some_and(|v| v == label.1))
        };
        self.rows.iter().filter(matches)
    }

    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.rows(name, ("", "")).map(|row| row.value).sum()
    }

    /// The sum over all rows of a table's metric with this label (all rows if it is empty).
    pub(crate) fn of(&self, table: &str, name: &str, (label, value): (&str, &str)) -> f64 {
        let has = |row: &&Row| {
            label.is_empty() || row.labels.get(label).is_some_and(|found| found == value)
        };
        self.rows(name, ("table", table)).filter(has).map(|row| row.value).sum()
    }

    /// The names of the counters of a table's engine, in page order.
    pub(crate) fn engine_counters(&self, table: &str) -> impl Iterator<Item = &str> {
        let of_table = move |row: &&Row| row.labels.get("table").is_some_and(|name| name == table);
        let rows = self.rows.iter().filter(of_table);
        rows.filter_map(|row| row.name.strip_prefix("siltstone_engine_"))
    }

    /// A table's metric by the values of one label, in page order.
    pub(crate) fn by(&self, table: &str, name: &str, label: &str) -> Vec<(String, f64)> {
        let one = |row: &Row| Some((row.labels.get(label)?.clone(), row.value));
        self.rows(name, ("table", table)).filter_map(one).collect()
    }
}
