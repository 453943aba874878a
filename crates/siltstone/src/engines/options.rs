//! Options of tables, by engine: old names, what may change, and what the files of a table require.
//!
//! An option may be given under an old name. Two options are the same if their present names are
//! ([`present_name`]).
//!
//! Some options are also in the files of a table: a device has its geometry, and a table with a
//! second directory names it. If the catalogue is lost, a repair takes these from the files
//! ([`required_options`]).

use std::collections::BTreeMap;

use siltstone_engine::{OptionChange, Result};
#[cfg(feature = "skimpy")]
use siltstone_skimpy::flash::Emulator;
use siltstone_vfs::Vfs;

/// The option of `trie` for the directory of its upper levels.
const UPPER: &str = "upper";

/// The options of an engine that have a new name, as pairs of the old and the present name. The old
/// names keep working.
pub fn deprecated_options(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        #[cfg(feature = "lsm")]
        "lsm" => siltstone_lsm::RENAMED_OPTIONS,
        #[cfg(feature = "trie")]
        "trie" => siltstone_trie::RENAMED_OPTIONS,
        #[cfg(feature = "silt")]
        "silt" => siltstone_silt::RENAMED_OPTIONS,
        #[cfg(feature = "mica")]
        "mica" => siltstone_mica::RENAMED_OPTIONS,
        #[cfg(feature = "skimpy")]
        "skimpy" => siltstone_skimpy::RENAMED_OPTIONS,
        _ => &[],
    }
}

/// When an option of an engine may change, by its present or its old name.
pub fn option_change(engine: &str, option: &str) -> OptionChange {
    let (live, fixed): (&[&str], &[&str]) = match engine {
        #[cfg(feature = "lsm")]
        "lsm" => (siltstone_lsm::LIVE_OPTIONS, &[]),
        #[cfg(feature = "trie")]
        "trie" => (&[], siltstone_trie::FIXED_OPTIONS),
        #[cfg(feature = "silt")]
        "silt" => (&[], siltstone_silt::FIXED_OPTIONS),
        #[cfg(feature = "skimpy")]
        "skimpy" => (&[], siltstone_skimpy::FIXED_OPTIONS),
        #[cfg(feature = "mica")]
        "mica" => (siltstone_mica::LIVE_OPTIONS, &[]),
        _ => (&[], &[]),
    };
    let option = present_name(engine, option);
    match (live.contains(&option), fixed.contains(&option)) {
        (true, _) => OptionChange::Live,
        (_, true) => OptionChange::Never,
        _ => OptionChange::AtOpen,
    }
}

/// `options` with `changes` in place of the same ones, under whichever name.
pub(crate) fn with_options(
    engine: &str,
    options: &BTreeMap<String, String>,
    changes: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut options = options.clone();
    for (option, value) in changes {
        let name = present_name(engine, option);
        options.retain(|other, _| present_name(engine, other) != name);
        options.insert(name.to_owned(), value.clone());
    }
    options
}

/// Those of `given` that have another meaning than in `options`.
pub(crate) fn differing_options(
    engine: &str,
    options: &BTreeMap<String, String>,
    given: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let differs = |option: &String, value: &String| {
        let change = [(option.clone(), value.clone())].into();
        let changed = with_options(engine, options, &change);
        match engine {
            #[cfg(feature = "lsm")]
            "lsm" => do_differ(siltstone_lsm::Options::from_map, options, &changed),
            #[cfg(feature = "trie")]
            "trie" => do_differ(siltstone_trie::Options::from_map, options, &changed),
            #[cfg(feature = "silt")]
            "silt" => do_differ(siltstone_silt::Options::from_map, options, &changed),
            #[cfg(feature = "mica")]
            "mica" => do_differ(siltstone_mica::Options::from_map, options, &changed),
            #[cfg(feature = "skimpy")]
            "skimpy" => do_differ(siltstone_skimpy::Options::from_map, options, &changed),
            _ => true,
        }
    };
    let given = given.iter().filter(|(option, value)| differs(option, value));
    given.map(|(option, value)| (option.clone(), value.clone())).collect()
}

