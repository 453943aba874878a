//! The interpreter of one thread, and runs of scripts in it.
//!
//! The sandbox is built by `prelude.lua` from functions of this crate. Scripts are compiled once
//! per interpreter. A script reaches the server only by [`Commands`], and during its run only.
//!
//! Invariant: an interpreter that aborted a script or ran out of memory is replaced by a new one.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::rc::Rc;
use std::time::Instant;

use mlua::chunk::ChunkMode;
use mlua::{Function, HookTriggers, IntoLua, Lua, LuaOptions, StdLib, Table, Value, VmState};

use super::cache::Script;
use super::calls::{self, Commands};
use super::function_library::{FunctionDefinition, Library};
use super::library::{plain_text, script_frame};
use super::limits::{Abort, INSTRUCTIONS_PER_CHECK, RunControl, TimeLimit};
use super::registration::{self, Registrations};
use super::{bit, cjson, cmsgpack, numbers, redis_api, replies, struct_pack};
use crate::resp::{Args, Replies};

/// Number of compiled scripts kept per interpreter.
const MAX_COMPILED: usize = 1000;

/// A run of a script.
pub(crate) struct ScriptRun<'a> {
    pub(crate) script: &'a Script,
    /// Generation of the cache of scripts.
    pub(crate) generation: u64,
    pub(crate) keys: Args<'a>,
    pub(crate) args: Args<'a>,
    pub(crate) limit: TimeLimit,
    /// Maximum memory of the interpreter, in bytes; 0: unlimited.
    pub(crate) max_memory_bytes: usize,
}

/// How a run ended.
pub(crate) enum RunOutcome {
    /// A reply was written.
    Replied,
    /// An error reply.
    Failed(String),
    /// With the place in the script, for an error.
    Aborted(Abort, String),
}

/// An interpreter.
pub(crate) struct Host {
    lua: Lua,
    control: Rc<RunControl>,
    json: Rc<RefCell<cjson::Settings>>,
    /// The table `redis`.
    redis: Table,
    /// Environment of scripts.
    env: Table,
    /// Runs a compiled script, and catches its errors.
    run: Function,
    /// Environment of libraries.
    library_env: Table,
    /// Limits what they see, while their code runs.
    set_loading: Function,
    compiled: HashMap<String, Function>,
    generation: u64,
    /// Functions of libraries by their name in lower case, by the id of the library.
    libraries: HashMap<String, HashMap<String, Function>>,
    is_spent: bool,
}

