//! MODULE: there are no modules, and none can be loaded.
//!
//! Source: the documentation of Redis's MODULE.

use super::context::Context;
use super::definition::NO_KEYS;
use super::entry::{self, Command};
use super::failure::{Outcome, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::help;
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let summary = "Shows that there are no modules.";
    vec![entry::command("server", "module", -2, 0, NO_KEYS, module, summary)]
}

fn module(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"list", 2) => {
            context.replies.array(0);
            Ok(())
        }
        (b"load" | b"loadex", 3..) => Err(reply_error(
            "ERR MODULE command not allowed: this server does not run Redis's modules; scripts and \
             functions run (EVAL, FUNCTION LOAD)",
        )),
        (b"unload", 3) => {
            Err(reply_error("ERR Error unloading module: no such module with that name"))
        }
        (b"help", 2) => help::reply(context.replies, "MODULE", &HELP),
        (b"list" | b"load" | b"loadex" | b"unload" | b"help", _) => {
            Err(wrong_subcommand_arity("module", &args[1]))
        }
        _ => Err(unknown_subcommand("MODULE", &args[1])),
    }
}

const HELP: [&str; 6] = [
    "LIST",
    "    Return a list of loaded modules: none.",
    "LOAD <path> [<arg> ...], LOADEX <path> [...]",
    "    Return an error: modules cannot be loaded.",
    "UNLOAD <name>",
    "    Return an error: no module is loaded.",
];
