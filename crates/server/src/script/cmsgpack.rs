//! The library `cmsgpack`: values as MessagePack.
//!
//! Numbers without a fraction are packed as the shortest integer, others as the shortest exact
//! float. A table whose keys are 1 to n is an array. Tables nested deeper than [`MAX_PACK_DEPTH`]
//! are packed as nil, as in Redis.
//!
//! Source: the MessagePack specification; behaviour of lua-cmsgpack 0.4.

use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::library::{CallResult, Fault, add, array_len, as_number, bad_argument, bytes};
use super::library::{number, number_or, string};
use super::limits::RunControl;

const MAX_PACK_DEPTH: usize = 16;
const MAX_UNPACK_DEPTH: usize = 200;

/// The library's functions.
pub(super) fn library(lua: &Lua, control: &Rc<RunControl>) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let control = control.clone();
    add(lua, &library, "pack", move |lua, args| {
        if args.is_empty() {
            return Err(bad_argument(0, "pack", "MessagePack pack needs input."));
        }
        let mut out = Vec::new();
        args.iter().try_for_each(|value| pack(value, &control, 0, &mut out))?;
        Ok(vec![string(lua, out)?])
    })?;
    add(lua, &library, "unpack", |lua, args| {
        let data = bytes(args, 0, "unpack")?;
        let mut reader = Reader { rest: &data };
        unpack_all(lua, &mut reader, usize::MAX)
    })?;
    add(lua, &library, "unpack_one", |lua, args| {
        unpack_from(lua, args, 1.0, number_or(args, 1, "unpack_one", 0.0)?)
    })?;
    add(lua, &library, "unpack_limit", |lua, args| {
        let limit = number(args, 1, "unpack_limit")?;
        let offset = number_or(args, 2, "unpack_limit", 0.0)?;
        if limit == 0.0 && offset == 0.0 {
            // As `unpack`.
            let data = bytes(args, 0, "unpack")?;
            return unpack_all(lua, &mut Reader { rest: &data }, usize::MAX);
        }
        unpack_from(lua, args, limit, offset)
    })?;
    for (name, value) in [("_NAME", "cmsgpack"), ("_VERSION", "lua-cmsgpack 0.4.0")] {
        library.raw_set(name, value)?;
    }
    Ok(library)
}

/// Unpacks up to `limit` values from an offset. The offset behind them comes first; -1: the end.
fn unpack_from(lua: &Lua, args: &[Value], limit: f64, offset: f64) -> CallResult {
    let data = bytes(args, 0, "unpack")?;
    let start = offset.max(0.0) as usize;
    if offset < 0.0 || limit < 0.0 {
        // As in Redis, which has the length in place of the limit.
        let len = data.len();
        return Err(Fault::At(format!(
            "Invalid request to unpack with offset of {offset} and limit of {len}."
        )));
    }
    let Some(rest) = data.get(start..) else {
        let len = data.len();
        return Err(Fault::At(format!("Start offset {start} greater than input length {len}.")));
    };
    let mut reader = Reader { rest };
    let mut values = vec![Value::Nil];
    values.extend(unpack_all(lua, &mut reader, limit as usize)?);
    let next = if reader.rest.is_empty() { -1.0 } else { (data.len() - reader.rest.len()) as f64 };
    values[0] = Value::Number(next);
    Ok(values)
}

fn unpack_all(lua: &Lua, reader: &mut Reader<'_>, limit: usize) -> CallResult {
    // The limit of Lua's stack.
    const MAX_VALUES: usize = 7000;
    let mut values = Vec::new();
    while !reader.rest.is_empty() && values.len() < limit {
        if values.len() == MAX_VALUES {
            return Err(Fault::At("too many values to unpack".to_owned()));
        }
        values.push(reader.value(lua, 0)?);
    }
    Ok(values)
}

fn pack(value: &Value, control: &RunControl, depth: usize, out: &mut Vec<u8>) -> Result<(), Fault> {
    // Tables that share tables can have any number of values.
    control.check_memory(out.len())?;
    match value {
        Value::Boolean(value) => out.push(0xc2 + u8::from(*value)),
        Value::String(text) => {
            let text = text.as_bytes();
            match text.len() {
                len @ 0..32 => out.push(0xa0 | len as u8),
                len @ 32..0x100 => out.extend_from_slice(&[0xd9, len as u8]),
                len => header(out, 0xda, len),
            }
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < MAX_PACK_DEPTH => pack_table(table, control, depth, out)?,
        value => match as_number(value) {
            Some(number) => pack_number(number, out),
            None => out.push(0xc0),
        },
    }
    Ok(())
}

/// A length of 2 or 4 bytes after the tag of the shorter form.
fn header(out: &mut Vec<u8>, tag: u8, len: usize) {
    match u16::try_from(len) {
        Ok(len) => {
            out.push(tag);
            out.extend_from_slice(&len.to_be_bytes());
        }
        Err(_) => {
            out.push(tag + 1);
            out.extend_from_slice(&(len as u32).to_be_bytes());
        }
    }
}

fn pack_table(
    table: &Table,
    control: &RunControl,
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if let Some(len) = array_len(table)? {
        match len {
            0..16 => out.push(0x90 | len as u8),
            _ => header(out, 0xdc, len),
        }
        for index in 1..=len {
            pack(&table.raw_get::<Value>(index)?, control, depth + 1, out)?;
        }
        return Ok(());
    }
    match table.pairs::<Value, Value>().count() {
        len @ 0..16 => out.push(0x80 | len as u8),
        len => header(out, 0xde, len),
    }
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack(&key, control, depth + 1, out)?;
        pack(&value, control, depth + 1, out)?;
    }
    Ok(())
}

