//! Libraries of functions: how their code runs, what FUNCTION does to them, and which are in force.
//!
//! A server of one node keeps them in a log. In a replicated table they are rows of the first
//! group, and each node puts those in force that it has applied.
//!
//! Source: the documentation of Redis's functions; error texts of Redis 7.0.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use siltstone_rdb::{libraries, payload};
use siltstone_vfs::Disk;

use super::definition::REDIS_VERSION;
use crate::process;
use crate::replication::named_rows::{Rows, Unseen};
use crate::script::function_library::{Library, LoadedLibrary};
use crate::script::functions::{Change, Functions, LibraryEdit, RestorePolicy, Storage};
use crate::script::host::with_host;
use crate::script::library_log::LibraryLog;
use crate::script::limits::TimeLimit;
use crate::shared::Shared;

/// Maximum time for a library to register its functions, as in Redis.
const LOAD_TIME: Duration = Duration::from_millis(500);

/// Maximum time for a library that has run before.
const FOLLOWED_LOAD_TIME: Duration = Duration::from_secs(10);

/// What the words of FUNCTION from the second on do: LOAD, DELETE, FLUSH or RESTORE, with as many
/// arguments as these take. Runs the code of new libraries.
pub(super) fn parse_edit(shared: &Shared, words: &[Vec<u8>]) -> Result<LibraryEdit, String> {
    let max_memory_bytes = shared.settings.script_memory_bytes.load(Relaxed);
    let name = words.first().map(|word| word.to_ascii_lowercase()).unwrap_or_default();
    match (name.as_slice(), words.get(1..).unwrap_or_default()) {
        (b"load", [options @ .., code]) => {
            if let Some(other) = options.iter().find(|word| !word.eq_ignore_ascii_case(b"replace"))
            {
                let other = String::from_utf8_lossy(&other[..other.len().min(128)]);
                return Err(format!("ERR Unknown option given: {other}"));
            }
            let loaded = run_library(code, max_memory_bytes, LOAD_TIME)?;
            Ok(LibraryEdit::Load { loaded, replaces: !options.is_empty() })
        }
        (b"delete", [name]) => Ok(LibraryEdit::Remove(name.clone())),
        (b"flush", []) => Ok(LibraryEdit::Flush),
        (b"flush", [how])
            if how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async") =>
        {
            Ok(LibraryEdit::Flush)
        }
        (b"flush", _) => Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".to_owned()),
        (b"restore", [payload, policy @ ..]) => {
            let policy = match policy.first().map(|word| word.to_ascii_lowercase()).as_deref() {
                None | Some(b"append") => RestorePolicy::Append,
                Some(b"replace") => RestorePolicy::Replace,
                Some(b"flush") => RestorePolicy::Flush,
                Some(_) => {
                    return Err("ERR Wrong restore policy given, policy should be either FLUSH, \
                                APPEND or REPLACE."
                        .to_owned());
                }
            };
            let limit = shared.options.max_request_bytes;
            let all = run_payload(payload, limit, max_memory_bytes)?;
            Ok(LibraryEdit::Restore { all, policy })
        }
        _ => Err("ERR this version cannot make such a change".to_owned()),
    }
}

/// Runs the code of a library, which registers its functions. The interpreter has up to
/// `max_memory_bytes`; 0: any number.
fn run_library(
    code: &[u8],
    max_memory_bytes: usize,
    time: Duration,
) -> Result<LoadedLibrary, String> {
    let library = Arc::new(Library::parse(code)?);
    let functions = with_host(REDIS_VERSION, |host| {
        host.begin_load(TimeLimit::For(time));
        host.load(&library, max_memory_bytes)
    })??;
    match functions.is_empty() {
        true => Err("ERR No functions registered".to_owned()),
        false => Ok(LoadedLibrary { library, functions }),
    }
}

/// Runs the libraries of a payload. `limit` bounds its memory, `max_memory_bytes` that of the
/// interpreter.
fn run_payload(
    payload: &[u8],
    limit: usize,
    max_memory_bytes: usize,
) -> Result<Vec<LoadedLibrary>, String> {
    let body = payload::verify(payload)
        .ok_or_else(|| "ERR DUMP payload version or checksum are wrong".to_owned())?;
    let codes = libraries::restore(body, limit as u64).map_err(|error| format!("ERR {error}"))?;
    codes.iter().map(|code| run_library(code, max_memory_bytes, LOAD_TIME)).collect()
}

/// The libraries of a directory, in force, and kept there from now on.
///
/// # Errors
/// If they cannot be read, are damaged, or one of them fails.
pub(crate) fn open_functions(dir: &Path) -> Result<Functions, String> {
    let opened = Disk::open(dir).and_then(|vfs| LibraryLog::open(Arc::new(vfs)));
    let (log, codes) = opened.map_err(|error| error.to_string())?;
    let functions = Functions::new(Storage::Log(log));
    let run = |(name, code): (String, Vec<u8>)| match run_library(&code, 0, FOLLOWED_LOAD_TIME) {
        Ok(loaded) => Ok((name, loaded)),
        Err(text) => {
            let text = text.strip_prefix("ERR ").unwrap_or(&text);
            Err(format!("the library '{name}' of functions in '{}': {text}", dir.display()))
        }
    };
    let added = codes.into_iter().map(run).collect::<Result<_, _>>()?;
    functions.follow(Change { added, ..Change::default() });
    Ok(functions)
}

/// Puts in force which libraries of a replicated table this node has applied since the last call.
/// Cost if there are none: an uncontended lock.
pub(crate) fn follow_functions(shared: &Shared) {
    let Some(groups) = &shared.replication else { return };
    let (rows, table) = (&groups.first().functions, groups.first().node.table());
    // If it fails, a received snapshot has just replaced the table, and the next call reads it.
    let _ = rows.follow(&table, |unseen| {
        let is_all = matches!(unseen, Unseen::All);
        let mut found = rows.read(table.as_ref(), unseen)?;
        if is_all {
            for LoadedLibrary { library, .. } in shared.functions.all() {
                found.entry(library.name.to_lowercase().into_bytes()).or_default();
            }
        }
        follow_rows(shared, found);
        Ok(())
    });
}

fn follow_rows(shared: &Shared, rows: Rows) {
    let mut change = Change::default();
    for (name, code) in rows {
        let Ok(name) = String::from_utf8(name) else { continue };
        let known = shared.functions.library(&name);
        if known.as_ref().map(|known| &known.code) == code.as_ref() {
            continue;
        }
        // It has run at the leader.
        match code.map(|code| run_library(&code, 0, FOLLOWED_LOAD_TIME)) {
            Some(Ok(loaded)) => drop(change.added.insert(name, loaded)),
            Some(Err(text)) => {
                process::log(&format!("the library '{name}' of functions fails here: {text}"));
                change.removed.insert(name);
            }
            None => drop(change.removed.insert(name)),
        }
    }
    shared.functions.follow(change);
}
