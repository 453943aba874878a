//! The library `struct`: values as bytes of a binary format.
//!
//! | option | value |
//! | --- | --- |
//! | `>` `<` `=`, `!n` | byte order; alignment, by default 8 |
//! | `b` `h` `l` `T` `i`n, capital: unsigned | integer of 1, 2, 8, 8 or n bytes (default 4) |
//! | `f`, `d` | floating-point number of 4 or 8 bytes |
//! | `x` | a zero byte of padding |
//! | `s`, `c`n | string up to a zero byte; string of n bytes, `c0`: all, with the length before it |
//!
//! Source: the documentation of Roberto Ierusalimschy's `struct` 0.2.

use mlua::{Lua, Table, Value};

use super::library::{Fault, add, bad_argument, bytes, number, number_or, string};

const MAX_INTEGER_BYTES: usize = 32;
/// Maximum number of unpacked values: about the limit of Lua's stack.
const MAX_VALUES: usize = 7000;

/// The library's functions.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    add(lua, &library, "pack", pack)?;
    add(lua, &library, "unpack", unpack)?;
    add(lua, &library, "size", size)?;
    Ok(library)
}

/// Reader of a format.
struct Format<'a> {
    rest: &'a [u8],
    is_little: bool,
    align: usize,
    function: &'static str,
}

/// An option with the size of its value in bytes.
struct Item {
    option: u8,
    size: usize,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8], function: &'static str) -> Self {
        let is_little = cfg!(target_endian = "little");
        Format { rest: format, is_little, align: 1, function }
    }

    /// The number at the front, or a default.
    fn count(&mut self, default: usize) -> Result<usize, Fault> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        if number.is_empty() {
            return Ok(default);
        }
        let number = number.iter().try_fold(0usize, |count, digit| {
            count.checked_mul(10)?.checked_add(usize::from(digit - b'0'))
        });
        number
            .filter(|count| *count <= i32::MAX as usize)
            .ok_or_else(|| Fault::At("integral size overflow".to_owned()))
    }

    /// The next value.
    fn next(&mut self) -> Result<Option<Item>, Fault> {
        while let Some((&option, rest)) = self.rest.split_first() {
            self.rest = rest;
            let size = match option {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'f' => 4,
                b'l' | b'L' | b'T' | b'd' => 8,
                b's' => 0,
                b'c' => self.count(1)?,
                b'i' | b'I' => match self.count(4)? {
                    size if size > MAX_INTEGER_BYTES => {
                        return Err(Fault::At(format!(
                            "integral size {size} is larger than limit of {MAX_INTEGER_BYTES}"
                        )));
                    }
                    size => size,
                },
                b' ' => continue,
                b'>' | b'<' => {
                    self.is_little = option == b'<';
                    continue;
                }
                b'=' => {
                    self.is_little = cfg!(target_endian = "little");
                    continue;
                }
                b'!' => {
                    self.align = self.count(8)?;
                    if !self.align.is_power_of_two() {
                        return Err(Fault::At("alignment is not a power of 2".to_owned()));
                    }
                    continue;
                }
                option => {
                    let reason = format!("invalid format option '{}'", char::from(option));
                    return Err(bad_argument(1, self.function, &reason));
                }
            };
            return Ok(Some(Item { option, size }));
        }
        Ok(None)
    }

    /// Bytes to skip before a value at a position.
    fn padding(&self, position: usize, item: &Item) -> usize {
        let size = item.size.min(self.align);
        match item.option {
            b'c' => 0,
            _ if size > 1 => size.wrapping_sub(position & (size - 1)) & (size - 1),
            _ => 0,
        }
    }

    /// Puts the bytes of a number, given in little-endian order, into the format's order.
    fn order(&self, bytes: &mut [u8]) {
        if !self.is_little {
            bytes.reverse();
        }
    }
}

