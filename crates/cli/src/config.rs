//! The configuration file of `serve`: the options of the command line in TOML.
//!
//! ```text
//!   dir = "/var/lib/siltstone"
//!   listen = "127.0.0.1:6379"       as --listen
//!   direct = true                   as --direct
//!   table = ["default", "cache=mica,capacity=1GiB"]
//! ```
//!
//! A key is the name of an option. The file becomes arguments in front of those of the command
//! line, so both are checked in one way, and an option of the command line wins. `--table` of the
//! command line is added to those of the file.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgAction, ArgMatches, Command};
use toml::{Table, Value};

use crate::outcome::Failure;

/// The positional argument of `serve`, as a key of the file.
const DIR: &str = "dir";
/// An option in octal digits: a string, because 0o770 would reach it as 504.
const OCTAL: &str = "unix-socket-mode";
/// Options that make no sense in a file.
const EXCLUDED: [&str; 3] = ["config", "print-config", "help"];

/// The arguments of a command line, with those of the configuration file that it names.
///
/// # Errors
/// `Usage` if the file cannot be read or is not valid, with all its mistakes.
pub(crate) fn with_file(program: &Command, args: Vec<OsString>) -> Result<Vec<OsString>, Failure> {
    let Some(given) = serve_matches(program, &args) else { return Ok(args) };
    let Some(path) = given.get_one::<PathBuf>("config") else { return Ok(args) };
    let refused = |reason: String| {
        Failure::Usage(format!("the configuration file {}: {reason}", path.display()))
    };
    let text = std::fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let file: Table = text.parse().map_err(|error: toml::de::Error| refused(error.to_string()))?;
    let serve = serve_command(program);
    let (dir, options) = arguments(&serve, &file).map_err(refused)?;
    check(program, path, &options).map_err(refused)?;
    let mut all = args;
    let rest = all.split_off(options_place(program, &all));
    all.extend(options);
    all.extend(rest);
    all.extend(dir.filter(|_| !given.contains_id(DIR)));
    Ok(all)
}

/// The options in force as a configuration file, with their help as comments. Options that have
/// their default, or no value, are comments, too.
pub(crate) fn render(program: &Command, matches: &ArgMatches) -> String {
    let serve = serve_command(program);
    let mut text = String::from("# Options of `siltstone serve`; a comment shows the default.\n");
    for argument in serve.get_arguments() {
        let (id, name) = (argument.get_id().as_str(), key(argument));
        if EXCLUDED.contains(&name) {
            continue;
        }
        text.push('\n');
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        for line in wrap(&help) {
            let _ = writeln!(text, "# {line}");
        }
        let value = match argument.get_action() {
            ArgAction::SetTrue => Some(matches.get_flag(id).to_string()),
            ArgAction::Append => matches.get_raw(id).map(|values| {
                let values: Vec<_> = values.map(quoted).collect();
                format!("[{}]", values.join(", "))
            }),
            _ => {
                let write = if name == OCTAL { quoted } else { scalar };
                matches.get_raw(id).and_then(|mut values| values.next()).map(write)
            }
        };
        let is_given = matches!(
            matches.value_source(id),
            Some(ValueSource::CommandLine | ValueSource::EnvVariable)
        );
        let comment = if is_given { "" } else { "# " };
        let _ = match value {
            Some(value) => writeln!(text, "{comment}{name} = {value}"),
            None => writeln!(text, "# {name} ="),
        };
    }
    text
}

/// The arguments of `serve` on a command line; none if it is another command or malformed.
fn serve_matches(program: &Command, args: &[OsString]) -> Option<ArgMatches> {
    let matches = program.clone().try_get_matches_from(args).ok()?;
    matches.subcommand_matches("serve").cloned()
}

/// The place behind the word `serve`. Options of all commands may stand before it.
fn options_place(program: &Command, args: &[OsString]) -> usize {
    let takes_value = |argument: &&clap::Arg| argument.get_action().takes_values();
    let is_value = |at: usize| {
        let option = args[at - 1].to_str().and_then(|word| word.strip_prefix("--"));
        option.is_some()
            && program.get_arguments().filter(takes_value).any(|known| known.get_long() == option)
    };
    let command = (1..args.len()).find(|at| args[*at] == "serve" && !is_value(*at));
    command.map_or(args.len(), |at| at + 1)
}

