//! Writes or reads a table and prints the seconds and the thread's CPU seconds of each part, for
//! `bindings/compare-languages`, which has the same program in other languages.
//!
//! `speed write|read STORE COUNT`

#![allow(clippy::print_stdout)]

use std::time::Instant;

use siltstone::{Db, DbOptions, Durability, Error, Result, Table, WriteBatch};

/// The value of a key: the key, and dots.
fn value(key: &[u8]) -> [u8; 100] {
    let mut value = [b'.'; 100];
    value[..key.len()].copy_from_slice(key);
    value
}

fn check(key: &[u8], found: &[u8]) -> Result<()> {
    if found == value(key) {
        return Ok(());
    }
    let [key, found] = [key, found].map(<[u8]>::escape_ascii);
    Err(Error::Invalid(format!("the value of {key} is {found}")))
}

fn fill(table: &Table, keys: &[String]) -> Result<()> {
    for keys in keys.chunks(100) {
        let mut batch = WriteBatch::new();
        for key in keys {
            batch.put(key.as_bytes(), &value(key.as_bytes()));
        }
        table.write(&batch, Durability::Buffered)?;
    }
    Ok(())
}

fn put(table: &Table, keys: &[String]) -> Result<()> {
    keys.iter().try_for_each(|key| table.put(key.as_bytes(), &value(key.as_bytes())))
}

fn scan(table: &Table, keys: &[String]) -> Result<()> {
    let mut count = 0;
    for entry in table.iter()? {
        let (key, entry) = entry?;
        check(&key, &entry.value)?;
        count += 1;
    }
    if count == keys.len() {
        return Ok(());
    }
    Err(Error::Invalid(format!("{count} entries instead of {}", keys.len())))
}

fn get(table: &Table, keys: &[String]) -> Result<()> {
    keys.iter()
        .try_for_each(|key| check(key.as_bytes(), &table.get(key.as_bytes())?.unwrap_or_default()))
}

/// Seconds of CPU time of this thread. Linux only; it is exact to a tick of the scheduler.
fn cpu_seconds() -> Result<f64> {
    let path = "/proc/thread-self/schedstat";
    let statistics =
        std::fs::read_to_string(path).map_err(|error| Error::io("read", path, &error))?;
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse::<u64>().ok());
    let unknown = || Error::Invalid(format!("{path} is {statistics}"));
    Ok(nanoseconds.ok_or_else(unknown)? as f64 / 1e9)
}

type Part = fn(&Table, &[String]) -> Result<()>;

fn run(parts: [(&str, Part); 2], store: &str, count: usize) -> Result<()> {
    let keys: Vec<_> = (0..count).map(|i| format!("{:016}", i * 7919 % count)).collect();
    let db = Db::open_or_create(store, DbOptions::default())?;
    let options = [("cache".to_owned(), "256MiB".to_owned())].into();
    let table = db.table_or_create("speed", "lsm", &options)?;
    for (name, part) in parts {
        let (start, cpu_start) = (Instant::now(), cpu_seconds()?);
        part(&table, &keys)?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu_start);
        println!("{name} {seconds:.6} {cpu:.6}");
        table.maintain()?;
    }
    db.close()
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let usage = || Error::Invalid("usage: speed write|read STORE COUNT".to_owned());
    let [mode, store, count] = &arguments[..] else { return Err(usage()) };
    let parts: [(&str, Part); 2] = match &mode[..] {
        "write" => [("fill", fill), ("put", put)],
        "read" => [("scan", scan), ("get", get)],
        _ => return Err(usage()),
    };
    run(parts, store, count.parse().map_err(|_| usage())?)
}
