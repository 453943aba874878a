//! Reading and replacing the manifest of a damaged table.
//!
//! ```text
//!   CURRENT holds, its manifest holds        that one
//!   CURRENT is damaged or missing            the manifest of the highest number, if all of it holds
//!   else                                     none: the files have to tell
//! ```
//!
//! There is one manifest, or for a moment two, of which the older one is superseded or the newer
//! one says the same and one edit more, whose files are durable. So without `CURRENT` the highest
//! number is right.
//!
//! Invariant: a manifest that does not hold stays in the directory under another name.

use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_vfs::Vfs;

use super::current::{CURRENT, Current, manifest_name, manifest_number, owns, read_current};
use super::{Manifest, read_numbered};
use crate::aside;
use crate::log::LogEnd;

/// What can be read of a manifest.
#[derive(Debug, Default)]
pub struct Rescued {
    /// The snapshot and the edits since; `None` if no manifest holds.
    pub edits: Option<Vec<Vec<u8>>>,
    /// The manifest that was read.
    pub name: Option<String>,
    /// What does not hold, of the manifest or of `CURRENT`: the file, and the reason.
    pub damage: Option<(String, String)>,
    /// The manifest ends with bytes that are no edit: one that was cut off, or damage.
    pub is_torn: bool,
}

impl Manifest {
    /// Reads what is there of the manifest, in whatever state it is. Changes nothing.
    ///
    /// # Errors
    /// The medium's; `Refused` for another engine's manifest or one of a newer version.
    pub fn rescue(vfs: &Arc<dyn Vfs>, engine: &str) -> Result<Rescued> {
        let read = |current: Current| -> Result<Rescued> {
            let mut edits = Vec::new();
            let (_, reader) =
                read_numbered(vfs.as_ref(), engine, current, |_, edit| edits.push(edit.to_vec()))?;
            let is_torn = matches!(reader.end(), Some(LogEnd::Torn { .. }));
            let name = Some(manifest_name(current.number));
            Ok(Rescued { edits: Some(edits), name, damage: None, is_torn })
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
        let rescued = match newest.filter(|_| damage.0 == CURRENT) {
            Some(number) => match read(Current { number, is_closed: false }) {
                Ok(rescued) => rescued,
                Err(error) if is_damage(&error) => Rescued::default(),
                Err(other) => return Err(other),
            },
            None => Rescued::default(),
        };
        Ok(Rescued { damage: Some(damage), ..rescued })
    }

    /// Puts a manifest that begins with `snapshot` into force and seals it. Unless `is_sound` says
    /// that the one before holds, it is kept with `CURRENT` under other names.
    ///
    /// # Errors
    /// The medium's.
    pub fn replace(
        vfs: &Arc<dyn Vfs>,
        engine: &str,
        snapshot: &[u8],
        is_sound: bool,
    ) -> Result<()> {
        if is_sound {
            let (mut manifest, _) = Manifest::open(vfs.clone(), engine)?;
            manifest.rewrite(snapshot)?;
            return manifest.close();
        }
        let mut next = 0;
        for name in vfs.list()?.iter().filter(|name| owns(name)) {
            next = next.max(manifest_number(name).unwrap_or(0));
            aside::leave(vfs.as_ref(), name)?;
        }
        let manifest = Manifest::create_numbered(vfs.clone(), engine, snapshot, next)?;
        manifest.close()
    }
}
