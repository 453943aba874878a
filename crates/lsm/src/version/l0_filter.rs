//! Bloom filters of level 0: one query asks many runs.
//!
//! ```text
//!   runs, newest first   9  8  7 │ 6 … (8 runs) │ … (8 runs) │ 2  1
//!   filters              own     │ plane 0      │ plane 1    │ own
//!                                └── one SlicedBloom ───┘
//! ```
//!
//! A flush adds a run with a filter of its own. Once eight consecutive runs have filters of one
//! size, these become a plane of a sliced filter, which takes their place in memory. Consecutive
//! planes are in one sliced filter, of up to 64 runs. When four runs of a plane have left level 0,
//! the others get their own filters back, so that little memory is taken by runs that have left.
//!
//! Flushes give filters the size of earlier ones where that is close. So a get makes up to 7
//! queries of new runs, up to 4 of the oldest, and one per 64 others, unless the number of keys per
//! flush varies much: runs with filters of other sizes are asked one by one.
//!
//! A version has the filters of its runs, none of which changes. A rebuilt filter has the bits of
//! the filters it was built from, so no filter depends on the history of level 0, and none is
//! stored but those in the tables.
//!
//! Cost: a flush rebuilds the sliced filter once per 8 runs, which writes the filters of up to 64
//! runs: see [`SlicedBloom::build`].

use std::ops::Range;
use std::sync::Arc;

use siltstone_structures::{BloomProbe, PlaneSource, SlicedBloom};
use siltstone_table::Filter;

/// Bytes of a block of a filter.
const BLOCK_BYTES: usize = 64;

const COLUMNS: usize = SlicedBloom::COLUMNS_PER_PLANE;

/// A plane with fewer runs is taken apart.
const MIN_RUNS_PER_PLANE: usize = 5;

/// The Bloom filter of an L0 run in one version.
#[derive(Clone, Default)]
pub(crate) enum RunFilter {
    /// None: excludes nothing.
    #[default]
    None,
    Own(Arc<Filter>),
    /// A column of a sliced filter.
    Column(Arc<SlicedBloom>, usize),
}

impl RunFilter {
    /// Whether the run may contain the key of `probe`.
    #[inline]
    pub(crate) fn may_contain(&self, probe: &mut BloomProbe) -> bool {
        match self {
            RunFilter::None => true,
            RunFilter::Own(filter) => filter.may_contain(probe),
            RunFilter::Column(sliced, column) => sliced.columns_of(probe.hash()) >> column & 1 == 1,
        }
    }

    fn is_own(&self) -> bool {
        matches!(self, RunFilter::Own(_))
    }

    /// The number of its blocks and of its probes.
    fn shape(&self) -> Option<(usize, u8)> {
        match self {
            RunFilter::None => None,
            RunFilter::Own(filter) => Some(filter.view().shape()),
            RunFilter::Column(sliced, _) => Some(sliced.shape()),
        }
    }
}

/// Consecutive runs of a version whose filters are asked in the same way.
#[derive(Clone)]
pub(crate) struct FilterSpan {
    /// Their indices in level 0.
    pub(crate) runs: Range<usize>,
    /// The sliced filter of all of them.
    pub(crate) sliced: Option<SlicedSpan>,
}

/// The columns of consecutive runs in a sliced filter.
#[derive(Clone)]
pub(crate) struct SlicedSpan {
    filter: Arc<SlicedBloom>,
    /// Those of the runs; others have left level 0.
    columns: u64,
}

impl SlicedSpan {
    /// The runs that may contain the key of `probe`, as offsets in the span, newest first.
    #[inline]
    pub(crate) fn candidates(&self, probe: &BloomProbe) -> impl Iterator<Item = usize> {
        let columns = self.columns;
        let mut rest = self.filter.columns_of(probe.hash()) & columns;
        std::iter::from_fn(move || {
            let lowest = rest & rest.wrapping_neg();
            rest ^= lowest;
            (lowest > 0).then(|| (columns & (lowest - 1)).count_ones() as usize)
        })
    }
}

