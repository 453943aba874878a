//! Puts the recommended options of a table in force on a running server.
//!
//! Options that change while a table is open are set by one CONFIG SET, which is durable. The
//! others are reported: they need a restart, and another engine needs a new table.

use serde_json::{Map, Value, json};
use siltstone::OptionChange;
use siltstone::engines::option_change;
use siltstone_model::advise::Candidate;
use siltstone_server::{NodeAccess, NodeClient, Reply};

use super::observed::Observed;
use crate::outcome::Failure;

/// What came of the recommended options.
pub(super) struct Applied {
    /// Those that are in force now: name, value before if one was given, value.
    pub(super) changed: Vec<(&'static str, Option<String>, String)>,
    /// Those that are in force when the table is opened with them.
    pub(super) at_open: Vec<(&'static str, String)>,
}

impl Applied {
    /// As part of `--json`.
    pub(super) fn as_json(&self) -> Value {
        let changed = self.changed.iter().map(
            |(option, before, value)| json!({ "option": option, "before": before, "value": value }),
        );
        let at_open: Map<_, _> = self
            .at_open
            .iter()
            .map(|(option, value)| ((*option).to_owned(), value.clone().into()))
            .collect();
        json!({ "changed": changed.collect::<Vec<_>>(), "at_open": at_open })
    }
}

/// Sets the options of `candidate`, which is of the table's engine, at the server.
pub(super) fn apply(
    address: &str,
    access: &NodeAccess,
    observed: &Observed,
    candidate: &Candidate,
) -> Result<Applied, Failure> {
    let mut server = NodeClient::connect(address, access).map_err(Failure::Store)?;
    let failed = |text: String| Failure::Store(format!("{address}: {text}"));
    let setting = |option: &str| format!("table.{}.{option}", observed.table);
    let is_live = |option: &str| option_change(&observed.engine, option) == OptionChange::Live;
    let options = candidate.settings.options();
    let (live, at_open): (Vec<_>, Vec<_>) =
        options.into_iter().partition(|(option, _)| is_live(option));
    let mut command = vec!["CONFIG".to_owned(), "SET".to_owned()];
    let mut changed = Vec::new();
    for (option, value) in live {
        let found = server.call(&["CONFIG", "GET", &setting(option)]).map_err(failed)?;
        let before = match found {
            Reply::Array(pair) => pair.get(1).map(Reply::to_text),
            Reply::Error(text) => return Err(failed(text)),
            _ => None,
        };
        if before.as_ref() != Some(&value) {
            command.extend([setting(option), value.clone()]);
            changed.push((option, before, value));
        }
    }
    if !changed.is_empty() {
        let words: Vec<_> = command.iter().map(String::as_str).collect();
        if let Reply::Error(text) = server.call(&words).map_err(failed)? {
            return Err(failed(text));
        }
    }
    Ok(Applied { changed, at_open })
}

/// Prints what has changed and what has not.
pub(super) fn print(applied: &Applied, observed: &Observed) {
    let table = &observed.table;
    match &applied.changed[..] {
        [] => println!("\nTable {table}: all options that change while it is open are as advised."),
        changed => {
            println!("\nTable {table}: changed, durably:");
            for (option, before, value) in changed {
                println!("  {option}: {} to {value}", before.as_deref().unwrap_or("the default"));
            }
        }
    }
    if !applied.at_open.is_empty() {
        let options: Vec<_> =
            applied.at_open.iter().map(|(option, value)| format!("{option}={value}")).collect();
        println!("At the next start, with --table: {}.", options.join(","));
    }
}
