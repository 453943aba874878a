//! A table of fruit: a batch write, an ordered scan, a snapshot, a checkpoint.
// An example prints.
#![allow(clippy::print_stdout)]

// ANCHOR: stock
use siltstone::{Db, DbOptions, Durability, WriteBatch};

fn main() -> siltstone::Result<()> {
    let dir = std::env::temp_dir().join(format!("siltstone-stock-{}", std::process::id()));
    let db = Db::open_or_create(dir.join("store"), DbOptions::default())?;
    let table = db.table_or_create("fruit", "lsm", &Default::default())?;

    let mut batch = WriteBatch::new();
    batch.put(b"apples", b"3").put(b"pears", b"5").delete(b"plums");
    table.write(&batch, Durability::Synced)?; // survives a power cut from here on

    let snapshot = table.snapshot()?; // later writes don't change it
    table.put(b"apples", b"2")?;
    for entry in table.range("a".."q")? {
        let (key, entry) = entry?;
        println!("{} {}", key.escape_ascii(), entry.value.escape_ascii());
    }
    assert_eq!(snapshot.get(b"apples")?.as_deref(), Some(&b"3"[..]));

    db.checkpoint(dir.join("copy"))?; // links files, copies little
    db.close()?;
    let _ = std::fs::remove_dir_all(dir);
    Ok(())
}
// ANCHOR_END: stock

#[test]
fn example_runs() {
    main().unwrap();
}