/// Splits runs into spans: their filters, and whether they are in persistent memory.
pub(super) fn spans<'a>(runs: impl Iterator<Item = (&'a RunFilter, bool)>) -> Vec<FilterSpan> {
    let mut spans: Vec<FilterSpan> = Vec::new();
    let mut last_is_in_pmem = false;
    for (i, (filter, is_in_pmem)) in runs.enumerate() {
        let bit = match filter {
            RunFilter::Column(_, column) => 1 << column,
            _ => 0,
        };
        let continues = |span: &FilterSpan| match (&span.sliced, filter) {
            (Some(span), RunFilter::Column(sliced, _)) => {
                Arc::ptr_eq(&span.filter, sliced) && span.columns < bit
            }
            (None, RunFilter::None | RunFilter::Own(_)) => is_in_pmem == last_is_in_pmem,
            _ => false,
        };
        if !spans.last().is_some_and(continues) {
            let sliced = match filter {
                RunFilter::Column(sliced, _) => {
                    Some(SlicedSpan { filter: sliced.clone(), columns: 0 })
                }
                _ => None,
            };
            spans.push(FilterSpan { runs: i..i, sliced });
        }
        if let Some(span) = spans.last_mut() {
            span.runs.end = i + 1;
            span.sliced.iter_mut().for_each(|sliced| sliced.columns |= bit);
        }
        last_is_in_pmem = is_in_pmem;
    }
    spans
}

fn is_column_of(filter: &RunFilter, sliced: &Arc<SlicedBloom>) -> bool {
    matches!(filter, RunFilter::Column(other, _) if Arc::ptr_eq(other, sliced))
}

/// The filter queries that a get of an absent key makes.
pub(super) fn queries<'a>(
    filters: impl Iterator<Item = &'a RunFilter>,
    spans: &[FilterSpan],
) -> usize {
    let sliced = spans.iter().filter(|span| span.sliced.is_some());
    filters.filter(|filter| filter.is_own()).count() + sliced.count()
}

/// The bytes of all filters.
pub(super) fn memory_bytes<'a>(
    filters: impl Iterator<Item = &'a RunFilter>,
    spans: &[FilterSpan],
) -> usize {
    let own = filters.map(|filter| match filter {
        RunFilter::Own(filter) => filter.memory_bytes(),
        _ => 0,
    });
    let mut sliced: Vec<_> = spans.iter().filter_map(|span| span.sliced.as_ref()).collect();
    sliced.dedup_by(|a, b| Arc::ptr_eq(&a.filter, &b.filter));
    own.sum::<usize>() + sliced.iter().map(|span| span.filter.memory_bytes()).sum::<usize>()
}

/// The sizes of the filters in bytes, in their order, each once.
pub(super) fn sizes<'a>(filters: impl Iterator<Item = &'a RunFilter>) -> Vec<usize> {
    let mut sizes = Vec::new();
    for (blocks, _) in filters.filter_map(RunFilter::shape) {
        let bytes = blocks * BLOCK_BYTES;
        if !sizes.contains(&bytes) {
            sizes.push(bytes);
        }
    }
    sizes
}

/// Consecutive runs whose filters are or become a plane.
#[derive(Clone)]
struct Plane {
    runs: Range<usize>,
    /// The filter that has the plane now, and its index there; `None`: each run has its own filter.
    sliced: Option<(Arc<SlicedBloom>, usize)>,
}

/// Slices the filters of consecutive runs, newest first, as described above; returns whether any
/// changed.
pub(super) fn slice(filters: &mut [RunFilter]) -> bool {
    let mut has_changed = false;
    for plane in planes(filters) {
        if plane.sliced.is_some() && plane.runs.len() < MIN_RUNS_PER_PLANE {
            take_apart(&plane, filters);
            has_changed = true;
        }
    }
    let planes = planes(filters);
    let shape = |plane: &Plane| filters[plane.runs.start].shape();
    let is_joined = |newer: &Plane, older: &Plane| {
        newer.runs.end == older.runs.start && shape(newer) == shape(older)
    };
    let joined: Vec<&[Plane]> = planes.chunk_by(is_joined).collect();
    // Chunks from the oldest on: a new plane leaves full ones as they are.
    for group in joined.into_iter().flat_map(|planes| planes.rchunks(SlicedBloom::MAX_PLANES)) {
        has_changed |= !is_built(group) && build(group, filters);
    }
    has_changed
}

/// The planes in level 0, newest first. Of the runs with filters of their own, the newest that are
/// too few for a plane are left out.
fn planes(filters: &[RunFilter]) -> Vec<Plane> {
    let mut planes = Vec::new();
    let mut at = 0;
    while at < filters.len() {
        let rest = &filters[at..];
        let count = |is_same: &dyn Fn(&RunFilter) -> bool| {
            rest.iter().position(|filter| !is_same(filter)).unwrap_or(rest.len())
        };
        let end = at
            + match &rest[0] {
                RunFilter::None => 1,
                RunFilter::Own(_) => {
                    let shape = rest[0].shape();
                    let own = count(&|it| it.is_own() && it.shape() == shape);
                    let first = at + own % COLUMNS;
                    let starts = (first..at + own).step_by(COLUMNS);
                    planes.extend(starts.map(|at| Plane { runs: at..at + COLUMNS, sliced: None }));
                    own
                }
                RunFilter::Column(sliced, column) => {
                    let plane = column / COLUMNS;
                    let runs = count(&|it| {
                        is_column_of(it, sliced)
                            && matches!(it, RunFilter::Column(_, column) if column / COLUMNS == plane)
                    });
                    planes
                        .push(Plane { runs: at..at + runs, sliced: Some((sliced.clone(), plane)) });
                    runs
                }
            };
        at = end;
    }
    planes
}