/// The definition of `serve`, with the options of all commands.
fn serve_command(program: &Command) -> Command {
    let serve = program.find_subcommand("serve").cloned().unwrap_or_default();
    // Options of all commands become options of `serve` only when its arguments are parsed.
    let global = program.get_arguments().filter(|argument| argument.is_global_set());
    let known = |id: &clap::Id| serve.get_arguments().any(|argument| argument.get_id() == id);
    let missing: Vec<_> = global.filter(|argument| !known(argument.get_id())).cloned().collect();
    serve.args(missing)
}

/// The directory and the options that a file gives.
///
/// # Errors
/// All mistakes, one per line.
fn arguments(serve: &Command, file: &Table) -> Result<(Option<OsString>, Vec<OsString>), String> {
    let (mut dir, mut options, mut mistakes) = (None, Vec::new(), Vec::new());
    for (name, value) in file {
        let known = serve.get_arguments().find(|argument| key(argument) == name);
        let Some(argument) = known.filter(|_| !EXCLUDED.contains(&&**name)) else {
            mistakes.push(unknown(serve, name));
            continue;
        };
        match (argument.get_action(), value) {
            (ArgAction::SetTrue, Value::Boolean(true)) => options.push(format!("--{name}").into()),
            (ArgAction::SetTrue, Value::Boolean(false)) => {}
            (ArgAction::SetTrue, _) => mistakes.push(format!("'{name}' is true or false")),
            (ArgAction::Append, Value::Array(values)) => {
                for value in values {
                    match text_of(value) {
                        Some(text) => options.push(format!("--{name}={text}").into()),
                        None => mistakes.push(format!("'{name}' is a list of strings")),
                    }
                }
            }
            (_, Value::Integer(_)) if name == OCTAL => {
                mistakes.push(format!("'{name}' is a string of octal digits, such as \"770\""));
            }
            (_, value) => match text_of(value) {
                Some(text) if name == DIR => dir = Some(text.into()),
                Some(text) => options.push(format!("--{name}={text}").into()),
                None => mistakes.push(format!("'{name}' is a string or a number")),
            },
        }
    }
    if mistakes.is_empty() { Ok((dir, options)) } else { Err(mistakes.join("\n")) }
}

/// Checks the values of a file by themselves, so that the error names the file.
fn check(program: &Command, path: &Path, options: &[OsString]) -> Result<(), String> {
    let own =
        [OsStr::new("siltstone"), OsStr::new("serve"), OsStr::new("--config"), path.as_os_str()];
    let args = own.into_iter().map(OsStr::to_owned).chain(options.iter().cloned());
    program.clone().try_get_matches_from(args).map(drop).map_err(|error| {
        let text = error.to_string();
        text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
    })
}

/// The message about an unknown key, with the closest known one.
fn unknown(serve: &Command, name: &str) -> String {
    let known = serve.get_arguments().map(key).filter(|known| !EXCLUDED.contains(known));
    let closest = known
        .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
    format!("'{name}' is not an option of serve; did you mean '{}'?", closest.unwrap_or(DIR))
}

/// The key of an argument in the file.
fn key(argument: &clap::Arg) -> &str {
    argument.get_long().unwrap_or(argument.get_id().as_str())
}

/// The value of an option as text; `None` if it is a list, a table or of another type.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Integer(number) => Some(number.to_string()),
        Value::Float(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A value in TOML: an integer as it is, anything else as a string.
fn scalar(value: &OsStr) -> String {
    let text = value.to_string_lossy();
    // Not with zeros in front, which TOML does not allow.
    let is_integer = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    if is_integer { text.into_owned() } else { quoted(value) }
}

fn quoted(value: &OsStr) -> String {
    Value::String(value.to_string_lossy().into_owned()).to_string()
}

/// The lines of a help text, wrapped at 98 columns.
fn wrap(help: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in help.split_whitespace() {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && lines[last].len() + word.len() >= 98 {
            lines.push(word.to_owned());
        } else {
            let space = if lines[last].is_empty() { "" } else { " " };
            let _ = write!(lines[last], "{space}{word}");
        }
    }
    lines
}
