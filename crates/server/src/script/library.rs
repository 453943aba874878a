//! Functions of libraries: arguments, errors with the position of the script.
//!
//! Errors of Rust functions are objects in Lua. The sandbox replaces them by strings for those who
//! catch them ([`plain_text`]).

use mlua::{Lua, MultiValue, Table, Value};

use super::numbers::format_g;

/// Error of a library function.
pub(super) enum Fault {
    /// A text, which gets the position of the calling script in front.
    At(String),
    /// A text without a position.
    Plain(&'static str),
    /// An error of the interpreter: out of memory.
    Lua(mlua::Error),
}

impl From<mlua::Error> for Fault {
    fn from(error: mlua::Error) -> Self {
        Fault::Lua(error)
    }
}

impl From<String> for Fault {
    fn from(text: String) -> Self {
        Fault::At(text)
    }
}

/// The values that a function of a library returns.
pub(super) type CallResult = Result<Vec<Value>, Fault>;

/// Adds a function to a library.
pub(super) fn add(
    lua: &Lua,
    library: &Table,
    name: &str,
    function: impl Fn(&Lua, &[Value]) -> CallResult + 'static,
) -> mlua::Result<()> {
    let wrapped = lua.create_function(move |lua, args: MultiValue| {
        let args: Vec<Value> = args.into_iter().collect();
        match function(lua, &args) {
            Ok(values) => Ok(values.into_iter().collect::<MultiValue>()),
            Err(Fault::Lua(error)) => Err(error),
            Err(Fault::At(text)) => Err(mlua::Error::RuntimeError(position(lua) + &text)),
            Err(Fault::Plain(text)) => Err(mlua::Error::RuntimeError(text.to_owned())),
        }
    })?;
    library.raw_set(name, wrapped)
}

/// Error reply of a command that a script ran.
#[derive(Debug)]
pub(super) struct CommandError(pub(super) String);

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandError {}

/// Text of an error, and whether it is an error reply.
pub(super) fn plain_text(error: &mlua::Error) -> (String, bool) {
    match error {
        mlua::Error::CallbackError { cause, .. } => plain_text(cause),
        mlua::Error::RuntimeError(text) => (text.clone(), false),
        error => match error.downcast_ref::<CommandError>() {
            Some(CommandError(text)) => (text.clone(), true),
            None => {
                let text = error.to_string();
                (text.lines().next().unwrap_or_default().to_owned(), false)
            }
        },
    }
}

/// Source and line of the script's innermost function.
pub(super) fn script_frame(lua: &Lua) -> Option<(String, usize)> {
    const MAX_LEVELS: usize = 64;
    for level in 0..MAX_LEVELS {
        let frame = lua.inspect_stack(level, |frame| {
            let source = frame.source().source.map(|source| source.into_owned());
            Some((source?, frame.current_line()?))
        });
        match frame {
            None => return None,
            Some(Some((source, line))) if !source.starts_with("=prelude") => {
                return Some((source, line));
            }
            Some(_) => {}
        }
    }
    None
}

/// Position of the calling script, as Lua puts it before an error.
fn position(lua: &Lua) -> String {
    script_frame(lua).map_or_else(String::new, |(source, line)| {
        format!("{}:{line}: ", source.trim_start_matches(['@', '=']))
    })
}

/// Error for an argument, counted from 1.
pub(super) fn bad_argument(number: usize, function: &str, reason: &str) -> Fault {
    Fault::At(format!("bad argument #{number} to '{function}' ({reason})"))
}

/// Lua's name of a value's type.
pub(super) fn type_name(value: Option<&Value>) -> &'static str {
    match value {
        None => "no value",
        Some(Value::LightUserData(_) | Value::UserData(_) | Value::Error(_)) => "userdata",
        Some(Value::Integer(_)) => "number",
        Some(value) => value.type_name(),
    }
}

/// A number, or a string that is one, at an index from 0.
pub(super) fn number(args: &[Value], index: usize, function: &str) -> Result<f64, Fault> {
    let value = args.get(index);
    let number = match value {
        Some(Value::Number(number)) => Some(*number),
        Some(Value::Integer(number)) => Some(*number as f64),
        Some(Value::String(text)) => {
            std::str::from_utf8(&text.as_bytes()).ok().and_then(|text| text.trim().parse().ok())
        }
        _ => None,
    };
    number.ok_or_else(|| {
        let reason = format!("number expected, got {}", type_name(value));
        bad_argument(index + 1, function, &reason)
    })
}

/// A number, or a default if the argument is missing or nil.
pub(super) fn number_or(
    args: &[Value],
    index: usize,
    function: &str,
    default: f64,
) -> Result<f64, Fault> {
    match args.get(index) {
        None | Some(Value::Nil) => Ok(default),
        Some(_) => number(args, index, function),
    }
}

/// The bytes of a string, or of a number's text.
pub(super) fn bytes(args: &[Value], index: usize, function: &str) -> Result<Vec<u8>, Fault> {
    let value = args.get(index);
    match value {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(Value::Number(number)) => Ok(format_g(*number, 14).into_bytes()),
        Some(Value::Integer(number)) => Ok(number.to_string().into_bytes()),
        _ => {
            let reason = format!("string expected, got {}", type_name(value));
            Err(bad_argument(index + 1, function, &reason))
        }
    }
}

/// A string value.
pub(super) fn string(lua: &Lua, bytes: impl AsRef<[u8]>) -> Result<Value, Fault> {
    Ok(Value::String(lua.create_string(bytes)?))
}

/// The number of a value that is one.
pub(super) fn as_number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// The number of items of a table whose keys are positive integers, and the largest key.
pub(super) fn integer_keys(table: &Table) -> Result<Option<(usize, usize)>, Fault> {
    let (mut count, mut max) = (0usize, 0.0f64);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        let Some(key) = as_number(&key).filter(|key| *key >= 1.0 && key.fract() == 0.0) else {
            return Ok(None);
        };
        count += 1;
        max = max.max(key);
    }
    Ok(Some((count, max as usize)))
}

/// The length of a table that is an array: its keys are the integers from 1 to it.
pub(super) fn array_len(table: &Table) -> Result<Option<usize>, Fault> {
    let keys = integer_keys(table)?;
    Ok(keys.filter(|(count, max)| count == max).map(|(count, _)| count))
}
