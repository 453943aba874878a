//! The removal of a database.

use std::io;
use std::path::Path;

use store::{Db, DbOptions, Error};

/// Removes the store in `path` with its only table, even if it is damaged. A missing one is not an
/// error. Other files in the directory are kept.
///
/// # Errors
/// `Refused` if it has other tables; those of opening it; I/O errors.
pub fn destroy(path: &str, table: &str) -> Result<(), Error> {
    let directory = Path::new(path);
    let fault = |error: io::Error| Error::io("remove", path, &error);
    if Db::exists(directory)? {
        match Db::open(directory, DbOptions::default()) {
            Ok(db) => {
                let others: Vec<_> =
                    db.table_names()?.into_iter().filter(|name| name != table).collect();
                if !others.is_empty() {
                    let reason = format!("it has tables besides '{table}': {}", others.join(", "));
                    return Err(Error::Refused { path: path.to_owned(), reason });
                }
                if db.catalogue()?.tables.contains_key(table) {
                    db.drop_table(table)?;
                }
                db.close()?;
            }
            Err(damage) if damage.is_corruption() => {
                ignore_missing(std::fs::remove_dir_all(directory.join(format!("table-{table}"))))
                    .map_err(fault)?;
            }
            Err(error) => return Err(error),
        }
    }
    for file in ["CATALOG", "CATALOG.new", "CATALOG.damaged", "RESERVE", "LOCK"] {
        ignore_missing(std::fs::remove_file(directory.join(file))).map_err(fault)?;
    }
    // It stays if there are other files in it.
    drop(std::fs::remove_dir(directory));
    Ok(())
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
