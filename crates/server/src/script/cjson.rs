//! The library `cjson`: values as JSON.
//!
//! Settings hold for one script, not for later ones as in Redis: a server has several interpreters.
//!
//! Source: RFC 8259; behaviour and error texts of lua-cjson 2.1, as in Redis 7.0.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, Table, Value};

use super::cjson_decode::decode;
use super::library::{
    CallResult, Fault, add, as_number, bad_argument, bytes, integer_keys, string, type_name,
};
use super::limits::RunControl;
use super::numbers::format_g;

/// Bounds the stack that nested values take.
const MAX_DEPTH: usize = 1000;

/// The settings of the functions `encode_…` and `decode_…`.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    convert_sparse: bool,
    sparse_ratio: usize,
    sparse_safe: usize,
    encode_max_depth: usize,
    pub(super) decode_max_depth: usize,
    precision: usize,
    keep_buffer: bool,
    encode_invalid: Invalid,
    pub(super) decode_invalid: bool,
}

/// How infinite numbers are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Rejected,
    Number,
    Null,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            convert_sparse: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: MAX_DEPTH,
            decode_max_depth: MAX_DEPTH,
            precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Rejected,
            decode_invalid: true,
        }
    }
}

/// The library's functions.
pub(super) fn library(
    lua: &Lua,
    settings: &Rc<RefCell<Settings>>,
    control: &Rc<RunControl>,
) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    for (name, value) in [("_NAME", "cjson"), ("_VERSION", "2.1.0")] {
        library.raw_set(name, value)?;
    }
    library.raw_set("null", Value::NULL)?;
    let (shared, control) = (settings.clone(), control.clone());
    add(lua, &library, "encode", move |lua, args| {
        let [value] = args else {
            return Err(bad_argument(1, "encode", "expected 1 argument"));
        };
        let mut out = Vec::new();
        encode(value, (&shared.borrow(), &control), 0, &mut out)?;
        Ok(vec![string(lua, out)?])
    })?;
    let shared = settings.clone();
    add(lua, &library, "decode", move |lua, args| {
        if args.len() != 1 {
            return Err(bad_argument(1, "decode", "expected 1 argument"));
        }
        let text = bytes(args, 0, "decode")?;
        Ok(vec![decode(lua, &text, &shared.borrow())?])
    })?;
    add_settings(lua, &library, settings)?;
    Ok(library)
}

fn add_settings(lua: &Lua, library: &Table, settings: &Rc<RefCell<Settings>>) -> mlua::Result<()> {
    let number = |name: &'static str, max: usize, field: fn(&mut Settings) -> &mut usize| {
        let settings = settings.clone();
        add(lua, library, name, move |_, args| {
            let mut settings = settings.borrow_mut();
            set_integer(args, 0, name, (1, max), field(&mut settings))
        })
    };
    number("encode_max_depth", MAX_DEPTH, |settings| &mut settings.encode_max_depth)?;
    number("decode_max_depth", MAX_DEPTH, |settings| &mut settings.decode_max_depth)?;
    number("encode_number_precision", 14, |settings| &mut settings.precision)?;
    let flag = |name: &'static str, field: fn(&mut Settings) -> &mut bool| {
        let settings = settings.clone();
        add(lua, library, name, move |_, args| {
            let mut settings = settings.borrow_mut();
            let field = field(&mut settings);
            if let Some(value) = args.first() {
                *field = is_true(value);
            }
            Ok(vec![Value::Boolean(*field)])
        })
    };
    flag("encode_keep_buffer", |settings| &mut settings.keep_buffer)?;
    flag("decode_invalid_numbers", |settings| &mut settings.decode_invalid)?;
    let shared = settings.clone();
    add(lua, library, "encode_invalid_numbers", move |lua, args| {
        let mut settings = shared.borrow_mut();
        match args.first() {
            Some(Value::String(text)) if *text.as_bytes() == *b"null" => {
                settings.encode_invalid = Invalid::Null;
            }
            Some(value) if is_true(value) => settings.encode_invalid = Invalid::Number,
            Some(_) => settings.encode_invalid = Invalid::Rejected,
            None => {}
        }
        Ok(vec![match settings.encode_invalid {
            Invalid::Null => string(lua, "null")?,
            other => Value::Boolean(other == Invalid::Number),
        }])
    })?;
    let shared = settings.clone();
    add(lua, library, "encode_sparse_array", move |_, args| {
        let (settings, name) = (&mut *shared.borrow_mut(), "encode_sparse_array");
        if let Some(value) = args.first() {
            settings.convert_sparse = is_true(value);
        }
        let mut values = vec![Value::Boolean(settings.convert_sparse)];
        let limits = (0, i32::MAX as usize);
        values.extend(set_integer(args, 1, name, limits, &mut settings.sparse_ratio)?);
        values.extend(set_integer(args, 2, name, limits, &mut settings.sparse_safe)?);
        Ok(values)
    })
}

