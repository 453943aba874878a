//! Options of tables by CONFIG: `table.NAME.OPTION`.
//!
//! ```text
//! CONFIG GET table.*                             the options that tables were given
//! CONFIG SET table.default.cache 256MiB …        of one table, all or none, durable
//! ```
//!
//! SET takes the options that change while a table is open. The others need a restart with other
//! arguments, so they are refused. What is set stays in the store's catalogue, but an argument of
//! the next start wins.

use siltstone::engines::option_change;
use siltstone::{Error, OptionChange, Table};

use super::context::Context;
use super::failure::{Failure, Outcome};
use crate::glob;
use crate::resp::Args;
use crate::store::database::Content;

const PREFIX: &str = "table.";

/// Whether a setting, or a pattern of settings, is of tables.
pub(super) fn is_of_tables(setting: &[u8]) -> bool {
    setting.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX.as_bytes()))
}

/// The options of all tables whose settings match one of the patterns, which are in lower case.
/// There are none for the pattern `*`: it is for the server's own settings.
pub(super) fn matching(context: &Context<'_>, patterns: &[Vec<u8>]) -> Vec<(String, String)> {
    let patterns: Vec<_> = patterns.iter().filter(|pattern| is_of_tables(pattern)).collect();
    let mut found = Vec::new();
    for content in context.shared.databases.iter().map(|database| -> &Content { database }) {
        let options = content.table.as_ref().map(Table::options).unwrap_or_default();
        for (option, value) in options {
            let setting = format!("{PREFIX}{}.{option}", content.name);
            let lower = setting.to_ascii_lowercase();
            if patterns.iter().any(|pattern| glob::matches(pattern, lower.as_bytes())) {
                found.push((setting, value));
            }
        }
    }
    found
}

/// CONFIG SET of options of one table.
pub(super) fn set(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let mut changes: Vec<(String, String)> = Vec::new();
    let mut changed: Option<&Content> = None;
    for (setting, value) in args.iter().step_by(2).zip(args.from(1).iter().step_by(2)) {
        let shown = String::from_utf8_lossy(&setting[..setting.len().min(256)]);
        let (content, option) = find(context, &shown).ok_or_else(|| {
            failed(&shown, "there is no such table, or it is not one of its options")
        })?;
        if changed.is_some_and(|other| other.name != content.name) {
            return Err(failed(&shown, "give options of one table at a time"));
        }
        if option_change(content.engine.name(), option) != OptionChange::Live {
            let reason = "it is no option of that table that changes while it is open: restart \
                          the server with it in --table";
            return Err(failed(&shown, reason));
        }
        changed = Some(content);
        changes.push((option.to_owned(), String::from_utf8_lossy(value).into_owned()));
    }
    let Some(content) = changed else { return Err(failed("", "no table is named")) };
    let Some(table) = &content.table else {
        let reason = "the options of a replicated table are arguments of its nodes";
        return Err(failed(&content.name, reason));
    };
    let pairs: Vec<_> = changes.iter().map(|(name, value)| (&**name, &**value)).collect();
    match table.set_options(&pairs) {
        Ok(_) => {
            context.replies.ok();
            Ok(())
        }
        Err(Error::InvalidOptions(mistakes)) => {
            let first = mistakes.first();
            let name = first.map_or("", |mistake| &mistake.option);
            let reason = first.map_or("", |mistake| &mistake.reason);
            Err(failed(&format!("{PREFIX}{}.{name}", content.name), reason))
        }
        Err(error) => Err(error.into()),
    }
}

/// The table of a setting, and its option. Names of tables have no dot.
fn find<'c, 's>(context: &'c Context<'_>, setting: &'s str) -> Option<(&'c Content, &'s str)> {
    let rest = is_of_tables(setting.as_bytes()).then(|| setting.get(PREFIX.len()..))??;
    let (name, option) = rest.split_once('.')?;
    let mut contents = context.shared.databases.iter().map(|database| -> &Content { database });
    Some((contents.find(|content| content.name == name)?, option))
}

fn failed(setting: &str, reason: &str) -> Failure {
    format!("ERR CONFIG SET failed (possibly related to argument '{setting}') - {reason}").into()
}
