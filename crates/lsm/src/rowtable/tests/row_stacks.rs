//! Hint search over stacks of rows compared with plain search of each row, with rows that were
//! trimmed, dropped or reopened.

use super::super::hints::{self, HintSearch};
use super::super::search_stats::SearchStats;
use super::*;

/// A row of the stack: its versions, how it is trimmed, and whether it is dropped.
#[derive(Debug, Clone)]
struct RowPlan {
    entries: Vec<Entry>,
    /// Whether the cursor trims it before the next row is built, or after all were.
    early: Option<Vec<u8>>,
    late: Option<Vec<u8>>,
    inserted_at: Vec<u8>,
    is_dropped: bool,
}

fn row_plan() -> impl Strategy<Value = RowPlan> {
    let cursor = || prop::option::weighted(0.4, prop_oneof![key(), Just(Vec::new())]);
    (entries(90), cursor(), cursor(), key(), prop::bool::weighted(0.15)).prop_map(
        |(entries, early, late, inserted_at, is_dropped)| RowPlan {
            entries,
            early,
            late,
            inserted_at,
            is_dropped,
        },
    )
}

/// Trims a row if that makes it smaller.
fn trim(row: &Arc<RowTable>, cursor: &Option<Vec<u8>>, inserted_at: &[u8]) -> Arc<RowTable> {
    let live = cursor.as_ref().map(|cursor| LiveRange::new(cursor, inserted_at));
    match live.filter(|live| live.is_within(row.live())) {
        Some(live) => Arc::new(row.trim(live).unwrap()),
        None => row.clone(),
    }
}

/// The rows that are not dropped, newest first, and the live versions of each.
fn stack(pool: &PmemPool, row_plans: &[RowPlan]) -> (Vec<Arc<RowTable>>, Vec<Vec<Entry>>) {
    let mut rows: Vec<Arc<RowTable>> = Vec::new();
    for (i, row_plan) in row_plans.iter().enumerate() {
        let row = build(pool, i as u64 + 1, rows.last(), &row_plan.entries);
        rows.push(trim(&row, &row_plan.early, &row_plan.inserted_at));
    }
    let there = rows.iter().zip(row_plans).rev().filter(|(_, row_plan)| !row_plan.is_dropped);
    there
        .map(|(row, row_plan)| {
            let row = trim(row, &row_plan.late, &row_plan.inserted_at);
            let live = live_entries(&row_plan.entries, row.live());
            (row, live)
        })
        .unzip()
}

fn check(rows: &[Arc<RowTable>], live: &[Vec<Entry>], key: &[u8], at: u64) {
    let expected = live.iter().find_map(|entries| lookup(entries, key, at));
    assert_eq!(
        hints::get(rows, key, at, &mut SearchStats::default()).unwrap(),
        expected,
        "{key:?} at {at}"
    );

    let mut search = HintSearch::new(key);
    for row in rows {
        let hinted = search.find_in(row, &mut SearchStats::default()).unwrap().position;
        let plain = row.lower_bound(key, 0..row.len(), &mut SearchStats::default()).unwrap();
        assert_eq!(hinted, plain, "{key:?} in row {}", row.number());
    }

    let mut hinted: Vec<_> =
        rows.iter().map(|row| RowTableIter::new(row.clone(), PURPOSE)).collect();
    let mut plain: Vec<_> =
        rows.iter().map(|row| RowTableIter::new(row.clone(), PURPOSE)).collect();
    hints::seek_all(&mut hinted, key, at).unwrap();
    for (hinted, plain) in hinted.iter().zip(&mut plain) {
        plain.seek(key, at).unwrap();
        assert_eq!(current_entry(hinted), current_entry(plain));
    }
    hints::seek_back_all(&mut hinted, key, at).unwrap();
    for (hinted, plain) in hinted.iter().zip(&mut plain) {
        plain.seek_back(key, at).unwrap();
        assert_eq!(current_entry(hinted), current_entry(plain));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn hint_search_equals_plain_search(
        row_plans in prop::collection::vec(row_plan(), 1..8),
        probes in prop::collection::vec((key(), 0..70u64), 30),
    ) {
        let pool = pool(1024);
        let (rows, live) = stack(&pool, &row_plans);
        for (key, at) in &probes {
            check(&rows, &live, key, *at);
        }
        let own = live.iter().flatten().step_by(7).map(|e| (e.key.clone(), e.sequence));
        for (key, at) in own.collect::<Vec<_>>() {
            check(&rows, &live, &key, at);
            check(&rows, &live, &key, u64::MAX);
        }
    }
}

/// The triangle in operation: rows are inserted, the cursor cycles, exhausted rows are dropped. At
/// the end all pages are free, and at each step the stack contains the live keys only.
#[test]
fn stack_of_trimmed_rows_answers_correctly_over_many_cycles() {
    let pool = pool(1024);
    let mut rows: Vec<(Arc<RowTable>, Vec<Entry>)> = Vec::new();
    let (mut seed, mut cursor) = (12345u64, 0u32);
    let mut below = |bound: u32| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) % u64::from(bound)) as u32
    };
    let name = |n: u32| if n == 0 { Vec::new() } else { format!("{n:04}").into_bytes() };
    for number in 1..=60u64 {
        let entries: Vec<Entry> = (0..150)
            .map(|_| Entry::put(&name(below(9999) + 1), number, &number.to_le_bytes()))
            .collect();
        let entries = sort(entries);
        let mut next = cursor + 700 + below(300);
        let previous = rows.first().map(|(row, _)| row.clone());
        let row = build(&pool, number, previous.as_ref(), &entries);
        // Inserted at the present cursor.
        let row = row.trim(LiveRange::new(&name(cursor), &name(cursor))).unwrap();
        rows.insert(0, (Arc::new(row), entries));
        // The cursor stops at the end of the key space, so that a cycle ends there.
        next = if next >= 10_000 { 0 } else { next };
        rows.retain_mut(|(row, _)| {
            let inserted_at = row.live().inserted_at().to_vec();
            let is_behind = inserted_at > name(cursor);
            let is_done = match next {
                0 => is_behind || inserted_at.is_empty(),
                _ => is_behind && inserted_at <= name(next),
            };
            if !is_done {
                *row = Arc::new(row.trim(LiveRange::new(&name(next), &inserted_at)).unwrap());
            }
            !is_done
        });
        cursor = next;
        let stack: Vec<_> = rows.iter().map(|(row, _)| row.clone()).collect();
        let live: Vec<_> = rows.iter().map(|(row, e)| live_entries(e, row.live())).collect();
        for _ in 0..40 {
            check(&stack, &live, &name(below(10_000) + 1), u64::MAX);
        }
    }
    assert!((5..20).contains(&rows.len()), "{} rows", rows.len());
    rows.clear();
    assert_eq!(pool.free_pages(), pool.pages());
}
