//! Names that people mistype, and which one they may have meant.
//!
//! The nearest by Jaro and Winkler's similarity, which forgives swapped, missing and doubled letters and
//! weighs the beginning most, is named first; then all there are.
//!
//! Source: ours; the similarity is the library's.

/// How alike two names are, from 0 to 1, for one to be meant by the other. `silt` and `salt` are 0.85.
const ALIKE: f64 = 0.8;

/// The name that was most likely meant. Cost: compares all.
pub fn nearest<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let alike = |other: &str| strsim::jaro_winkler(&name, &other.to_lowercase());
    let all = all.into_iter().map(|other| (alike(other), other));
    let near = all.filter(|(alike, _)| *alike >= ALIKE);
    near.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, other)| other)
}

/// `, did you mean silt?` if some name is near, else nothing: the middle of a refusal.
pub fn meant<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, all).map_or(String::new(), |near| format!(", did you mean {near}?"))
}

/// Why a name is refused, e.g. `'salt' is unknown, did you mean silt? (there are lsm, silt)`.
pub fn unknown(name: &str, all: &[&str]) -> String {
    let meant = meant(name, all.iter().copied());
    format!("'{name}' is unknown{meant} (there are {})", all.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mistyped_finds_what_was_meant() {
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
    fn a_refusal_names_all() {
        assert_eq!(
            unknown("salt", &["lsm", "silt"]),
            "'salt' is unknown, did you mean silt? (there are lsm, silt)"
        );
        assert_eq!(unknown("foo", &["lsm", "silt"]), "'foo' is unknown (there are lsm, silt)");
    }
}
