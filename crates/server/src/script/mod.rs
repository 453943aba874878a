//! Scripts in Lua: an interpreter per thread, the sandbox, the libraries, known scripts.
//!
//! | module | contents |
//! | --- | --- |
//! | [`digest`], [`numbers`] | names of scripts; numbers as text |
//! | [`library`] | arguments and errors of library functions |
//! | [`bit`], [`struct_pack`], [`cmsgpack`], [`cjson`], [`cjson_decode`] | the libraries |
//! | [`replies`] | replies as Lua values, and the reverse |
//! | [`long_runs`] | the script that runs alone, and the gate for all others |
//! | [`limits`] | limits of a running script |
//! | [`redis_api`], [`calls`] | the table `redis`; its functions that run commands |
//! | [`cache`] | known scripts |
//! | [`function_library`], [`functions`] | a library of functions; all of them |
//! | [`library_log`] | libraries of functions in a log beside the tables |
//! | [`registration`] | how libraries of functions are loaded |
//! | [`host`] | the interpreter |
//!
//! Nothing here knows a command: the commands run scripts, and scripts run commands by the trait
//! [`calls::Commands`].
//!
//! Source: the documentation of Redis's scripts, Lua API and their behaviour in Redis 7.0.

mod bit;
pub(crate) mod cache;
pub(crate) mod calls;
mod cjson;
mod cjson_decode;
mod cmsgpack;
pub(crate) mod digest;
pub(crate) mod function_library;
pub(crate) mod functions;
pub(crate) mod host;
mod library;
pub(crate) mod library_log;
pub(crate) mod limits;
pub(crate) mod long_runs;
mod numbers;
mod redis_api;
mod registration;
mod replies;
mod struct_pack;
