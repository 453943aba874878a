//! Iteration along a chain: from a record to its skip links, then to its successor.
//!
//! ```text
//!   ● a2 ─skip links─▶ b1, c1      each is the newest of its key before a2
//!     └───next────▶ ● base ─skip links─▶ …
//! ```
//!
//! Skip links have a tag, so a lookup of one key skips those of others without reading them. They
//! are an addition to the chains of SkimpyFTL, section 3.1.

use crate::location::{Location, NONE};
use crate::record::Record;

/// The kind of link by which a location was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkKind {
    Cached,
    Chain,
    Skip,
    Prior,
}

pub(super) struct ChainIter {
    /// In reverse order.
    skip_links: Vec<Location>,
    rest: Location,
    /// The tag of the requested key, if there is one.
    tag: Option<u8>,
}

impl ChainIter {
    pub(super) fn from(head: Location, tag: Option<u8>) -> Self {
        ChainIter { skip_links: Vec::new(), rest: head, tag }
    }

    /// The next location; `NONE` at the end. A record that is reached along the chain, not by a
    /// skip link, must be [followed](Self::follow).
    pub(super) fn next_link(&mut self) -> (Location, LinkKind) {
        match self.skip_links.pop() {
            Some(place) => (place, LinkKind::Skip),
            None => (std::mem::replace(&mut self.rest, NONE), LinkKind::Chain),
        }
    }

    /// All locations known so far, in order.
    pub(super) fn ahead(&self) -> impl Iterator<Item = (Location, LinkKind)> + '_ {
        let skip_links = self.skip_links.iter().map(|at| (*at, LinkKind::Skip));
        skip_links.chain([(self.rest, LinkKind::Chain)])
    }

    /// Whether no location is left.
    pub(super) fn is_at_end(&self) -> bool {
        self.skip_links.is_empty() && self.rest == NONE
    }

    /// Continues with the links of a record.
    pub(super) fn follow(&mut self, record: &Record) {
        self.skip_links.clear();
        let wanted = record.skip_links.iter().rev();
        let wanted = wanted.filter(|skip_link| self.tag.is_none_or(|tag| tag == skip_link.tag));
        self.skip_links.extend(wanted.map(|skip_link| skip_link.at()));
        self.rest = record.next();
    }
}
