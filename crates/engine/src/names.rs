//! Suggestions for mistyped names.
//!
//! A message about an unknown name contains the nearest known name by the similarity of Jaro and
//! Winkler, which tolerates swapped, missing and doubled letters and weighs the beginning most, and
//! then all known names. Without the feature `suggestions` it contains all known names only.

/// The least similarity, from 0 to 1, of a suggestion. That of `silt` and `salt` is 0.85.
const MIN_SIMILARITY: f64 = 0.8;

/// The most similar name. Cost: compares all.
pub fn nearest<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let similarity = |other: &str| similarity(&name, &other.to_lowercase());
    let all = all.into_iter().map(|other| (similarity(other), other));
    let similar = all.filter(|(similarity, _)| *similarity >= MIN_SIMILARITY);
    similar.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// The similarity of two names, from 0 to 1.
#[cfg(feature = "suggestions")]
fn similarity(name: &str, other: &str) -> f64 {
    strsim::jaro_winkler(name, other)
}

/// Without the feature `suggestions` names are equal but for their case, or not similar.
#[cfg(not(feature = "suggestions"))]
fn similarity(name: &str, other: &str) -> f64 {
    f64::from(u8::from(name == other))
}

/// `, did you mean silt?` if a name is similar, else empty: for the middle of a message.
pub fn suggest<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, all).map_or(String::new(), |near| format!(", did you mean {near}?"))
}

/// A message about an unknown name, e.g. `'salt' is unknown, did you mean silt? (there are lsm,
/// silt)`.
pub fn unknown(name: &str, all: &[&str]) -> String {
    let meant = suggest(name, all.iter().copied());
    format!("'{name}' is unknown{meant} (there are {})", all.join(", "))
}

#[cfg(all(test, feature = "suggestions"))]
mod tests {
    use super::*;

    #[test]
    fn mistyped_name_finds_the_similar_one() {
        let all = ["memtable", "memtables", "levels", "l0_compact", "cache"];
        for (typed, meant) in [
            ("memtabel", "memtable"),
            ("Memtables", "memtables"),
            ("level", "levels"),
            ("l0-compact", "l0_compact"),
            ("cahce", "cache"),
        ] {
            assert_eq!(nearest(typed, all), Some(meant), "{typed}");
        }
        assert_eq!(nearest("foo", all), None);
        assert_eq!(nearest("", all), None);
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn message_about_an_unknown_name_lists_all() {
        assert_eq!(
            unknown("salt", &["lsm", "silt"]),
            "'salt' is unknown, did you mean silt? (there are lsm, silt)"
        );
        assert_eq!(unknown("foo", &["lsm", "silt"]), "'foo' is unknown (there are lsm, silt)");
    }
}
