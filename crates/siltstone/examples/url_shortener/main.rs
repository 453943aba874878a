//! A URL shortener: links, an index that keeps their URLs unique, a log of clicks, and their
//! counts, in four tables. What belongs together is written together, also over tables.
// An example prints.
#![allow(clippy::print_stdout)]

use std::path::Path;
use std::sync::Arc;

use siltstone::{Db, DbBatch, DbOptions, Durability, MergeCounter, Retry, Table};
use workload::{Click, Counts, Result, Shortener, free_code};

mod workload;

// ANCHOR: program
struct Store {
    db: Db,
    /// The URL of each code.
    links: Table,
    /// The code of each URL.
    urls: Table,
    /// The referrer of each click, by code and time.
    log: Table,
    /// The number of clicks of each code.
    counts: Table,
}

impl Shortener for Store {
    fn open(directory: &Path) -> Result<Self> {
        let db = Db::open_or_create(directory.join("store"), DbOptions::default())?;
        let table = |name| db.table_or_create(name, "lsm", &Default::default());
        let counts = table("counts")?;
        counts.set_merge_operator(Some(Arc::new(MergeCounter)))?;
        let (links, urls, log) = (table("links")?, table("urls")?, table("log")?);
        Ok(Store { links, urls, log, counts, db })
    }

    fn shorten(&self, url: &str) -> Result<String> {
        let tables = [&self.links, &self.urls];
        let code = self.db.transact_with(&tables, Retry::default(), Durability::Synced, |tx| {
            if let Some(code) = tx.table(&self.urls)?.get(url.as_bytes())? {
                return Ok(text(&code));
            }
            let links = tx.table(&self.links)?;
            let code = free_code(url, |code| links.contains_key(code.as_bytes()))?;
            links.put(code.as_bytes(), url.as_bytes())?;
            tx.table(&self.urls)?.put(url.as_bytes(), code.as_bytes())?;
            Ok(code)
        })?;
        Ok(code)
    }

    fn follow(&self, clicks: &[Click]) -> Result<usize> {
        let codes: Vec<_> = clicks.iter().map(|click| &click.code).collect();
        let urls = self.links.multi_get(&codes)?;
        let (mut batch, mut followed) = (DbBatch::new(), 0);
        for (click, _) in clicks.iter().zip(urls).filter(|(_, url)| url.is_some()) {
            batch.table(&self.log).put(&log_key(click), click.referrer.as_bytes());
            batch.table(&self.counts).merge(click.code.as_bytes(), &1u64.to_le_bytes());
            followed += 1;
        }
        self.db.write(&batch, Durability::Synced)?;
        Ok(followed)
    }

    fn newest(&self, code: &str, limit: usize) -> Result<Vec<(u64, String)>> {
        let newest = self.log.prefix(format!("{code}/"))?.rev().take(limit);
        let clicks = newest.map(|entry| {
            let (key, entry) = entry?;
            Ok((time(&key), text(&entry.value)))
        });
        clicks.collect()
    }

    fn counts(&self) -> Result<(Counts, Counts)> {
        let snapshot = self.db.snapshot(&[&self.counts, &self.log])?;
        let (mut counted, mut logged) = (Counts::new(), Counts::new());
        for entry in snapshot.table(&self.counts)?.iter()? {
            let (code, entry) = entry?;
            counted.insert(text(&code), u64::from_le_bytes(entry.value[..].try_into()?));
        }
        for key in snapshot.table(&self.log)?.keys()? {
            *logged.entry(text(code(&key?))).or_default() += 1;
        }
        Ok((counted, logged))
    }

    fn check_index(&self) -> Result<usize> {
        let snapshot = self.db.snapshot(&[&self.links, &self.urls])?;
        let (links, urls) = (snapshot.table(&self.links)?, snapshot.table(&self.urls)?);
        for entry in urls.iter()? {
            let (url, code) = entry?;
            if links.get(&code.value)?.as_deref() != Some(&url) {
                return Err(format!("no link leads to {}", text(&url)).into());
            }
        }
        match (links.len()?, urls.len()?) {
            (links, urls) if links == urls => Ok(links as usize),
            (links, urls) => Err(format!("{links} links have {urls} URLs").into()),
        }
    }
}

/// `CODE/`, and the time so that it sorts.
fn log_key(click: &Click) -> Vec<u8> {
    [click.code.as_bytes(), b"/", &click.time.to_be_bytes()].concat()
}

fn code(log_key: &[u8]) -> &[u8] {
    &log_key[..log_key.len() - 9]
}

fn time(log_key: &[u8]) -> u64 {
    log_key.last_chunk().map_or(0, |time| u64::from_be_bytes(*time))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
// ANCHOR_END: program

fn main() -> Result<()> {
    workload::main::<Store>()
}
