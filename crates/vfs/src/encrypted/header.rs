//! The header of an encrypted file: the file's own key, wrapped by a master key.
//!
//! ```text
// ANCHOR: header
//! header := text:32  zeros to 64  slot  zeros to 2112  slot  zeros to 4096        4,096 bytes
//! text   := "siltstone-catalogue 4 encrypted\n"
//! slot   := magic:"SILTCRYP"  version:u8  suite:u8  0:u16
//!           key id:16  nonce:24  wrapped key:32  tag:16  crc32c:u32    104 bytes
//!   version 1
//!   suite   1 = keys wrapped by XChaCha20-Poly1305, frames by ChaCha20-Poly1305
//! ```
// ANCHOR_END: header
//!
//! The tag also covers the bytes before the nonce, and the identity of the file: its path in the
//! store. So a file under another name does not open. The checksum covers the slot before it; it
//! separates a damaged slot from one of another identity.
//!
//! Either slot suffices. A change of identity or of the master key writes one slot, syncs, and then
//! writes the other one; of a new identity, only when the new name is durable. Until then the file
//! has a slot for each of the two names that a power cut may leave.
//!
//! A reader refuses a greater version or suite by number. The text is that of a catalogue of
//! version 4: a program from before encryption refuses it by that number. It is the same in all
//! files.

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, KeyInit, XChaCha20Poly1305};
use siltstone_engine::{Error, Result};
use zeroize::Zeroizing;

use super::MAGIC;
use super::key::{KEY_BYTES, KeyId, KeyProvider, MasterKey, random};

/// Bytes of the header.
pub(super) const HEADER_BYTES: u64 = 4096;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 104;
/// Where the slots are.
pub(super) const SLOT_OFFSETS: [u64; 2] = crate::ENCRYPTED_MAGIC_OFFSETS;
/// The beginning of each file.
const TEXT: &[u8; 32] = b"siltstone-catalogue 4 encrypted\n";

const VERSION: u8 = 1;
const SUITE: u8 = 1;
const NONCE_AT: usize = 28;
const KEY_AT: usize = 52;
const TAG_AT: usize = 84;
const CRC_AT: usize = 100;

/// The key of one file.
pub(super) type FileKey = Zeroizing<[u8; KEY_BYTES]>;

