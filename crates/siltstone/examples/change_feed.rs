//! A copy of a table in another store, kept up to date by the change feed.
//!
//! The copy stores its position with the rows, in the same batch, so a crash repeats nothing and
//! loses nothing. A copy that has fallen behind the log begins again from a snapshot.
// An example prints.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use siltstone::{Change, Db, DbBatch, DbOptions, Durability, Error, Table, WriteBatch};

// ANCHOR: copy
struct Copy {
    db: Db,
    rows: Table,
    /// The position under the name of the source.
    positions: Table,
}

impl Copy {
    fn position(&self, source: &Table) -> siltstone::Result<u64> {
        let stored = self.positions.get(source.name().as_bytes())?;
        Ok(stored.and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?))).unwrap_or(0))
    }

    fn apply(&self, source: &Table, writes: &WriteBatch, position: u64) -> siltstone::Result<()> {
        let mut batch = DbBatch::new();
        batch.table(&self.rows).append(writes);
        batch.table(&self.positions).put(source.name().as_bytes(), &position.to_le_bytes());
        self.db.write(&batch, Durability::Buffered)
    }

    /// Copies the whole table, as of one moment.
    fn begin_again(&self, source: &Table) -> siltstone::Result<()> {
        let snapshot = source.snapshot()?;
        self.rows.clear()?;
        for row in snapshot.iter()? {
            let (key, entry) = row?;
            match entry.expires_at {
                Some(time) => self.rows.put_until(&key, &entry.value, time)?,
                None => self.rows.put(&key, &entry.value)?,
            }
        }
        self.apply(source, &WriteBatch::new(), snapshot.sequence())
    }

    /// Applies changes until none comes for `idle`.
    fn follow(&self, source: &Table, idle: Duration) -> siltstone::Result<()> {
        let mut changes = match source.changes(self.position(source)?) {
            Err(Error::ChangesUnavailable { .. }) => {
                self.begin_again(source)?;
                source.changes(self.position(source)?)?
            }
            changes => changes?,
        };
        while let Some(change) = changes.next_timeout(idle)? {
            match change.change {
                Change::Write(writes) => self.apply(source, &writes, change.sequence)?,
                Change::Cleared => {
                    self.rows.clear()?;
                    self.apply(source, &WriteBatch::new(), change.sequence)?;
                }
                // Ingested files are not in the log.
                _ => {
                    self.begin_again(source)?;
                    changes = source.changes(self.position(source)?)?;
                }
            }
        }
        Ok(())
    }
}
// ANCHOR_END: copy

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-feed-{}", std::process::id()));
    let source = Db::open_or_create(dir.join("source"), DbOptions::default())?;
    // ANCHOR: source
    let options = [("log_retention".to_owned(), "256MiB".to_owned())].into();
    let stock = source.table_or_create("stock", "lsm", &options)?;
    // ANCHOR_END: source
    let db = Db::open_or_create(dir.join("copy"), DbOptions::default())?;
    let table = |name| db.table_or_create(name, "lsm", &Default::default());
    let copy = Copy { rows: table("stock")?, positions: table("positions")?, db: db.clone() };

    let idle = Duration::from_millis(10);
    stock.write(WriteBatch::new().put(b"apples", b"3").put(b"pears", b"5"), Durability::Synced)?;
    copy.follow(&stock, idle)?;
    stock.clear()?;
    stock.write(WriteBatch::new().put(b"plums", b"1"), Durability::Synced)?;
    copy.follow(&stock, idle)?;
    let rows: Vec<_> = copy.rows.iter()?.collect::<siltstone::Result<_>>()?;
    assert_eq!(rows.len(), 1);
    assert_eq!(copy.position(&stock)?, stock.snapshot()?.sequence());
    println!("the copy is at change {}", copy.position(&stock)?);

    source.close()?;
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
