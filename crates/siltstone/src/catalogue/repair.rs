//! Makes a damaged or missing catalogue anew from the directories of the tables.
//!
//! ```text
//!   table-NAME/   its manifest, or names that one engine alone gives, tell the engine
//!   CATALOG       what of it can still be read tells the options, if it names that engine
//!   flash, UPPER  the size of skimpy's device and where trie's upper levels are, which count for more
//! ```
//!
//! Every directory of a table is named, or nothing is written at all. One that seems to have been made or dropped just
//! then is left alone: what is damaged is no ground for removing anything.
//! The damaged file is kept as `CATALOG.damaged`. A catalogue that is sound and does not name all, as an older one does
//! that was put back, is added to; directories that are no tables are left alone.
//!
//! Source: ours.

use std::path::Path;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Disk, Mode, Vfs};

use super::{Catalogue, MAX_BYTES, NAME, TableSpec};
use crate::db::{LOCK, TABLE_PREFIX};
use crate::engines;

const KEPT: &str = "CATALOG.damaged";

/// Makes the catalogue of the store in `dir` anew if it is damaged, or missing beside tables, and names the tables that
/// it does not name; the answer tells, line by line, what was done: nothing, if it is sound.
///
/// # Errors
/// [`Error::Refused`] if there are no tables, if nothing tells which engine one is on, or for a catalogue of a newer
/// version; [`Error::Locked`]; failures of the medium.
pub fn repair(dir: &Path) -> Result<Vec<String>> {
    mend(&Disk::open(dir)?)
}

fn mend(vfs: &dyn Vfs) -> Result<Vec<String>> {
    let tables = || Catalogue::default().unnamed(vfs);
    if !Catalogue::exists(vfs)? && tables()?.is_empty() {
        let reason = "not a siltstone store: it has neither CATALOG nor a table".to_owned();
        return Err(Error::Refused { path: vfs.name(), reason });
    }
    // First: until it is held somebody else may make tables, or the catalogue.
    let _lock = vfs.lock(LOCK)?;
    let damage = match Catalogue::read(vfs) {
        Ok(sound) => return name_the_unnamed(vfs, sound),
        Err(damage @ Error::Corruption { .. }) => damage.to_string(),
        Err(missing) if missing.is_not_found() => format!("{NAME} is missing"),
        Err(other) => return Err(other),
    };
    let mut story = vec![format!("{damage}: it is made anew from what is there")];
    let known = legible(vfs)?;
    let mut catalogue = Catalogue::default();
    for name in tables()? {
        if known.passing.contains(&name) {
            story.push(format!(
                "table {name} was being made or dropped: its directory is left as it is, and another repair names it"
            ));
            continue;
        }
        let spec = spec(vfs, &name, &known, &mut story)?;
        catalogue.tables.insert(name, spec);
    }
    for name in known.tables.keys().filter(|name| !catalogue.tables.contains_key(*name)) {
        story.push(format!("table {name} has no directory: it is left out"));
    }
    if Catalogue::exists(vfs)? {
        keep(vfs)?;
        story.push(format!("the damaged one is kept as {KEPT}"));
    }
    catalogue.write(vfs)?;
    Ok(story)
}

/// Adds the tables to a sound catalogue that it does not name.
fn name_the_unnamed(vfs: &dyn Vfs, mut catalogue: Catalogue) -> Result<Vec<String>> {
    let mut story = Vec::new();
    let before = catalogue.tables.len();
    for name in catalogue.unnamed(vfs)? {
        match spec(vfs, &name, &Catalogue::default(), &mut story) {
            Ok(spec) => drop(catalogue.tables.insert(name, spec)),
            Err(Error::Refused { reason, .. }) => {
                story
                    .push(format!("the directory {TABLE_PREFIX}{name} is left as it is: {reason}"));
            }
            Err(other) => return Err(other),
        }
    }
    if !story.is_empty() {
        story.insert(0, format!("{NAME} did not name all tables that are there"));
    }
    if catalogue.tables.len() > before {
        catalogue.write(vfs)?;
    }
    Ok(story)
}

/// Keeps the damaged catalogue under another name, and where it is until there is a new one: whoever is cut off
/// between must find again what can be read of it.
fn keep(vfs: &dyn Vfs) -> Result<()> {
    if vfs.exists(KEPT)? {
        vfs.remove(KEPT)?;
    }
    if vfs.link(NAME, vfs, KEPT)? {
        return Ok(());
    }
    let bytes = content(vfs)?;
    let copy = vfs.create(KEPT)?;
    copy.write_at(0, &bytes, Purpose::Manifest)?;
    copy.sync(Purpose::Manifest)
}