/// The decoded header of a file.
pub(super) enum Header {
    /// The key of the file, and the master key that wraps it.
    Valid(FileKey, KeyId),
    /// Both slots are damaged, or belong to another file.
    Invalid(&'static str),
}

/// A slot that wraps `file_key` for the file `identity`.
pub(super) fn encode_slot(
    master: &MasterKey,
    file_key: &FileKey,
    identity: &str,
) -> Result<[u8; SLOT_BYTES]> {
    let mut slot = [0; SLOT_BYTES];
    slot[..8].copy_from_slice(MAGIC);
    (slot[8], slot[9]) = (VERSION, SUITE);
    slot[12..NONCE_AT].copy_from_slice(&master.id().0);
    let nonce = random::<24>()?;
    slot[NONCE_AT..KEY_AT].copy_from_slice(&*nonce);
    let associated = associated_data(&slot, identity);
    let mut wrapped = file_key.clone();
    let tag = XChaCha20Poly1305::new(master.bytes().into())
        .encrypt_inout_detached((&*nonce).into(), &associated, InOutBuf::from(&mut wrapped[..]))
        .map_err(|_| Error::Invalid(format!("the name '{identity}' is too long")))?;
    slot[KEY_AT..TAG_AT].copy_from_slice(&*wrapped);
    slot[TAG_AT..CRC_AT].copy_from_slice(&tag);
    let crc = crc32c::crc32c(&slot[..CRC_AT]);
    slot[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    Ok(slot)
}

/// A header with `slot` twice.
pub(super) fn page(slot: &[u8; SLOT_BYTES]) -> Vec<u8> {
    let mut page = vec![0; HEADER_BYTES as usize];
    page[..TEXT.len()].copy_from_slice(TEXT);
    for at in SLOT_OFFSETS {
        page[at as usize..][..SLOT_BYTES].copy_from_slice(slot);
    }
    page
}

/// The intact slots of the beginning of a file.
pub(super) fn intact_slots(page: &[u8]) -> [Option<&[u8; SLOT_BYTES]>; 2] {
    SLOT_OFFSETS.map(|at| {
        let slot = page.get(at as usize..)?.first_chunk::<SLOT_BYTES>()?;
        let crc = crc32c::crc32c(&slot[..CRC_AT]).to_le_bytes();
        (slot.starts_with(MAGIC) && slot[CRC_AT..] == crc).then_some(slot)
    })
}

/// The first slot that opens for the file `identity`.
pub(super) fn valid_slot(page: &[u8], identity: &str, keys: &dyn KeyProvider) -> Option<usize> {
    intact_slots(page).iter().position(|slot| {
        let opens = |master| slot.is_some_and(|slot| unwrap(slot, &master, identity).is_some());
        slot.and_then(|slot| keys.key(key_id(slot))).is_some_and(opens)
    })
}

/// The first byte of a header that belongs to no slot and is not what it has to be.
pub(super) fn first_other_byte(page: &[u8]) -> Option<usize> {
    let is_slot = |at: usize| {
        SLOT_OFFSETS.iter().any(|&slot| (at as u64).wrapping_sub(slot) < SLOT_BYTES as u64)
    };
    let expected = |at: usize| TEXT.get(at).copied().unwrap_or(0);
    (0..page.len()).find(|&at| !is_slot(at) && page[at] != expected(at))
}

/// The id of the master key of an intact slot.
pub(super) fn key_id(slot: &[u8; SLOT_BYTES]) -> KeyId {
    KeyId(std::array::from_fn(|i| slot[12 + i]))
}

/// Reads the header of the file `identity` from the first bytes of the file; `path` is for
/// messages.
///
/// # Errors
/// `Refused` for a newer version, and if no key opens a slot because the key is not known.
pub(super) fn decode(
    page: &[u8],
    identity: &str,
    path: &str,
    keys: &dyn KeyProvider,
) -> Result<Header> {
    let refuse = |reason: String| Err(Error::Refused { path: path.to_owned(), reason });
    let mut unknown = None;
    let mut reason = "it is not an encrypted file, or its header is damaged";
    for slot in intact_slots(page).into_iter().flatten() {
        if slot[8] > VERSION || slot[9] > SUITE {
            return refuse(format!(
                "encrypted in format {} with suite {}; this program reads up to format {VERSION} \
                 and suite {SUITE}: use a newer siltstone",
                slot[8], slot[9]
            ));
        }
        let id = key_id(slot);
        let Some(master) = keys.key(id) else {
            unknown = Some(id);
            continue;
        };
        match unwrap(slot, &master, identity) {
            Some(key) => return Ok(Header::Valid(key, id)),
            None => reason = "its header belongs to a file of another name, or was changed",
        }
    }
    match unknown {
        Some(id) => refuse(format!(
            "encrypted with the key {id}, which is not among the given ones (their current one is {}): \
             give the key that it was written with",
            keys.current().id()
        )),
        None => Ok(Header::Invalid(reason)),
    }
}

fn unwrap(slot: &[u8; SLOT_BYTES], master: &MasterKey, identity: &str) -> Option<FileKey> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    key.copy_from_slice(&slot[KEY_AT..TAG_AT]);
    let nonce: [u8; 24] = std::array::from_fn(|i| slot[NONCE_AT + i]);
    let tag: [u8; 16] = std::array::from_fn(|i| slot[TAG_AT + i]);
    let associated = associated_data(slot, identity);
    XChaCha20Poly1305::new(master.bytes().into())
        .decrypt_inout_detached(
            &nonce.into(),
            &associated,
            InOutBuf::from(&mut key[..]),
            &tag.into(),
        )
        .ok()?;
    Some(key)
}

fn associated_data(slot: &[u8; SLOT_BYTES], identity: &str) -> Vec<u8> {
    [&slot[..NONCE_AT], identity.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encrypted::KeyRing;

    fn ring(byte: u8) -> KeyRing {
        KeyRing::new(MasterKey::new(&[byte; 32]), Vec::new())
    }

    #[test]
    fn header_opens_for_its_file_and_key_alone() {
        let (keys, file_key) = (ring(1), Zeroizing::new([9; 32]));
        let page = page(&encode_slot(&keys.current(), &file_key, "t/a").unwrap());
        match decode(&page, "t/a", "a", &keys).unwrap() {
            Header::Valid(key, id) => assert_eq!((key, id), (file_key, keys.current().id())),
            Header::Invalid(reason) => panic!("{reason}"),
        }
        assert!(matches!(decode(&page, "t/b", "b", &keys).unwrap(), Header::Invalid(_)));
        let error = decode(&page, "t/a", "a", &ring(2)).map(|_| ()).unwrap_err();
        assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("not among")));
    }

    #[test]
    fn every_flipped_bit_of_one_slot_is_found_and_survived() {
        let (keys, file_key) = (ring(1), Zeroizing::new([9; 32]));
        let good = page(&encode_slot(&keys.current(), &file_key, "a").unwrap());
        for slot in SLOT_OFFSETS {
            for bit in 0..SLOT_BYTES * 8 {
                let mut bad = good.clone();
                bad[slot as usize + bit / 8] ^= 1 << (bit % 8);
                assert_eq!(intact_slots(&bad).iter().flatten().count(), 1, "bit {bit}");
                assert!(matches!(decode(&bad, "a", "a", &keys), Ok(Header::Valid(..))));
            }
        }
    }

    #[test]
    fn newer_format_is_refused_by_number() {
        let keys = ring(1);
        let mut slot = encode_slot(&keys.current(), &Zeroizing::new([9; 32]), "a").unwrap();
        slot[8] = 9;
        let crc = crc32c::crc32c(&slot[..CRC_AT]).to_le_bytes();
        slot[CRC_AT..].copy_from_slice(&crc);
        let error = decode(&page(&slot), "a", "a", &keys).map(|_| ()).unwrap_err();
        assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("format 9")));
    }
}
