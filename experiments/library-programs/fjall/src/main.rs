//! A URL shortener on fjall: four keyspaces, and transactions of a single writer.
//!
//! Source: fjall's documentation, version 3.1.

use std::path::Path;

use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx,
};
use workload::{Click, Counts, Result, Shortener, free_code};

#[path = "../../../../crates/siltstone/examples/url_shortener/workload.rs"]
mod workload;

struct Store {
    db: SingleWriterTxDatabase,
    /// The URL of each code.
    links: SingleWriterTxKeyspace,
    /// The code of each URL.
    urls: SingleWriterTxKeyspace,
    /// The referrer of each click, by code and time.
    log: SingleWriterTxKeyspace,
    /// The number of clicks of each code.
    counts: SingleWriterTxKeyspace,
}

impl Store {
    /// Commits survive power cuts.
    fn begin(&self) -> SingleWriterWriteTx<'_> {
        self.db.write_tx().durability(Some(PersistMode::SyncData))
    }
}

impl Shortener for Store {
    fn open(directory: &Path) -> Result<Self> {
        let db = SingleWriterTxDatabase::builder(directory.join("store")).open()?;
        let keyspace = |name| db.keyspace(name, KeyspaceCreateOptions::default);
        let (links, urls) = (keyspace("links")?, keyspace("urls")?);
        let (log, counts) = (keyspace("log")?, keyspace("counts")?);
        Ok(Store { links, urls, log, counts, db })
    }

    fn shorten(&self, url: &str) -> Result<String> {
        let mut tx = self.begin();
        if let Some(code) = tx.get(&self.urls, url)? {
            return Ok(text(&code));
        }
        let code = free_code(url, |code| tx.contains_key(&self.links, code))?;
        tx.insert(&self.links, code.as_str(), url);
        tx.insert(&self.urls, url, code.as_str());
        tx.commit()?;
        Ok(code)
    }

    fn follow(&self, clicks: &[Click]) -> Result<usize> {
        let (mut tx, mut followed) = (self.begin(), 0);
        for click in clicks {
            if tx.contains_key(&self.links, &click.code)? {
                tx.insert(&self.log, log_key(click), click.referrer);
                tx.update_fetch(&self.counts, click.code.as_str(), |count| {
                    let count = count.map_or(0, |count| number(count)) + 1;
                    Some(count.to_le_bytes().into())
                })?;
                followed += 1;
            }
        }
        tx.commit()?;
        Ok(followed)
    }

    fn newest(&self, code: &str, limit: usize) -> Result<Vec<(u64, String)>> {
        let snapshot = self.db.read_tx();
        let newest = snapshot.prefix(&self.log, format!("{code}/")).rev().take(limit);
        let clicks = newest.map(|entry| {
            let (key, referrer) = entry.into_inner()?;
            Ok((time(&key), text(&referrer)))
        });
        clicks.collect()
    }

    fn counts(&self) -> Result<(Counts, Counts)> {
        let snapshot = self.db.read_tx();
        let (mut counted, mut logged) = (Counts::new(), Counts::new());
        for entry in snapshot.iter(&self.counts) {
            let (code, count) = entry.into_inner()?;
            counted.insert(text(&code), number(&count));
        }
        for entry in snapshot.iter(&self.log) {
            *logged.entry(text(code(&entry.key()?))).or_default() += 1;
        }
        Ok((counted, logged))
    }

    fn check_index(&self) -> Result<usize> {
        let snapshot = self.db.read_tx();
        for entry in snapshot.iter(&self.urls) {
            let (url, code) = entry.into_inner()?;
            if snapshot.get(&self.links, code)?.as_ref() != Some(&url) {
                return Err(format!("no link leads to {}", text(&url)).into());
            }
        }
        match (snapshot.len(&self.links)?, snapshot.len(&self.urls)?) {
            (links, urls) if links == urls => Ok(links),
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

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn main() -> Result<()> {
    workload::main::<Store>()
}
