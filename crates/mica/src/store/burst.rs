//! Pipelined execution of request bursts.
//!
//! ```text
//! request   n+2d           n+d                     n
//!           prefetch       read bucket,            execute
//!           bucket         prefetch items
//! ```
//!
//! While one request is executed, the bucket of a later one, and the items that it may lead to, are
//! prefetched. The distance d is the option `prefetch_distance`.
//!
//! A burst takes the big-reader lock once, shared, and keeps the locks of the last few partitions
//! that it used ([`crate::burst_locks`]).
//!
//! Source: Lim, thesis, section 5.3.1.

use std::cell::Cell;

use siltstone_engine::MAX_KEY_BYTES;

use super::{Partitions, Store, for_either_mode, thread_number};
use crate::burst_locks::BurstLocks;
use crate::counters::Tally;
use crate::partition::{Context, LazyClock, Memory, Partition};
use crate::request::{Answer, Outcome, Output, Request};
use crate::version::Access;

/// Requests in the pipeline, rounded up to a power of two: at least twice the distance plus one.
const PIPELINE_SLOTS: usize = 64;
/// Without a lock, one read in this many sets an access mark, as if reads went to as many cores in
/// turn.
const READ_SAMPLE_INTERVAL: u64 = 16;

impl Store {
    /// Executes requests in order, on any partitions, with one response each.
    ///
    /// # Panics
    /// If `answers` is shorter than `requests`.
    pub fn burst(
        &self,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        self.run(None, requests, answers, output);
    }

    /// Executes requests in order as the owner of a partition: a request for another partition
    /// results in [`Outcome::WrongPartition`], and reads set access marks in every mode.
    ///
    /// # Panics
    /// If `answers` is shorter than `requests`.
    pub fn burst_to(
        &self,
        partition: usize,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        self.run(Some(partition), requests, answers, output);
    }

    /// Executes one request, with number 0 in the output.
    pub fn one(&self, request: &Request<'_>, output: &mut impl Output) -> Answer {
        let mut answer = [Answer::default()];
        self.run(None, std::slice::from_ref(request), &mut answer, output);
        answer[0]
    }

    fn run(
        &self,
        only: Option<usize>,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
    ) {
        let answers = &mut answers[..requests.len()];
        let guard = self.lock.shared(thread_number());
        let mut tally = Tally::default();
        let context = self.context(only.is_some());
        for_either_mode!(self, partitions => {
            self.stages(partitions, only, requests, answers, output, &context, &mut tally);
        });
        guard.counts().add(&tally);
    }

    pub(super) fn context(&self, is_owner: bool) -> Context<'_> {
        Context {
            access: self.access(),
            now: LazyClock::new(self.clock.as_ref()),
            has_cas: self.options.cas,
            max_value: self.max_value,
            marks_reads: is_owner || samples_read(),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one burst")]
    fn stages<M: Memory>(
        &self,
        partitions: &[Partition<M>],
        only: Option<usize>,
        requests: &[Request<'_>],
        answers: &mut [Answer],
        output: &mut impl Output,
        context: &Context<'_>,
        tally: &mut Tally,
    ) {
        let distance = self.options.prefetch_distance;
        let mut locks = BurstLocks::new(context.access);
        let target = |request: &Request<'_>| {
            let at = self.partition_of(request.hash);
            (at, partitions[at].memory.bucket(request.hash))
        };
        let Some(first) = requests.first() else { return };
        // Partition and bucket of the requests in the pipeline, by request number modulo its
        // length.
        let mut targets = [target(first); PIPELINE_SLOTS];
        if requests.len() > 1 {
            for (number, request) in requests.iter().enumerate().take(2 * distance) {
                let (at, bucket) = target(request);
                targets[number % PIPELINE_SLOTS] = (at, bucket);
                partitions[at].memory.prefetch_bucket(bucket);
            }
            for (number, request) in requests.iter().enumerate().take(distance) {
                let (at, bucket) = targets[number % PIPELINE_SLOTS];
                partitions[at].memory.prefetch_items(bucket, request.hash);
            }
        }
        for (number, (request, answer)) in requests.iter().zip(answers).enumerate() {
            if let Some(later) = requests.get(number + 2 * distance) {
                let (at, bucket) = target(later);
                targets[(number + 2 * distance) % PIPELINE_SLOTS] = (at, bucket);
                partitions[at].memory.prefetch_bucket(bucket);
            }
            if let Some(later) = requests.get(number + distance) {
                let (at, bucket) = targets[(number + distance) % PIPELINE_SLOTS];
                partitions[at].memory.prefetch_items(bucket, later.hash);
            }
            let (at, bucket) = targets[number % PIPELINE_SLOTS];
            *answer = match self.rejection(only, at, request, tally) {
                Some(outcome) => Answer::of(outcome),
                None => {
                    let partition = &partitions[at];
                    let is_write = request.action.is_write();
                    let needs_lock = match context.access {
                        Access::Erew => true,
                        Access::Crew => is_write,
                        Access::Crcw => false,
                    };
                    if needs_lock {
                        locks.acquire(at, &partition.lock);
                    }
                    match is_write {
                        true => partition.write(request, bucket, context, tally, None),
                        false => partition.get(number, request, bucket, context, output, tally),
                    }
                }
            };
        }
    }

    /// The reason to reject a request without executing it, if any.
    #[inline]
    pub(super) fn rejection(
        &self,
        only: Option<usize>,
        at: usize,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Option<Outcome> {
        if only.is_some_and(|only| only != at) {
            tally.wrong_partition += 1;
            return Some(Outcome::WrongPartition);
        }
        let is_too_large =
            request.key.len() > MAX_KEY_BYTES || request.action.value_len() > self.max_value;
        is_too_large.then_some(Outcome::TooLarge)
    }
}

/// Whether this read, one in `READ_SAMPLE_INTERVAL`, sets an access mark.
fn samples_read() -> bool {
    thread_local! {
        static READS: Cell<u64> = const { Cell::new(0) };
    }
    READS.with(|reads| {
        reads.set(reads.get().wrapping_add(1));
        reads.get().is_multiple_of(READ_SAMPLE_INTERVAL)
    })
}
