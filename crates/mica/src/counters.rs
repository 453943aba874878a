//! Operation counters: collected per burst in a [`Tally`], then added to the thread's slot.
//!
//! Invariant: counters influence no decision; threads with slots of their own share no cache line
//! of counters.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counts of one burst.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub(crate) struct Tally {
            $($(#[$doc])* pub(crate) $name: u64,)*
        }

        /// The counts of one slot.
        #[derive(Debug, Default)]
        pub(crate) struct Counts {
            $($name: AtomicU64,)*
        }

        impl Counts {
            /// Adds the counts of a burst.
            #[inline]
            pub(crate) fn add(&self, tally: &Tally) {
                $(if tally.$name != 0 {
                    self.$name.fetch_add(tally.$name, Relaxed);
                })*
            }
        }

        impl Tally {
            /// The sum over all slots.
            pub(crate) fn of<'c>(all: impl Iterator<Item = &'c Counts>) -> Self {
                let mut tally = Tally::default();
                for counts in all {
                    $(tally.$name += counts.$name.load(Relaxed);)*
                }
                tally
            }

            /// The counts with their names.
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
    /// Write requests, including rejected ones.
    writes,
    /// Bytes of keys and values written by users.
    user_bytes_written,
    /// Live items evicted by the log's head.
    evictions,
    /// Index entries evicted from a full bucket, with their items, unless those had expired.
    index_evictions,
    /// Expired items that were evicted, overwritten or deleted.
    expired_entries_dropped,
    /// Items reinserted at the tail because they were accessed.
    reinsertions,
    /// Items moved from the log of new items because they were accessed.
    promotions,
    /// Dangling entries removed by the sweep.
    swept_entries,
    /// Optimistic reads retried because of a concurrent write.
    read_retries,
    /// Writes rejected because the store is full.
    full_errors,
    /// Requests sent to the wrong partition.
    wrong_partition,
}