fn is_true(value: &Value) -> bool {
    match value {
        Value::Nil | Value::Boolean(false) => false,
        Value::String(text) => *text.as_bytes() != *b"off",
        _ => true,
    }
}

/// Sets a number if it is given, and returns it.
fn set_integer(
    args: &[Value],
    index: usize,
    function: &str,
    (min, max): (usize, usize),
    field: &mut usize,
) -> CallResult {
    if let Some(value) = args.get(index).filter(|value| !value.is_nil()) {
        let number = as_number(value)
            .filter(|number| number.fract() == 0.0 && (min as f64..=max as f64).contains(number));
        let reason = format!("expected integer between {min} and {max}");
        *field = number.ok_or_else(|| bad_argument(index + 1, function, &reason))? as usize;
    }
    Ok(vec![Value::Number(*field as f64)])
}

fn cannot(value: &Value, reason: &str) -> Fault {
    Fault::At(format!("Cannot serialise {}: {reason}", type_name(Some(value))))
}

fn encode(
    value: &Value,
    (settings, control): (&Settings, &RunControl),
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    // Tables that share tables can have any number of values.
    control.check_memory(out.len())?;
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        Value::Boolean(value) => out.extend_from_slice(if *value { b"true" } else { b"false" }),
        Value::String(text) => encode_string(&text.as_bytes(), out),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Table(table) => encode_table(table, (settings, control), depth + 1, out)?,
        value => match as_number(value) {
            Some(number) => encode_number(number, value, settings, out)?,
            None => return Err(cannot(value, "type not supported")),
        },
    }
    Ok(())
}

fn encode_number(
    number: f64,
    value: &Value,
    settings: &Settings,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    match settings.encode_invalid {
        _ if number.is_finite() => {}
        Invalid::Number => {}
        Invalid::Null => {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        Invalid::Rejected => return Err(cannot(value, "must not be NaN or Inf")),
    }
    out.extend_from_slice(format_g(number, settings.precision).as_bytes());
    Ok(())
}

fn encode_string(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'"' | b'\\' | b'/' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            0..0x20 | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}

/// The length of a table to be encoded as an array; `None`: as an object.
fn array_len(table: &Table, settings: &Settings) -> Result<Option<usize>, Fault> {
    let Some((items, len)) = integer_keys(table)? else { return Ok(None) };
    let is_sparse = settings.sparse_ratio > 0
        && len > items.saturating_mul(settings.sparse_ratio)
        && len > settings.sparse_safe;
    match is_sparse {
        true if settings.convert_sparse => Ok(None),
        true => Err(cannot(&Value::Table(table.clone()), "excessively sparse array")),
        false => Ok((len > 0).then_some(len)),
    }
}

fn encode_table(
    table: &Table,
    (settings, control): (&Settings, &RunControl),
    depth: usize,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    if depth > settings.encode_max_depth {
        return Err(Fault::At(format!("Cannot serialise, excessive nesting ({depth})")));
    }
    if let Some(len) = array_len(table, settings)? {
        out.push(b'[');
        for index in 1..=len {
            if index > 1 {
                out.push(b',');
            }
            encode(&table.raw_get::<Value>(index as f64)?, (settings, control), depth, out)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    let start = out.len();
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if out.len() > start {
            out.push(b',');
        }
        match (&key, as_number(&key)) {
            (Value::String(text), _) => encode_string(&text.as_bytes(), out),
            (_, Some(number)) => {
                out.push(b'"');
                encode_number(number, &key, settings, out)?;
                out.push(b'"');
            }
            _ => return Err(cannot(&key, "table key must be a number or string")),
        }
        out.push(b':');
        encode(&value, (settings, control), depth, out)?;
    }
    out.push(b'}');
    Ok(())
}
