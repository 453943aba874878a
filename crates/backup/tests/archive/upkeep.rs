//! Damaged segments, and those that are removed with old backups.

use crate::fixture::Fixture;

fn flip(path: &std::path::Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn each_damaged_segment_is_found_and_is_a_gap_until_the_next_backup() {
    for damaged in 1..4 {
        let (mut fixture, table) = Fixture::with_table();
        let marks = ["a", "b", "c"].map(|key| fixture.put(&table, key));
        fixture.back_up();
        let later = fixture.put(&table, "d");
        let repository = fixture.repository();
        assert_eq!(repository.check(&mut |_| {}).unwrap().segments, 5);
        // The first segment has no changes, and is before the backup.
        let path = &fixture.segments()[damaged];
        flip(path);
        let report = repository.check(&mut |_| {}).unwrap();
        let [found] = &report.damaged_segments[..] else { panic!("{report:?}") };
        assert!(found.reason.contains(&path.display().to_string()), "{found:?}");
        assert_eq!((report.damaged.len(), report.segments), (0, 4));
        // It is found by a restore, too, which names it.
        let error = fixture.try_restore(marks[damaged - 1]).unwrap_err();
        assert!(error.is_corruption() && error.to_string().contains("archive"), "{error}");
        repository.set_aside(&report).unwrap();
        for (number, mark) in (1..).zip(marks) {
            match number < damaged {
                true => assert_eq!(fixture.keys_at(mark).len(), number),
                // Before the damage there is no moment at all, or the moments of the first backup.
                false => {
                    let message = fixture.refusal(mark);
                    let expected = if damaged == 1 { "outside" } else { "missing or damaged" };
                    assert!(message.contains(expected), "{damaged} {number}: {message}");
                }
            }
        }
        assert_eq!(fixture.keys_at(later), ["a", "b", "c", "d"]);
        // The archive goes on.
        let next = fixture.put(&table, "e");
        assert_eq!(fixture.keys_at(next).len(), 5);
    }
}

#[test]
fn damaged_last_segment_ends_the_series() {
    let (mut fixture, table) = Fixture::with_table();
    let first = fixture.put(&table, "a");
    fixture.put(&table, "b");
    drop(table);
    flip(fixture.segments().last().unwrap());
    fixture.reopen();
    let report = fixture.step();
    assert!(report.gap.is_some_and(|gap| gap.contains("damaged")) && report.needs_backup);
    assert_eq!(fixture.keys_at(first), ["a"]);
}

#[test]
fn damaged_head_or_position_begins_a_new_series() {
    for head in [true, false] {
        let (mut fixture, table) = Fixture::with_table();
        let mark = fixture.put(&table, "a");
        drop(table);
        fixture.db.close().unwrap();
        let head_path = fixture.segments()[0].with_file_name("HEAD");
        flip(&if head { head_path } else { fixture.path("store/ARCHIVE") });
        fixture.reopen();
        let report = fixture.step();
        // Without HEAD the last segment says enough.
        assert_eq!(report.needs_backup, !head, "{report:?}");
        assert_eq!(fixture.keys_at(mark), ["a"]);
    }
}

#[test]
fn segments_before_the_oldest_backup_are_removed_with_the_others() {
    let (mut fixture, table) = Fixture::with_table();
    let early = fixture.put(&table, "a");
    fixture.back_up();
    let late = fixture.put(&table, "b");
    fixture.back_up();
    let last = fixture.put(&table, "c");
    let before = fixture.segments().len();
    let repository = fixture.repository();
    assert_eq!(repository.keep_newest(3).unwrap().segments, 0);
    assert_eq!(fixture.keys_at(early), ["a"]);
    let removal = repository.keep_newest(2).unwrap();
    assert_eq!((removal.backups.len(), removal.segments), (1, 1));
    assert_eq!(fixture.segments().len(), before - 1);
    assert!(fixture.try_restore(early).is_err());
    assert_eq!(fixture.keys_at(late), ["a", "b"]);
    assert!(repository.keep_newest(1).unwrap().segments > 0);
    assert_eq!(fixture.keys_at(last), ["a", "b", "c"]);
    // The archive goes on, also after a restart.
    drop(table);
    fixture.reopen();
    let table = fixture.db.table("stock").unwrap();
    let next = fixture.put(&table, "d");
    assert_eq!(fixture.keys_at(next).len(), 4);
}

#[test]
fn segments_of_an_idle_store_that_its_backup_needs_are_kept() {
    let (mut fixture, table) = Fixture::with_table();
    fixture.put(&table, "a");
    for _ in 0..3 {
        fixture.step();
        fixture.back_up();
    }
    fixture.repository().keep_newest(1).unwrap();
    drop(table);
    fixture.reopen();
    let report = fixture.step();
    assert!(report.gap.is_none() && !report.needs_backup, "{report:?}");
    assert_eq!(fixture.keys_at(report.mark), ["a"]);
}

#[test]
fn series_without_a_backup_is_removed_with_the_last_one() {
    let (mut fixture, table) = Fixture::with_table();
    fixture.put(&table, "a");
    drop(table);
    // Its position is lost.
    fixture.db.close().unwrap();
    std::fs::remove_file(fixture.path("store/ARCHIVE")).unwrap();
    fixture.reopen();
    std::thread::sleep(std::time::Duration::from_secs(1));
    fixture.step();
    fixture.back_up();
    fixture.step();
    assert_eq!(fixture.repository().keep_newest(1).unwrap().segments, 2);
    let moments = fixture.repository().moments().unwrap();
    assert_eq!(moments.len(), 1, "{moments:?}");
}

#[test]
fn archive_goes_on_while_a_backup_is_taken() {
    let (mut fixture, table) = Fixture::with_table();
    let first = fixture.put(&table, "a");
    let (repository, db) = (fixture.repository(), fixture.db.clone());
    let mut marks = Vec::new();
    let mut meanwhile = |_, _| {
        table.put(b"b", b"value").unwrap();
        marks.push(fixture.step().mark);
    };
    repository.back_up(&db, &mut meanwhile).unwrap();
    assert!(marks.len() > 1 && marks[0] > first, "{marks:?}");
    fixture.put(&table, "c");
    for mark in marks {
        assert_eq!(fixture.keys_at(mark), ["a", "b"]);
    }
}
