//! Users in one table and an index by city in another. Each change writes both tables in one batch
//! or transaction, so after a crash no index entry lacks its row, and no row its entry.
// An example prints.
#![allow(clippy::print_stdout)]

use siltstone::{Db, DbBatch, DbOptions, Durability, Table};

// ANCHOR: tables
struct Users {
    db: Db,
    /// The city of each user.
    rows: Table,
    /// `CITY/ID`, without a value.
    by_city: Table,
}

impl Users {
    /// Adds many users at once. Nothing is read, so a batch suffices.
    fn add(&self, users: &[(&str, &str)]) -> siltstone::Result<()> {
        let mut batch = DbBatch::new();
        for (id, city) in users {
            batch.table(&self.rows).put(id.as_bytes(), city.as_bytes());
            batch.table(&self.by_city).put(format!("{city}/{id}").as_bytes(), b"");
        }
        self.db.write(&batch, Durability::Synced)
    }

    /// Moves a user. The old city is read first: a transaction.
    fn move_to(&self, id: &str, city: &str) -> siltstone::Result<()> {
        self.db.transact(&[&self.rows, &self.by_city], |tx| {
            if let Some(old) = tx.table(&self.rows)?.get(id.as_bytes())? {
                let old = format!("{}/{id}", String::from_utf8_lossy(&old));
                tx.table(&self.by_city)?.delete(old.as_bytes())?;
            }
            tx.table(&self.rows)?.put(id.as_bytes(), city.as_bytes())?;
            tx.table(&self.by_city)?.put(format!("{city}/{id}").as_bytes(), b"")
        })
    }

    /// Whether rows and index agree, as of one moment.
    fn is_consistent(&self) -> siltstone::Result<bool> {
        let snapshot = self.db.snapshot(&[&self.rows, &self.by_city])?;
        let index = snapshot.table(&self.by_city)?;
        let mut rows = 0;
        for row in snapshot.table(&self.rows)?.iter()? {
            let (id, city) = row?;
            rows += 1;
            if !index.contains_key(&[&city.value, &b"/"[..], &id].concat())? {
                return Ok(false);
            }
        }
        Ok(index.len()? == rows)
    }
}
// ANCHOR_END: tables

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-index-table-{}", std::process::id()));
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let users = Users {
        rows: db.table_or_create("users", "lsm", &Default::default())?,
        by_city: db.table_or_create("users_by_city", "lsm", &Default::default())?,
        db: db.clone(),
    };
    users.add(&[("ada", "London"), ("alan", "London"), ("grace", "New York")])?;
    users.move_to("alan", "New York")?;
    assert!(users.is_consistent()?);
    println!("in New York: {}", users.by_city.keys_prefix("New York/")?.count());
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
