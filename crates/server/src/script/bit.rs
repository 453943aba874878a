//! The library `bit`: operations on 32-bit integers.
//!
//! Source: the documentation of LuaBitOp 1.0.

use mlua::{Lua, Table, Value};

use super::library::{Fault, add, number, number_or, string};

/// The library's functions.
pub(super) fn library(lua: &Lua) -> mlua::Result<Table> {
    let library = lua.create_table()?;
    let fold = |name: &'static str, combine: fn(i32, i32) -> i32| {
        add(lua, &library, name, move |_, args| {
            let mut result = bits(args, 0, name)?;
            for index in 1..args.len() {
                result = combine(result, bits(args, index, name)?);
            }
            Ok(vec![value(result)])
        })
    };
    fold("band", |a, b| a & b)?;
    fold("bor", |a, b| a | b)?;
    fold("bxor", |a, b| a ^ b)?;
    let shift = |name: &'static str, shift: fn(i32, u32) -> i32| {
        add(lua, &library, name, move |_, args| {
            let count = bits(args, 1, name)? as u32 & 31;
            Ok(vec![value(shift(bits(args, 0, name)?, count))])
        })
    };
    shift("lshift", |a, n| a << n)?;
    shift("rshift", |a, n| (a as u32 >> n) as i32)?;
    shift("arshift", |a, n| a >> n)?;
    shift("rol", i32::rotate_left)?;
    shift("ror", i32::rotate_right)?;
    let change = |name: &'static str, change: fn(i32) -> i32| {
        add(lua, &library, name, move |_, args| Ok(vec![value(change(bits(args, 0, name)?))]))
    };
    change("tobit", |a| a)?;
    change("bnot", |a| !a)?;
    change("bswap", i32::swap_bytes)?;
    add(lua, &library, "tohex", |lua, args| {
        let (bits, digits) = (bits(args, 0, "tohex")? as u32, number_or(args, 1, "tohex", 8.0)?);
        let count = (digits.abs() as usize).min(8);
        let hex = format!("{bits:08x}");
        let hex = &hex[8 - count..];
        let hex = if digits < 0.0 { hex.to_uppercase() } else { hex.to_owned() };
        Ok(vec![string(lua, hex)?])
    })?;
    Ok(library)
}

/// An argument, rounded to an integer and reduced to 32 bits.
fn bits(args: &[Value], index: usize, function: &str) -> Result<i32, Fault> {
    let number = number(args, index, function)?.round_ties_even();
    Ok(number.rem_euclid(4_294_967_296.0) as u32 as i32)
}

fn value(bits: i32) -> Value {
    Value::Number(f64::from(bits))
}