impl Host {
    /// An interpreter whose scripts see this version of Redis.
    pub(crate) fn new(redis_version: &str) -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let (control, json) = (RunControl::new(), Rc::default());
        let host = lua.create_table()?;
        let redis = redis_api::table(&lua, &control, redis_version)?;
        calls::add(&lua, &redis, &control)?;
        host.raw_set("redis", &redis)?;
        let all = lua.create_table()?;
        all.raw_set("bit", bit::library(&lua)?)?;
        all.raw_set("cjson", cjson::library(&lua, &json, &control)?)?;
        all.raw_set("cmsgpack", cmsgpack::library(&lua, &control)?)?;
        all.raw_set("struct", struct_pack::library(&lua)?)?;
        host.raw_set("libraries", all)?;
        let began = Instant::now();
        let clock = lua.create_function(move |_, ()| Ok(began.elapsed().as_secs_f64()))?;
        host.raw_set("clock", clock)?;
        host.raw_set("plain", lua.create_function(plain)?)?;
        host.raw_set("on_error", lua.create_function(on_error)?)?;
        let seed: Function = lua.globals().raw_get::<Table>("math")?.raw_get("randomseed")?;
        seed.call::<()>(RandomState::new().build_hasher().finish() as u32)?;
        let prelude = lua.load(include_str!("prelude.lua")).set_name("=prelude");
        let (env, run, library_env, set_loading) = prelude.call(host)?;
        let shared = control.clone();
        let triggers = HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_CHECK);
        lua.set_global_hook(triggers, move |lua, _| match shared.check() {
            None => Ok(VmState::Continue),
            Some(_) => {
                *shared.place.borrow_mut() = script_frame(lua);
                Err(calls::abort(lua))
            }
        })?;
        let compiled = HashMap::new();
        let (generation, is_spent) = (0, false);
        Ok(Host {
            lua,
            control,
            json,
            redis,
            env,
            run,
            library_env,
            set_loading,
            compiled,
            generation,
            libraries: HashMap::new(),
            is_spent,
        })
    }

    /// Lines of `redis.log` of the last run.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut self.control.log.borrow_mut())
    }

    /// Compiles a script. `generation` is that of the cache of scripts.
    ///
    /// # Errors
    /// The error reply to a script that is not Lua.
    pub(crate) fn compile(&mut self, script: &Script, generation: u64) -> Result<Function, String> {
        if self.generation != generation || self.compiled.len() >= MAX_COMPILED {
            self.compiled.clear();
            self.generation = generation;
        }
        if let Some(function) = self.compiled.get(&script.sha) {
            return Ok(function.clone());
        }
        let _ = self.lua.set_memory_limit(0);
        let chunk = self.lua.load(script.body()).set_name("@user_script");
        let chunk = chunk.set_mode(ChunkMode::Text).set_environment(self.env.clone());
        let function = chunk.into_function().map_err(|error| {
            format!("ERR Error compiling script (new function): {}", syntax_text(&error))
        })?;
        self.compiled.insert(script.sha.clone(), function.clone());
        Ok(function)
    }

    /// Begins the run of a library's code.
    pub(crate) fn begin_load(&self, limit: TimeLimit) {
        self.control.begin(limit);
    }

    /// Runs a library, and returns the functions that it registers. `max_memory_bytes` is that of
    /// [`Run`].
    ///
    /// # Errors
    /// The error reply to a library that fails.
    pub(crate) fn load(
        &mut self,
        library: &Library,
        max_memory_bytes: usize,
    ) -> Result<Vec<FunctionDefinition>, String> {
        let _ = self.lua.set_memory_limit(0);
        let chunk = self.lua.load(library.body.as_slice()).set_name("@user_function");
        let chunk = chunk.set_mode(ChunkMode::Text).set_environment(self.library_env.clone());
        let function = chunk.into_function();
        let function = function
            .map_err(|error| format!("ERR Error compiling function: {}", syntax_text(&error)))?;
        let registrations = Registrations::default();
        self.control.max_memory_bytes.set(max_memory_bytes);
        let _ = self.lua.set_memory_limit(max_memory_bytes);
        let outcome = self.register(function, &registrations);
        let _ = self.lua.set_memory_limit(0);
        if self.control.aborted().is_some() {
            self.is_spent = true;
            return Err("ERR FUNCTION LOAD timeout".to_owned());
        }
        let (is_done, error) = outcome.map_err(|error| {
            self.is_spent = true;
            format!("ERR Error registering functions: {}", plain_text(&error).0)
        })?;
        if !is_done {
            let text = describe_text(&error).unwrap_or_default();
            self.is_spent |= is_out_of_memory(&text);
            return Err(format!("ERR Error registering functions: {text}"));
        }
        let registrations = registrations.take();
        if self.libraries.len() >= MAX_COMPILED {
            self.libraries.clear();
        }
        let by_name = registrations
            .iter()
            .map(|(registered, function)| (registered.name.to_lowercase(), function.clone()));
        self.libraries.insert(library.id.clone(), by_name.collect());
        Ok(registrations.into_iter().map(|(registered, _)| registered).collect())
    }

    fn register(
        &self,
        library: Function,
        registrations: &Registrations,
    ) -> mlua::Result<(bool, Value)> {
        registration::begin(&self.lua, &self.redis, registrations)?;
        self.set_loading.call::<()>(true)?;
        let result = self.run.call(library);
        self.set_loading.call::<()>(false)?;
        registration::end(&self.redis)?;
        result
    }

    /// The function of a library, which is loaded if it was not yet.
    fn function(
        &mut self,
        library: &Library,
        name: &str,
        max_memory_bytes: usize,
    ) -> Result<Function, String> {
        if !self.libraries.contains_key(&library.id) {
            self.load(library, max_memory_bytes)?;
        }
        let functions = self.libraries.get(&library.id);
        let function = functions.and_then(|functions| functions.get(&name.to_lowercase()));
        function.cloned().ok_or_else(|| "ERR Function not found".to_owned())
    }

    /// Runs a script, and writes its reply.
    pub(crate) fn run(
        &mut self,
        run: ScriptRun<'_>,
        commands: &mut dyn Commands,
        out: &mut Replies,
    ) -> RunOutcome {
        self.control.begin(run.limit.clone());
        let function = match &run.script.library {
            None => self.compile(run.script, run.generation),
            Some(library) => self.function(library, &run.script.sha, run.max_memory_bytes),
        };
        let function = match (function, self.control.aborted()) {
            (_, Some(abort)) => return RunOutcome::Aborted(abort, String::new()),
            (Ok(function), None) => function,
            (Err(text), None) => return RunOutcome::Failed(text),
        };
        *self.json.borrow_mut() = cjson::Settings::default();
        // Fails for allocators that do not count, which this one does.
        let _ = self.lua.set_memory_limit(run.max_memory_bytes);
        self.control.max_memory_bytes.set(run.max_memory_bytes);
        let mark = out.mark();
        let outcome =
            self.start(&function, &run, commands).and_then(|(is_done, value)| match is_done {
                true => {
                    // Counted as an error, and not only sent as one.
                    if let Some(text) = replies::error_text(&value)? {
                        return Ok(Some(text));
                    }
                    replies::from_lua(&value, self.control.version.get(), out)?;
                    Ok(None)
                }
                false => Ok(Some(describe(&value, &run.script.sha)?)),
            });
        let _ = self.lua.set_memory_limit(0);
        if let Some(abort) = self.control.aborted() {
            out.rewind(mark);
            self.is_spent = true;
            let place = self.control.place.take();
            let sha = &run.script.sha;
            let place = place.map(|(source, line)| format!(" script: {sha}, on {source}:{line}."));
            return RunOutcome::Aborted(abort, place.unwrap_or_default());
        }
        match outcome {
            Ok(None) => RunOutcome::Replied,
            Ok(Some(text)) if !is_out_of_memory(&text) => RunOutcome::Failed(text),
            Err(error) if !is_out_of_memory(&error.to_string()) => {
                out.rewind(mark);
                self.is_spent = true;
                let text = error.to_string();
                RunOutcome::Failed(format!("ERR {}", text.lines().next().unwrap_or_default()))
            }
            Ok(Some(_)) | Err(_) => {
                out.rewind(mark);
                self.is_spent = true;
                let limit = run.max_memory_bytes;
                RunOutcome::Failed(format!(
                    "ERR the script exceeds the memory limit of {limit} bytes; let it hold less at \
                     a time, or raise script-memory-limit"
                ))
            }
        }
    }

    fn start(
        &self,
        function: &Function,
        run: &ScriptRun<'_>,
        commands: &mut dyn Commands,
    ) -> mlua::Result<(bool, Value)> {
        let bytes = run.keys.iter().chain(run.args.iter()).map(|arg| arg.len() + 1).sum();
        let (keys, args) = self.control.with_room_for(&self.lua, bytes, || {
            let strings = |args: Args<'_>| self.lua.create_sequence_from(args.iter().map(Bytes));
            mlua::Result::Ok((strings(run.keys)?, strings(run.args)?))
        })?;
        let is_function = run.script.library.is_some();
        calls::with_commands(commands, || self.run.call((function, keys, args, is_function)))
    }
}

