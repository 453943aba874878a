//! `CURRENT`: names the manifest in force.
//!
//! It is written under a temporary name, synced, and renamed into place. The directory is also
//! synced before the rename, so that `CURRENT` never names a manifest whose own name was lost. The
//! layout is drawn in [`super`]; it is text, readable during a manual repair.
//!
//! Invariant: at any power cut `CURRENT` is entirely the old one or entirely the new one.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use crate::number::{FileNumber, parse_number};

pub(super) const CURRENT: &str = "CURRENT";
const TEMP_NAME: &str = "CURRENT.tmp";
const PREFIX: &str = "MANIFEST-";
/// An upper bound of the size of `CURRENT`.
const MAX_BYTES: u64 = 64;

pub(super) fn manifest_name(number: u64) -> String {
    format!("{PREFIX}{}", FileNumber(number))
}

pub(super) fn manifest_number(name: &str) -> Option<u64> {
    parse_number(name.strip_prefix(PREFIX)?).map(|number| number.0)
}

pub(super) fn owns(name: &str) -> bool {
    name == CURRENT || name == TEMP_NAME || manifest_number(name).is_some()
}

/// The contents of `CURRENT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Current {
    /// The number of the manifest in force.
    pub(super) number: u64,
    /// The manifest was sealed by a clean close: a missing end is corruption.
    pub(super) is_closed: bool,
}

/// Reads which manifest is in force.
pub(super) fn read_current(vfs: &dyn Vfs) -> Result<Current> {
    let file = vfs.open(CURRENT, Mode::Read).map_err(|error| match error {
        error if error.is_not_found() => Error::Refused {
            path: vfs.name(),
            reason: "CURRENT, which names the manifest, is missing".into(),
        },
        error => error,
    })?;
    let len = file.len()?;
    if len > MAX_BYTES {
        return Err(Error::corruption(CURRENT, MAX_BYTES, "the file is too long"));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    parse(&bytes).ok_or_else(|| {
        Error::corruption(CURRENT, 0, "the file does not name a manifest with its checksum")
    })
}

/// Puts this manifest into force. The error states whether the rename had started.
pub(super) fn write_current(vfs: &dyn Vfs, current: Current) -> Result<(), (Error, bool)> {
    let purpose = Purpose::Manifest;
    let prepare = || {
        if vfs.exists(TEMP_NAME)? {
            vfs.remove(TEMP_NAME)?;
        }
        let file = vfs.create(TEMP_NAME)?;
        file.write_at(0, encode(current).as_bytes(), purpose)?;
        file.sync(purpose)?;
        vfs.sync_dir(purpose)
    };
    prepare().map_err(|error| (error, false))?;
    let switch = || {
        vfs.rename(TEMP_NAME, CURRENT)?;
        vfs.sync_dir(purpose)
    };
    switch().map_err(|error| (error, true))
}

fn encode(current: Current) -> String {
    let name = manifest_name(current.number);
    let label = if current.is_closed { format!("{name} closed") } else { name };
    format!("{label} {:08x}\n", crc32c::crc32c(label.as_bytes()))
}

/// Parses `CURRENT`; `None` unless re-encoding gives the same bytes.
pub(super) fn parse(bytes: &[u8]) -> Option<Current> {
    let (name, rest) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    let number = manifest_number(name)?;
    let current = Current { number, is_closed: rest.starts_with("closed ") };
    (encode(current).as_bytes() == bytes).then_some(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_current_is_detected() {
        for is_closed in [false, true] {
            let current = Current { number: 12, is_closed };
            let mut bytes = encode(current).into_bytes();
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
