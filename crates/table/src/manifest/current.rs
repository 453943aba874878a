//! `CURRENT`: the one file that says which manifest counts.
//!
//! It is written under another name, synced, and renamed into place. The directory is synced before
//! the rename too, so that `CURRENT` never names a manifest whose own name was lost. Its layout is
//! drawn in the module above; it is text, for the eyes of whoever repairs a store.
//!
//! Invariant: at any power cut `CURRENT` is wholly the old one or wholly the new one.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

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

/// What `CURRENT` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Current {
    /// The number of the manifest that counts.
    pub(super) number: u64,
    /// The manifest was sealed by a clean close: it is corruption if its end is missing.
    pub(super) is_closed: bool,
}

/// Which manifest counts.
pub(super) fn read_current(vfs: &dyn Vfs) -> Result<Current> {
    let file = vfs.open(CURRENT, Mode::Read).map_err(|error| match error {
        error if error.is_not_found() => Error::Refused {
            path: vfs.name(),
            reason: "there is no CURRENT, which would name a manifest".into(),
        },
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

/// Makes this manifest the one that counts. The error says whether the rename had begun.
pub(super) fn write_current(vfs: &dyn Vfs, current: Current) -> Result<(), (Error, bool)> {
    let purpose = Purpose::Manifest;
    let prepare = || {
        if vfs.exists(TEMPORARY)? {
            vfs.remove(TEMPORARY)?;
        }
        let file = vfs.create(TEMPORARY)?;
        file.write_at(0, text(current).as_bytes(), purpose)?;
        file.sync(purpose)?;
        vfs.sync_dir(purpose)
    };
    prepare().map_err(|error| (error, false))?;
    let switch = || {
        vfs.rename(TEMPORARY, CURRENT)?;
        vfs.sync_dir(purpose)
    };
    switch().map_err(|error| (error, true))
}

fn text(current: Current) -> String {
    let name = manifest_name(current.number);
    let label = if current.is_closed { format!("{name} closed") } else { name };
    format!("{label} {:08x}\n", crc32c::crc32c(label.as_bytes()))
}

/// What these bytes say, if they are exactly what would be written for it.
pub(super) fn parse(bytes: &[u8]) -> Option<Current> {
    let (name, rest) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    let number = manifest_number(name)?;
    let current = Current { number, is_closed: rest.starts_with("closed ") };
    (text(current).as_bytes() == bytes).then_some(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_every_flipped_bit_of_current_found() {
        for is_closed in [false, true] {
            let current = Current { number: 12, is_closed };
            let mut bytes = text(current).into_bytes();
            assert_eq!(parse(&bytes), Some(current));
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
}
