//! Does hint search over a stack of rows find what a search of each row in full finds, whichever of
//! them were trimmed, dropped or opened anew?

use super::super::hints::{self, HintWalk};
use super::super::probe::Tally;
use super::*;

/// A row of the stack: its versions, how it is trimmed, and whether it is there.
#[derive(Debug, Clone)]
struct Plan {
    entries: Vec<Entry>,
    /// Whether the cursor, somewhere, trims it before the next row is built, or after all were.
    early: Option<Vec<u8>>,
    late: Option<Vec<u8>>,
    arrival: Vec<u8>,
    is_dropped: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let cursor = || prop::option::weighted(0.4, prop_oneof![key(), Just(Vec::new())]);
    (entries(90), cursor(), cursor(), key(), prop::bool::weighted(0.15)).prop_map(
        |(entries, early, late, arrival, is_dropped)| Plan {
            entries,
            early,
            late,
            arrival,
            is_dropped,
        },
    )
}

/// Trims a row if that makes it smaller.
fn trim(row: &Arc<RowTable>, cursor: &Option<Vec<u8>>, arrival: &[u8]) -> Arc<RowTable> {
    let live = cursor.as_ref().map(|cursor| LiveRange::new(cursor, arrival));
    match live.filter(|live| live.is_within(row.live())) {
        Some(live) => Arc::new(row.trim(live).unwrap()),
        None => row.clone(),
    }
}

/// The rows that are there, newest first, and the live versions of each.
fn stack(pool: &PmemPool, plans: &[Plan]) -> (Vec<Arc<RowTable>>, Vec<Vec<Entry>>) {
    let mut rows: Vec<Arc<RowTable>> = Vec::new();
    for (i, plan) in plans.iter().enumerate() {
        let row = build(pool, i as u64 + 1, rows.last(), &plan.entries);
        rows.push(trim(&row, &plan.early, &plan.arrival));
    }
    let there = rows.iter().zip(plans).rev().filter(|(_, plan)| !plan.is_dropped);
    there
        .map(|(row, plan)| {
            let row = trim(row, &plan.late, &plan.arrival);
            let live = live_of(&plan.entries, row.live());
            (row, live)
        })
        .unzip()
}

fn check(rows: &[Arc<RowTable>], live: &[Vec<Entry>], key: &[u8], at: u64) {
    let expected = live.iter().find_map(|entries| lookup(entries, key, at));
    assert_eq!(
        hints::get(rows, key, at, &mut Tally::default()).unwrap(),
        expected,
        "{key:?} at {at}"
    );

    let mut walk = HintWalk::new(key);
    for row in rows {
        let hinted = walk.land(row, &mut Tally::default()).unwrap().place;
        let plain = row.lower_bound(key, 0..row.len(), &mut Tally::default()).unwrap();
        assert_eq!(hinted, plain, "{key:?} in row {}", row.number());
    }

    let mut hinted: Vec<_> = rows.iter().map(|row| RowIter::new(row.clone(), WHY)).collect();
    let mut plain: Vec<_> = rows.iter().map(|row| RowIter::new(row.clone(), WHY)).collect();
    hints::seek_all(&mut hinted, key, at).unwrap();
    for (hinted, plain) in hinted.iter().zip(&mut plain) {
        plain.seek(key, at).unwrap();
        assert_eq!(shown(hinted), shown(plain));
    }
    hints::seek_back_all(&mut hinted, key, at).unwrap();
    for (hinted, plain) in hinted.iter().zip(&mut plain) {
        plain.seek_back(key, at).unwrap();
        assert_eq!(shown(hinted), shown(plain));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn does_hint_search_equal_plain_search(
        plans in prop::collection::vec(plan(), 1..8),
        probes in prop::collection::vec((key(), 0..70u64), 30),
    ) {
        let pool = pool(1024);
        let (rows, live) = stack(&pool, &plans);
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

/// The triangle as it lives: rows arrive, the cursor turns, rows at the end of their lap go. The pool
/// comes back to where it was, and at every moment the stack answers for the live keys alone.
#[test]
fn does_the_triangle_answer_rightly_over_many_laps() {
    let pool = pool(1024);
    let mut rows: Vec<(Arc<RowTable>, Vec<Entry>)> = Vec::new();
    let (mut dice, mut cursor) = (12345u64, 0u32);
    let mut below = |bound: u32| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((dice >> 33) % u64::from(bound)) as u32
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
        // Just arrived, where the cursor stands.
        let row = row.trim(LiveRange::new(&name(cursor), &name(cursor))).unwrap();
        rows.insert(0, (Arc::new(row), entries));
        // The cursor stops at the end of the key space, so that a lap has an end.
        next = if next >= 10_000 { 0 } else { next };
        rows.retain_mut(|(row, _)| {
            let arrival = row.live().arrival().to_vec();
            let is_behind = arrival > name(cursor);
            let is_done = match next {
                0 => is_behind || arrival.is_empty(),
                _ => is_behind && arrival <= name(next),
            };
            if !is_done {
                *row = Arc::new(row.trim(LiveRange::new(&name(next), &arrival)).unwrap());
            }
            !is_done
        });
        cursor = next;
        let stack: Vec<_> = rows.iter().map(|(row, _)| row.clone()).collect();
        let live: Vec<_> = rows.iter().map(|(row, e)| live_of(e, row.live())).collect();
        for _ in 0..40 {
            check(&stack, &live, &name(below(10_000) + 1), u64::MAX);
        }
    }
    assert!((5..20).contains(&rows.len()), "{} rows", rows.len());
    rows.clear();
    assert_eq!(pool.free_pages(), pool.pages());
}