/// Whether two maps of options have different meanings. One alone may be invalid, if it needs
/// another one.
fn do_differ<O: PartialEq>(
    parse: fn(&BTreeMap<String, String>) -> Result<O>,
    one: &BTreeMap<String, String>,
    other: &BTreeMap<String, String>,
) -> bool {
    parse(one).ok() != parse(other).ok()
}

/// The present name of an option that may be given under an old one.
pub(crate) fn present_name<'a>(engine: &str, option: &'a str) -> &'a str {
    let renamed = deprecated_options(engine).iter().find(|(old, _)| *old == option);
    renamed.map_or(option, |(_, new)| new)
}

/// Removes the options that only one table may have. A copy of the table, whose files are all in
/// its own directory, is opened without them.
pub fn remove_exclusive_options(name: &str, options: &mut BTreeMap<String, String>) {
    if name == "trie" {
        // A table removes unknown files from its second directory.
        let upper = present_name(name, UPPER);
        options.retain(|option, _| present_name(name, option) != upper);
    }
}

/// The options without which a table does not open, as far as its own files determine them.
///
/// # Errors
/// I/O errors.
pub fn required_options(name: &str, vfs: &dyn Vfs) -> Result<BTreeMap<String, String>> {
    let mut required = BTreeMap::new();
    let mut require = |option: &str, value: String| {
        _ = required.insert(present_name(name, option).to_owned(), value)
    };
    #[cfg(feature = "trie")]
    if name == "trie"
        && let Some(upper) = siltstone_trie::fast_tier_dir(vfs)?
    {
        require(UPPER, upper.display().to_string());
    }
    #[cfg(feature = "skimpy")]
    if name == "skimpy"
        && let Ok(device) = Emulator::geometry_of(vfs, "flash")
    {
        let (page, block) = (device.page_bytes() as u64, u64::from(device.pages_per_block()));
        let bytes = page * block * u64::from(device.blocks());
        for (option, number) in [("page", page), ("block", block), ("capacity", bytes)] {
            require(option, number.to_string());
        }
    }
    Ok(required)
}

/// Whether a table with these options opens, as far as its [`required_options`] decide that.
pub fn has_required_options(
    name: &str,
    options: &BTreeMap<String, String>,
    required: &BTreeMap<String, String>,
) -> bool {
    #[cfg(feature = "skimpy")]
    let device = |options| siltstone_skimpy::Options::from_map(options)?.geometry();
    let upper = |options: &BTreeMap<String, String>| {
        let upper = present_name(name, UPPER);
        let given = options.iter().find(|(option, _)| present_name(name, option) == upper);
        given.map(|(_, value)| value.clone())
    };
    match name {
        "trie" => upper(options) == upper(required),
        #[cfg(feature = "skimpy")]
        "skimpy" if !required.is_empty() => device(options).ok() == device(required).ok(),
        _ => true,
    }
}

/// Gives a table its [`required_options`], in place of those that it has under any name.
pub fn set_required_options(
    name: &str,
    options: &mut BTreeMap<String, String>,
    required: BTreeMap<String, String>,
) {
    remove_exclusive_options(name, options);
    options.retain(|option, _| !required.contains_key(present_name(name, option)));
    options.extend(required);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_options_replace_those_of_a_damaged_catalogue() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let upper = present_name("trie", UPPER);
        let mut options = map(&[(UPPER, "/wrong"), ("levels", "3")]);
        let required = map(&[(upper, "/right")]);
        assert!(!has_required_options("trie", &options, &required));
        set_required_options("trie", &mut options, required.clone());
        assert_eq!(options, map(&[(upper, "/right"), ("levels", "3")]));
        assert!(has_required_options("trie", &options, &required));
        remove_exclusive_options("trie", &mut options);
        assert_eq!(options, map(&[("levels", "3")]));
    }
}
