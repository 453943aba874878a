//! Master keys and where they come from.
//!
//! A master key wraps the random key of each file and encrypts nothing else. Its [`KeyId`] is
//! computed from it, stands in the header of each file, and shows nothing of the key.
//!
//! Invariants: key bytes are zeroized when they are dropped, and no `Debug` prints them.

use std::fmt;
use std::io::Read;
use std::path::Path;

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, ChaCha20Poly1305, KeyInit};
use siltstone_engine::{Error, Result};
use zeroize::Zeroizing;

use crate::system;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// A key file is read up to this size.
const MAX_KEY_FILE_BYTES: u64 = 16 << 10;

/// The key id is the tag of the empty message under this associated data and the zero nonce, which
/// is used with a master key for nothing else: files' keys are wrapped with XChaCha20.
const KEY_ID_CONTEXT: &[u8] = b"siltstone key id 1";

/// Identifies a [`MasterKey`]. Not secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub(super) [u8; 16]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// A key that wraps the keys of files.
#[derive(Clone)]
pub struct MasterKey {
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    id: KeyId,
}

impl MasterKey {
    /// The key of these bytes, which must come from a secure random number generator.
    #[must_use]
    pub fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let cipher = ChaCha20Poly1305::new(bytes.into());
        let tag = cipher.encrypt_inout_detached(
            &[0; 12].into(),
            KEY_ID_CONTEXT,
            InOutBuf::from(&mut [][..]),
        );
        let id = KeyId(tag.expect("an empty message is not too long").into());
        MasterKey { bytes: Zeroizing::new(*bytes), id }
    }

    /// A random key.
    ///
    /// # Errors
    /// `Io` if the system has no random numbers.
    pub fn generate() -> Result<Self> {
        Ok(Self::new(&*random::<KEY_BYTES>()?))
    }

    /// The key in 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        if digits.len() != 2 * KEY_BYTES {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            let [high, low] = pair.map(|digit| char::from(digit).to_digit(16));
            *byte = (high? << 4 | low?) as u8;
        }
        Some(Self::new(&bytes))
    }

    /// Identifies the key.
    #[must_use]
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.bytes
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MasterKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Where master keys come from, e.g. a key management service.
pub trait KeyProvider: Send + Sync {
    /// The key for new files.
    fn current(&self) -> MasterKey;

    /// The key with this id, for existing files; `None` if there is none.
    fn key(&self, id: KeyId) -> Option<MasterKey>;
}

/// Keys in memory: the current one, and earlier ones.
#[derive(Clone, Debug)]
pub struct KeyRing {
    current: MasterKey,
    earlier: Vec<MasterKey>,
}

impl KeyRing {
    /// A ring of `current` and the `earlier` keys.
    #[must_use]
    pub fn new(current: MasterKey, earlier: Vec<MasterKey>) -> Self {
        KeyRing { current, earlier }
    }

    /// Reads a key file; see [`parse`](Self::parse). Nobody but its owner may have access to it.
    ///
    /// # Errors
    /// `Invalid` if others have access or a line is not a key; `Io`.
    pub fn read_file(path: &Path) -> Result<Self> {
        let name = path.display();
        let fault = |error| Error::io("read key file", name.to_string(), &error);
        let mut file = std::fs::File::open(path).map_err(fault)?;
        if let Some(mode) = system::foreign_access(&file.metadata().map_err(fault)?) {
            return Err(Error::Invalid(format!(
                "key file {name}: others have access to it (mode {mode:03o}): chmod 600 {name}"
            )));
        }
        // Large enough that reading a file of a few keys moves no bytes that are not zeroized.
        let mut text = Zeroizing::new(String::with_capacity(MAX_KEY_FILE_BYTES as usize));
        file.by_ref().take(MAX_KEY_FILE_BYTES).read_to_string(&mut text).map_err(fault)?;
        Self::parse(&text).map_err(|error| Error::Invalid(format!("{name}: {error}")))
    }

    /// Parses the text of a key file: one key of 64 hexadecimal digits per line, the current one
    /// first. Empty lines and lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// `Invalid` with the number of the first line that is not a key, or if there is none. The
    /// message does not contain the line.
    pub fn parse(text: &str) -> Result<Self> {
        let mut keys = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            keys.push(MasterKey::from_hex(line).ok_or_else(|| {
                Error::Invalid(format!(
                    "line {} of the key file is not a key of 64 hexadecimal digits",
                    at + 1
                ))
            })?);
        }
        if keys.is_empty() {
            return Err(Error::Invalid("the key file has no key".into()));
        }
        let current = keys.remove(0);
        Ok(KeyRing { current, earlier: keys })
    }
}

impl KeyProvider for KeyRing {
    fn current(&self) -> MasterKey {
        self.current.clone()
    }

    fn key(&self, id: KeyId) -> Option<MasterKey> {
        std::iter::once(&self.current).chain(&self.earlier).find(|key| key.id == id).cloned()
    }
}

/// Random bytes of the operating system.
pub(super) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(&mut *bytes).map_err(|error| {
        Error::io("generate", "a key", &std::io::Error::other(error.to_string()))
    })?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_is_not_printed_and_ids_differ() {
        let (one, other) = (MasterKey::new(&[7; 32]), MasterKey::new(&[8; 32]));
        assert_ne!(one.id(), other.id());
        let ring = KeyRing::new(one.clone(), vec![other]);
        let printed = format!("{one:?} {ring:?}");
        assert!(!printed.contains("7, 7") && !printed.contains("0707"), "{printed}");
        assert!(ring.key(one.id()).is_some() && ring.key(KeyId([0; 16])).is_none());
    }

    #[test]
    fn malformed_key_file_is_refused_without_its_content() {
        let good = "0123456789abcdefABCDEF0123456789abcdef0123456789abcdef0123456789";
        let ring = KeyRing::parse(&format!("# keys\n\n{good}\n{}\n", "ab".repeat(32))).unwrap();
        assert_eq!(ring.current().id(), MasterKey::from_hex(good).unwrap().id());
        assert_eq!(ring.earlier.len(), 1);
        for bad in ["", "# none\n", "xyz", &good[1..], &format!("{good}\n{good}0"), &"g".repeat(64)]
        {
            let error = KeyRing::parse(bad).unwrap_err().to_string();
            assert!(!error.contains(good) && !error.contains("xyz"), "{error}");
        }
    }
}
