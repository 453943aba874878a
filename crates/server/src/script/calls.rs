//! `redis.call`, `redis.pcall` and `redis.acl_check_cmd`: commands of the running script.
//!
//! The functions are created once per interpreter. They find the server that the running script
//! sees in a variable of the thread, which is set during a run only: functions that captured it
//! would have to be created and collected for each run.

use std::rc::Rc;

use mlua::{HookTriggers, Lua, MultiValue, Table, Value};
use scoped_tls_hkt::scoped_thread_local;

use super::library::CommandError;
use super::limits::{Abort, RunControl};
use super::replies;
use crate::resp::number::format_double;
use crate::resp::{Args, RespVersion, Span};

/// The server, as a script sees it.
pub(crate) trait Commands {
    /// Runs a command. Its reply, in this protocol version, is then [`reply`](Self::reply).
    fn call(&mut self, args: Args<'_>, version: RespVersion) -> Result<(), CallError>;

    /// Whether the client's user may run a command; `None` if there is no such command.
    fn may_call(&mut self, args: Args<'_>) -> Option<bool>;

    /// The reply to the last command.
    fn reply(&self) -> &[u8];
}

/// A command of a script that has no reply.
pub(crate) enum CallError {
    /// An error reply.
    Failure(String),
    /// The script must end.
    Abort(Abort),
}

scoped_thread_local!(
    /// The server of the running script.
    static mut COMMANDS: for<'a> &'a mut (dyn Commands + 'a)
);

/// Adds the functions to the table `redis`.
pub(super) fn add(lua: &Lua, redis: &Table, control: &Rc<RunControl>) -> mlua::Result<()> {
    for (name, raises) in [("call", true), ("pcall", false)] {
        let control = control.clone();
        let function = lua.create_function(move |lua, args: MultiValue| {
            match running(|commands| dispatch(lua, &args, &control, commands))?? {
                Ok(value) => Ok(value),
                Err(text) if raises => Err(command_error(text)),
                Err(text) => Ok(Value::Table(replies::error_table(lua, &text)?)),
            }
        })?;
        redis.raw_set(name, function)?;
    }
    let may_call = lua.create_function(|_, args: MultiValue| {
        let (bytes, spans) = encode(&args).map_err(command_error)?;
        running(|commands| commands.may_call(Args::new(&bytes, &spans)))?
            .ok_or_else(|| command_error("ERR Invalid command passed to redis.acl_check_cmd()"))
    })?;
    redis.raw_set("acl_check_cmd", may_call)
}

/// Runs `action`, during which the scripts of this thread see `commands`.
pub(super) fn with_commands<T>(commands: &mut dyn Commands, action: impl FnOnce() -> T) -> T {
    COMMANDS.set(commands, action)
}

/// Calls `action` with the server of the running script.
fn running<T>(action: impl FnOnce(&mut dyn Commands) -> T) -> mlua::Result<T> {
    match COMMANDS.is_set() {
        true => Ok(COMMANDS.with(|commands| action(commands))),
        false => Err(command_error("ERR commands run in scripts and functions only")),
    }
}

fn command_error(text: impl Into<String>) -> mlua::Error {
    mlua::Error::external(CommandError(text.into()))
}

/// Aborts the script: from now on every instruction fails.
pub(super) fn abort(lua: &Lua) -> mlua::Error {
    let triggers = HookTriggers::new().every_nth_instruction(1);
    let error = || mlua::Error::runtime("the script was aborted");
    // The regular hook remains if this fails, and aborts later.
    let _ = lua.set_global_hook(triggers, move |_, _| Err(error()));
    error()
}

/// Runs a command of a script. Returns its value or its error reply.
fn dispatch(
    lua: &Lua,
    args: &MultiValue,
    control: &RunControl,
    commands: &mut dyn Commands,
) -> mlua::Result<Result<Value, String>> {
    if control.check().is_some() {
        return Err(abort(lua));
    }
    let (bytes, spans) = match encode(args) {
        Ok(encoded) => encoded,
        Err(text) => return Ok(Err(text.to_owned())),
    };
    match commands.call(Args::new(&bytes, &spans), control.version.get()) {
        Ok(()) => {
            let reply = commands.reply();
            let value = control.with_room_for(lua, reply.len(), || replies::to_lua(lua, reply));
            Ok(Ok(value?))
        }
        Err(CallError::Failure(text)) => Ok(Err(text)),
        Err(CallError::Abort(reason)) => {
            control.abort(reason);
            Err(abort(lua))
        }
    }
}

/// The arguments of a command that a script calls, or an error reply.
fn encode(args: &MultiValue) -> Result<(Vec<u8>, Vec<Span>), &'static str> {
    if args.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call");
    }
    let len = |arg: &Value| arg.as_string().map_or(0, |text| text.as_bytes().len());
    let mut bytes = Vec::with_capacity(args.iter().map(len).sum());
    let mut spans = Vec::with_capacity(args.len());
    for arg in args {
        let start = bytes.len();
        match arg {
            Value::String(text) => bytes.extend_from_slice(&text.as_bytes()),
            Value::Number(number) => {
                bytes.extend_from_slice(format_double(*number).as_bytes());
            }
            Value::Integer(number) => bytes.extend_from_slice(number.to_string().as_bytes()),
            _ => {
                return Err("ERR Lua redis lib command arguments must be strings or integers");
            }
        }
        spans.push(Span { start, end: bytes.len() });
    }
    Ok((bytes, spans))
}