/// Bytes that become a string of the interpreter.
struct Bytes<'a>(&'a [u8]);

impl IntoLua for Bytes<'_> {
    fn into_lua(self, lua: &Lua) -> mlua::Result<Value> {
        lua.create_string(self.0).map(Value::String)
    }
}

thread_local! {
    static HOST: RefCell<Option<Box<Host>>> = const { RefCell::new(None) };
}

/// Memory of an interpreter above which its garbage is collected after a run, in bytes.
const MAX_IDLE_BYTES: usize = 16 << 20;

/// Uses the thread's interpreter, which it creates if there is none.
///
/// # Errors
/// The error reply if there is no memory for one.
pub(crate) fn with_host<T>(
    redis_version: &str,
    action: impl FnOnce(&mut Host) -> T,
) -> Result<T, String> {
    let host = HOST.take().map_or_else(|| Host::new(redis_version).map(Box::new), Ok);
    let mut host = host.map_err(|error| format!("ERR the interpreter cannot start: {error}"))?;
    let result = action(&mut host);
    if host.is_spent {
        return Ok(result);
    }
    if host.lua.used_memory() <= MAX_IDLE_BYTES || host.lua.gc_collect().is_ok() {
        HOST.set(Some(host));
    }
    Ok(result)
}

/// An error as those see it who catch it: a string in place of an object of this program.
fn plain(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match error {
        Value::Error(error) => Ok(Value::String(lua.create_string(plain_text(&error).0)?)),
        error => Ok(error),
    }
}

/// Makes a table of an error that a script did not catch, with its place.
fn on_error(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let table = match error {
        Value::Table(table) => table,
        Value::Error(error) => match plain_text(&error) {
            (text, true) => replies::error_table(lua, &text)?,
            (text, false) => replies::error_table(lua, &format!("ERR {text}"))?,
        },
        error => {
            let text = match &error {
                Value::String(text) => String::from_utf8_lossy(&text.as_bytes()).into_owned(),
                Value::Number(number) => numbers::format_g(*number, 14),
                error => error.to_string().unwrap_or_default(),
            };
            replies::error_table(lua, &format!("ERR {text}"))?
        }
    };
    if let Some((source, line)) = script_frame(lua) {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

/// Whether the text of an error is the interpreter's for missing memory.
fn is_out_of_memory(text: &str) -> bool {
    text.contains("not enough memory")
}

/// Text of an error of the compiler.
fn syntax_text(error: &mlua::Error) -> String {
    let text = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        error => error.to_string(),
    };
    text.lines().next().unwrap_or_default().to_owned()
}

/// The error of a table that [`on_error`] has made, without its place.
fn describe_text(error: &Value) -> mlua::Result<String> {
    let Value::Table(table) = error else {
        return Ok(format!("ERR {}", error.to_string()?));
    };
    Ok(match table.raw_get("err")? {
        Value::String(text) => String::from_utf8_lossy(&text.as_bytes()).into_owned(),
        _ => "ERR unknown error".to_owned(),
    })
}

/// The error reply for an error that a script did not catch.
fn describe(error: &Value, sha: &str) -> mlua::Result<String> {
    let text = describe_text(error)?;
    let Value::Table(table) = error else { return Ok(text) };
    match (table.raw_get("source")?, table.raw_get::<Option<usize>>("line")?) {
        (Value::String(source), Some(line)) => {
            let source = String::from_utf8_lossy(&source.as_bytes()).into_owned();
            Ok(format!("{text} script: {sha}, on {source}:{line}."))
        }
        _ => Ok(text),
    }
}
