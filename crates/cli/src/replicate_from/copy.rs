//! A full copy: the source's dump file, as SET and RESTORE.
//!
//! The file is read twice: once to check that the target can take all of it, before its keys are
//! removed, and again to copy it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Seek};

use siltstone_collections::Encoding;
use siltstone_rdb::{DumpFile, Entry, Item, Value, payload};

use super::request::Request;
use super::source::Source;
use super::target::Target;
use crate::interrupt::Interrupt;
use crate::outcome::Failure;
use crate::progress;

/// Memory that one value may take.
const MAX_VALUE_MEMORY_BYTES: u64 = 16 << 30;
const READ_BYTES: usize = 1 << 20;

/// Copies a dump file. Entries that had expired at `time`, before the file was made, are left out.
pub(super) fn copy(
    mut dump: File,
    time: u64,
    offset: u64,
    source: &mut Source,
    target: &mut Target,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let failed = |error| Failure::file("read", "the dump file of the source", &error);
    let size = dump.metadata().map_err(failed)?.len();
    let bar = progress::bytes("checking", size);
    let (mut keys, mut bytes) = (BTreeMap::<u64, u64>::new(), 0);
    read(&dump, &mut |item| {
        if let Item::Entry(entry) = item {
            *keys.entry(entry.database).or_default() += 1;
            bytes = entry.offset;
        }
        bar.set_position(bytes);
        source.keep_alive(offset)
    })?;
    bar.finish_and_clear();
    for (database, keys) in &keys {
        if !target.has_database(*database)? {
            return Err(Failure::Usage(format!(
                "database {database} of the source has {keys} keys, and the target serves fewer \
                 tables: start it with a --table per database, up to number {database}"
            )));
        }
    }
    target.clear()?;
    dump.rewind().map_err(failed)?;
    let bar = progress::bytes("copying", size);
    let (mut copied, mut expired) = (0, 0_u64);
    read(&dump, &mut |item| {
        interrupt.check()?;
        match item {
            Item::Entry(entry) if entry.expires_at.is_some_and(|at| at <= time) => expired += 1,
            Item::Entry(entry) => {
                bar.set_position(entry.offset);
                copied += 1;
                add(target, &entry)?;
            }
            Item::Functions(code) => {
                let request = Request::of(&[b"FUNCTION", b"LOAD", b"REPLACE", &code]);
                target.add(0, &request, || "FUNCTION LOAD of the source's library".to_owned())?;
            }
            Item::ModuleData(module) => {
                eprintln!("siltstone: warning: data of the module {module} was left out");
            }
            Item::Fact(..) => {}
        }
        source.keep_alive(offset)
    })?;
    target.flush()?;
    bar.finish_and_clear();
    eprintln!("copied {copied} keys, {size} bytes; {expired} had expired");
    Ok(())
}

/// Passes each part of a dump file to `take`.
fn read(dump: &File, take: &mut dyn FnMut(Item) -> Result<(), Failure>) -> Result<(), Failure> {
    let failed = |error| Failure::Store(format!("the dump file of the source: {error}"));
    let input = BufReader::with_capacity(READ_BYTES, dump);
    let mut file = DumpFile::open(input, MAX_VALUE_MEMORY_BYTES).map_err(failed)?;
    while let Some(item) = file.next_item().map_err(failed)? {
        take(item)?;
    }
    Ok(())
}

fn add(target: &mut Target, entry: &Entry) -> Result<(), Failure> {
    let Entry { database, key, value, expires_at, .. } = entry;
    let at = expires_at.map(|at| at.to_string());
    let request = match (value, &at) {
        (Value::String(bytes), None) => Request::of(&[b"SET", key, bytes]),
        (Value::String(bytes), Some(at)) => {
            Request::of(&[b"SET", key, bytes, b"PXAT", at.as_bytes()])
        }
        (value, at) => {
            let at = at.as_deref().unwrap_or("0").as_bytes();
            let payload = payload::dump(value, Encoding::Large);
            Request::of(&[b"RESTORE", key, at, &payload, b"REPLACE", b"ABSTTL"])
        }
    };
    target.add(*database, &request, || {
        format!("a {} of the source, key '{}'", value.type_name(), request_key(key))
    })
}

fn request_key(key: &[u8]) -> String {
    const SHOWN_KEY_BYTES: usize = 64;
    key[..key.len().min(SHOWN_KEY_BYTES)].escape_ascii().to_string()
}
