//! `CURRENT`: the one file that says which manifest counts.
//!
//! It is written under another name, synced, and renamed into place. The directory is synced before
//! the rename too, so that `CURRENT` never names a manifest whose own name was lost. Its layout is
//! drawn in the module above; it is text, for the eyes of whoever repairs a store.
//!
//! Invariant: at any power cut `CURRENT` is wholly the old one or wholly the new one.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::{Media, Mode};

use crate::number::{FileNumber, parse_number};

pub(super) const CURRENT: &str = "CURRENT";
const TEMPORARY: &str = "CURRENT.tmp";
const PREFIX: &str = "MANIFEST-";
/// Longer than any `CURRENT` can be.
const MOST_BYTES: u64 = 64;

pub(super) fn manifest_name(number: u64) -> String {
    format!("{PREFIX}{}", FileNumber(number))
}

pub(super) fn manifest_number(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(PREFIX)?).map(|number| number.0)
}

pub(super) fn owns(name: &str) -> bool {
    name == CURRENT || name == TEMPORARY || manifest_number(name).is_some()
}

/// The number of the manifest that counts.
pub(super) fn read_current(media: &dyn Media) -> Result<u64> {
    let file = media.open(CURRENT, Mode::Read).map_err(|error| match error {
        error if error.is_not_found() => {
            Error::Refused { path: media.name(), reason: "there is no store here".into() }
        }
        error => error,
    })?;
    let len = file.len()?;
    if len > MOST_BYTES {
        return Err(Error::corruption(CURRENT, MOST_BYTES, "the file is too long"));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    parse(&bytes).ok_or_else(|| {
        Error::corruption(CURRENT, 0, "the file does not name a manifest with its checksum")
    })
}

/// Makes the manifest `name` the one that counts. The error says whether the rename had begun.
pub(super) fn write_current(media: &dyn Media, name: &str) -> Result<(), (Error, bool)> {
    let purpose = Purpose::Manifest;
    let prepare = || {
        if media.exists(TEMPORARY)? {
            media.remove(TEMPORARY)?;
        }
        let file = media.create(TEMPORARY)?;
        file.write_at(0, text(name).as_bytes(), purpose)?;
        file.sync(purpose)?;
        media.sync_dir(purpose)
    };
    prepare().map_err(|error| (error, false))?;
    let switch = || {
        media.rename(TEMPORARY, CURRENT)?;
        media.sync_dir(purpose)
    };
    switch().map_err(|error| (error, true))
}

fn text(name: &str) -> String {
    format!("{name} {:08x}\n", crc32c::crc32c(name.as_bytes()))
}

/// The number in these bytes, if they are exactly what would be written for it.
pub(super) fn parse(bytes: &[u8]) -> Option<u64> {
    let (name, _) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    let number = manifest_number(name)?;
    (text(name).as_bytes() == bytes).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_every_flipped_bit_of_current_found() {
        let mut bytes = text("MANIFEST-000012").into_bytes();
        assert_eq!(parse(&bytes), Some(12));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), None);
        }
    }
}
