//! Replies as Lua values, and Lua values as replies.
//!
//! | reply | value in Lua |
//! | --- | --- |
//! | status, error | `{ok=…}`, `{err=…}` |
//! | integer, string, array | number, string, table |
//! | null of RESP2 | false |
//! | RESP3: null, boolean | nil, boolean |
//! | RESP3: double, map, set | `{double=…}`, `{map={…}}`, `{set={…}}` |
//! | RESP3: big number, verbatim text | `{big_number=…}`, `{verbatim_string={format=…, string=…}}` |
//!
//! Source: the documentation of Redis's Lua API.

use mlua::{Lua, Table, Value};

use super::library::as_number;
use crate::resp::number::parse_i64;
use crate::resp::{Replies, RespVersion};

/// Nesting above which a value becomes an error.
const MAX_DEPTH: usize = 200;

/// A complete reply as a value.
pub(super) fn to_lua(lua: &Lua, reply: &[u8]) -> mlua::Result<Value> {
    Reader { lua, rest: reply }.value()
}

/// Error of a command, as scripts see it.
pub(super) fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    table.raw_set("ignore_error_stats_update", true)?;
    Ok(table)
}

struct Reader<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The rest of a line.
    fn line(&mut self) -> &'a [u8] {
        let end = self.rest.windows(2).position(|pair| pair == b"\r\n");
        let end = end.unwrap_or(self.rest.len());
        let (line, rest) = self.rest.split_at(end);
        self.rest = rest.get(2..).unwrap_or_default();
        line
    }

    fn count(&mut self) -> Option<usize> {
        parse_i64(self.line()).and_then(|count| usize::try_from(count).ok())
    }

    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let bytes = self.rest.get(..len).unwrap_or_default();
        self.rest = self.rest.get(len + 2..).unwrap_or_default();
        bytes
    }

    fn string(&self, bytes: &[u8]) -> mlua::Result<Value> {
        Ok(Value::String(self.lua.create_string(bytes)?))
    }

    fn field(&self, name: &str, value: Value) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        table.raw_set(name, value)?;
        Ok(Value::Table(table))
    }

    fn value(&mut self) -> mlua::Result<Value> {
        let Some((kind, rest)) = self.rest.split_first() else { return Ok(Value::Nil) };
        self.rest = rest;
        match kind {
            b'+' => {
                let text = self.line();
                self.field("ok", self.string(text)?)
            }
            b'-' => {
                let text = String::from_utf8_lossy(self.line());
                Ok(Value::Table(error_table(self.lua, &text)?))
            }
            b':' => Ok(Value::Number(parse_i64(self.line()).unwrap_or_default() as f64)),
            b'$' => match self.count() {
                None => Ok(Value::Boolean(false)),
                Some(len) => {
                    let bytes = self.bytes(len);
                    self.string(bytes)
                }
            },
            b'*' | b'>' => {
                let Some(len) = self.count() else { return Ok(Value::Boolean(false)) };
                let table = self.lua.create_table_with_capacity(len.min(1 << 20), 0)?;
                for index in 1..=len {
                    table.raw_set(index as f64, self.value()?)?;
                }
                Ok(Value::Table(table))
            }
            b'%' => {
                let table = self.lua.create_table()?;
                for _ in 0..self.count().unwrap_or_default() {
                    let (key, value) = (self.value()?, self.value()?);
                    if !key.is_nil() {
                        table.raw_set(key, value)?;
                    }
                }
                self.field("map", Value::Table(table))
            }
            b'~' => {
                let table = self.lua.create_table()?;
                for _ in 0..self.count().unwrap_or_default() {
                    let member = self.value()?;
                    if !member.is_nil() {
                        table.raw_set(member, true)?;
                    }
                }
                self.field("set", Value::Table(table))
            }
            b'#' => Ok(Value::Boolean(self.line() == b"t")),
            b',' => {
                let number = std::str::from_utf8(self.line()).ok().and_then(|t| t.parse().ok());
                self.field("double", Value::Number(number.unwrap_or(f64::NAN)))
            }
            b'(' => {
                let digits = self.line();
                self.field("big_number", self.string(digits)?)
            }
            b'=' => {
                let len = self.count().unwrap_or_default();
                let bytes = self.bytes(len);
                let (format, text) = bytes.split_at(bytes.len().min(3));
                let table = self.lua.create_table()?;
                table.raw_set("format", self.string(format)?)?;
                table.raw_set("string", self.string(text.get(1..).unwrap_or_default())?)?;
                self.field("verbatim_string", Value::Table(table))
            }
            _ => {
                self.line();
                Ok(Value::Nil)
            }
        }
    }
}

