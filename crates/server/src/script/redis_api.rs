//! Functions of the table `redis` besides `call` and `pcall`.
//!
//! Source: the documentation of Redis's Lua API; error texts of Redis 7.0.

use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::digest::sha1_hex;
use super::library::{CallResult, Fault, add, as_number, string};
use super::limits::RunControl;
use super::replies::error_table;
use crate::resp::RespVersion;

const LEVELS: [(&str, &str); 4] = [
    ("LOG_DEBUG", "debug"),
    ("LOG_VERBOSE", "verbose"),
    ("LOG_NOTICE", "notice"),
    ("LOG_WARNING", "warning"),
];
/// Least level that is written.
const MIN_LEVEL: usize = 2;
/// Maximum length of a line, in bytes, and maximum number of lines of a run.
const MAX_LINE_BYTES: usize = 1024;
const MAX_LINES: usize = 1000;

/// The table's functions and constants. `redis_version` is that of INFO.
pub(super) fn table(
    lua: &Lua,
    control: &Rc<RunControl>,
    redis_version: &str,
) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for (number, (name, _)) in LEVELS.iter().enumerate() {
        table.raw_set(*name, number)?;
    }
    let replication = [("NONE", 0), ("AOF", 1), ("SLAVE", 2), ("REPLICA", 2), ("ALL", 3)];
    for (name, value) in replication {
        table.raw_set(format!("REPL_{name}"), value)?;
    }
    table.raw_set("REDIS_VERSION", redis_version)?;
    let number = |part: &str| part.parse::<u32>().unwrap_or(0);
    let version = redis_version.split('.').fold(0, |version, part| version << 8 | number(part));
    table.raw_set("REDIS_VERSION_NUM", version)?;
    add(lua, &table, "sha1hex", |lua, args| match args {
        [value] => {
            // Other values than strings and numbers are empty, as in Redis.
            let text = match value {
                Value::String(_) | Value::Number(_) | Value::Integer(_) => {
                    super::library::bytes(args, 0, "sha1hex")?
                }
                _ => Vec::new(),
            };
            Ok(vec![string(lua, sha1_hex(&text))?])
        }
        _ => Err(Fault::Plain("wrong number of arguments")),
    })?;
    add(lua, &table, "error_reply", |lua, args| single_field(lua, args, true))?;
    add(lua, &table, "status_reply", |lua, args| single_field(lua, args, false))?;
    let shared = control.clone();
    add(lua, &table, "log", move |_, args| log(&shared, args))?;
    let shared = control.clone();
    add(lua, &table, "setresp", move |_, args| {
        let [version] = args else {
            return Err(Fault::Plain("redis.setresp() requires one argument."));
        };
        shared.version.set(match as_number(version) {
            Some(2.0) => RespVersion::Resp2,
            Some(3.0) => RespVersion::Resp3,
            _ => return Err(Fault::Plain("RESP version must be 2 or 3.")),
        });
        Ok(Vec::new())
    })?;
    add(lua, &table, "replicate_commands", |_, _| Ok(vec![Value::Boolean(true)]))?;
    // There are no replicas, and the effects of a script are always one batch.
    add(lua, &table, "set_repl", |_, args| match args {
        [flags] if as_number(flags).is_some_and(|flags| (0.0..=3.0).contains(&flags)) => {
            Ok(Vec::new())
        }
        [_] => Err(Fault::Plain(
            "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE.",
        )),
        _ => Err(Fault::Plain("redis.set_repl() requires one argument.")),
    })?;
    for name in ["breakpoint", "debug"] {
        add(lua, &table, name, |_, _| {
            Err(Fault::Plain("the Lua debugger is not supported; log values with redis.log"))
        })?;
    }
    Ok(table)
}

fn single_field(lua: &Lua, args: &[Value], is_error: bool) -> CallResult {
    let [Value::String(text)] = args else {
        let text = "ERR wrong number or type of arguments";
        return Ok(vec![Value::Table(error_table(lua, text)?)]);
    };
    let table = lua.create_table()?;
    if !is_error {
        table.raw_set("ok", text)?;
        return Ok(vec![Value::Table(table)]);
    }
    let text = String::from_utf8_lossy(&text.as_bytes()).into_owned();
    let text = text.strip_prefix('-').unwrap_or(&text).trim_end_matches(['\r', '\n']);
    // A single word is a text without a code.
    let text = if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") };
    Ok(vec![Value::Table(error_table(lua, &text)?)])
}

fn log(control: &RunControl, args: &[Value]) -> CallResult {
    let [level, parts @ ..] = args else {
        return Err(Fault::Plain("redis.log() requires two arguments or more."));
    };
    if parts.is_empty() {
        return Err(Fault::Plain("redis.log() requires two arguments or more."));
    }
    let Some(level) = as_number(level) else {
        return Err(Fault::Plain("First argument must be a number (log level)."));
    };
    let invalid = Fault::Plain("Invalid debug level.");
    let level = Some(level as usize).filter(|_| level >= 0.0).ok_or(invalid)?;
    let Some((_, name)) = LEVELS.get(level) else {
        return Err(Fault::Plain("Invalid debug level."));
    };
    let mut log = control.log.borrow_mut();
    if level >= MIN_LEVEL && log.len() < MAX_LINES {
        let mut line = format!("script: {name}:");
        for index in 0..parts.len() {
            if let Ok(part) = super::library::bytes(parts, index, "log") {
                line.push(' ');
                line.push_str(&String::from_utf8_lossy(&part[..part.len().min(MAX_LINE_BYTES)]));
            }
        }
        log.push(line.replace(['\r', '\n'], " "));
    }
    Ok(Vec::new())
}
