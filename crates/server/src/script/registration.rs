//! `redis.register_function`, while a library is loaded.
//!
//! Source: the documentation of Redis's functions; error texts of Redis 7.0.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Function, Lua, Table, Value};

use super::function_library::{FLAGS, FunctionDefinition, check_name};
use super::library::{CallResult, Fault, add};

/// Functions registered so far.
pub(super) type Registrations = Rc<RefCell<Vec<(FunctionDefinition, Function)>>>;

/// Adds `register_function` to the table `redis`.
pub(super) fn begin(lua: &Lua, redis: &Table, registrations: &Registrations) -> mlua::Result<()> {
    let shared = registrations.clone();
    add(lua, redis, "register_function", move |_, args| register(&shared, args))
}

/// Removes `register_function`.
pub(super) fn end(redis: &Table) -> mlua::Result<()> {
    redis.raw_set("register_function", Value::Nil)
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(String::from_utf8_lossy(&text.as_bytes()).into_owned()),
        _ => None,
    }
}

fn register(registrations: &Registrations, args: &[Value]) -> CallResult {
    let mut function =
        FunctionDefinition { name: String::new(), description: None, flags: Vec::new() };
    let callback = match args {
        [Value::Table(named)] => register_named(&mut function, named)?,
        [_] => {
            return Err(Fault::Plain(
                "calling redis.register_function with a single argument is only applicable to Lua \
                 table (representing named arguments).",
            ));
        }
        [name, callback] => {
            function.name = text(name).ok_or(Fault::Plain(
                "first argument to redis.register_function must be a string",
            ))?;
            match callback {
                Value::Function(callback) => callback.clone(),
                _ => {
                    return Err(Fault::Plain(
                        "second argument to redis.register_function must be a function",
                    ));
                }
            }
        }
        _ => return Err(Fault::Plain("wrong number of arguments to redis.register_function")),
    };
    if check_name(&function.name).is_err() {
        return Err(Fault::Plain(
            "Library names can only contain letters, numbers, or underscores(_) and must be at \
             least one character long",
        ));
    }
    let mut registrations = registrations.borrow_mut();
    if registrations.iter().any(|(other, _)| other.name.eq_ignore_ascii_case(&function.name)) {
        return Err(Fault::Plain("Function already exists in the library"));
    }
    registrations.push((function, callback));
    Ok(Vec::new())
}

/// Takes a function from named arguments, and returns its callback.
fn register_named(function: &mut FunctionDefinition, named: &Table) -> Result<Function, Fault> {
    let (mut has_name, mut callback) = (false, None);
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let key = text(&key).ok_or(Fault::Plain(
            "named argument key given to redis.register_function is not a string",
        ))?;
        match (key.as_str(), &value) {
            ("function_name", Value::String(_)) => {
                function.name = text(&value).unwrap_or_default();
                has_name = true;
            }
            ("description", Value::String(_)) => function.description = text(&value),
            ("callback", Value::Function(given)) => callback = Some(given.clone()),
            ("flags", Value::Table(flags)) => {
                for flag in flags.sequence_values::<Value>() {
                    let flag = text(&flag?).unwrap_or_default();
                    let known = FLAGS.into_iter().find(|known| *known == flag);
                    function.flags.push(known.ok_or(Fault::Plain("unknown flag given"))?);
                }
            }
            ("function_name", _) => {
                return Err(Fault::Plain(
                    "function_name argument given to redis.register_function must be a string",
                ));
            }
            ("description", _) => {
                return Err(Fault::Plain(
                    "description argument given to redis.register_function must be a string",
                ));
            }
            ("callback", _) => {
                return Err(Fault::Plain(
                    "callback argument given to redis.register_function must be a function",
                ));
            }
            ("flags", _) => {
                return Err(Fault::Plain(
                    "flags argument to redis.register_function must be a table representing \
                     function flags",
                ));
            }
            _ => return Err(Fault::Plain("unknown argument given to redis.register_function")),
        }
    }
    if !has_name {
        return Err(Fault::Plain("redis.register_function must get a function name argument"));
    }
    callback.ok_or(Fault::Plain("redis.register_function must get a callback argument"))
}