/// Writes the value that a script returned. `version` is that of `redis.setresp`.
pub(super) fn from_lua(
    value: &Value,
    version: RespVersion,
    replies: &mut Replies,
) -> mlua::Result<()> {
    write(value, version, replies, 0)
}

/// The text of a value that is an error reply: of `redis.error_reply`, or one that was caught.
pub(super) fn error_text(value: &Value) -> mlua::Result<Option<String>> {
    let Value::Table(table) = value else { return Ok(None) };
    Ok(match table.raw_get("err")? {
        Value::String(text) => Some(String::from_utf8_lossy(&text.as_bytes()).into_owned()),
        _ => None,
    })
}

fn write(
    value: &Value,
    version: RespVersion,
    replies: &mut Replies,
    depth: usize,
) -> mlua::Result<()> {
    // Tables that share tables can have any number of values.
    if replies.has_overflowed() {
        return Ok(());
    }
    match value {
        Value::String(text) => replies.bulk(&text.as_bytes()),
        Value::Boolean(value) => match (replies.version, version) {
            (_, RespVersion::Resp2) if !value => replies.null(),
            (RespVersion::Resp3, RespVersion::Resp3) => {
                replies.raw(if *value { b"#t\r\n" } else { b"#f\r\n" });
            }
            _ => replies.flag(*value),
        },
        Value::Table(_) if depth == MAX_DEPTH => {
            replies.error("ERR reached lua stack limit");
        }
        Value::Table(table) => write_table(table, version, replies, depth)?,
        value => match as_number(value) {
            // As a conversion to an integer on x86: out of range is the least integer.
            Some(number) if number.is_nan() || number >= 9_223_372_036_854_775_808.0 => {
                replies.int(i64::MIN);
            }
            Some(number) => replies.int(number as i64),
            None => replies.null(),
        },
    }
    Ok(())
}

fn write_table(
    table: &Table,
    version: RespVersion,
    replies: &mut Replies,
    depth: usize,
) -> mlua::Result<()> {
    let line = |text: &[u8]| String::from_utf8_lossy(text).replace(['\r', '\n'], " ");
    if let Value::String(text) = table.raw_get("err")? {
        replies.error(&String::from_utf8_lossy(&text.as_bytes()));
        return Ok(());
    }
    if let Value::String(text) = table.raw_get("ok")? {
        replies.simple(&line(&text.as_bytes()));
        return Ok(());
    }
    if let Some(number) = as_number(&table.raw_get("double")?) {
        replies.double(number);
        return Ok(());
    }
    if let Value::Table(map) = table.raw_get("map")? {
        replies.map(map.pairs::<Value, Value>().count());
        for pair in map.pairs::<Value, Value>() {
            let (key, value) = pair?;
            write(&key, version, replies, depth + 1)?;
            write(&value, version, replies, depth + 1)?;
        }
        return Ok(());
    }
    if let Value::Table(set) = table.raw_get("set")? {
        replies.set(set.pairs::<Value, Value>().count());
        for pair in set.pairs::<Value, Value>() {
            write(&pair?.0, version, replies, depth + 1)?;
        }
        return Ok(());
    }
    if let Value::String(digits) = table.raw_get("big_number")? {
        let digits = line(&digits.as_bytes());
        match replies.version {
            RespVersion::Resp2 => replies.bulk(digits.as_bytes()),
            RespVersion::Resp3 => replies.raw(format!("({digits}\r\n").as_bytes()),
        }
        return Ok(());
    }
    if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
        && let Value::String(format) = verbatim.raw_get("format")?
        && let Value::String(text) = verbatim.raw_get("string")?
    {
        match replies.version {
            RespVersion::Resp2 => replies.bulk(&text.as_bytes()),
            RespVersion::Resp3 => {
                let mut format = format.as_bytes().to_vec();
                format.resize(3, b' ');
                replies.raw(format!("={}\r\n", text.as_bytes().len() + 4).as_bytes());
                for part in [&format, &b":"[..], &text.as_bytes(), b"\r\n"] {
                    replies.raw(part);
                }
            }
        }
        return Ok(());
    }
    // An array ends at the first nil. The items are read twice, as the interpreter can lend only
    // some thousand values at the same time.
    let item = |index: usize| table.raw_get::<Value>(index);
    let mut len = 0;
    while !item(len + 1)?.is_nil() {
        len += 1;
    }
    replies.array(len);
    (1..=len).try_for_each(|index| write(&item(index)?, version, replies, depth + 1))
}
