//! Users with an index by city: rows and index entries are keys of one table with different
//! prefixes, so that a transaction keeps them consistent.
// An example prints.
#![allow(clippy::print_stdout)]

use siltstone::{Db, DbOptions, Table};

// ANCHOR: index
/// `user/ID` is a row, its value the city; `city/CITY/ID` is an index entry without a value.
fn row(id: &str) -> String {
    format!("user/{id}")
}

fn entry(city: &str, id: &str) -> String {
    format!("city/{city}/{id}")
}

/// Sets the city of a user. A concurrent move of the same user is a conflict, and is retried.
fn move_to(table: &Table, id: &str, city: &str) -> siltstone::Result<()> {
    table.transact(|tx| {
        if let Some(old) = tx.get(row(id).as_bytes())? {
            tx.delete(entry(&String::from_utf8_lossy(&old), id).as_bytes())?;
        }
        tx.put(row(id).as_bytes(), city.as_bytes())?;
        tx.put(entry(city, id).as_bytes(), b"")
    })
}

/// The users of a city, in order. Values are not read.
fn users_in(table: &Table, city: &str) -> siltstone::Result<Vec<String>> {
    let prefix = entry(city, "");
    let keys = table.keys_prefix(&prefix)?;
    keys.map(|key| Ok(String::from_utf8_lossy(&key?[prefix.len()..]).into_owned())).collect()
}
// ANCHOR_END: index

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-index-{}", std::process::id()));
    let db = Db::open_or_create(&dir, DbOptions::default())?;
    let table = db.table_or_create("users", "lsm", &Default::default())?;
    for (id, city) in [("ada", "London"), ("alan", "London"), ("grace", "New York")] {
        move_to(&table, id, city)?;
    }
    move_to(&table, "alan", "New York")?;
    assert_eq!(users_in(&table, "London")?, ["ada"]);
    assert_eq!(users_in(&table, "New York")?, ["alan", "grace"]);
    println!("in New York: {:?}", users_in(&table, "New York")?);
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}

#[test]
fn example_runs() {
    main().unwrap();
}
