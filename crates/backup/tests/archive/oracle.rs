//! Random changes of all kinds, with marks between them: each mark is restored as the store was.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone::{DbBatch, Durability, MergeAppend, Table, WriteBatch};
use siltstone_structures::SplitMix64;

use crate::fixture::{Content, Fixture, next_millisecond};

/// Far in the future, so that nothing expires in the test.
const EXPIRY: u64 = 4_000_000_000_000;
const KEYS: u64 = 200;
const MARKS: usize = 30;

struct Run {
    fixture: Fixture,
    random: SplitMix64,
    tables: BTreeMap<String, Table>,
    created: u32,
    marks: Vec<Mark>,
}

/// The content from one moment to another.
struct Mark {
    from: u64,
    to: u64,
    content: Content,
    /// The repository was away. A table that is dropped before it is there again takes the mark
    /// with it: its changes are gone.
    may_be_lost: bool,
}

impl Run {
    fn new(seed: u64) -> Self {
        let fixture = Fixture::new();
        let mut run = Run {
            fixture,
            random: SplitMix64::new(seed),
            tables: BTreeMap::new(),
            created: 0,
            marks: Vec::new(),
        };
        for _ in 0..2 {
            run.create();
        }
        run.fixture.step();
        run.fixture.back_up();
        run.mark();
        run
    }

    fn create(&mut self) {
        let name = format!("t{}", self.created);
        let table = self.fixture.table(&name);
        // Merges exclude expiry.
        if self.created % 2 == 1 {
            table.set_merge_operator(Some(Arc::new(MergeAppend::new(b",")))).unwrap();
        }
        self.tables.insert(name, table);
        self.created += 1;
    }

    fn pick(&mut self) -> (String, Table) {
        let index = self.random.below(self.tables.len() as u64) as usize;
        let (name, table) = self.tables.iter().nth(index).unwrap();
        (name.clone(), table.clone())
    }

    fn key(&mut self) -> Vec<u8> {
        format!("key{:04}", self.random.below(KEYS)).into_bytes()
    }

    fn operation(&mut self, batch: &mut WriteBatch, table: &Table) {
        let (key, value) = (self.key(), vec![self.random.below(256) as u8; 40]);
        let merges = table.engine().merge_operator().is_some();
        match self.random.below(12) {
            0 | 1 => batch.delete(&key),
            2 => batch.delete_range(key.clone()..self.key().max(key)),
            3 | 4 if merges => batch.merge(&key, &value),
            3 | 4 => batch.put_until(&key, &value, EXPIRY + self.random.below(1000)),
            _ => batch.put(&key, &value),
        };
    }

    fn change(&mut self) {
        let (name, table) = self.pick();
        match self.random.below(60) {
            0 => table.clear().unwrap(),
            1 if self.tables.len() < 5 => self.create(),
            2 if self.tables.len() > 2 => {
                self.tables.remove(&name);
                drop(table);
                self.fixture.db.drop_table(&name).unwrap();
            }
            3 => {
                self.tables.remove(&name);
                drop(table);
                let new = format!("r{}", self.random.below(1_000_000));
                self.fixture.db.rename_table(&name, &new).unwrap();
                let renamed = self.fixture.db.table(&new).unwrap();
                self.tables.insert(new, renamed);
            }
            4 => {
                let (other, second) = self.pick();
                if other != name {
                    table.swap_places(&second).unwrap();
                }
            }
            // A table of the same name with another history.
            5 => {
                drop((self.tables.remove(&name), table));
                self.fixture.db.drop_table(&name).unwrap();
                let again = self.fixture.table(&name);
                self.tables.insert(name, again);
            }
            6..=8 => table.flush().unwrap(),
            9..=20 => {
                let mut batch = DbBatch::new();
                for table in self.tables.clone().values() {
                    self.operation(batch.table(table), table);
                }
                self.fixture.db.write(&batch, Durability::Buffered).unwrap();
            }
            _ => {
                let mut batch = WriteBatch::new();
                for _ in 0..=self.random.below(4) {
                    self.operation(&mut batch, &table);
                }
                table.write(&batch, Durability::Buffered).unwrap();
            }
        }
    }

    /// A mark, and sometimes one that waits because the repository is away.
    fn mark(&mut self) {
        let is_away = self.random.below(5) == 0;
        self.mark_while(is_away);
    }

    fn mark_while(&mut self, may_be_lost: bool) {
        let content = Content::of(&self.fixture.db);
        let (from, away) = (next_millisecond(), self.fixture.path("away"));
        let to = if may_be_lost {
            std::fs::rename(self.fixture.path("backups"), &away).unwrap();
            assert!(self.fixture.try_step().is_err());
            std::fs::rename(&away, self.fixture.path("backups")).unwrap();
            next_millisecond()
        } else {
            let report = self.fixture.step();
            assert_eq!(report.gap, None);
            report.mark
        };
        self.marks.push(Mark { from, to, content, may_be_lost });
    }

    fn reopen(&mut self) {
        self.tables.clear();
        self.mark_while(false);
        self.fixture.reopen();
        self.mark_while(false);
        for name in self.fixture.db.table_names().unwrap() {
            let table = self.fixture.db.table(&name).unwrap();
            self.tables.insert(name, table);
        }
    }
}

#[test]
fn every_mark_of_random_changes_is_restored_row_for_row() {
    for seed in 0..3 {
        let mut run = Run::new(seed);
        while run.marks.len() < MARKS {
            for _ in 0..run.random.below(40) {
                run.change();
            }
            match run.random.below(10) {
                0 => drop(run.fixture.back_up()),
                1 => run.reopen(),
                _ => run.mark(),
            }
        }
        run.fixture.step();
        let moments = run.fixture.repository().moments().unwrap();
        assert_eq!(moments.len(), 1, "no gap: {moments:?}");
        let (mut segments, mut lost) = (0, 0);
        let marks = std::mem::take(&mut run.marks);
        for mark in &marks {
            let (restored, found) = run.fixture.restore(mark.to);
            let is_lost = mark.may_be_lost && restored.moment < mark.from;
            let had = marks.iter().rfind(|mark| mark.from <= restored.moment).unwrap();
            let content = if is_lost { &had.content } else { &mark.content };
            assert!(found == *content, "seed {seed}, moment {}: {restored:?}", mark.to);
            assert!(restored.moment <= mark.to);
            segments += restored.segments;
            lost += usize::from(is_lost);
        }
        assert!(segments > 0 && lost < MARKS / 5, "{lost} of {MARKS} marks");
    }
}

/// A batch of more bytes than a segment, and more changes than one.
#[test]
fn changes_of_many_segments_have_one_mark() {
    let (mut fixture, table) = Fixture::with_table();
    for n in 0..12u32 {
        let mut batch = WriteBatch::new();
        batch.put(&n.to_be_bytes(), &vec![n as u8; 4 << 20]);
        table.write(&batch, Durability::Buffered).unwrap();
    }
    let report = fixture.step();
    assert!(report.segments > 2, "{report:?}");
    let content = Content::of(&fixture.db);
    table.delete_range::<&[u8]>(..).unwrap();
    fixture.step();
    let (restored, found) = fixture.restore(report.mark);
    assert_eq!(found.tables["stock"].len(), 12);
    assert!(found == content && restored.changes == 12, "{restored:?}");
}
