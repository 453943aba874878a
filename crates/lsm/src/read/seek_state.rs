//! Which runs of a merge a forward seek can defer.
//!
//! The filters of level 0 are asked span by span, as a get asks them: one query of a sliced filter
//! names the few runs of up to 64 that may have the key. The others cost a byte each.

use siltstone_structures::BloomProbe;

use super::Source;
use crate::version::Version;

/// Whether a run has executed the last seek.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SeekState {
    Done,
    /// Needed only if no run has the target key: its filter excludes it.
    DeferredByFilter,
    /// Needed only if no other key comes before its live keys: it has none at the target.
    DeferredByLiveRange,
}

impl SeekState {
    /// Of a run that is not in level 0 of a view, for a seek to `key`, whose hash is in `probe`.
    pub(super) fn of(run: &Source, key: &[u8], probe: &mut BloomProbe) -> Self {
        match run {
            Source::L0Run(run) if !run.live().contains(key) => SeekState::DeferredByLiveRange,
            run if run.may_contain(key, probe) => SeekState::Done,
            _ => SeekState::DeferredByFilter,
        }
    }

    /// Of the runs of level 0 of a version. Runs in persistent memory are never deferred.
    pub(super) fn set_level0(
        states: &mut [SeekState],
        version: &Version,
        key: &[u8],
        probe: &mut BloomProbe,
    ) {
        let runs = &version.level0;
        let (live, are_nested) = version.live_runs(key);
        states[..live].fill(SeekState::DeferredByFilter);
        states[live..].fill(SeekState::DeferredByLiveRange);
        for span in &version.filter_spans {
            let start = span.runs.start;
            let is_in_pmem = runs[start].pmem_table().is_some();
            let mut set_candidate = |at: usize| {
                if is_in_pmem || at < live && (are_nested || runs[at].live().contains(key)) {
                    states[at] = SeekState::Done;
                } else {
                    states[at] = SeekState::DeferredByLiveRange;
                }
            };
            match &span.sliced {
                Some(sliced) => sliced.candidates(probe).for_each(|at| set_candidate(start + at)),
                None => {
                    let asked = span.runs.clone().filter(|&at| runs[at].may_contain(probe));
                    asked.for_each(&mut set_candidate);
                }
            }
        }
    }
}
