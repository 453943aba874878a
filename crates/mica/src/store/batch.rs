//! Atomic batches: all writes of a batch take effect, or none.
//!
//! Each partition has a journal of the batch's changes. If a request is rejected, the journals are
//! rolled back; at the end they are committed, which frees the blocks of replaced items.
//!
//! Invariant: no other operation runs between the first write and the commit, on these partitions
//! (EREW) or on any.

use std::collections::BTreeMap;

use super::{Partitions, Store, for_either_mode, thread_number};
use crate::counters::Tally;
use crate::partition::{Context, Journal, Memory, Partition};
use crate::request::{Action, Outcome, Request};
use crate::version::Access;

impl Store {
    /// Executes writes atomically, all or none. Returns [`Outcome::Stored`], or the outcome of the
    /// first rejected request. In store mode, the new items need room in addition to those that
    /// they replace.
    ///
    /// Under EREW it locks the partitions concerned; in other modes it locks the whole store.
    pub fn batch(&self, requests: &[Request<'_>]) -> Outcome {
        let run = |access| {
            let context = Context { access, ..self.context(true) };
            let mut tally = Tally::default();
            let outcome = for_either_mode!(self, partitions => {
                self.batch_exclusive(partitions, requests, &context, &mut tally)
            });
            (outcome, tally)
        };
        {
            let guard = self.lock.shared(thread_number());
            if self.access() == Access::Erew {
                let mut numbers: Vec<_> =
                    requests.iter().map(|r| self.partition_of(r.hash)).collect();
                numbers.sort_unstable();
                numbers.dedup();
                // In order, so that batches do not deadlock.
                let _locks: Vec<_> = for_either_mode!(self, partitions => {
                    numbers.iter().map(|&number| partitions[number].lock.lock()).collect()
                });
                let (outcome, tally) = run(Access::Erew);
                guard.counts().add(&tally);
                return outcome;
            }
        }
        let _guard = self.lock.exclusive();
        let (outcome, tally) = run(Access::Erew);
        self.lock.counts().take(1).for_each(|counts| counts.add(&tally));
        outcome
    }

    fn batch_exclusive<M: Memory>(
        &self,
        partitions: &[Partition<M>],
        requests: &[Request<'_>],
        context: &Context<'_>,
        tally: &mut Tally,
    ) -> Outcome {
        let rejected = requests.iter().find_map(|request| self.rejection(None, 0, request, tally));
        if let Some(outcome) = rejected {
            return outcome;
        }
        let expired_before = tally.expired_entries_dropped;
        // One journal per partition, in the order of their numbers.
        let mut journals: BTreeMap<usize, Journal> = BTreeMap::new();
        for request in requests {
            let at = self.partition_of(request.hash);
            let journal = journals.entry(at).or_default();
            let bucket = partitions[at].memory.bucket(request.hash);
            let answer = partitions[at].write(request, bucket, context, tally, Some(journal));
            let is_done = match request.action {
                Action::Delete(None) => true,
                _ => answer.outcome == Outcome::Stored,
            };
            if !is_done {
                tally.expired_entries_dropped = expired_before;
                for (at, mut journal) in journals {
                    partitions[at].memory.roll_back(context.access, &mut journal);
                }
                return answer.outcome;
            }
        }
        for (at, mut journal) in journals {
            partitions[at].memory.commit(&mut journal);
        }
        Outcome::Stored
    }
}