fn pack(lua: &Lua, args: &[Value]) -> super::library::CallResult {
    let text = bytes(args, 0, "pack")?;
    let (mut format, mut out, mut at) = (Format::new(&text, "pack"), Vec::new(), 1);
    while let Some(item) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), &item), 0);
        let start = out.len();
        match item.option {
            b'x' => out.push(0),
            b's' | b'c' => {
                let value = bytes(args, at, "pack")?;
                let size = if item.size == 0 { value.len() } else { item.size };
                let Some(part) = value.get(..size) else {
                    return Err(bad_argument(at + 1, "pack", "string too short"));
                };
                out.extend_from_slice(part);
                if item.option == b's' {
                    out.push(0);
                }
            }
            b'f' => out.extend_from_slice(&(number(args, at, "pack")? as f32).to_le_bytes()),
            b'd' => out.extend_from_slice(&number(args, at, "pack")?.to_le_bytes()),
            _ => {
                // Values above the signed range wrap, as conversions of C do.
                let value = number(args, at, "pack")? as i128 as i64;
                let fill = if value < 0 { 0xff } else { 0 };
                let mut wide = [fill; MAX_INTEGER_BYTES];
                wide[..8].copy_from_slice(&value.to_le_bytes());
                out.extend_from_slice(&wide[..item.size]);
            }
        }
        if !matches!(item.option, b'x' | b's' | b'c') {
            format.order(&mut out[start..]);
        }
        at += usize::from(item.option != b'x');
    }
    Ok(vec![string(lua, out)?])
}

fn unpack(lua: &Lua, args: &[Value]) -> super::library::CallResult {
    let (text, data) = (bytes(args, 0, "unpack")?, bytes(args, 1, "unpack")?);
    let position = number_or(args, 2, "unpack", 1.0)?;
    if position.is_nan() {
        return Err(bad_argument(2, "unpack", "data string too short"));
    }
    if position < 1.0 {
        return Err(bad_argument(3, "unpack", "offset must be 1 or greater"));
    }
    let too_short = || bad_argument(2, "unpack", "data string too short");
    let (mut format, mut at) = (Format::new(&text, "unpack"), position as usize - 1);
    let mut values: Vec<Value> = Vec::new();
    while let Some(mut item) = format.next()? {
        at = at.saturating_add(format.padding(at, &item));
        let rest = data.get(at..).ok_or_else(too_short)?;
        if values.len() == MAX_VALUES {
            return Err(Fault::At("stack overflow (too many results)".to_owned()));
        }
        if item.option == b's' {
            let end = rest.iter().position(|byte| *byte == 0);
            let end = end.ok_or_else(|| Fault::At("unfinished string in data".to_owned()))?;
            values.push(string(lua, &rest[..end])?);
            at += end + 1;
            continue;
        }
        if item.option == b'c' && item.size == 0 {
            let count = values.pop().and_then(|value| super::library::as_number(&value));
            let count = count.filter(|count| *count >= 0.0);
            let missing = || Fault::At("format 'c0' needs a previous size".to_owned());
            item.size = count.ok_or_else(missing)? as usize;
        }
        let part = rest.get(..item.size).ok_or_else(too_short)?;
        at += item.size;
        let mut number = [0; MAX_INTEGER_BYTES];
        let width = item.size.min(MAX_INTEGER_BYTES);
        number[..width].copy_from_slice(&part[..width]);
        format.order(&mut number[..width]);
        let low = |number: &[u8; MAX_INTEGER_BYTES]| {
            number[..8].iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte))
        };
        values.push(match item.option {
            b'x' => continue,
            b'c' => string(lua, part)?,
            b'f' => Value::Number(f64::from(f32::from_bits(low(&number) as u32))),
            b'd' => Value::Number(f64::from_bits(low(&number))),
            option if option.is_ascii_uppercase() => Value::Number(low(&number) as f64),
            _ => {
                let unused = 64 - 8 * width.min(8) as u32;
                let value = low(&number) as i64;
                let value = if unused < 64 { value << unused >> unused } else { 0 };
                Value::Number(value as f64)
            }
        });
    }
    values.push(Value::Number((at + 1) as f64));
    Ok(values)
}

fn size(_lua: &Lua, args: &[Value]) -> super::library::CallResult {
    let text = bytes(args, 0, "size")?;
    let (mut format, mut total) = (Format::new(&text, "size"), 0usize);
    while let Some(item) = format.next()? {
        match (item.option, item.size) {
            (b's', _) => return Err(bad_argument(1, "size", "option 's' has no fixed size")),
            (b'c', 0) => return Err(bad_argument(1, "size", "option 'c0' has no fixed size")),
            _ => {}
        }
        total = total.saturating_add(format.padding(total, &item)).saturating_add(item.size);
    }
    Ok(vec![Value::Number(total as f64)])
}