/// Whether these planes are all of a sliced filter already, in its order.
fn is_built(planes: &[Plane]) -> bool {
    let Some((first, _)) = &planes[0].sliced else { return false };
    let is_in_place = |(i, plane): (usize, &Plane)| {
        plane.sliced.as_ref().is_some_and(|(filter, at)| Arc::ptr_eq(filter, first) && *at == i)
    };
    planes.len() == first.planes() && planes.iter().enumerate().all(is_in_place)
}

/// Makes one sliced filter of these planes; returns whether it did.
fn build(planes: &[Plane], filters: &mut [RunFilter]) -> bool {
    let sources: Option<Vec<PlaneSource<'_>>> = (planes.iter())
        .map(|plane| match &plane.sliced {
            Some((sliced, at)) => Some(PlaneSource::Plane(sliced, *at)),
            None => {
                let own = filters[plane.runs.clone()].iter().map_while(|filter| match filter {
                    RunFilter::Own(filter) => Some(filter.view()),
                    _ => None,
                });
                let own: Vec<_> = own.collect();
                Some(PlaneSource::Filters(own.try_into().ok()?))
            }
        })
        .collect();
    let Some(sliced) = sources.and_then(|sources| SlicedBloom::build(&sources)) else {
        return false;
    };
    let sliced = Arc::new(sliced);
    for (i, plane) in planes.iter().enumerate() {
        for (offset, filter) in filters[plane.runs.clone()].iter_mut().enumerate() {
            let column = match filter {
                RunFilter::Column(_, column) => *column % COLUMNS,
                _ => offset,
            };
            *filter = RunFilter::Column(sliced.clone(), i * COLUMNS + column);
        }
    }
    true
}

