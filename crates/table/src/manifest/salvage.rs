//! Salvage and replacement of the manifest of a damaged keyspace.
//!
//! ```text
//!   CURRENT and its manifest are valid       that manifest
//!   CURRENT is damaged or missing            the manifest with the highest number, if it is valid
//!   otherwise                                none: the repair uses the files themselves
//! ```
//!
//! There is one manifest, or briefly two: either the older one is superseded, or the newer one has
//! one more edit, whose files are durable. So without `CURRENT` the highest number is right.
//!
//! Invariant: an invalid manifest stays in the directory under another name.

use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_vfs::Vfs;

use super::current::{CURRENT, Current, manifest_name, manifest_number, owns, read_current};
use super::{Manifest, read_numbered};
use crate::log::LogEnd;
use crate::quarantine;

/// What can be read of a manifest.
#[derive(Debug, Default)]
pub struct ManifestSalvage {
    /// The snapshot and the edits since; `None` if no manifest is valid.
    pub edits: Option<Vec<Vec<u8>>>,
    /// The manifest that was read.
    pub name: Option<String>,
    /// The damage of the manifest or of `CURRENT`: the file, and the reason.
    pub damage: Option<(String, String)>,
    /// The manifest ends in invalid bytes: an interrupted edit, or damage.
    pub is_torn: bool,
}

impl Manifest {
    /// Reads the manifest in any state. Writes nothing.
    ///
    /// # Errors
    /// I/O errors; `Refused` for another engine's manifest or one of a newer version.
    pub fn salvage(vfs: &Arc<dyn Vfs>, engine: &str) -> Result<ManifestSalvage> {
        let read = |current: Current| -> Result<ManifestSalvage> {
            let mut edits = Vec::new();
            let (_, reader) =
                read_numbered(vfs.as_ref(), engine, current, |_, edit| edits.push(edit.to_vec()))?;
            let is_torn = matches!(reader.end(), Some(LogEnd::Torn { .. }));
            let name = Some(manifest_name(current.number));
            Ok(ManifestSalvage { edits: Some(edits), name, damage: None, is_torn })
        };
        let is_damage = |error: &Error| error.is_corruption() || error.is_not_found();
        let current = match vfs.exists(CURRENT)? {
            true => read_current(vfs.as_ref()),
            false => Err(Error::corruption(CURRENT, 0, "it is missing")),
        };
        let damage = match current {
            Ok(current) => match read(current) {
                Err(error) if is_damage(&error) => (manifest_name(current.number), error),
                read => return read,
            },
            Err(error) if is_damage(&error) => (CURRENT.to_owned(), error),
            Err(other) => return Err(other),
        };
        let damage = match damage {
            (name, Error::Corruption { offset: 0, reason, .. }) => (name, reason),
            (name, Error::Corruption { offset, reason, .. }) => {
                (name, format!("{reason}, at byte {offset}"))
            }
            (name, _) => (name, "it is missing".to_owned()),
        };
        let newest = vfs.list()?.iter().filter_map(|name| manifest_number(name)).max();
        let salvage = match newest.filter(|_| damage.0 == CURRENT) {
            Some(number) => match read(Current { number, is_closed: false }) {
                Ok(salvage) => salvage,
                Err(error) if is_damage(&error) => ManifestSalvage::default(),
                Err(other) => return Err(other),
            },
            None => ManifestSalvage::default(),
        };
        Ok(ManifestSalvage { damage: Some(damage), ..salvage })
    }

    /// Puts a manifest that starts with `snapshot` into force and seals it. The previous one is
    /// quarantined together with `CURRENT`, unless `is_intact`.
    ///
    /// # Errors
    /// I/O errors.
    pub fn replace(
        vfs: &Arc<dyn Vfs>,
        engine: &str,
        snapshot: &[u8],
        is_intact: bool,
    ) -> Result<()> {
        if is_intact {
            let (mut manifest, _) = Manifest::open(vfs.clone(), engine)?;
            manifest.rewrite(snapshot)?;
            return manifest.close();
        }
        let mut next = 0;
        for name in vfs.list()?.iter().filter(|name| owns(name)) {
            next = next.max(manifest_number(name).unwrap_or(0));
            quarantine::finish_quarantine(vfs.as_ref(), name)?;
        }
        let manifest = Manifest::create_numbered(vfs.clone(), engine, snapshot, next)?;
        manifest.close()
    }
}
