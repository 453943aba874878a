//! Counts visits by language, and prints all counts. The book's page "Other languages" has the same
//! program in C and Python; all of them use one store.

#![allow(clippy::print_stdout)]

// ANCHOR: program
use std::path::Path;

use siltstone::{Db, DbOptions, Result};

fn visit(dir: &Path) -> Result<Vec<String>> {
    let db = Db::open_or_create(dir, DbOptions::default())?;
    let visits = db.table_or_create("visits", "lsm", &Default::default())?;
    visits.transact(|tx| {
        let text = tx.get(b"rust")?.unwrap_or_default();
        let count = String::from_utf8_lossy(&text).parse().unwrap_or(0) + 1;
        tx.put(b"rust", count.to_string().as_bytes())
    })?;
    let mut lines = Vec::new();
    for entry in visits.iter()? {
        let (language, entry) = entry?;
        let [language, count] = [&language, &entry.value].map(|text| String::from_utf8_lossy(text));
        lines.push(format!("{language} {count}"));
    }
    db.close()?;
    Ok(lines)
}

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/tmp/visits".to_owned());
    visit(dir.as_ref())?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
// ANCHOR_END: program

#[cfg(test)]
mod tests {
    use super::visit;

    #[test]
    fn visits_are_counted() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("visits");
        assert_eq!(visit(&dir).unwrap(), ["rust 1"]);
        assert_eq!(visit(&dir).unwrap(), ["rust 2"]);
    }
}