fn pack_number(number: f64, out: &mut Vec<u8>) {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() != 0.0 || !(-LIMIT..LIMIT).contains(&number) {
        let short = number as f32;
        if f64::from(short).to_bits() == number.to_bits() {
            out.push(0xca);
            out.extend_from_slice(&short.to_be_bytes());
        } else {
            out.push(0xcb);
            out.extend_from_slice(&number.to_be_bytes());
        }
        return;
    }
    let number = number as i64;
    if (-32..128).contains(&number) {
        out.push(number as u8);
        return;
    }
    let (tag, width) = match number {
        0..0x100 => (0xcc, 1),
        0x100..0x1_0000 => (0xcd, 2),
        0x1_0000..0x1_0000_0000 => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..0 => (0xd0, 1),
        -0x8000..-0x80 => (0xd1, 2),
        -0x8000_0000..-0x8000 => (0xd2, 4),
        ..-0x8000_0000 => (0xd3, 8),
    };
    out.push(tag);
    out.extend_from_slice(&number.to_be_bytes()[8 - width..]);
}

/// Bytes that were not unpacked yet.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let taken = self.rest.get(..count);
        let taken = taken.ok_or_else(|| Fault::At("Missing bytes in input.".to_owned()))?;
        self.rest = &self.rest[count..];
        Ok(taken)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, Fault> {
        let bytes = self.take(width)?;
        Ok(bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn value(&mut self, lua: &Lua, depth: usize) -> Result<Value, Fault> {
        let tag = self.unsigned(1)? as u8;
        let number = |value: f64| Ok(Value::Number(value));
        match tag {
            0..0x80 => number(f64::from(tag)),
            0xe0.. => number(f64::from(tag as i8)),
            0x80..0x90 => self.map(lua, u64::from(tag & 15), depth),
            0x90..0xa0 => self.array(lua, u64::from(tag & 15), depth),
            0xa0..0xc0 => self.text(lua, u64::from(tag & 31)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(tag == 0xc3)),
            0xca => number(f64::from(f32::from_bits(self.unsigned(4)? as u32))),
            0xcb => number(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => number(self.unsigned(1 << (tag - 0xcc))? as f64),
            0xd0 => number(f64::from(self.unsigned(1)? as i8)),
            0xd1 => number(f64::from(self.unsigned(2)? as i16)),
            0xd2 => number(f64::from(self.unsigned(4)? as i32)),
            0xd3 => number(self.unsigned(8)? as i64 as f64),
            0xc4..=0xc6 | 0xd9..=0xdb => {
                let width = 1 << if tag < 0xd9 { tag - 0xc4 } else { tag - 0xd9 };
                let len = self.unsigned(width)?;
                self.text(lua, len)
            }
            0xdc | 0xdd => {
                let len = self.unsigned(2 << (tag - 0xdc))?;
                self.array(lua, len, depth)
            }
            0xde | 0xdf => {
                let len = self.unsigned(2 << (tag - 0xde))?;
                self.map(lua, len, depth)
            }
            _ => Err(Fault::At("Bad data format in input.".to_owned())),
        }
    }

    fn text(&mut self, lua: &Lua, len: u64) -> Result<Value, Fault> {
        string(lua, self.take(usize::try_from(len).unwrap_or(usize::MAX))?)
    }

    fn check_depth(depth: usize) -> Result<(), Fault> {
        match depth < MAX_UNPACK_DEPTH {
            true => Ok(()),
            false => Err(Fault::At("Bad data format in input.".to_owned())),
        }
    }

    fn array(&mut self, lua: &Lua, len: u64, depth: usize) -> Result<Value, Fault> {
        Self::check_depth(depth)?;
        let table = lua.create_table()?;
        for index in 1..=len {
            table.raw_set(index as f64, self.value(lua, depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, lua: &Lua, len: u64, depth: usize) -> Result<Value, Fault> {
        Self::check_depth(depth)?;
        let table = lua.create_table()?;
        for _ in 0..len {
            let (key, value) = (self.value(lua, depth + 1)?, self.value(lua, depth + 1)?);
            // nil and NaN are no keys.
            let is_key = !key.is_nil() && as_number(&key).is_none_or(|number| !number.is_nan());
            if is_key {
                table.raw_set(key, value)?;
            }
        }
        Ok(Value::Table(table))
    }
}
