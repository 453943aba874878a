//! Checks that the old names of an engine's options mean the same as the present ones.

use std::collections::BTreeMap;
use std::fmt::Debug;

use siltstone_engine::Result;

/// Parses options under old and under present names: `names` are pairs of both, and `values`
/// belong to them in order. Each value must be valid, and differ from the default.
///
/// # Panics
/// If a name is not read, or has another meaning than its present name.
pub fn check_renamed_options<O: PartialEq + Debug>(
    names: &[(&str, &str)],
    values: &[&str],
    parse: impl Fn(&BTreeMap<String, String>) -> Result<O>,
) {
    assert_eq!(names.len(), values.len());
    let given = |name: fn(&(&str, &str)) -> String| -> BTreeMap<String, String> {
        names.iter().map(name).zip(values.iter().map(|value| (*value).to_owned())).collect()
    };
    let (old, new) = (given(|(old, _)| (*old).to_owned()), given(|(_, new)| (*new).to_owned()));
    let parsed = parse(&new).map_err(|error| error.to_string());
    assert!(parsed.is_ok(), "{parsed:?}");
    assert_eq!(parse(&old).map_err(|error| error.to_string()), parsed);
    for name in new.keys() {
        let mut others = new.clone();
        others.remove(name);
        // Without it the others may not be valid together.
        let others = parse(&others).map_err(|error| error.to_string());
        assert_ne!(others, parsed, "{name}");
    }
}
