//! Makes a damaged or missing catalogue anew from the directories of the tables.
//!
//! ```text
//!   table-NAME/   its manifest, or names that one engine alone gives, tell the engine
//!   CATALOG       what of it can still be read tells the options, if it names that engine
//! ```
//!
//! A directory that a catalogue does not name is removed when the store is opened. So every directory of a table is
//! named, or nothing is written at all. The damaged file is kept as `CATALOG.damaged`.
//!
//! Source: ours.

use std::path::Path;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::{Disk, Media, Mode};

use super::{Catalogue, MAX_BYTES, NAME, TableSpec};
use crate::db::{LOCK, TABLE_PREFIX};
use crate::engines;

const KEPT: &str = "CATALOG.damaged";

/// Makes the catalogue of the store in `dir` anew if it is damaged, or missing beside tables; the answer tells, line
/// by line, what was done: nothing, if it is sound.
///
/// # Errors
/// [`Error::Refused`] if there are no tables, if nothing tells which engine one is on, or for a catalogue of a newer
/// version; [`Error::Locked`]; failures of the medium.
pub fn repair(dir: &Path) -> Result<Vec<String>> {
    let media = Disk::open(dir)?;
    let damage = match Catalogue::read(&media) {
        Ok(_) => return Ok(Vec::new()),
        Err(damage @ Error::Corruption { .. }) => damage.to_string(),
        Err(missing) if missing.is_not_found() => format!("{NAME} is missing"),
        Err(other) => return Err(other),
    };
    let names = media.subdirectories()?;
    let names: Vec<_> = names.iter().filter_map(|name| name.strip_prefix(TABLE_PREFIX)).collect();
    if names.is_empty() && !Catalogue::exists(&media)? {
        let reason = "not a siltstone store: it has neither CATALOG nor a table".to_owned();
        return Err(Error::Refused { path: media.name(), reason });
    }
    let _lock = media.lock(LOCK)?;
    let mut story = vec![format!("{damage}: it is made anew from what is there")];
    let known = legible(&media)?;
    let mut catalogue = Catalogue::default();
    for name in names {
        let spec = spec(&media, name, &known, &mut story)?;
        catalogue.tables.insert(name.to_owned(), spec);
    }
    for name in known.tables.keys().filter(|name| !catalogue.tables.contains_key(*name)) {
        story.push(format!("table {name} has no directory: it is left out"));
    }
    if Catalogue::exists(&media)? {
        media.rename(NAME, KEPT)?;
        story.push(format!("the damaged one is kept as {KEPT}"));
    }
    catalogue.write(&media)?;
    Ok(story)
}

/// How a table is kept, as far as that can be told.
fn spec(media: &Disk, name: &str, known: &Catalogue, story: &mut Vec<String>) -> Result<TableSpec> {
    let directory = media.subdirectory(&format!("{TABLE_PREFIX}{name}"))?;
    let engine = engines::recognise(directory.as_ref())?;
    let fits = |spec: &&TableSpec| {
        engine.is_none_or(|engine| engine == spec.engine)
            && engines::check(&spec.engine, &spec.options).is_ok()
    };
    if let Some(spec) = known.tables.get(name).filter(fits) {
        story.push(format!("table {name} is on {} with {:?}", spec.engine, spec.options));
        return Ok(spec.clone());
    }
    let Some(engine) = engine else {
        return Err(Error::Refused {
            path: directory.name(),
            reason: format!(
                "nothing tells which engine this table is on: restore {NAME} from a copy, or move the \
                 directory away"
            ),
        });
    };
    story.push(format!(
        "table {name} is on {engine}; which options it was made with is not known: it has the defaults"
    ));
    Ok(TableSpec { engine: engine.to_owned(), options: Default::default() })
}

/// What can be read of the catalogue, whatever its checksum says.
fn legible(media: &Disk) -> Result<Catalogue> {
    if !Catalogue::exists(media)? {
        return Ok(Catalogue::default());
    }
    let file = media.open(NAME, Mode::Read)?;
    let mut bytes = vec![0; file.len()?.min(MAX_BYTES) as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    let body = bytes.iter().position(|&byte| byte == b'{').map_or(&[][..], |at| &bytes[at..]);
    Ok(serde_json::from_slice(body).unwrap_or_default())
}
