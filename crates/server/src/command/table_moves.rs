//! CONFIG MOVE: moves a table to another engine while it is served.
//!
//! ```text
//! CONFIG MOVE default silt                          to silt, with its defaults
//! CONFIG MOVE default lsm memtable 16MiB …          to lsm, or to other options of lsm
//! CONFIG MOVE ABORT                                 cancels
//! ```
//!
//! The reply says that the move has begun; INFO persistence shows how far it is, and its outcome.
//! What the target cannot hold is refused: here, or later in INFO, and the table stays as it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use siltstone::{Db, Engine, Error, TableMove};

use super::context::Context;
use super::failure::{Failure, Outcome, reply_error};
use crate::resp::Args;
use crate::store::Database;
use crate::store::flags_trailer;
use crate::table_moves::{MoveOutcome, MoveReport};

const MICA: &str = "mica";

/// CONFIG MOVE; `args` are those behind it.
pub(super) fn move_table(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let shared = context.shared;
    if shared.replication.is_some() {
        return Err(reply_error(
            "ERR CONFIG MOVE is not allowed in cluster mode: a replicated table is on lsm",
        ));
    }
    if args.len() == 1 {
        if !args[0].eq_ignore_ascii_case(b"abort") {
            return Err(reply_error("ERR CONFIG MOVE needs a table and an engine, or ABORT"));
        }
        shared.moves.cancel().map_err(|reason| format!("ERR {reason}"))?;
        context.replies.ok();
        return Ok(());
    }
    if !args.len().is_multiple_of(2) {
        return Err(reply_error("ERR CONFIG MOVE: each option needs a value"));
    }
    let text = |word: &[u8]| String::from_utf8_lossy(&word[..word.len().min(256)]).into_owned();
    let (name, engine) = (text(&args[0]), text(&args[1]).to_lowercase());
    let mut options = BTreeMap::new();
    for (option, value) in args.from(2).iter().step_by(2).zip(args.from(3).iter().step_by(2)) {
        if options.insert(text(option), text(value)).is_some() {
            return Err(failed(&name, &format!("the option '{}' is given twice", text(option))));
        }
    }
    let database = shared.databases.iter().find(|database| database.name == name);
    let Some(database) = database else { return Err(failed(&name, "no such table is served")) };
    if shared.moves.is_in_progress() {
        return Err(reply_error("ERR a table is moving already; see INFO persistence"));
    }
    let moving = begin(database, &engine, &options)?;
    let is_durable = moving.target().engine().capabilities().durable;
    let report = MoveReport {
        table: name.clone(),
        engine: engine.clone(),
        total: moving.table().approximate_len(),
        progress: moving.progress(),
        since: Instant::now(),
        took: None,
        outcome: None,
    };
    if !shared.moves.request(moving, report) {
        return Err(reply_error("ERR a table is moving already; see INFO persistence"));
    }
    context.replies.simple(match is_durable {
        true => "Background move started",
        false => "Background move started; the table will be in memory alone",
    });
    Ok(())
}

fn begin(
    database: &Database,
    engine: &str,
    options: &BTreeMap<String, String>,
) -> Result<TableMove, Failure> {
    let name = &database.name;
    if database.is_named_by_other_protocols() {
        return Err(failed(name, "memcached or UDP clients use it"));
    }
    let store = database.table.as_ref().and_then(|table| Some((table, Db::of_table(table)?)));
    let Some((table, db)) = store else { return Err(failed(name, "it is in no store")) };
    let stored = db.table(name).map_err(|error| of_error(name, &error))?;
    if !Arc::ptr_eq(stored.engine(), table.engine()) {
        // The recorder would get no requests of the new engine.
        let reason = "its requests are recorded: start the server without --trace-out";
        return Err(failed(name, reason));
    }
    let moving = db.begin_move(name, engine, options).map_err(|error| of_error(name, &error))?;
    database
        .check_move(moving.target().engine().as_ref())
        .map_err(|error| of_error(name, &error))?;
    // Flags of memcached clients are in a trailer of the value, but for mica in its items.
    Ok(match (table.engine().name() == MICA, engine == MICA) {
        (true, false) => moving.with_conversion(|_, entry| {
            if let Some(stored) = flags_trailer::append(&entry.value, Default::default()) {
                entry.value = stored;
            }
            Ok(())
        }),
        (false, true) => moving.with_conversion(|key, entry| {
            match flags_trailer::strip(&mut entry.value).flags {
                0 => Ok(()),
                _ => Err(Error::Invalid(format!(
                    "key '{}' has flags of a memcached client: write it again by a Redis client, \
                     or remove it",
                    key.escape_ascii()
                ))),
            }
        }),
        _ => moving,
    })
}

impl Database {
    /// Refuses to move the table to an engine that cannot hold what the server stores in it.
    pub(crate) fn check_move(&self, target: &dyn Engine) -> siltstone::Result<()> {
        let reason = match &self.keyspace {
            Some(keyspace) if keyspace.has_reserved_rows() && !target.capabilities().ordered => {
                format!(
                    "the table has, or had, hashes, lists, sets, sorted sets or streams, which \
                     {} does not have: remove all keys by FLUSHDB first, or move to lsm",
                    target.name()
                )
            }
            _ if !self.can_be_replaced() => {
                "too many tables have moved since the server was started; restart it".to_owned()
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid(reason))
    }
}

fn failed(table: &str, reason: &str) -> Failure {
    format!("ERR CONFIG MOVE of table '{table}': {reason}").into()
}

fn of_error(table: &str, error: &Error) -> Failure {
    failed(table, &error.to_string())
}

/// The current or last move in INFO.
pub(super) fn report(context: &Context<'_>, out: &mut String) -> std::fmt::Result {
    use std::fmt::Write;

    let report = context.shared.moves.report();
    let is_running = report.as_ref().is_some_and(|report| report.outcome.is_none());
    write!(out, "table_move_in_progress:{}\r\n", u8::from(is_running))?;
    let Some(report) = report else { return Ok(()) };
    let seconds = report.took.unwrap_or_else(|| report.since.elapsed()).as_secs_f64();
    write!(out, "table_move_table:{}\r\ntable_move_engine:{}\r\n", report.table, report.engine)?;
    if let Some(total) = report.total {
        write!(out, "table_move_estimated_rows:{total}\r\n")?;
    }
    let progress = report.progress;
    write!(out, "table_move_copied_rows:{}\r\n", progress.rows)?;
    write!(out, "table_move_copied_changes:{}\r\n", progress.changes)?;
    write!(out, "table_move_time_sec:{seconds:.3}\r\n")?;
    match report.outcome {
        None => Ok(()),
        Some(MoveOutcome::Cancelled) => write!(out, "table_move_status:cancelled\r\n"),
        Some(MoveOutcome::Failed(reason)) => {
            let reason = reason.replace(['\r', '\n'], " ");
            write!(out, "table_move_status:failed\r\ntable_move_error:{reason}\r\n")
        }
        Some(MoveOutcome::Done { pause }) => {
            let pause_ms = pause.as_secs_f64() * 1000.0;
            write!(out, "table_move_status:ok\r\ntable_move_pause_ms:{pause_ms:.3}\r\n")
        }
    }
}
