//! The runs of a sweep: buckets in progress, with the readahead of their chains.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use siltstone_engine::Result;

use super::chain_iter::{ChainIter, LinkKind};
use crate::location::{self, Location};
use crate::page_reader::{PageCache, PageReader};

/// The runs in progress, the oldest first, and their caches.
#[derive(Default)]
pub(super) struct Sweep {
    pub(super) runs: VecDeque<SweepRun>,
    pub(super) cache: PageCache,
}

/// Buckets that are relocated together.
pub(super) struct SweepRun {
    pub(super) buckets: Vec<u32>,
    pub(super) chains: Vec<ChainReadahead>,
    /// When all submitted reads are complete.
    pub(super) ready_at: Duration,
}

/// The readahead of one chain.
pub(super) struct ChainReadahead {
    pub(super) bucket: u32,
    pub(super) iter: ChainIter,
    /// Locations of versions that are hidden by newer ones.
    pub(super) hidden: HashSet<Location>,
}

impl Sweep {
    /// Drops the readahead of a bucket that was relocated outside of the sweep.
    pub(super) fn forget(&mut self, bucket: u32) {
        for run in &mut self.runs {
            run.buckets.retain(|it| *it != bucket);
            run.chains.retain(|chain| chain.bucket != bucket);
        }
    }

    /// Bytes of memory of the caches.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.cache.memory_bytes()
    }

    pub(super) fn in_progress(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| run.buckets.iter().copied())
    }
}

impl SweepRun {
    /// Submits reads of the next locations of its chains, except hidden ones.
    pub(super) fn submit_reads(&mut self, pages: &mut PageReader<'_>) -> Result<()> {
        let places = self.chains.iter().flat_map(|chain| {
            let is_needed = |(at, link): &(Location, LinkKind)| {
                location::is_programmed(*at)
                    && !(*link == LinkKind::Skip && chain.hidden.contains(at))
            };
            chain.iter.ahead().filter(is_needed).map(|(at, _)| at)
        });
        self.ready_at = pages.prefetch(&places.collect::<Vec<_>>())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_bucket_is_not_in_progress() {
        let chain = |bucket| ChainReadahead {
            bucket,
            iter: ChainIter::from(7, None),
            hidden: HashSet::new(),
        };
        let run = |buckets: [u32; 2]| SweepRun {
            buckets: buckets.to_vec(),
            chains: buckets.map(chain).into(),
            ready_at: Duration::ZERO,
        };
        let mut sweep = Sweep { runs: [run([1, 2]), run([3, 4])].into(), ..Sweep::default() };
        sweep.forget(3);
        assert_eq!(sweep.in_progress().collect::<Vec<_>>(), [1, 2, 4]);
        assert!(sweep.runs.iter().all(|run| run.chains.len() == run.buckets.len()));
    }
}
