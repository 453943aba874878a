//! The files of a table, by name.
//!
//! ```text
//!  000012.log      the log of a generation of LogStores (crates/table, record log)
//!  000013.hash     a HashStore's slots          000013.filter   its filter: can be made again
//!  000017.sorted   a SortedStore's blocks       000017.index    its index: can be made again
//!  000018.run      a sorted run of a merge under way: no manifest ever names one
//! ```
//!
//! Invariant: a name that this module would not write is not parsed, so that files of others are left
//! alone; numbers are shared by all kinds and given once.
//!
//! Source: the convention of crates/table (`number`).

use siltstone_table::{FileKind, FileNumber, parse_number};

/// What a file of this engine holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Log,
    HashStore,
    Filter,
    SortedStore,
    Index,
    Run,
}

const KINDS: [Kind; 6] =
    [Kind::Log, Kind::HashStore, Kind::Filter, Kind::SortedStore, Kind::Index, Kind::Run];

impl Kind {
    fn extension(self) -> &'static str {
        match self {
            Kind::Log => FileKind::Log.extension(),
            Kind::HashStore => "hash",
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

/// The kind and number of a file by its name; `None` for any name that is not ours.
pub(crate) fn parse(name: &str) -> Option<(Kind, u64)> {
    let (digits, extension) = name.split_once('.')?;
    let kind = KINDS.into_iter().find(|kind| kind.extension() == extension)?;
    Some((kind, parse_number(digits)?.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_names_come_back_and_others_stay_alone() {
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
