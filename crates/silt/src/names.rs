//! The names of a table's files.
//!
//! ```text
//!  000012.log      the log of a generation of LogStores (crates/table, record log)
//!  000013.hash     a HashStore's slots          000013.filter   its filter, rebuilt if lost
//!  000017.sorted   a SortedStore's blocks       000017.index    its index, rebuilt if lost
//!  000013.tails    tails of a HashStore that is being written in an append-only directory
//!  000018.run      a sorted run of a running merge, or a filter or index that is being rebuilt;
//!                  never named by a manifest
//! ```
//!
//! Invariant: only names that this module writes are parsed, so unrelated files in the directory
//! are left alone. All kinds share one number sequence; a number is used once.

use siltstone_table::{FileKind, FileNumber, parse_number};

/// The kind of a file of this engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Log,
    HashStore,
    Tails,
    Filter,
    SortedStore,
    Index,
    Run,
}

const KINDS: [Kind; 7] = [
    Kind::Log,
    Kind::HashStore,
    Kind::Tails,
    Kind::Filter,
    Kind::SortedStore,
    Kind::Index,
    Kind::Run,
];

impl Kind {
    fn extension(self) -> &'static str {
        match self {
            Kind::Log => FileKind::Log.extension(),
            Kind::HashStore => "hash",
            Kind::Tails => "tails",
            Kind::Filter => "filter",
            Kind::SortedStore => "sorted",
            Kind::Index => "index",
            Kind::Run => "run",
        }
    }

    /// The name of the file of this kind with this number.
    pub(crate) fn name(self, number: u64) -> String {
        format!("{}.{}", FileNumber(number), self.extension())
    }
}

/// The kind and number of a file by its name; `None` for the name of an unrelated file.
pub(crate) fn parse(name: &str) -> Option<(Kind, u64)> {
    let (digits, extension) = name.split_once('.')?;
    let kind = KINDS.into_iter().find(|kind| kind.extension() == extension)?;
    Some((kind, parse_number(digits)?.0))
}

/// Whether a table writes files of this name, besides its manifest.
pub fn owns(name: &str) -> bool {
    parse(name).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_round_trip_and_unrelated_names_are_rejected() {
        for kind in KINDS {
            for number in [0, 7, 1_000_000] {
                assert_eq!(parse(&kind.name(number)), Some((kind, number)));
            }
        }
        for name in ["7.hash", "+00007.hash", "000007.HASH", "000007.sst", "CURRENT", "000007"] {
            assert_eq!(parse(name), None, "{name}");
        }
    }
}
