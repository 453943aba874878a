//! The engines by name: the one place where a name becomes an engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Engine, Env, Error, OptionMistake, Result};
use siltstone_media::Media;

/// The names of all engines, as the command line and the catalogue write them.
pub const NAMES: &[&str] = &["lsm"];

/// Opens the engine `name` over `media`, making a new table there if there is none.
///
/// # Errors
/// [`Error::BadOptions`] for an unknown engine or options that cannot be; what opening finds
/// otherwise.
pub fn open(
    name: &str,
    media: Arc<dyn Media>,
    env: &Env,
    options: &BTreeMap<String, String>,
) -> Result<Arc<dyn Engine>> {
    match name {
        "lsm" => {
            let options = siltstone_lsm::Options::from_map(options)?;
            Ok(Arc::new(siltstone_lsm::Lsm::open(media, env.clone(), options)?))
        }
        _ => Err(unknown(name)),
    }
}

/// Checks an engine's name and options without opening anything.
///
/// # Errors
/// [`Error::BadOptions`], all mistakes at once.
pub fn check(name: &str, options: &BTreeMap<String, String>) -> Result<()> {
    match name {
        "lsm" => siltstone_lsm::Options::from_map(options).map(drop),
        _ => Err(unknown(name)),
    }
}

/// Rebuilds what can be saved of a damaged table; the answer tells what was done.
///
/// # Errors
/// [`Error::BadOptions`] for an unknown engine; failures of the medium.
pub fn repair(name: &str, media: &dyn Media) -> Result<Vec<String>> {
    match name {
        "lsm" => siltstone_lsm::repair(media),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    Error::BadOptions(vec![OptionMistake {
        option: "engine".to_owned(),
        reason: format!("'{name}' is unknown; the engines are {}", NAMES.join(", ")),
    }])
}
