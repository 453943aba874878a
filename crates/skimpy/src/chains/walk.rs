//! The way along a chain: from a record to the members of its front, then to where its front began.
//!
//! ```text
//!   ● a2 ─detours─▶ b1, c1      each is the newest of its key before a2; their own links lead nowhere new
//!     └───next────▶ ● base ─detours─▶ …
//! ```
//!
//! Detours have a tag, so that who looks for one key passes the others without reading them.
//!
//! Source: ours, over the chains of SkimpyFTL's section 3.1.

use crate::location::{Location, NONE};
use crate::record::Record;

/// How a place was come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Cached,
    Chain,
    Detour,
    Prior,
}

pub(super) struct Walk {
    /// The next one last.
    detours: Vec<Location>,
    rest: Location,
    /// The tag of the key that is looked for, if one is.
    tag: Option<u8>,
}

impl Walk {
    pub(super) fn from(head: Location, tag: Option<u8>) -> Self {
        Walk { detours: Vec::new(), rest: head, tag }
    }

    /// Where the way leads next; `NONE` at its end. A record on the chain, not one that is a detour, has to be
    /// [followed](Self::follow) then.
    pub(super) fn step(&mut self) -> (Location, Way) {
        match self.detours.pop() {
            Some(place) => (place, Way::Detour),
            None => (std::mem::replace(&mut self.rest, NONE), Way::Chain),
        }
    }

    /// All places that the way is known to lead to.
    pub(super) fn ahead(&self) -> impl Iterator<Item = (Location, Way)> + '_ {
        let detours = self.detours.iter().map(|at| (*at, Way::Detour));
        detours.chain([(self.rest, Way::Chain)])
    }

    /// Whether it leads nowhere any more.
    pub(super) fn is_at_end(&self) -> bool {
        self.detours.is_empty() && self.rest == NONE
    }

    /// Goes on by the links of a record.
    pub(super) fn follow(&mut self, record: &Record) {
        self.detours.clear();
        let wanted = record.detours.iter().rev();
        let wanted = wanted.filter(|detour| self.tag.is_none_or(|tag| tag == detour.tag));
        self.detours.extend(wanted.map(|detour| detour.at()));
        self.rest = record.next();
    }
}