/// Gives the runs of a plane filters of their own.
fn take_apart(plane: &Plane, filters: &mut [RunFilter]) {
    let Some((sliced, at)) = &plane.sliced else { return };
    let (all, (_, probes)) = (sliced.filters_of(*at), sliced.shape());
    for filter in &mut filters[plane.runs.clone()] {
        if let RunFilter::Column(_, column) = filter
            && let Ok(own) = Filter::new(&all[*column % COLUMNS], probes)
        {
            *filter = RunFilter::Own(Arc::new(own));
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use siltstone_structures::BlockedBloom;

    use super::*;

    /// A run of a level 0, newest first, with its filter as it was built.
    struct TestRun {
        hashes: Vec<u64>,
        original: Option<BlockedBloom>,
    }

    /// A level 0 whose filters are sliced, as versions do it.
    #[derive(Default)]
    struct TestLevel {
        runs: Vec<TestRun>,
        filters: Vec<RunFilter>,
    }

    impl TestLevel {
        /// Inserts a run of `keys` random keys at `at`; without keys it has no filter.
        fn insert(&mut self, rng: &mut StdRng, at: usize, keys: usize) {
            let hashes: Vec<u64> = (0..keys).map(|_| rng.random()).collect();
            let bloom = (keys > 0).then(|| BlockedBloom::build(&hashes, 10.0));
            let own = bloom.as_ref().map(|bloom| {
                RunFilter::Own(Arc::new(Filter::new(bloom.as_bytes(), bloom.probes()).unwrap()))
            });
            self.filters.insert(at, own.unwrap_or_default());
            self.runs.insert(at, TestRun { hashes, original: bloom });
            slice(&mut self.filters);
        }

        fn remove(&mut self, at: usize) {
            self.filters.remove(at);
            self.runs.remove(at);
            slice(&mut self.filters);
        }

        fn spans(&self) -> Vec<FilterSpan> {
            spans(self.filters.iter().map(|filter| (filter, false)))
        }

        /// The runs that may contain a key, by spans.
        fn candidates(&self, spans: &[FilterSpan], hash: u64) -> Vec<usize> {
            let mut probe = BloomProbe::new(hash);
            let mut candidates = Vec::new();
            for span in spans {
                let start = span.runs.start;
                match &span.sliced {
                    Some(sliced) => {
                        candidates.extend(sliced.candidates(&probe).map(|at| start + at));
                    }
                    None => candidates.extend(
                        span.runs.clone().filter(|&at| self.filters[at].may_contain(&mut probe)),
                    ),
                }
            }
            candidates
        }

        /// Checks that the filters exclude exactly what they excluded when they were built.
        fn check(&self, rng: &mut StdRng) {
            let spans = self.spans();
            let covered: Vec<usize> = spans.iter().flat_map(|span| span.runs.clone()).collect();
            assert_eq!(covered, (0..self.runs.len()).collect::<Vec<_>>());
            let present = self.runs.iter().flat_map(|run| run.hashes.iter().copied().take(5));
            let absent: Vec<u64> = (0..100).map(|_| rng.random()).collect();
            for hash in present.chain(absent) {
                let may_contain = |(_, run): &(usize, &TestRun)| {
                    run.original.as_ref().is_none_or(|bloom| bloom.contains(hash))
                };
                let expected = self.runs.iter().enumerate().filter(may_contain);
                let expected: Vec<usize> = expected.map(|(at, _)| at).collect();
                assert_eq!(self.candidates(&spans, hash), expected);
                let mut probe = BloomProbe::new(hash);
                let one_by_one =
                    (0..self.runs.len()).filter(|&at| self.filters[at].may_contain(&mut probe));
                assert_eq!(one_by_one.collect::<Vec<_>>(), expected);
            }
        }

        /// Queries of own filters, and of sliced ones.
        fn queries(&self) -> (usize, usize) {
            let own = self.filters.iter().filter(|filter| filter.is_own()).count();
            (own, self.spans().iter().filter(|span| span.sliced.is_some()).count())
        }

        fn columns(&self) -> usize {
            let spans = self.spans().into_iter().filter_map(|span| span.sliced);
            spans.map(|sliced| sliced.filter.planes() * COLUMNS).sum()
        }
    }

    #[test]
    fn filters_stay_exact_under_random_changes_of_level_0() {
        for seed in 0..20 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut level = TestLevel::default();
            for step in 0..150 {
                let keys = match rng.random_range(0..20) {
                    0 => 0,
                    1 => 20,
                    2 => 700,
                    _ => 300,
                };
                let len = level.runs.len();
                match rng.random_range(0..12) {
                    // A repair may add old runs.
                    0 => {
                        let at = rng.random_range(0..=len);
                        level.insert(&mut rng, at, keys);
                    }
                    1..=6 => level.insert(&mut rng, 0, keys),
                    7 if len > 0 => level.remove(rng.random_range(0..len)),
                    8.. if len > 0 && step > 60 => level.remove(len - 1),
                    _ => {}
                }
                level.check(&mut rng);
            }
        }
    }

    /// As many runs are added as the cursor passes: the number of queries and the columns of runs
    /// that have left level 0 stay bounded.
    #[test]
    fn queries_do_not_grow_with_the_runs() {
        let mut rng = StdRng::seed_from_u64(1);
        for runs in [8, 20, 64, 150] {
            let mut level = TestLevel::default();
            for _ in 0..2 * runs {
                if level.runs.len() == runs {
                    level.remove(runs - 1);
                }
                level.insert(&mut rng, 0, 100);
                let (own, sliced) = level.queries();
                let max_sliced = level.runs.len().div_ceil(64) + 1;
                assert!(own <= 7 + 4 && sliced <= max_sliced, "{own} own, {sliced} sliced");
                assert!(level.columns() <= level.runs.len() - own + 3, "{}", level.columns());
            }
            level.check(&mut rng);
        }
    }

    #[test]
    fn filters_at_open_are_sliced_at_once() {
        let mut rng = StdRng::seed_from_u64(2);
        let mut one_by_one = TestLevel::default();
        for _ in 0..70 {
            one_by_one.insert(&mut rng, 0, 100);
        }
        let own = |run: &TestRun| {
            let bloom = run.original.as_ref().unwrap();
            RunFilter::Own(Arc::new(Filter::new(bloom.as_bytes(), bloom.probes()).unwrap()))
        };
        let filters = one_by_one.runs.iter().map(own).collect();
        let mut opened = TestLevel { runs: one_by_one.runs, filters };
        assert!(slice(&mut opened.filters));
        assert!(!slice(&mut opened.filters), "nothing is left to slice");
        opened.check(&mut rng);
        assert_eq!(opened.queries(), (6, 1));
    }
}
