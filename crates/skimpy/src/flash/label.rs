//! The first sector of a device in files, which identifies it.
//!
//! ```text
//!    0  "SILTFLSH"               8 bytes
//!    8  version                  u32, 1
//!   12  page_bytes               u32
//!   16  pages_per_block          u32
//!   20  blocks                   u32
//!   24  form                     u32, 1 one file, 2 one file per zone
//!   28  CRC-32C of bytes 0..28   u32
//!   32  zeros up to 512
//! ```
//!
//! All numbers are little-endian. *Upgrade rule:* a reader accepts only its own version. Any change
//! of these files is a new version, whose reader defines what it does with older ones. Version and
//! checksum keep their position and meaning.

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::File;

use super::Geometry;

/// The size of the label.
pub(super) const LABEL_BYTES: u64 = 512;

const MAGIC: &[u8; 8] = b"SILTFLSH";
const VERSION: u32 = 1;

/// How the pages are arranged in files; the number in the label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    OneFile = 1,
    Zones = 2,
}

pub(super) fn write(file: &dyn File, geometry: &Geometry, form: Form) -> Result<()> {
    let mut label = [0; LABEL_BYTES as usize];
    label[..8].copy_from_slice(MAGIC);
    let numbers = [
        VERSION,
        geometry.page_bytes() as u32,
        geometry.pages_per_block(),
        geometry.blocks(),
        form as u32,
    ];
    for (cell, number) in label[8..28].chunks_exact_mut(4).zip(numbers) {
        cell.copy_from_slice(&number.to_le_bytes());
    }
    let sum = crc32c::crc32c(&label[..28]);
    label[28..32].copy_from_slice(&sum.to_le_bytes());
    file.write_at(0, &label, Purpose::Manifest)
}

/// The geometry in a device's label.
pub(super) fn geometry(file: &dyn File, name: &str) -> Result<Geometry> {
    let [page_bytes, pages_per_block, blocks, _] = read(file, name)?;
    Geometry::new(page_bytes, pages_per_block, blocks)
}

/// Checks that the file is a device of this geometry and form.
pub(super) fn check(file: &dyn File, name: &str, geometry: &Geometry, form: Form) -> Result<()> {
    let refuse = |reason: String| Err(Error::Refused { path: name.into(), reason });
    let [page_bytes, pages_per_block, blocks, is_form] = read(file, name)?;
    if is_form != form as u32 {
        return refuse(
            "it is a flash device of the other layout: one file, or one file per zone".into(),
        );
    }
    let is = [page_bytes, pages_per_block, blocks];
    let wanted = [geometry.page_bytes() as u32, geometry.pages_per_block(), geometry.blocks()];
    match is == wanted {
        true => Ok(()),
        false => refuse(format!(
            "it is a device of another geometry: {}, but the options give {}",
            describe(is),
            describe(wanted)
        )),
    }
}

/// The fields of the label: bytes per page, pages per block, blocks, form.
fn read(file: &dyn File, name: &str) -> Result<[u32; 4]> {
    let damaged = |reason: &str| Err(Error::corruption(name, 0, reason));
    if file.len()? < LABEL_BYTES {
        return damaged("it is too short for the label of a flash device");
    }
    let mut label = [0; LABEL_BYTES as usize];
    file.read_at(0, &mut label, Purpose::Recovery)?;
    let number =
        |at: usize| u32::from_le_bytes([label[at], label[at + 1], label[at + 2], label[at + 3]]);
    // Checked first, so that a damaged version is not mistaken for another version.
    if number(28) != crc32c::crc32c(&label[..28]) {
        return damaged("the label has a wrong checksum");
    }
    if &label[..8] != MAGIC {
        return damaged("it is not a flash device: it does not begin with SILTFLSH");
    }
    if number(8) != VERSION {
        let version = number(8);
        let reason = format!(
            "it is a flash device of version {version}, and this program reads version {VERSION}"
        );
        return Err(Error::Refused { path: name.into(), reason });
    }
    Ok([number(12), number(16), number(20), number(24)])
}

fn describe([page_bytes, pages_per_block, blocks]: [u32; 3]) -> String {
    format!("{blocks} blocks of {pages_per_block} pages of {page_bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_vfs::{Ram, Vfs};

    fn labelled(spoil: impl Fn(&mut [u8])) -> Result<[u32; 4]> {
        let vfs = Ram::new();
        let file = vfs.create("flash").unwrap();
        let geometry = Geometry::new(4096, 8, 16).unwrap();
        write(&*file, &geometry, Form::OneFile).unwrap();
        let mut label = [0; LABEL_BYTES as usize];
        file.read_at(0, &mut label, Purpose::Recovery).unwrap();
        spoil(&mut label);
        file.write_at(0, &label, Purpose::Recovery).unwrap();
        read(&*file, "flash")
    }

    #[test]
    fn flipped_bit_is_corruption_and_not_another_version() {
        assert_eq!(labelled(|_| ()).unwrap(), [4096, 8, 16, 1]);
        for bit in 0..32 * 8 {
            let found = labelled(|label| label[bit / 8] ^= 1 << (bit % 8));
            assert!(matches!(found, Err(Error::Corruption { .. })), "bit {bit}: {found:?}");
        }
    }

    #[test]
    fn other_version_is_rejected_with_its_number() {
        let found = labelled(|label| {
            label[8] = 7;
            let sum = crc32c::crc32c(&label[..28]);
            label[28..32].copy_from_slice(&sum.to_le_bytes());
        });
        let Err(Error::Refused { reason, .. }) = found else { panic!("{found:?}") };
        assert!(reason.contains("version 7") && reason.contains("version 1"), "{reason}");
    }
}
