//! A URL shortener on redb: four tables of typed keys and values.
//!
//! Source: redb's documentation, version 4.5.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};
use workload::{Click, Counts, Result, Shortener, free_code};

#[path = "../../../../crates/siltstone/examples/url_shortener/workload.rs"]
mod workload;

/// The URL of each code.
const LINKS: TableDefinition<'_, &str, &str> = TableDefinition::new("links");
/// The code of each URL.
const URLS: TableDefinition<'_, &str, &str> = TableDefinition::new("urls");
/// The referrer of each click, by code and time.
const LOG: TableDefinition<'_, (&str, u64), &str> = TableDefinition::new("log");
/// The number of clicks of each code.
const COUNTS: TableDefinition<'_, &str, u64> = TableDefinition::new("counts");

struct Store {
    db: Database,
}

impl Shortener for Store {
    fn open(directory: &Path) -> Result<Self> {
        let db = Database::create(directory.join("store.redb"))?;
        // A table that was never opened for writing cannot be read.
        let tx = db.begin_write()?;
        tx.open_table(LINKS)?;
        tx.open_table(URLS)?;
        tx.open_table(LOG)?;
        tx.open_table(COUNTS)?;
        tx.commit()?;
        Ok(Store { db })
    }

    fn shorten(&self, url: &str) -> Result<String> {
        let tx = self.db.begin_write()?;
        let code = {
            let (mut links, mut urls) = (tx.open_table(LINKS)?, tx.open_table(URLS)?);
            if let Some(code) = urls.get(url)? {
                return Ok(code.value().to_owned());
            }
            let code = free_code(url, |code| links.get(code).map(|url| url.is_some()))?;
            links.insert(code.as_str(), url)?;
            urls.insert(url, code.as_str())?;
            code
        };
        tx.commit()?;
        Ok(code)
    }

    fn follow(&self, clicks: &[Click]) -> Result<usize> {
        let (tx, mut followed) = (self.db.begin_write()?, 0);
        {
            let links = tx.open_table(LINKS)?;
            let (mut log, mut counts) = (tx.open_table(LOG)?, tx.open_table(COUNTS)?);
            for click in clicks {
                let code = click.code.as_str();
                if links.get(code)?.is_some() {
                    log.insert((code, click.time), click.referrer)?;
                    let count = counts.get(code)?.map_or(0, |count| count.value());
                    counts.insert(code, count + 1)?;
                    followed += 1;
                }
            }
        }
        tx.commit()?;
        Ok(followed)
    }

    fn newest(&self, code: &str, limit: usize) -> Result<Vec<(u64, String)>> {
        let log = self.db.begin_read()?.open_table(LOG)?;
        let newest = log.range((code, 0)..=(code, u64::MAX))?.rev().take(limit);
        let clicks = newest.map(|entry| {
            let (key, referrer) = entry?;
            Ok((key.value().1, referrer.value().to_owned()))
        });
        clicks.collect()
    }

    fn counts(&self) -> Result<(Counts, Counts)> {
        let tx = self.db.begin_read()?;
        let (mut counted, mut logged) = (Counts::new(), Counts::new());
        for entry in tx.open_table(COUNTS)?.iter()? {
            let (code, count) = entry?;
            counted.insert(code.value().to_owned(), count.value());
        }
        for entry in tx.open_table(LOG)?.iter()? {
            *logged.entry(entry?.0.value().0.to_owned()).or_default() += 1;
        }
        Ok((counted, logged))
    }

    fn check_index(&self) -> Result<usize> {
        let tx = self.db.begin_read()?;
        let (links, urls) = (tx.open_table(LINKS)?, tx.open_table(URLS)?);
        for entry in urls.iter()? {
            let (url, code) = entry?;
            if links.get(code.value())?.is_none_or(|link| link.value() != url.value()) {
                return Err(format!("no link leads to {}", url.value()).into());
            }
        }
        match (links.len()?, urls.len()?) {
            (links, urls) if links == urls => Ok(links as usize),
            (links, urls) => Err(format!("{links} links have {urls} URLs").into()),
        }
    }
}

fn main() -> Result<()> {
    workload::main::<Store>()
}