/// How a table is kept, as far as that can be told.
fn spec(
    vfs: &dyn Vfs,
    name: &str,
    known: &Catalogue,
    story: &mut Vec<String>,
) -> Result<TableSpec> {
    let directory = vfs.subdirectory(&format!("{TABLE_PREFIX}{name}"))?;
    let engine = engines::recognise(directory.as_ref())?;
    let fits = |spec: &&TableSpec| {
        engine.is_none_or(|engine| engine == spec.engine)
            && engines::check(&spec.engine, &spec.options).is_ok()
    };
    let found = known.tables.get(name).filter(fits);
    let Some(engine) = found.map(|spec| &*spec.engine).or(engine) else {
        return Err(Error::Refused {
            path: directory.name(),
            reason: format!(
                "nothing tells which engine this table is on: restore {NAME} from a copy, or move the \
                 directory away"
            ),
        });
    };
    let told = engines::told(engine, directory.as_ref())?;
    if let Some(spec) = found.filter(|spec| engines::agree(engine, &spec.options, &told)) {
        story.push(format!("table {name} is on {engine} with {:?}", spec.options));
        return Ok(spec.clone());
    }
    let mut options = found.map(|spec| spec.options.clone()).unwrap_or_default();
    options.remove("upper");
    options.extend(told);
    story.push(match (found, options.is_empty()) {
        (Some(_), _) => format!(
            "table {name} is on {engine} with {options:?}: by its files, where they speak against what can be read"
        ),
        (None, true) => format!(
            "table {name} is on {engine}; which options it was made with is not known: it has the defaults"
        ),
        (None, false) => format!(
            "table {name} is on {engine} with {options:?} by its files; which others it was made with is not known: \
             it has the defaults"
        ),
    });
    Ok(TableSpec { engine: engine.to_owned(), options })
}

/// What can be read of the catalogue, whatever its checksum says, and whatever stands behind it.
fn legible(vfs: &dyn Vfs) -> Result<Catalogue> {
    if !Catalogue::exists(vfs)? {
        return Ok(Catalogue::default());
    }
    let bytes = content(vfs)?;
    let body = bytes.iter().position(|&byte| byte == b'{').map_or(&[][..], |at| &bytes[at..]);
    let first = serde_json::Deserializer::from_slice(body).into_iter().next();
    Ok(first.and_then(Result::ok).unwrap_or_default())
}

fn content(vfs: &dyn Vfs) -> Result<Vec<u8>> {
    let file = vfs.open(NAME, Mode::Read)?;
    let mut bytes = vec![0; file.len()?.min(MAX_BYTES) as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use siltstone_engine::ManualClock;
    use siltstone_faults::Faulty;
    use siltstone_runtime::Env;

    use super::*;
    use crate::{Db, DbOptions};

    fn sample() -> Catalogue {
        let options = [("memtable".to_owned(), "64KiB".to_owned())].into();
        let tables = [("t".to_owned(), TableSpec { engine: "lsm".into(), options })].into();
        Catalogue { tables, ..Catalogue::default() }
    }

    /// A store with a table, whose catalogue is damaged, as `damage` says.
    fn damaged(seed: u64, damage: impl Fn(&mut Vec<u8>)) -> Faulty {
        let vfs = Faulty::new(seed);
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let options = DbOptions { env, ..DbOptions::default() };
        let db = Db::create_media(Arc::new(vfs.clone()), options).unwrap();
        let spec = &sample().tables["t"];
        db.table_or_create("t", &spec.engine, &spec.options).unwrap().put(b"k", b"v").unwrap();
        db.close().unwrap();
        let mut bytes = content(&vfs).unwrap();
        damage(&mut bytes);
        vfs.remove(NAME).unwrap();
        let file = vfs.create(NAME).unwrap();
        file.write_at(0, &bytes, Purpose::Manifest).unwrap();
        file.sync(Purpose::Manifest).unwrap();
        vfs.sync_dir(Purpose::Manifest).unwrap();
        vfs
    }

    fn without_checksum(bytes: &mut [u8]) {
        let at = bytes.iter().position(|&byte| byte == b'=').unwrap();
        bytes[at + 1] = b'x';
    }

    #[test]
    fn whatever_cuts_it_off_the_options_are_not_lost() {
        let (mut cut, mut is_done) = (0, false);
        while !is_done {
            let vfs = damaged(cut, |bytes| without_checksum(bytes));
            vfs.cut_power_at(vfs.operations() + cut);
            is_done = mend(&vfs).is_ok();
            for seed in 0..8 {
                let vfs = vfs.survivors(seed);
                mend(&vfs).unwrap();
                assert_eq!(Catalogue::read(&vfs).unwrap(), sample(), "cut at {cut}, {seed}");
            }
            cut += 1;
        }
        assert!(cut > 5, "{cut}");
    }

    /// The directory that `passing` names may be another's, where its name was damaged.
    #[test]
    fn a_damaged_catalogue_has_nothing_removed() {
        let vfs = damaged(1, |bytes| {
            let passing = Catalogue { passing: ["t".to_owned()].into(), ..Catalogue::default() };
            *bytes = passing.format();
            without_checksum(bytes);
        });
        let story = mend(&vfs).unwrap();
        assert!(story.iter().any(|line| line.contains("left as it is")), "{story:?}");
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let open = || {
            let options = DbOptions { env: env.clone(), ..DbOptions::default() };
            Db::open_media(Arc::new(vfs.clone()), options).unwrap()
        };
        let db = open();
        assert_eq!(db.unnamed_tables().unwrap(), ["t"]);
        db.close().unwrap();
        mend(&vfs).unwrap();
        assert_eq!(open().table("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }

    #[test]
    fn what_stands_behind_does_not_hide_what_can_be_read() {
        for behind in [&[0; 512][..], b"}", b"garbage"] {
            let vfs = damaged(1, |bytes| bytes.extend_from_slice(behind));
            mend(&vfs).unwrap();
            assert_eq!(Catalogue::read(&vfs).unwrap(), sample());
        }
    }
}
