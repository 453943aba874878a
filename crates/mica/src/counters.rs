//! What the store counts as it runs: gathered in a [`Tally`] by whoever works, added to a line of
//! its own thread when it is done.
//!
//! Invariant: nothing is decided by counts, and no line of them is shared by two threads that have
//! slots of their own.
//!
//! Source: ours.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a burst did.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct Tally {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        /// What a thread did.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($name: AtomicU64,)*
        }

        impl Counts {
            /// Adds what a burst did.
            #[inline]
            pub(crate) fn add(&self, tally: &Tally) {
                $(if tally.$name != 0 {
                    self.$name.fetch_add(tally.$name, Relaxed);
                })*
            }
        }

        impl Tally {
            /// All threads together.
            pub(crate) fn of<'c>(all: impl Iterator<Item = &'c Counts>) -> Self {
                let mut tally = Tally::default();
                for counts in all {
                    $(tally.$name += counts.$name.load(Relaxed);)*
                }
                tally
            }

            /// By name.
            pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counts! {
    /// Lookups.
    gets,
    /// Lookups that found an item.
    gets_found,
    /// Operations that may write.
    writes,
    /// Bytes of keys and values given.
    user_bytes_written,
    /// Items that the log's head passed though they could still be found.
    evictions,
    /// Entries that had to go from a full bucket; their items were lost with them.
    index_evictions,
    /// Items appended again because they were read.
    renewals,
    /// Dangling entries that the sweep emptied.
    swept,
    /// Reads begun anew because a writer came between.
    retries,
    /// Writes refused for want of room.
    full,
    /// Requests that came to a partition that is not theirs.
    misdirected,
}
